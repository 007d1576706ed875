package graph

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// Collector collects images, again and again. It keeps its tables between
// calls. The pools of an image are valid until the next call. The zero value is
// ready, but serves one goroutine at a time.
type Collector struct {
	// Remember keeps the places that objects have in their pools from one image
	// to the next, as far as that is possible, so that an object more or less
	// does not move all others. Pools of small objects are then not copied, but
	// encoded when they are asked for: see Pool.Gather.
	Remember bool

	env   *Env
	roots []Root
	names *resolver
	types []reflect.Type // of the roots, to see whether names is still right

	items    mem.Room[item]
	byID     []*plan         // plans of items
	head     int             // next item to walk
	lastRoot int             // that an item was reached from
	rootEnd  []int           // items up to rootEnd[r] were reached from roots 0…r
	partial  map[int]partial // items that need not be walked as a whole
	visits   visits          // single values that were reached
	seen     table           // end of a piece that was walked → its start
	begun    table           // start of a slice that was walked → its end
	made     table           // map, stand-in, zero-size value → its item, later its region
	keep     []any           // memory of stand-ins
	timers   map[*hchan]bool // channels that belong to timers
	trace    bool            // note how items were reached, for an error
	untold   bool            // an error lacks its path: trace, and try again
	traces   []trace

	order  mem.Room[uint32] // scratch for the sweep
	where  mem.Room[uint32] // item → piece, box or stand-in
	pieces sorted           // merged memory
	merged map[uint32]merged
	held   map[uint32]bool // pieces that a root covers all of
	boxes  sorted          // values in interfaces
	stands []standIn

	dyn      []*plan          // dynamic types, in order of discovery
	dynIndex map[*plan]uint32 // +1
	ifaces   map[unsafe.Pointer]*plan
	zones    zoneCache
	inRoots  []span        // see inRoot; none: not made
	owners   map[*plan]int // what leads to a type: a root, or ^ a dynamic type

	place placement // of the image that was collected last
	pools poolStates
	refs  mem.Room[uint32] // region → where its memory is
	lock  sync.Mutex
	idle  []*encoder
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

// item is a piece of memory that something refers to: n elements of a plan. It
// has an address instead of a pointer, because there may be millions, which the
// garbage collector need not look at: what they refer to is alive as long as the
// roots are, and keep.
type item struct {
	addr uintptr
	meta uint64 // n, plan, via, alone
}

const (
	maxElements = 1<<40 - 1 // of an item
	maxPlans    = 1 << 19
)

func newItem(addr uintptr, p *plan, n uint64, v via, alone bool) item {
	m := n<<24 | uint64(p.id)<<5 | uint64(v)<<1
	if alone {
		m |= 1
	}
	return item{addr, m}
}

func (it item) n() uint64   { return it.meta >> 24 }
func (it item) via() via    { return via(it.meta >> 1 & 15) }
func (it item) alone() bool { return it.meta&1 != 0 } // not part of the sweep

// plan is the type of an item's elements.
func (c *Collector) plan(it item) *plan { return c.byID[it.meta>>5&(maxPlans-1)] }

// end is the address after an item.
func (c *Collector) end(it item) uintptr { return it.addr + uintptr(it.n())*c.plan(it).size }

// partial says which elements of an item have to be walked.
type partial struct{ from, to uint64 }

// trace says how an item was reached.
type trace struct {
	at     uintptr // byte offset in the parent where the reference lies
	parent int32   // item; -1 for roots
}

// standIn is memory that stands for something else.
type standIn struct {
	addr uintptr
	num  uint32 // region
}

// Check reports whether a root can be saved as it stands.
func Check(root Root, env *Env) error {
	c := new(Collector)
	defer c.Close()
	return c.reach([]Root{root}, env)
}

// Collect collects an image of the roots. Nothing may change them meanwhile, or
// while the pieces of pools without pointers are in use.
func Collect(roots []Root, env *Env) (*Image, error) {
	c := new(Collector)
	defer c.Close()
	return c.Collect(roots, env)
}

// Outline is Collect for an image whose pools are not looked at.
func Outline(roots []Root, env *Env) (*Image, error) {
	c := &Collector{Remember: true}
	defer c.Close()
	img, err := c.Collect(roots, env)
	if err == nil {
		for i := range img.Pools {
			img.Pools[i].Gather, img.Pools[i].Pieces = nil, nil
		}
	}
	return img, err
}

// Collect is like the function Collect.
func (c *Collector) Collect(roots []Root, env *Env) (*Image, error) {
	c.place.turn(c)
	err := c.survey(roots, env)
	var img *Image
	if err == nil {
		img, err = c.assemble()
	}
	// What is left is what Gather needs. It keeps no memory of the program
	// alive but stand-ins.
	c.items.Drop()
	c.where.Drop()
	c.visits.drop()
	c.seen.drop()
	c.begun.drop()
	c.partial, c.traces = nil, nil
	if err != nil {
		c.Release()
		c.place.turn(c) // the next image continues the last one that there is
		return nil, err
	}
	if !c.Remember {
		c.Release()
		c.Forget()
	}
	return img, nil
}

// Release says that the pools of the image are not used any more. Places are
// still remembered.
func (c *Collector) Release() {
	clear(c.keep)
	c.keep = c.keep[:0]
	c.refs.Drop()
}

// Forget lets the next image have all objects in new places.
func (c *Collector) Forget() {
	c.place.drop()
	c.pieces.drop()
	c.boxes.drop()
	c.refs.Drop()
}

// Close gives the collector's memory back.
func (c *Collector) Close() {
	c.items.Close()
	c.order.Close()
	c.where.Close()
	c.refs.Close()
	c.pieces.close()
	c.boxes.close()
	c.place.close()
}

func (c *Collector) reset(roots []Root, env *Env) {
	if env == nil {
		env = new(Env)
	}
	clear(c.keep)
	c.env, c.roots = env, roots
	c.items.Open()
	c.keep, c.traces, c.partial, c.untold = c.keep[:0], c.traces[:0], nil, false
	c.rootEnd, c.dyn, c.inRoots = c.rootEnd[:0], c.dyn[:0], c.inRoots[:0]
	c.visits.clear()
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
	err := c.tryReach(roots, env)
	if err != nil && c.untold && !c.trace { // once more, to say where
		c.trace = true
		err = c.tryReach(roots, env)
	}
	return err
}

func (c *Collector) tryReach(roots []Root, env *Env) error {
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
		addr := uintptr(reflect.ValueOf(roots[i].Ptr).UnsafePointer())
		if p.size == 0 {
			if v, fresh := c.made.at(addr, p); fresh {
				*v = uint64(i)
			}
		} else if p.base.enc && addr&(1<<p.align-1) == 0 {
			c.visits.first(addr, p, 0)
		}
		if err := c.add(addr, p, 1, viaRoot, p.size == 0, -1, 0); err != nil {
			return err
		}
	}
	c.head = len(roots)
	for i := range roots {
		if err := c.walkItem(i); err != nil {
			return err
		}
		for ; c.head < len(c.items.S); c.head++ {
			if err := c.walkItem(c.head); err != nil {
				return err
			}
		}
		c.rootEnd = append(c.rootEnd, len(c.items.S))
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

// walkItem follows the references in an item.
func (c *Collector) walkItem(i int) error {
	it := c.items.S[i]
	p := c.plan(it)
	b := p.base
	if !b.enc || p.size == 0 {
		return nil
	}
	from, to := uint64(0), it.n()
	if len(c.partial) > 0 {
		if part, ok := c.partial[i]; ok {
			from, to = part.from, part.to
		}
	}
	if to <= from {
		return nil
	}
	start := address(it.addr)
	off := uintptr(from) * p.size
	for e := (to - from) * p.mult; ; {
		if err := c.walkOps(b.walk, unsafe.Add(start, off), int32(i), off); err != nil {
			return err
		}
		if e--; e == 0 {
			return nil
		}
		off += b.size
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
			if o.p.kind == kPtr { // most are
				if q := *(*uintptr)(ptr); q != 0 {
					if err := c.pushOne(q, o.p.elem, viaPtr, i, at); err != nil {
						return err
					}
				}
				continue
			}
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
		if q := *(*uintptr)(ptr); q != 0 {
			return c.pushOne(q, p.elem, viaPtr, i, at)
		}
	case kString:
		if s := (*stringHeader)(ptr); s.len > 0 {
			return c.push(uintptr(s.ptr), p.elem, uint64(s.len), viaString, i, at)
		}
	case kSlice:
		if s := (*sliceHeader)(ptr); s.cap > 0 {
			return c.push(uintptr(s.ptr), p.elem, uint64(s.cap), viaSlice, i, at)
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
			return c.push(uintptr(unsafe.Pointer(unsafe.StringData(z.name))), p.elem, uint64(len(z.name)), viaString, i, at)
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

// pushOne records that something at byte at of item parent refers to a value of
// p.
func (c *Collector) pushOne(addr uintptr, p *plan, v via, parent int32, at uintptr) error {
	if p.size == 0 || addr&(1<<p.align-1) != 0 {
		return c.push(addr, p, 1, v, parent, at)
	}
	if !c.visits.first(addr, p, 0) {
		return nil
	}
	return c.add(addr, p, 1, v, false, parent, at)
}

// push records that something at byte at of item parent refers to n elements
// of p.
func (c *Collector) push(addr uintptr, p *plan, n uint64, v via, parent int32, at uintptr) error {
	switch {
	case n > maxElements:
		return c.refuse(p, parent, at, "it has too many elements")
	case p.size == 0:
		if p.kind == kOpaque { // as a runtime.Func: its address says all
			return c.refuse(p, parent, at, p.reason)
		}
		if k, fresh := c.made.at(addr, p); !fresh {
			z := &c.items.S[*k]
			*z = newItem(z.addr, p, max(z.n(), n), z.via(), true)
			return nil
		} else {
			*k = uint64(len(c.items.S))
		}
		return c.add(addr, p, n, v, true, parent, at)
	case p.base.enc:
		part := partial{0, n}
		end := addr + uintptr(n)*p.size
		low, fresh := c.seen.at(end, p.base)
		if !fresh {
			if uintptr(*low) <= addr {
				return nil
			}
			part.to = uint64((uintptr(*low) - addr + p.size - 1) / p.size)
		}
		*low = uint64(addr)
		if v == viaSlice && n > 1 {
			high, fresh := c.begun.at(addr, p.base)
			if !fresh {
				if uintptr(*high) >= end {
					return nil
				}
				part.from = uint64((uintptr(*high) - addr) / p.size)
			}
			*high = uint64(end)
		}
		if part.from > 0 || part.to < n {
			if c.partial == nil {
				c.partial = make(map[int]partial)
			}
			c.partial[len(c.items.S)] = part
		}
	}
	return c.add(addr, p, n, v, false, parent, at)
}

// add adds an item.
func (c *Collector) add(addr uintptr, p *plan, n uint64, v via, alone bool, parent int32, at uintptr) error {
	if len(c.items.S) >= 1<<31-2 {
		return fmt.Errorf("the state has more than %d pieces", len(c.items.S))
	}
	if id := int(p.id); id >= len(c.byID) || c.byID[id] == nil {
		if id >= maxPlans {
			return fmt.Errorf("the state has values of more than %d types", maxPlans)
		}
		if id >= len(c.byID) {
			c.byID = append(c.byID, make([]*plan, id+1-len(c.byID))...)
		}
		c.byID[id] = p
	}
	if len(c.items.S) == cap(c.items.S) {
		c.items.More()
	}
	c.items.S = append(c.items.S, newItem(addr, p, n, v, alone))
	if c.trace {
		c.traces = append(c.traces, trace{at, parent})
	}
	return nil
}

// stand records the stand-in of what is at id, n elements of p at ptr.
func (c *Collector) stand(id unsafe.Pointer, ptr unsafe.Pointer, p *plan, n uint64, v via, parent int32, at uintptr) error {
	k, fresh := c.made.at(uintptr(id), p)
	if !fresh {
		return nil
	}
	*k = uint64(len(c.items.S))
	if n > maxElements {
		return c.refuse(p, parent, at, "it has too many elements")
	}
	return c.add(uintptr(ptr), p, n, v, true, parent, at)
}

// box records the value of p in an interface.
func (c *Collector) box(addr unsafe.Pointer, p *plan, parent int32, at uintptr) error {
	if uintptr(addr)&(1<<p.align-1) != 0 {
		return c.refuse(p, parent, at, "its address is not aligned")
	}
	if !c.visits.first(uintptr(addr), p, 1) {
		return nil
	}
	return c.add(uintptr(addr), p, 1, viaIface, true, parent, at)
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
		return c.box(unsafe.Pointer(data), d, i, at)
	case d.size == 0:
		return c.push(uintptr(*data), d, 1, viaIface, i, at)
	}
	return c.box(*data, d, i, at)
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
			if it := c.items.S[k]; c.end(it) > it.addr {
				c.inRoots = append(c.inRoots, span{it.addr, c.end(it)})
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
