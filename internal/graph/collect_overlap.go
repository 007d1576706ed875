package graph

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/cairnrun/cairn/internal/mem"
)

// none stands for "no region yet".
const none = ^uint32(0)

// sorted is a list of memory pieces in address order.
type sorted struct {
	lo    mem.OffHeap[uintptr] // start addresses
	num   mem.OffHeap[uint32]  // regions
	index pageIndex            // pages in which a piece begins
	first []uint32             // for each page number: the first piece that begins in the page; one more entry at the end
}

func (s *sorted) open() {
	s.lo.Reset()
	s.num.Reset()
	s.first = s.first[:0]
}

func (s *sorted) drop() {
	s.lo.Drop()
	s.num.Drop()
	s.index, s.first = pageIndex{}, nil
}

func (s *sorted) close() {
	s.lo.Close()
	s.num.Close()
}

func (s *sorted) len() int { return len(s.lo.S) }

// find returns the last piece that begins at or before addr, or -1. It tries
// the guess and the piece after it first.
func (s *sorted) find(addr uintptr, guess *int) int {
	lo := s.lo.S
	if g := *guess; g+1 < len(lo) && lo[g] <= addr {
		if addr < lo[g+1] {
			return g
		}
		if g+2 < len(lo) && addr < lo[g+2] {
			*guess = g + 1
			return g + 1
		}
	}
	if len(lo) == 0 {
		return -1
	}
	var from, to int
	if p := s.index.find(addr >> pageShift); p.page != 0 {
		from, to = int(s.first[p.n]), int(s.first[p.n+1])
	} else { // take the last piece of an earlier page
		n := sort.Search(len(s.index.pages), func(i int) bool { return s.index.pages[i] > addr>>pageShift })
		from, to = int(s.first[n]), int(s.first[n])
	}
	for from < to {
		m := int(uint(from+to) / 2)
		if lo[m] <= addr {
			from = m + 1
		} else {
			to = m
		}
	}
	*guess = max(from-1, 0)
	return from - 1
}

// merged describes a piece whose extent or type differs from the item that was
// reached first, or in which a root lies.
type merged struct {
	hi uintptr
	p  *plan // element type, never an array
}

// arrange sorts the items that take selects by address, and calls next for
// each.
func (c *Collector) arrange(s *sorted, take func(it item) bool, next func(i uint32) error) error {
	items := c.items.S
	s.open()
	x := &s.index
	x.clear()
	var counts []uint32
	for _, it := range items {
		if !take(it) {
			continue
		}
		n := x.add(it.addr >> pageShift)
		if int(n) == len(counts) {
			counts = append(counts, 0)
		}
		counts[n]++
	}
	// Number the pages in order of their addresses.
	byPage := make([]uint32, len(x.pages))
	for i := range byPage {
		byPage[i] = uint32(i)
	}
	slices.SortFunc(byPage, func(a, b uint32) int { return cmp.Compare(x.pages[a], x.pages[b]) })
	start := make([]uint32, len(byPage)+1)
	pages := make([]uintptr, len(byPage))
	for rank, n := range byPage {
		pages[rank] = x.pages[n]
		start[rank+1] = start[rank] + counts[n]
		x.find(x.pages[n]).n = uint32(rank)
	}
	x.pages = pages
	total := int(start[len(byPage)])
	order := c.order.Grow(total)
	s.lo.Reserve(total)
	s.num.Reserve(total)
	fill := slices.Clone(start[:len(byPage)])
	for i, it := range items {
		if take(it) {
			n := x.find(it.addr >> pageShift).n
			order[fill[n]] = uint32(i)
			fill[n]++
		}
	}
	for n := range pages {
		s.first = append(s.first, uint32(s.len()))
		in := order[start[n]:start[n+1]]
		c.sortPage(in)
		for _, i := range in {
			if err := next(i); err != nil {
				return err
			}
		}
	}
	s.first = append(s.first, uint32(s.len()))
	c.order.Drop()
	return nil
}

// sortPage sorts the items that begin in one page by address. Among items at
// one address, a containing item comes before the contained ones.
func (c *Collector) sortPage(in []uint32) {
	items := c.items.S
	ascending := true
	for k := 1; k < len(in) && ascending; k++ {
		ascending = items[in[k-1]].addr < items[in[k]].addr
	}
	if ascending {
		return
	}
	slices.SortFunc(in, func(i, j uint32) int {
		a, b := items[i], items[j]
		if a.addr != b.addr {
			return cmp.Compare(a.addr, b.addr)
		}
		if a.meta != b.meta {
			if x, y := c.end(a), c.end(b); x != y {
				return cmp.Compare(y, x)
			}
			if x, y := c.plan(a).base.depth, c.plan(b).base.depth; x != y {
				return cmp.Compare(y, x)
			}
		}
		return cmp.Compare(i, j)
	})
}

