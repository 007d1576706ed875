package graph

import (
	"cmp"
	"fmt"
	"slices"
)

// key is an item in order of addresses.
type key struct {
	addr, end uintptr
	depth     int32
	item      int32
}

// piece is maximal: a merged run of overlapping items.
type piece struct {
	lo, hi uintptr
	p      *plan // element, not an array
	low    int32 // the item at lo
	first  int32 // the item that p comes from
	region int32 // number, -1 until known
	held   bool  // a root covers all of it
}

// sweep merges the items that overlap.
func (c *Collector) sweep() error {
	c.keys = slices.Grow(c.keys[:0], len(c.items))
	c.where = slices.Grow(c.where[:0], len(c.items))[:len(c.items)]
	for i := range c.items {
		it := &c.items[i]
		c.where[i] = -1
		if !it.alone {
			c.keys = append(c.keys, key{uintptr(it.ptr), it.end(), int32(it.p.base.depth), int32(i)})
		}
	}
	// Of items at one address the containing ones come first.
	slices.SortFunc(c.keys, func(a, b key) int {
		switch {
		case a.addr != b.addr:
			return cmp.Compare(a.addr, b.addr)
		case a.end != b.end:
			return cmp.Compare(b.end, a.end)
		case a.depth != b.depth:
			return cmp.Compare(b.depth, a.depth)
		}
		return cmp.Compare(a.item, b.item)
	})
	c.pieces = slices.Grow(c.pieces[:0], len(c.keys))
	var cur *piece
	for _, k := range c.keys {
		it := &c.items[k.item]
		b := it.p.base
		if cur == nil || k.addr >= cur.hi {
			c.pieces = append(c.pieces, piece{lo: k.addr, hi: k.end, p: b, low: k.item, first: k.item, region: -1})
			cur = &c.pieces[len(c.pieces)-1]
		} else if err := c.join(cur, k, b); err != nil {
			return err
		}
		c.where[k.item] = int32(len(c.pieces) - 1)
	}
	return c.checkRoots()
}

// join adds an item of b to the piece it overlaps.
func (c *Collector) join(cur *piece, k key, b *plan) error {
	off := (k.addr - cur.lo) % cur.p.size
	if off == 0 && same(cur.p, b) {
		cur.hi = max(cur.hi, k.end)
		if k.item < cur.first {
			cur.p, cur.first = b, k.item
		}
		return nil
	}
	if k.end <= cur.hi {
		avail := uint64((cur.hi - k.addr + off) / cur.p.size)
		if cur.p.fits(off, avail, b, uint64((k.end-k.addr)/b.size)) {
			return nil
		}
	}
	return &UnsupportedError{c.itemPath(k.item), typeName(b.t),
		fmt.Sprintf("the memory is also seen as %s, through %s", typeName(cur.p.t), c.itemPath(cur.first))}
}

// itemPath names the reference that led to an item.
func (c *Collector) itemPath(i int32) string {
	if it := &c.items[i]; it.parent >= 0 {
		return c.path(it.parent, it.at)
	}
	return c.roots[i].Name
}

// checkRoots makes sure that a piece with a root in it has a root that covers
// it: else nobody would know, when restoring, where all of it has to go.
func (c *Collector) checkRoots() error {
	for i := range c.roots {
		if it := &c.items[i]; !it.alone {
			q := &c.pieces[c.where[i]]
			q.held = q.held || q.lo == uintptr(it.ptr) && q.hi == it.end()
		}
	}
	for i := range c.roots {
		it := &c.items[i]
		if it.alone {
			continue
		}
		q := &c.pieces[c.where[i]]
		if q.held {
			continue
		}
		other := ""
		for _, k := range c.keys {
			if o := int(k.item); c.where[o] == c.where[i] && o != i && (k.addr != uintptr(it.ptr) || k.end != it.end()) {
				other = ", through " + c.itemPath(k.item)
				break
			}
		}
		return &UnsupportedError{c.roots[i].Name, typeName(it.p.t),
			"the variable is part of a larger piece of memory that is reached as well" + other}
	}
	return nil
}

// find returns the piece that holds addr, starting from a guess.
func (c *Collector) find(addr uintptr, guess *int) *piece {
	ps := c.pieces
	for g := *guess; g < len(ps) && g <= *guess+1; g++ {
		if q := &ps[g]; addr >= q.lo && addr < q.hi {
			*guess = g
			return q
		}
	}
	lo, hi := 0, len(ps)
	for hi-lo > 1 {
		m := int(uint(lo+hi) / 2)
		if ps[m].lo <= addr {
			lo = m
		} else {
			hi = m
		}
	}
	*guess = lo
	return &ps[lo]
}
