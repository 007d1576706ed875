package graph

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"unsafe"
)

// Collector collects images, again and again. It keeps its tables between
// calls; the encoded pools of an image are valid until the next call. The zero
// value is ready, but serves one goroutine at a time.
type Collector struct {
	env   *Env
	roots []Root
	names *resolver
	types []reflect.Type // of the roots, to see whether names is still right

	items   []item
	head    int             // next item to walk
	rootEnd []int           // items up to rootEnd[r] were reached from roots 0…r
	seen    table           // end of a piece that was walked → its start
	begun   table           // start of a slice that was walked → its end
	made    table           // map, box, stand-in, zero-size value → its item
	keep    []any           // memory of stand-ins
	timers  map[*hchan]bool // channels that belong to timers
	keys    []key           // scratch for the sweep
	pieces  []piece         // merged
	where   []int32         // item → piece, or -1 for items that stand alone

	dyn      []*plan          // dynamic types, in order of discovery
	dynIndex map[*plan]uint32 // +1
	ifaces   map[unsafe.Pointer]*plan
	inRoots  []span // see inRoot; none: not made
	zones    zoneCache
	owners   map[*plan]int // what leads to a type: a root, or ^ a dynamic type

	image *Image
	bufs  [][]byte
}

// via says how an item was reached.
type via uint8

const (
	viaRoot via = iota
	viaPtr
	viaSlice
	viaString
	viaMap
	viaIface
	viaCodec
	viaSyncMap
	viaFunc
	viaChan
)

// item is a piece of memory that something refers to: n elements of p.
type item struct {
	ptr    unsafe.Pointer
	p      *plan
	n      uint64
	skip   uint64  // elements from the first that were walked already
	walk   uint64  // the others up to this one have still to be walked
	at     uintptr // byte offset in the parent where the reference lies
	parent int32   // item; -1 for roots
	via    via
	alone  bool // not part of the sweep
}

// end is the address after the item.
func (it *item) end() uintptr { return uintptr(it.ptr) + uintptr(it.n)*it.p.size }

// Check reports whether a root can be saved as it stands.
func Check(root Root, env *Env) error { return new(Collector).reach([]Root{root}, env) }

// Collect collects an image of the roots. Nothing may change them meanwhile, or
// while the pieces of pools without pointers are in use.
func Collect(roots []Root, env *Env) (*Image, error) { return new(Collector).Collect(roots, env) }

// Collect is like the function Collect.
func (c *Collector) Collect(roots []Root, env *Env) (*Image, error) {
	defer func() {
		// Keep no memory of the program alive until the next call.
		clear(c.items)
		clear(c.keep)
		c.roots, c.image = nil, nil
	}()
	if err := c.survey(roots, env); err != nil {
		return nil, err
	}
	return c.assemble()
}

func (c *Collector) reset(roots []Root, env *Env) {
	if env == nil {
		env = new(Env)
	}
	clear(c.items)
	clear(c.keep)
	c.env, c.roots = env, roots
	c.items, c.keep = c.items[:0], c.keep[:0]
	c.rootEnd, c.dyn, c.inRoots = c.rootEnd[:0], c.dyn[:0], c.inRoots[:0]
	c.seen.clear()
	c.begun.clear()
	c.made.clear()
	clear(c.timers)
	if c.ifaces == nil {
		c.ifaces = make(map[unsafe.Pointer]*plan)
	}
	c.dynIndex = make(map[*plan]uint32)
}

// rootPlans checks the roots and returns the plans of their types.
func rootPlans(roots []Root) ([]*plan, error) {
	ps := make([]*plan, len(roots))
	names := make(map[string]bool, len(roots))
	for i, r := range roots {
		v := reflect.ValueOf(r.Ptr)
		if v.Kind() != reflect.Pointer || v.IsNil() {
			return nil, &UnsupportedError{r.Name, fmt.Sprintf("%T", r.Ptr), "a root has to be a pointer to a variable"}
		}
		if names[r.Name] {
			return nil, &UnsupportedError{r.Name, fmt.Sprintf("%T", r.Ptr), "two roots have this name"}
		}
		names[r.Name] = true
		ps[i] = planOf(v.Type().Elem())
	}
	return ps, nil
}

