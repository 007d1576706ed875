package graph

import (
	"cmp"
	"math/bits"
	"slices"
	"sort"
)

// cellPools adds the cells to the counts of their pools.
func (c *Collector) cellPools(img *Image) error {
	for i := range c.cells.kinds {
		k := &c.cells.kinds[i]
		if k.n == 0 {
			continue
		}
		key := poolKey{root: int(k.root), p: k.p.base}
		n, ok := c.pools.index[key]
		if !ok {
			var err error
			if n, err = c.addPool(img, poolState{key: key, p: k.p.base, like: k.p, first: newItem(0, k.p, 1, viaPtr, false), old: -1}); err != nil {
				return err
			}
		}
		k.pool = n
		s := &c.pools.list[n]
		s.regions += k.n
		s.elems += uint64(k.n) * k.p.mult
		s.regular, s.text = false, false
	}
	return nil
}

// barCells reports whether there are cells in pools of large objects, and bars
// these kinds. Their objects must be items.
func (c *Collector) barCells() (any bool) {
	for _, k := range c.cells.kinds {
		if k.n > 0 && !c.pools.list[k.pool].placed {
			if c.barred == nil {
				c.barred = make(map[cellKey]bool)
			}
			c.barred[k.cellKey] = true
			any = true
		}
	}
	return any
}

// keepCells gives the cells the regions that they had in the last image, marks
// these regions as used, and returns how many cells have one. After that, every
// page has a list of regions, unless its regions are consecutive.
func (c *Collector) keepCells(used bitset) (taken uint32) {
	v, l := &c.cells, &c.place
	v.nums.Reset()
	var last uint32
	var row, piece, box int
	for i := range v.pages.S {
		r := &v.pages.S[i]
		if r.n == 0 {
			continue
		}
		r.list, r.num = true, uint32(len(v.nums.S))
		if n := len(v.nums.S); n+int(r.n) > cap(v.nums.S) {
			v.nums.Reserve(n + n/2 + int(r.n))
		}
		k := &v.kinds[r.kind]
		s := &c.pools.list[k.pool]
		v.each(r, func(_ int, addr uintptr) {
			num := none
			if s.old >= 0 {
				if o, rank := l.cells.lookup(addr, k.p, r.id&1, k.root, &last); o != nil {
					num = l.cells.region(o, rank)
				} else if r.id&1 == 0 {
					num = l.pieces.regionAt(addr, &piece)
				} else {
					num = l.boxAt(addr, k.p, &box)
				}
			}
			if num != none {
				q := l.regions[l.row(num, &row)]
				if int(q.Pool) != s.old || q.Count != k.p.mult || !used.add(num) {
					num = none
				} else {
					s.kept += k.p.mult
					taken++
				}
			}
			v.nums.S = append(v.nums.S, num)
		})
		v.shorten(r)
	}
	return taken
}

// shorten drops the list of a page if its cells have consecutive regions. The
// list must be the last one in nums.
func (v *cells) shorten(r *cellPage) {
	nums := v.nums.S[r.num:]
	for i, num := range nums {
		if num == none || num != nums[0]+uint32(i) {
			return
		}
	}
	v.nums.Truncate(int(r.num))
	r.list, r.num = false, nums[0]
}

// regionAt returns the region of the object that begins at addr, or none.
func (s *sorted) regionAt(addr uintptr, guess *int) uint32 {
	if k := s.find(addr, guess); k >= 0 && s.lo.S[k] == addr {
		return s.num.S[k]
	}
	return none
}

// boxAt returns the region of the boxed value of p at addr, or none.
func (l *placement) boxAt(addr uintptr, p *plan, guess *int) uint32 {
	row := 0
	for k := l.boxes.find(addr, guess); k >= 0 && l.boxes.lo.S[k] == addr; k-- {
		num := l.boxes.num.S[k]
		if r := l.regions[l.row(num, &row)]; r.Pool >= 0 && l.keys[r.Pool].p == p.base && r.Count == p.mult {
			return num
		}
	}
	return none
}

