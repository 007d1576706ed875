package graph

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"unsafe"
)

// encoder writes values with references in their file form. Several encoders
// may work at the same time.
type encoder struct {
	c     *Collector
	guess int       // guess for the next piece
	box   int       // guess for the next box
	cell  [2]uint32 // guesses for the cellPages of cells and of boxes
	zones zoneCache
}

var native = binary.NativeEndian

// encoder returns a free encoder. The caller gives it back.
func (c *Collector) encoder() *encoder {
	c.lock.Lock()
	defer c.lock.Unlock()
	if n := len(c.idle); n > 0 {
		e := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return e
	}
	return &encoder{c: c}
}

func (e *encoder) done() {
	e.c.lock.Lock()
	defer e.c.lock.Unlock()
	e.c.idle = append(e.c.idle, e)
}

// fillPools gives each pool its pieces, or a Gather function.
func (c *Collector) fillPools(img *Image) error {
	refs := c.refs.Grow(int(c.place.total))
	for k, num := range c.pieces.num.S {
		refs[num] = c.pieces.lo.S[k]
	}
	for k, num := range c.boxes.num.S {
		refs[num] = c.boxes.lo.S[k]
	}
	for _, s := range c.stands {
		refs[s.num] = s.addr
	}
	c.cells.memory(refs)
	for i := range img.Pools {
		c.pools.list[i].sorted = nil
	}
	for i, r := range img.Regions {
		if r.Pool >= 0 && r.Count > 0 {
			s := &c.pools.list[r.Pool]
			s.sorted = append(s.sorted, uint32(i))
		}
	}
	for i := range img.Pools {
		s, pool := &c.pools.list[i], &img.Pools[i]
		if pool.Form.Size == 0 {
			continue
		}
		slices.SortFunc(s.sorted, func(a, b uint32) int { return cmp.Compare(img.Regions[a].Start, img.Regions[b].Start) })
		gather := func(dst []byte, off int64) error { return c.gather(s, dst, off) }
		switch {
		case !pool.Pointers && !s.placed:
			pool.Pieces = make([][]byte, 0, s.regions)
			for _, r := range s.sorted {
				row := img.Regions[r]
				for num := c.place.firsts[r]; num < c.place.firsts[r]+row.Repeat; num++ {
					if refs[num] == 0 {
						return fmt.Errorf("region %d has no memory", num)
					}
					pool.Pieces = append(pool.Pieces, view(address(refs[num]), int(row.Count)*int(s.p.size)))
				}
			}
		case c.Remember:
			pool.Gather = gather
		default:
			buf := make([]byte, pool.Bytes())
			if err := gather(buf, 0); err != nil {
				return err
			}
			pool.Pieces = [][]byte{buf}
		}
	}
	return nil
}

// gather encodes the bytes of a pool from byte off on.
func (c *Collector) gather(s *poolState, dst []byte, off int64) error {
	e := c.encoder()
	defer e.done()
	size := s.p.form.Size
	at := uint64(off) / uint64(size) // index of the element
	rows, refs := c.place.regions, c.refs.S
	var cursor cellCursor
	i := sort.Search(len(s.sorted), func(i int) bool {
		r := rows[s.sorted[i]]
		return r.Start+uint64(r.Repeat)*r.Count > at
	})
	for ; len(dst) > 0; i++ {
		if i == len(s.sorted) {
			return fmt.Errorf("element %d of %d is in no region", at, s.fill)
		}
		row := rows[s.sorted[i]]
		num := c.place.firsts[s.sorted[i]]
		k := (at - row.Start) / row.Count
		skip := at - row.Start - k*row.Count
		for ; k < uint64(row.Repeat) && len(dst) > 0; k++ {
			n := int(min(row.Count-skip, uint64(len(dst)/size)))
			part := dst[:n*size]
			dst, at = dst[n*size:], at+uint64(n)
			ref := refs[num+uint32(k)]
			if ref == 0 {
				ref = cursor.addr(&c.cells, num+uint32(k))
			}
			if ref == 0 { // the place is unused
				clear(part)
				skip = 0
				continue
			}
			src := unsafe.Add(address(ref), uintptr(skip)*s.p.size)
			skip = 0
			if !s.p.enc {
				copy(part, view(src, len(part)))
				continue
			}
			for {
				if err := e.element(s.p.ops, src, part); err != nil {
					return err
				}
				if part = part[size:]; len(part) == 0 {
					break
				}
				src = unsafe.Add(src, s.p.size)
			}
		}
	}
	return nil
}