// sweep merges overlapping items into pieces.
func (c *Collector) sweep() error {
	if err := c.separateCells(); err != nil {
		return err
	}
	where := c.where.Grow(len(c.items.S))
	c.merged, c.firstFound, c.covered = nil, nil, make(map[uint32]bool)
	// State of the piece that is being built.
	var hi uintptr
	var p *plan
	var first uint32 // the item that determines p
	var found uint32 // the item that was reached first
	var lowest uint32
	rooted := false // a root lies in it
	cur := -1
	settle := func() {
		if cur < 0 {
			return
		}
		if found != lowest {
			if c.firstFound == nil {
				c.firstFound = make(map[uint32]uint32)
			}
			c.firstFound[uint32(cur)] = found
		}
		if it := c.items.S[found]; rooted || it.addr != c.pieces.lo.S[cur] || c.end(it) != hi || c.plan(it).base != p {
			if c.merged == nil {
				c.merged = make(map[uint32]merged)
			}
			c.merged[uint32(cur)] = merged{hi, p}
		}
	}
	err := c.arrange(&c.pieces, func(it item) bool { return !it.alone() }, func(i uint32) error {
		it := c.items.S[i]
		b := c.plan(it).base
		if cur < 0 || it.addr >= hi {
			settle()
			cur, hi, p, first, found, lowest, rooted = c.pieces.len(), c.end(it), b, i, i, i, false
			c.pieces.lo.S = append(c.pieces.lo.S, it.addr)
			c.pieces.num.S = append(c.pieces.num.S, none)
		} else {
			lo, end := c.pieces.lo.S[cur], c.end(it)
			off := (it.addr - lo) % p.size
			switch {
			case off == 0 && same(p, b):
				hi = max(hi, end)
				if i < first {
					p, first = b, i
				}
			case end <= hi && p.fits(off, uint64((hi-it.addr+off)/p.size), b, uint64((end-it.addr)/b.size)):
			default:
				return &UnsupportedError{c.itemPath(int32(i)), typeName(b.t),
					fmt.Sprintf("the memory is also seen as %s, through %s", typeName(p.t), c.itemPath(int32(first)))}
			}
		}
		lowest = min(lowest, i)
		if c.before(i, found) {
			found = i
		}
		rooted = rooted || int(i) < len(c.roots)
		where[i] = uint32(cur)
		return nil
	})
	if err != nil {
		return err
	}
	settle()
	err = c.arrange(&c.boxes, func(it item) bool { return it.alone() && it.via() == viaIface && c.plan(it).size > 0 }, func(i uint32) error {
		where[i] = uint32(c.boxes.len())
		c.boxes.lo.S = append(c.boxes.lo.S, c.items.S[i].addr)
		c.boxes.num.S = append(c.boxes.num.S, none)
		return nil
	})
	if err != nil {
		return err
	}
	c.stands = c.stands[:0]
	for i, it := range c.items.S {
		if it.alone() && (it.via() != viaIface || c.plan(it).size == 0) {
			where[i] = uint32(len(c.stands))
			c.stands = append(c.stands, standIn{it.addr, none})
		}
	}
	return c.checkRoots()
}

// itemPath returns the path of the reference that led to an item.
func (c *Collector) itemPath(i int32) string {
	if int(i) < len(c.roots) {
		return c.roots[i].Name
	}
	if !c.trace {
		c.needsTrace = true
		return "?"
	}
	return c.path(c.traces[i].parent, c.traces[i].at)
}

// checkRoots makes sure that each piece with a root in it has a root that
// covers all of it. Otherwise Prepare could not tell where the rest of the
// piece belongs.
func (c *Collector) checkRoots() error {
	where := c.where.S
	covers := func(i int) bool {
		it := c.items.S[i]
		return c.pieces.lo.S[where[i]] == it.addr && c.merged[where[i]].hi == c.end(it)
	}
	for i := range c.roots {
		if !c.items.S[i].alone() && covers(i) {
			c.covered[where[i]] = true
		}
	}
	for i := range c.roots {
		it := c.items.S[i]
		if it.alone() || c.covered[where[i]] {
			continue
		}
		other := ""
		for o, jt := range c.items.S {
			if !jt.alone() && where[o] == where[i] && o != i && (jt.addr != it.addr || c.end(jt) != c.end(it)) {
				other = ", through " + c.itemPath(int32(o))
				break
			}
		}
		return &UnsupportedError{c.roots[i].Name, typeName(c.plan(it).t),
			"the variable is part of a larger piece of memory that is reached as well" + other}
	}
	return nil
}