// reach finds everything that is reachable.
func (c *Collector) reach(roots []Root, env *Env) error {
	ps, err := rootPlans(roots)
	if err != nil {
		return err
	}
	c.reset(roots, env)
	c.resolver(ps)
	for i, p := range ps {
		if k := p.t.Kind(); p.kind == kOpaque && (k == reflect.Chan || k == reflect.Func || k == reflect.UnsafePointer) {
			return &UnsupportedError{roots[i].Name, typeName(p.t), p.reason}
		}
		ptr := reflect.ValueOf(roots[i].Ptr).UnsafePointer()
		it := item{ptr: ptr, p: p, n: 1, walk: 1, parent: -1, alone: p.size == 0}
		if p.size > 0 && p.base.enc {
			low, fresh := c.seen.at(it.end(), p.base)
			if fresh || uintptr(ptr) < uintptr(*low) {
				*low = uint64(uintptr(ptr))
			}
		}
		if p.size == 0 {
			if v, fresh := c.made.at(uintptr(ptr), p); fresh {
				*v = uint64(i)
			}
		}
		c.items = append(c.items, it)
	}
	c.head = len(roots)
	for i := range roots {
		if err := c.walkItem(i); err != nil {
			return err
		}
		for ; c.head < len(c.items); c.head++ {
			if err := c.walkItem(c.head); err != nil {
				return err
			}
		}
		c.rootEnd = append(c.rootEnd, len(c.items))
	}
	return nil
}

// resolver makes sure that names knows the types of the roots.
func (c *Collector) resolver(ps []*plan) {
	ts := make([]reflect.Type, 0, len(ps)+len(c.env.Types))
	for _, p := range ps {
		ts = append(ts, p.t)
	}
	ts = append(ts, c.env.Types...)
	if c.names == nil || len(ts) != len(c.types) {
		c.names = nil
	} else {
		for i, t := range ts {
			if t != c.types[i] {
				c.names = nil
				break
			}
		}
	}
	if c.names == nil {
		c.names, c.types = newResolver(ps, c.env.Types), ts
	}
}

func (c *Collector) walkItem(i int) error {
	it := &c.items[i]
	if it.walk <= it.skip || !it.p.base.enc || it.p.size == 0 {
		return nil
	}
	b := it.p.base
	n, start := (it.walk-it.skip)*it.p.mult, it.ptr
	ptr := unsafe.Add(start, uintptr(it.skip)*it.p.size)
	for e := uint64(0); ; {
		if err := c.walkOps(b.walk, ptr, int32(i), uintptr(ptr)-uintptr(start)); err != nil {
			return err
		}
		if e++; e == n {
			return nil
		}
		ptr = unsafe.Add(ptr, b.size)
	}
}

// walkOps follows the references in the value at base, which lies at byte off
// of item i.
func (c *Collector) walkOps(ops []op, base unsafe.Pointer, i int32, off uintptr) error {
	for k := range ops {
		o := &ops[k]
		ptr, at := unsafe.Add(base, o.moff), off+o.moff
		switch o.kind {
		case opLoop:
			for e := range uintptr(o.n) {
				if err := c.walkOps(o.sub, unsafe.Add(ptr, e*o.mstep), i, at+e*o.mstep); err != nil {
					return err
				}
			}
		case opCheck:
			if err := c.check(o.p, ptr, i, at); err != nil {
				return err
			}
		case opRef:
			if err := c.walkRef(o.p, ptr, i, at); err != nil {
				return err
			}
		}
	}
	return nil
}

type sliceHeader struct {
	ptr      unsafe.Pointer
	len, cap int
}

