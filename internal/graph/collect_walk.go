package graph

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"unsafe"
)

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
			if o.p.kind == kPtr { // the most frequent case
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
	case kType:
		if t := *(*unsafe.Pointer)(ptr); t != nil {
			if err := c.names.check(typeAt(t)); err != nil {
				return c.refuse(p, i, at, err.Error())
			}
			name := storedName(t)
			return c.push(uintptr(unsafe.Pointer(unsafe.StringData(name))), p.elem, uint64(len(name)), viaString, i, at)
		}
	case kFile:
		if _, ok := c.fileID(ptr); !ok {
			return c.refuse(p, i, at, "the file is not known to the run")
		}
		if why := c.tooEarly(ptr); why != "" {
			return c.refuse(p, i, at, why)
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

// pushOne records that the reference at byte at of item parent leads to a value
// of p.
func (c *Collector) pushOne(addr uintptr, p *plan, v via, parent int32, at uintptr) error {
	if p.size == 0 || addr&(1<<p.align-1) != 0 {
		return c.push(addr, p, 1, v, parent, at)
	}
	if len(c.elsewhere) > 0 {
		if _, ok := c.elsewhere[addr]; ok {
			return nil
		}
	}
	fresh, cell := c.first(addr, p, 0)
	if cell && p.base.enc {
		c.enqueue(addr, p)
	}
	if cell || !fresh {
		return nil
	}
	return c.add(addr, p, 1, v, false, parent, at)
}

// push records that the reference at byte at of item parent leads to n elements
// of p.
func (c *Collector) push(addr uintptr, p *plan, n uint64, v via, parent int32, at uintptr) error {
	switch {
	case n > maxElements:
		return c.refuse(p, parent, at, "it has too many elements")
	case p.size == 0:
		if p.kind == kOpaque { // such as a runtime.Func, which is identified by its address alone
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
		if err := c.know(p); err != nil {
			return err
		}
	}
	if len(c.items.S) == cap(c.items.S) {
		c.items.GrowOne()
	}
	c.items.S = append(c.items.S, newItem(addr, p, n, v, alone))
	if c.trace {
		c.traces = append(c.traces, trace{at, parent})
	}
	return nil
}

// know registers p in byID.
func (c *Collector) know(p *plan) error {
	id := int(p.id)
	if id >= maxPlans {
		return fmt.Errorf("the state has values of more than %d types", maxPlans)
	}
	if id >= len(c.byID) {
		c.byID = append(c.byID, make([]*plan, id+1-len(c.byID))...)
	}
	c.byID[id] = p
	return nil
}

// stand records the stand-in of the object at id: n elements of p at ptr.
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

// box records a value of p in an interface.
func (c *Collector) box(addr unsafe.Pointer, p *plan, parent int32, at uintptr) error {
	if uintptr(addr)&(1<<p.align-1) != 0 {
		return c.refuse(p, parent, at, "its address is not aligned")
	}
	fresh, cell := c.first(uintptr(addr), p, 1)
	if cell && p.base.enc {
		c.enqueue(uintptr(addr), p)
	}
	if cell || !fresh {
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

// check examines a value that is not stored.
func (c *Collector) check(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	if p.kind == kIgnore {
		switch p.t.Name() {
		case "notifyList":
			// The run time of a program that is saved as a whole has its
			// own list of those that wait, and they will wait again.
			head, ok := p.t.FieldByName("head")
			listed := !wholeProgram || !ok || *(*unsafe.Pointer)(unsafe.Add(ptr, head.Offset)) != nil
			if w := (*[2]uint32)(ptr); p.size >= 8 && w[0] != w[1] && listed {
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

// inRoot reports whether an address lies in a root.
func (c *Collector) inRoot(ptr unsafe.Pointer) bool {
	if len(c.inRoots) == 0 {
		for k := range c.roots {
			if it := c.items.S[k]; c.end(it) > it.addr {
				c.inRoots = append(c.inRoots, span{it.addr, c.end(it)})
			}
		}
		slices.SortFunc(c.inRoots, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
		for i := 1; i < len(c.inRoots); i++ { // hi is the end of the last span so far
			c.inRoots[i].hi = max(c.inRoots[i].hi, c.inRoots[i-1].hi)
		}
	}
	i := sort.Search(len(c.inRoots), func(i int) bool { return c.inRoots[i].lo > uintptr(ptr) }) - 1
	return i >= 0 && uintptr(ptr) < c.inRoots[i].hi
}

func (c *Collector) refuse(p *plan, i int32, at uintptr, reason string) error {
	return &UnsupportedError{c.path(i, at), typeName(p.t), reason}
}