func (e *encoder) element(ops []op, mem unsafe.Pointer, file []byte) error {
	for i := range ops {
		o := &ops[i]
		src, dst := unsafe.Add(mem, o.moff), file[o.foff:]
		switch o.kind {
		case opCopy:
			copy(dst[:o.n], view(src, o.n))
		case opLoop:
			for k := range o.n {
				if err := e.element(o.sub, unsafe.Add(src, uintptr(k)*o.mstep), dst[k*o.fstep:]); err != nil {
					return err
				}
			}
		case opRef:
			if err := e.ref(o, o.p, src, dst); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes one member of a reference.
func put(o *op, dst []byte, member int, v uint64) { native.PutUint64(dst[o.at[member]:], v) }

// putRef writes a region number plus 1, and an offset.
func putRef(o *op, dst []byte, obj, off uint32) {
	native.PutUint32(dst[o.at[atObj]:], obj)
	native.PutUint32(dst[o.at[atOff]:], off)
}

func (e *encoder) ref(o *op, p *plan, src unsafe.Pointer, dst []byte) error {
	switch p.kind {
	case kPtr:
		obj, off := e.locate(*(*uintptr)(src), p.elem)
		putRef(o, dst, obj, off)
	case kString:
		s := (*stringHeader)(src)
		e.text(o, s.ptr, s.len, p, dst)
	case kSlice:
		s := (*sliceHeader)(src)
		obj, off := uint32(0), uint32(0)
		if s.cap > 0 {
			obj, off = e.locate(uintptr(s.ptr), p.elem)
		} else if s.ptr != nil {
			obj = noObject
		}
		putRef(o, dst, obj, off)
		put(o, dst, atLen, uint64(s.len))
		put(o, dst, atCap, uint64(s.cap))
	case kMap:
		native.PutUint32(dst[o.at[atObj]:], e.mapObject(p, src))
	case kIface:
		return e.iface(o, p, src, dst)
	case kTime, kLoc:
		return e.time(o, p, src, dst)
	case kType:
		name := ""
		if t := *(*unsafe.Pointer)(src); t != nil {
			name = storedName(t)
		}
		e.text(o, unsafe.Pointer(unsafe.StringData(name)), len(name), p, dst)
	case kFile:
		e.c.lock.Lock()
		id, _ := e.c.fileID(src)
		e.c.lock.Unlock()
		put(o, dst, atObj, id)
	case kFunc:
		obj := uint32(0)
		if f := *(*uintptr)(src); f != 0 {
			obj = e.stand(f, p.elem)
		}
		native.PutUint32(dst[o.at[atObj]:], obj)
	case kChan, kTimer:
		e.channel(o, p, src, dst)
	case kSyncMap, kCodec:
		obj := e.stand(uintptr(src), p.elem)
		guess := 0
		n := e.c.place.regions[e.c.place.row(obj-1-e.c.base, &guess)].Count
		putRef(o, dst, obj, 0)
		put(o, dst, atLen, n)
		put(o, dst, atCap, n)
	}
	return nil
}

// stand returns the object number of a stand-in or of a value without size.
func (e *encoder) stand(addr uintptr, p *plan) uint32 {
	return e.c.base + uint32(e.c.made.get(addr, p)) + 1
}

// locate converts the address of an elem into a reference.
func (e *encoder) locate(addr uintptr, elem *plan) (obj, off uint32) {
	if addr == 0 {
		return 0, 0
	}
	if elem.size == 0 {
		return e.stand(addr, elem), 0
	}
	if len(e.c.elsewhere) > 0 {
		if num, ok := e.c.elsewhere[addr]; ok {
			return num + 1, 0
		}
	}
	if r, rank := e.c.cells.lookup(addr, elem, 0, -1, &e.cell[0]); r != nil {
		return e.c.base + e.c.cells.region(r, rank) + 1, 0
	}
	num, off := e.c.position(e.c.pieces.find(addr, &e.guess), addr)
	return e.c.base + num + 1, off
}

func (e *encoder) text(o *op, ptr unsafe.Pointer, n int, p *plan, dst []byte) {
	obj, off := uint32(0), uint32(0)
	if n > 0 {
		obj, off = e.locate(uintptr(ptr), p.elem)
	}
	putRef(o, dst, obj, off)
	put(o, dst, atLen, uint64(n))
}

func (e *encoder) mapObject(p *plan, src unsafe.Pointer) uint32 {
	m := *(*uintptr)(src)
	if m == 0 {
		return 0
	}
	return e.stand(m, p.elem)
}

// boxed returns the object number of a value of p in an interface.
func (e *encoder) boxed(addr uintptr, p *plan) uint32 {
	c := e.c
	if r, rank := c.cells.lookup(addr, p, 1, -1, &e.cell[1]); r != nil {
		return c.base + c.cells.region(r, rank) + 1
	}
	guess := 0
	for k := c.boxes.find(addr, &e.box); k >= 0 && c.boxes.lo.S[k] == addr; k-- {
		num := c.boxes.num.S[k]
		if r := c.place.regions[c.place.row(num, &guess)]; c.pools.list[r.Pool].p == p.base && r.Count == p.mult {
			return c.base + num + 1
		}
	}
	return 0
}

func (e *encoder) iface(o *op, p *plan, src unsafe.Pointer, dst []byte) error {
	d, err := e.c.dynamic(p, src)
	if err != nil {
		return err
	}
	obj, off := uint32(0), uint32(0)
	index := uint32(0)
	if d != nil {
		index = e.c.dynIndex[d]
		data := &(*ifaceHeader)(src).data
		switch {
		case d.kind == kPtr && d.t.Kind() == reflect.Pointer:
			obj, off = e.locate(uintptr(*data), d.elem)
		case d.kind == kMap:
			obj = e.mapObject(d, unsafe.Pointer(data))
		case d.direct && *data == nil:
		case d.direct:
			obj = e.boxed(uintptr(unsafe.Pointer(data)), d)
		case d.size == 0:
			obj = e.stand(uintptr(*data), d)
		default:
			obj = e.boxed(uintptr(*data), d)
		}
	}
	native.PutUint32(dst[o.at[atType]:], index)
	putRef(o, dst, obj, off)
	return nil
}