type stringHeader struct {
	ptr unsafe.Pointer
	len int
}

type ifaceHeader struct{ tab, data unsafe.Pointer }

func (c *Collector) walkRef(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	switch p.kind {
	case kPtr:
		if q := *(*unsafe.Pointer)(ptr); q != nil {
			return c.push(q, p.elem, 1, viaPtr, i, at)
		}
	case kString:
		if s := (*stringHeader)(ptr); s.len > 0 {
			return c.push(s.ptr, p.elem, uint64(s.len), viaString, i, at)
		}
	case kSlice:
		if s := (*sliceHeader)(ptr); s.cap > 0 {
			return c.push(s.ptr, p.elem, uint64(s.cap), viaSlice, i, at)
		}
	case kMap:
		if m := *(*unsafe.Pointer)(ptr); m != nil {
			return c.pushMap(p, ptr, m, i, at)
		}
	case kIface:
		return c.walkIface(p, ptr, i, at)
	case kTime, kLoc:
		z, err := c.zones.of(p, ptr)
		if err != nil {
			return c.refuse(p, i, at, err.Error())
		}
		if z != nil && len(z.name) > 0 {
			return c.push(unsafe.Pointer(unsafe.StringData(z.name)), p.elem, uint64(len(z.name)), viaString, i, at)
		}
	case kFile:
		if _, ok := c.fileID(ptr); !ok {
			return c.refuse(p, i, at, "the file is not known to the run")
		}
	case kSyncMap, kCodec:
		return c.pushStandIn(p, ptr, i, at)
	case kFunc:
		return c.pushFunc(p, ptr, i, at)
	case kChan:
		return c.pushChan(p, ptr, i, at)
	case kTimer:
		return c.pushTimer(p, ptr, i, at)
	}
	return nil
}

// push records that something at byte at of item parent refers to n elements
// of p.
func (c *Collector) push(ptr unsafe.Pointer, p *plan, n uint64, v via, parent int32, at uintptr) error {
	it := item{ptr: ptr, p: p, n: n, at: at, parent: parent, via: v}
	switch {
	case p.size == 0:
		if p.kind == kOpaque { // as a runtime.Func: its address says all
			return c.refuse(p, parent, at, p.reason)
		}
		if k, fresh := c.made.at(uintptr(ptr), p); !fresh {
			z := &c.items[*k]
			z.n = max(z.n, n)
			return nil
		} else {
			*k = uint64(len(c.items))
		}
		it.alone = true
	case p.base.enc:
		it.walk = n
		low, fresh := c.seen.at(it.end(), p.base)
		if !fresh {
			if uintptr(*low) <= uintptr(ptr) {
				return nil
			}
			it.walk = uint64((uintptr(*low) - uintptr(ptr) + p.size - 1) / p.size)
		}
		*low = uint64(uintptr(ptr))
		if v == viaSlice && n > 1 {
			high, fresh := c.begun.at(uintptr(ptr), p.base)
			if !fresh {
				if uintptr(*high) >= it.end() {
					return nil
				}
				it.skip = uint64((uintptr(*high) - uintptr(ptr)) / p.size)
			}
			*high = uint64(it.end())
		}
	}
	return c.add(it)
}

func (c *Collector) add(it item) error {
	if len(c.items) >= 1<<31-2 {
		return fmt.Errorf("the state has more than %d pieces", len(c.items))
	}
	if len(c.items) == cap(c.items) {
		c.items = slices.Grow(c.items, max(64, len(c.items))) // fewer copies than append makes
	}
	c.items = append(c.items, it)
	return nil
}

// alone records an item that isn't part of the sweep, once for each (id, p).
func (c *Collector) alone(id unsafe.Pointer, p *plan, it item) error {
	if k, fresh := c.made.at(uintptr(id), p); fresh {
		*k = uint64(len(c.items))
		it.alone, it.walk = true, it.n
		return c.add(it)
	}
	return nil
}

