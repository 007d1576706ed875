package graph

import (
	"cmp"
	"slices"
	"unsafe"
)

// placed says where a region of an image lies in the program after Finish.
type placed struct {
	addr uintptr
	id   uint32 // plan id plus 1; only for stand-ins
	num  uint32
}

// KeepPlaces makes the next image of these roots give the objects the places
// that they have in the image that b restored. Call it after Finish.
func (c *Collector) KeepPlaces(b *Builder, roots []Root) {
	c.Forget()
	if !c.Remember || !b.finished {
		return
	}
	l := &c.place
	index := make(map[string]int, len(roots))
	for i, r := range roots {
		index[r.Name] = i
		l.names = append(l.names, r.Name)
	}
	l.set(b.img.Regions)
	for i := range b.img.Pools {
		k := poolKey{root: -1}
		if root, ok := index[b.img.Vars[b.img.Pools[i].Var].Name]; ok && b.pools[i].p != nil {
			k = poolKey{root: root, p: b.pools[i].p}
		}
		l.keys = append(l.keys, k)
		l.fills = append(l.fills, b.img.Pools[i].Count)
	}
	var pieces []placed
	for i := range b.regs {
		g := &b.regs[i]
		switch {
		case g.p == nil:
			continue
		case g.m != nil:
			c.notePlace(g.m, g.p, uint32(i))
			continue
		case g.ptr == nil:
			continue
		case g.p.size == 0:
			c.notePlace(g.ptr, g.p, uint32(i))
			continue
		case g.n == 0:
			continue
		}
		pieces = append(pieces, placed{addr: uintptr(g.ptr), num: uint32(i)})
	}
	fill(&c.pieces, pieces)
	fill(&c.boxes, b.boxes)
	for _, s := range b.stands {
		if at, _ := c.made.atID(s.addr, s.id); at != nil {
			*at = uint64(s.num)
		}
	}
	b.boxes, b.stands = nil, nil
}

// notePlace records that the stand-in of p for the object at id has region num.
func (c *Collector) notePlace(id unsafe.Pointer, p *plan, num uint32) {
	at, _ := c.made.at(uintptr(id), p)
	*at = uint64(num)
}

func fill(s *sorted, in []placed) {
	slices.SortFunc(in, func(a, b placed) int { return cmp.Or(cmp.Compare(a.addr, b.addr), cmp.Compare(a.num, b.num)) })
	s.open()
	s.index.clear()
	s.lo.Reserve(len(in))
	s.num.Reserve(len(in))
	for i, p := range in {
		if page := p.addr >> pageShift; i == 0 || page != in[i-1].addr>>pageShift {
			s.index.add(page)
			s.first = append(s.first, uint32(i))
		}
		s.lo.S = append(s.lo.S, p.addr)
		s.num.S = append(s.num.S, p.num)
	}
	s.first = append(s.first, uint32(len(in)))
}
