package graph

import "math/bits"

// Memory is divided into pages, so that what lies side by side is found side by
// side in tables, too.
const (
	pageShift = 13
	pageSize  = 1 << pageShift
)

// visits remembers the values that were reached. It has a bit for each place in
// a page where a value of a type can begin.
type visits struct {
	slots []visitSlot
	n     int
	shift uint
	bits  []uint64
}

type visitSlot struct {
	page uintptr // 0: empty
	key  uint32
	at   uint32 // the first of its words in bits
}

func (v *visits) clear() {
	clear(v.slots)
	v.n, v.bits = 0, v.bits[:0]
}

// drop gives the memory back.
func (v *visits) drop() { *v = visits{} }

// first reports whether the value of p at addr was not reached before, and notes
// that it is. Boxes of interfaces are told apart from other values. The address
// is a multiple of the type's alignment.
func (v *visits) first(addr uintptr, p *plan, box uint32) bool {
	if v.n >= len(v.slots)/2 {
		v.grow()
	}
	page, key := addr>>pageShift, p.id<<1|box
	s := v.find(page, key)
	if s.page == 0 {
		*s = visitSlot{page, key, uint32(len(v.bits))}
		v.n++
		words := (pageSize>>p.align + 63) / 64
		for range words {
			v.bits = append(v.bits, 0)
		}
	}
	i := addr & (pageSize - 1) >> p.align
	w := &v.bits[uintptr(s.at)+i/64]
	bit := uint64(1) << (i % 64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	return true
}

func (v *visits) find(page uintptr, key uint32) *visitSlot {
	h := (uint64(page) ^ uint64(key)<<40) * 0x9e3779b97f4a7c15 >> v.shift
	mask := uint64(len(v.slots) - 1)
	for {
		s := &v.slots[h]
		if s.page == 0 || s.page == page && s.key == key {
			return s
		}
		h = (h + 1) & mask
	}
}

func (v *visits) grow() {
	old := v.slots
	n := max(64, 2*len(old))
	v.slots = make([]visitSlot, n)
	v.shift = 64 - uint(bits.TrailingZeros(uint(n)))
	for _, s := range old {
		if s.page != 0 {
			*v.find(s.page, s.key) = s
		}
	}
}

// pageIndex numbers pages.
type pageIndex struct {
	slots []pageSlot
	pages []uintptr // by number
	shift uint
}

type pageSlot struct {
	page uintptr // 0: empty
	n    uint32
}

func (x *pageIndex) clear() {
	clear(x.slots)
	x.pages = x.pages[:0]
}

// add returns the number of a page, which is new if need be.
func (x *pageIndex) add(page uintptr) uint32 {
	if len(x.pages) >= len(x.slots)/2 {
		n := max(64, 2*len(x.slots))
		x.slots = make([]pageSlot, n)
		x.shift = 64 - uint(bits.TrailingZeros(uint(n)))
		for i, p := range x.pages {
			*x.find(p) = pageSlot{p, uint32(i)}
		}
	}
	s := x.find(page)
	if s.page == 0 {
		*s = pageSlot{page, uint32(len(x.pages))}
		x.pages = append(x.pages, page)
	}
	return s.n
}

func (x *pageIndex) find(page uintptr) *pageSlot {
	h := uint64(page) * 0x9e3779b97f4a7c15 >> x.shift
	mask := uint64(len(x.slots) - 1)
	for {
		s := &x.slots[h]
		if s.page == 0 || s.page == page {
			return s
		}
		h = (h + 1) & mask
	}
}