// placeNew calls place for each cell that has no region yet.
func (v *cells) placeNew(place func(pool int32, count uint64) uint32) {
	end := uint32(0) // end of the lists that are still needed
	for i := range v.pages.S {
		r := &v.pages.S[i]
		if r.n == 0 || !r.list {
			continue
		}
		k := &v.kinds[r.kind]
		nums := v.nums.S[r.num : r.num+r.n]
		r.list = false
		for j, num := range nums {
			if num == none {
				num = place(k.pool, k.p.mult)
				nums[j] = num
			}
			r.list = r.list || num != nums[0]+uint32(j)
		}
		if !r.list {
			r.num = nums[0]
			continue
		}
		copy(v.nums.S[end:], nums)
		r.num = end
		end += r.n
	}
	v.nums.Truncate(int(end))
}

// placeCells gives all cells new places, in address order.
func (c *Collector) placeCells() {
	v := &c.cells
	v.nums.Reset()
	pages := make([]uint32, 0, len(v.pages.S))
	for i := range v.pages.S {
		if v.pages.S[i].n > 0 {
			pages = append(pages, uint32(i))
		}
	}
	slices.SortFunc(pages, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(v.pages.S[a].page, v.pages.S[b].page), cmp.Compare(a, b))
	})
	for _, i := range pages {
		r := &v.pages.S[i]
		k := &v.kinds[r.kind]
		s := &c.pools.list[k.pool]
		s.rows.add(k.pool, s.take(uint64(r.n)*k.p.mult), k.p.mult, r.n)
		r.num, r.list = s.next, false
		s.next += r.n
	}
}

// cellRun says that the regions from num up to end are the cells of a page, in
// order.
type cellRun struct{ num, end, page uint32 }

// memory records where the regions of the cells lie: in runs where regions are
// consecutive, otherwise in refs.
func (v *cells) memory(refs []uintptr) {
	v.runs = v.runs[:0]
	for i := range v.pages.S {
		r := &v.pages.S[i]
		switch {
		case r.n == 0:
		case r.list:
			v.each(r, func(rank int, addr uintptr) { refs[v.nums.S[r.num+uint32(rank)]] = addr })
		default:
			v.runs = append(v.runs, cellRun{r.num, r.num + r.n, uint32(i)})
		}
	}
	slices.SortFunc(v.runs, func(a, b cellRun) int { return cmp.Compare(a.num, b.num) })
}

// cellCursor finds the addresses of cells by their regions. It is fastest if
// regions are looked up in ascending order.
type cellCursor struct {
	cellRun
	next  uint32  // next region
	word  uint64  // bits of the cells that follow in the current word
	at    uint32  // index of the current word
	start uintptr // address of the word's first bit
	align uint8
}

// addr returns the address of a region, or 0 if it is in no run.
func (c *cellCursor) addr(v *cells, num uint32) uintptr {
	if num != c.next || num >= c.end {
		if !c.seek(v, num) {
			return 0
		}
	}
	for c.word == 0 {
		c.at++
		c.start += 64 << c.align
		c.word = v.bits.S[c.at]
	}
	i := uintptr(bits.TrailingZeros64(c.word))
	c.word &= c.word - 1
	c.next++
	return c.start + i<<c.align
}

func (c *cellCursor) seek(v *cells, num uint32) bool {
	if num < c.num || num >= c.end {
		i := sort.Search(len(v.runs), func(i int) bool { return v.runs[i].end > num })
		if i == len(v.runs) || v.runs[i].num > num {
			return false
		}
		c.cellRun = v.runs[i]
	}
	r := &v.pages.S[c.page]
	p := v.kinds[r.kind].p
	rank := num - c.num
	w := uint32(0)
	for w+1 < p.words() && uint32(v.ranks.S[r.own+w+1]) <= rank {
		w++
	}
	c.next, c.at, c.align = num, r.own+w, p.align
	c.start = r.page<<pageShift + uintptr(w)*64<<p.align
	c.word = v.bits.S[c.at]
	for skip := rank - uint32(v.ranks.S[c.at]); skip > 0; skip-- {
		c.word &= c.word - 1
	}
	return true
}
