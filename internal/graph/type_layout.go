package graph

import "sort"

// same reports whether memory that holds a p can also be seen as a q. That
// holds if the types are identical, or if Go converts pointers between them.
func same(p, q *plan) bool {
	if p == q {
		return true
	}
	if p.kind != q.kind || p.size != q.size || p.t.Kind() != q.t.Kind() {
		return false
	}
	switch p.kind {
	case kScalar, kString:
		return true
	case kFunc:
		return p.t.ConvertibleTo(q.t)
	case kPtr, kSlice, kMap, kChan:
		return p.elem == q.elem
	case kIface:
		return p.t.Implements(q.t) && q.t.Implements(p.t)
	case kArray:
		return p.n == q.n && same(p.elem, q.elem)
	case kStruct:
		if len(p.fields) != len(q.fields) || p.size == 0 {
			return p.size == 0 && p.t.ConvertibleTo(q.t)
		}
		for i, f := range p.fields {
			g := q.fields[i]
			if f.name != g.name || f.off != g.off || !same(f.p, g.p) {
				return false
			}
		}
		return true
	}
	return false
}

// fits reports whether n consecutive elements of f lie at byte off < p.size in
// the first of avail consecutive elements of p. Neither p nor f is an array.
func (p *plan) fits(off uintptr, avail uint64, f *plan, n uint64) bool {
	for {
		if off == 0 && n <= avail && same(p, f) {
			return true
		}
		switch p.kind {
		case kStruct:
			i := p.fieldAt(off)
			if i < 0 {
				return false
			}
			off -= p.fields[i].off
			p, avail = p.fields[i].p, 1
			if off >= p.size {
				return false
			}
		case kArray:
			i := off / p.base.size
			off -= i * p.base.size
			p, avail = p.base, p.mult-uint64(i)
		default:
			return false
		}
	}
}

// fieldAt returns the last field that starts at or before off.
func (p *plan) fieldAt(off uintptr) int {
	if len(p.fields) < 8 {
		i := len(p.fields) - 1
		for i >= 0 && p.fields[i].off > off {
			i--
		}
		return i
	}
	return sort.Search(len(p.fields), func(i int) bool { return p.fields[i].off > off }) - 1
}

// slotOf returns the slot of the leaf that starts at byte off of an element.
func (p *plan) slotOf(off uintptr) (slot uint64) {
	for off > 0 {
		switch p.kind {
		case kStruct:
			f := &p.fields[p.fieldAt(off)]
			slot += f.slot
			off -= f.off
			p = f.p
		case kArray:
			i := off / p.base.size
			slot += uint64(i) * p.base.slots
			off -= i * p.base.size
			p = p.base
		default:
			return slot
		}
	}
	return slot
}

// byteOf is the inverse of slotOf. slot must be less than p.slots.
func (p *plan) byteOf(slot uint64) (off uintptr) {
	for slot > 0 {
		switch p.kind {
		case kStruct:
			i := sort.Search(len(p.fields), func(i int) bool { return p.fields[i].slot > slot }) - 1
			f := &p.fields[i]
			off += f.off
			slot -= f.slot
			p = f.p
		case kArray:
			i := slot / p.base.slots
			off += uintptr(i) * p.base.size
			slot -= i * p.base.slots
			p = p.base
		default:
			return off
		}
	}
	return off
}