func (c *Collector) walkIface(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	d, err := c.dynamic(p, ptr)
	if d == nil {
		return nil
	}
	if err != nil {
		return c.refuse(d, i, at, err.Error())
	}
	data := &(*ifaceHeader)(ptr).data
	switch {
	case d.kind == kPtr && d.t.Kind() == reflect.Pointer:
		return c.walkRef(d, unsafe.Pointer(data), i, at)
	case d.kind == kMap:
		return c.walkRef(d, unsafe.Pointer(data), i, at)
	case d.direct:
		if *data == nil {
			return nil
		}
		if d.kind == kOpaque {
			return c.refuse(d, i, at, d.reason)
		}
		return c.alone(unsafe.Pointer(data), d, item{ptr: unsafe.Pointer(data), p: d, n: 1, at: at, parent: i, via: viaIface})
	case d.size == 0:
		return c.push(*data, d, 1, viaIface, i, at)
	}
	return c.alone(*data, d, item{ptr: *data, p: d, n: 1, at: at, parent: i, via: viaIface})
}

// dynamic returns the plan of the value in the interface at ptr, or nil.
func (c *Collector) dynamic(p *plan, ptr unsafe.Pointer) (*plan, error) {
	tab := (*ifaceHeader)(ptr).tab
	if tab == nil {
		return nil, nil
	}
	d := c.ifaces[tab]
	if d == nil {
		d = planOf(reflect.NewAt(p.t, ptr).Elem().Elem().Type())
		c.ifaces[tab] = d
	}
	if c.dynIndex[d] == 0 {
		if err := c.names.check(d.t); err != nil {
			return d, err
		}
		c.dyn = append(c.dyn, d)
		c.dynIndex[d] = uint32(len(c.dyn))
	}
	return d, nil
}

func (c *Collector) fileID(ptr unsafe.Pointer) (uint64, bool) {
	f := *(*osFile)(ptr)
	if f == nil {
		return 0, true
	}
	if c.env.FileID == nil {
		return 0, false
	}
	id, ok := c.env.FileID(f)
	return uint64(id) + 1, ok && id >= 0
}

// check looks at a value that has no storage.
func (c *Collector) check(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	if p.kind == kIgnore {
		switch p.t.Name() {
		case "notifyList":
			if w := (*[2]uint32)(ptr); p.size >= 8 && w[0] != w[1] {
				return c.refuse(p, i, at, "a goroutine waits for the Cond")
			}
		case "Pool":
			f, ok := p.t.FieldByName("New")
			if ok && *(*unsafe.Pointer)(unsafe.Add(ptr, f.Offset)) != nil && !c.inRoot(ptr) {
				return c.refuse(p, i, at, "a sync.Pool with a New function can be saved only inside a variable")
			}
		}
		return nil
	}
	for _, b := range view(ptr, int(p.size)) {
		if b != 0 {
			return c.refuse(p, i, at, p.reason)
		}
	}
	return nil
}

// inRoot reports whether an address lies in a variable.
func (c *Collector) inRoot(ptr unsafe.Pointer) bool {
	if len(c.inRoots) == 0 {
		for k := range c.roots {
			if r := &c.items[k]; r.end() > uintptr(r.ptr) {
				c.inRoots = append(c.inRoots, span{uintptr(r.ptr), r.end()})
			}
		}
		slices.SortFunc(c.inRoots, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
		for i := 1; i < len(c.inRoots); i++ { // hi: where the last of them ends so far
			c.inRoots[i].hi = max(c.inRoots[i].hi, c.inRoots[i-1].hi)
		}
	}
	i := sort.Search(len(c.inRoots), func(i int) bool { return c.inRoots[i].lo > uintptr(ptr) }) - 1
	return i >= 0 && uintptr(ptr) < c.inRoots[i].hi
}

func (c *Collector) refuse(p *plan, i int32, at uintptr, reason string) error {
	return &UnsupportedError{c.path(i, at), typeName(p.t), reason}
}
