package graph

import "math/bits"

// Tables are organized by pages of memory, so that neighbours in memory are
// neighbours in the tables.
const (
	pageShift = 13
	pageSize  = 1 << pageShift
)

// pageIndex numbers pages.
type pageIndex struct {
	slots []pageSlot
	pages []uintptr // page by number
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

// add returns the number of a page, and assigns one if it is new.
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
