package graph

import (
	"slices"
	"sort"
)

// placement records the regions of an image's objects and the places of these
// regions in pools. The next image keeps them as far as possible. Objects are
// identified by address and are not kept alive. Later, another object may have
// the address: if its type and size are the same, it takes over the place;
// otherwise it gets a new place.
type placement struct {
	regions []Region
	firsts  []uint32 // the number of the first region of each row
	total   uint32   // number of regions
	keys    []poolKey
	fills   []uint64 // elements of each pool
	names   []string // names of the roots
	pieces  sorted
	boxes   sorted
	made    table
	cells   cells
}

// rotate makes the tables of the last image those of the previous one.
func (l *placement) rotate(c *Collector) {
	if !c.Remember {
		l.drop()
		return
	}
	l.pieces, c.pieces = c.pieces, l.pieces
	l.boxes, c.boxes = c.boxes, l.boxes
	l.made, c.made = c.made, l.made
	l.cells, c.cells = c.cells, l.cells
}

func (l *placement) drop() {
	l.pieces.drop()
	l.boxes.drop()
	l.made.drop()
	l.cells.drop()
	l.regions, l.firsts, l.total, l.keys, l.fills, l.names = nil, nil, 0, nil, nil, nil
}

func (l *placement) close() {
	l.pieces.close()
	l.boxes.close()
	l.cells.close()
}

// row returns the index of the row of Regions that contains a region.
func (l *placement) row(num uint32, guess *int) int {
	if g := *guess; g < len(l.firsts) && l.firsts[g] <= num && (g+1 == len(l.firsts) || num < l.firsts[g+1]) {
		return g
	}
	*guess = sort.Search(len(l.firsts), func(i int) bool { return l.firsts[i] > num }) - 1
	return *guess
}

// set stores the regions of a new image.
func (l *placement) set(rows []Region) {
	l.regions = rows
	l.firsts = slices.Grow(l.firsts[:0], len(rows))
	l.total = 0
	for _, r := range rows {
		l.firsts = append(l.firsts, l.total)
		l.total += r.Repeat
	}
}

// bitset is a set of small numbers.
type bitset []uint64

func newBitset(n int) bitset { return make(bitset, (n+63)/64) }

func (b bitset) has(i uint32) bool { return b[i/64]&(1<<(i%64)) != 0 }

// add adds i, and reports whether it was not in the set before.
func (b bitset) add(i uint32) bool {
	w, bit := &b[i/64], uint64(1)<<(i%64)
	if *w&bit != 0 {
		return false
	}
	*w |= bit
	return true
}

// reuseRegions gives pieces, boxes and stand-ins the regions that they had in
// the last image.
func (c *Collector) reuseRegions() {
	join := func(now, old *sorted) {
		j := 0
		for k, lo := range now.lo.S {
			for j < old.len() && old.lo.S[j] < lo {
				j++
			}
			if j < old.len() && old.lo.S[j] == lo {
				now.num.S[k] = old.num.S[j]
			}
		}
	}
	join(&c.pieces, &c.place.pieces)
	c.reuseBoxRegions()
	where := c.where.S
	for i := range c.made.slots {
		s := &c.made.slots[i]
		if s.id == 0 {
			continue
		}
		if o := c.place.made.lookup(s.addr, s.id); o != nil {
			c.stands[where[s.val]].num = uint32(o.val)
		}
	}
}

// reuseBoxRegions does this for boxes. Boxes of several types may have the same
// address.
func (c *Collector) reuseBoxRegions() {
	old := &c.place.boxes
	if old.len() == 0 {
		return
	}
	j, guess := 0, 0
	byBox := make([]*plan, c.boxes.len())
	for i, it := range c.items.S {
		if it.alone() && it.via() == viaIface && c.plan(it).size > 0 {
			byBox[c.where.S[i]] = c.plan(it)
		}
	}
	for k, lo := range c.boxes.lo.S {
		for j < old.len() && old.lo.S[j] < lo {
			j++
		}
		for m := j; m < old.len() && old.lo.S[m] == lo; m++ {
			r := c.place.regions[c.place.row(old.num.S[m], &guess)]
			if r.Pool >= 0 && c.place.keys[r.Pool].p == byBox[k].base && r.Count == byBox[k].mult {
				c.boxes.num.S[k] = old.num.S[m]
			}
		}
	}
}

// leader describes a region by the first item of its memory.
type leader struct {
	item  int
	it    item
	num   *uint32 // the region's number
	p     *plan   // element type
	addr  uintptr
	count uint64
	root  int
	piece uint32 // index of the piece + 1; 0: it is not a piece
	box   bool
}

// leaders calls f for all regions, in order of discovery.
func (c *Collector) leaders(f func(l *leader) error) error {
	where := c.where.S
	done := newBitset(c.pieces.len())
	run := 0
	var l leader
	for i, it := range c.items.S {
		for i >= c.runs[run].end {
			run++
		}
		w, p := where[i], c.plan(it)
		l = leader{item: i, it: it, p: p.base, addr: it.addr, count: it.n() * p.mult, root: c.runs[run].root}
		switch {
		case !it.alone():
			if len(c.firstFound) > 0 {
				if e, ok := c.firstFound[w]; ok && e != uint32(i) {
					continue
				}
			}
			if !done.add(w) {
				continue
			}
			l.num, l.piece = &c.pieces.num.S[w], w+1
			if len(c.merged) > 0 {
				if m, ok := c.merged[w]; ok {
					l.addr, l.p = c.pieces.lo.S[w], m.p
					l.count = uint64((m.hi - l.addr) / m.p.size)
				}
			}
		case it.via() == viaIface && p.size > 0:
			l.num, l.box = &c.boxes.num.S[w], true
		default:
			l.num = &c.stands[w].num
			if p.size == 0 {
				l.count = it.n()
			}
		}
		if err := f(&l); err != nil {
			return err
		}
	}
	return nil
}

// leaderOf returns the leader of a piece or box.
func (c *Collector) leaderOf(s *sorted, k uint32) leader {
	i := s.num.S[k]
	it := c.items.S[i]
	root := c.rootOf(int(i))
	p := c.plan(it)
	l := leader{item: int(i), it: it, num: &s.num.S[k], p: p.base, addr: it.addr, count: it.n() * p.mult, root: root, box: it.alone()}
	if !l.box {
		l.piece = k + 1
		if m, ok := c.merged[k]; ok {
			l.addr, l.p = c.pieces.lo.S[k], m.p
			l.count = uint64((m.hi - l.addr) / m.p.size)
		}
	}
	return l
}

// A reference can address maxOffset slots from the start of a region. A larger
// region has several numbers.
var maxOffset uint64 = 1 << 32

// numbers returns how many numbers a region takes.
func numbers(p *plan, count uint64) uint32 {
	if n := count * p.slots; n > maxOffset {
		return uint32((n + maxOffset - 1) / maxOffset)
	}
	return 1
}

// Up to unusedAllowed bytes in unused places are always tolerated. Beyond that,
// unused places may take a quarter of the memory in use.
const unusedAllowed = 1 << 16

// number assigns numbers and places to all regions.
func (c *Collector) number(img *Image) error {
	names := make([]string, len(c.roots))
	for i, r := range c.roots {
		names[i] = r.Name
	}
	kept := c.Remember && c.place.total > 0 && slices.Equal(names, c.place.names)
	var used bitset
	if kept {
		c.reuseRegions()
		used = newBitset(int(c.place.total))
		kept = c.keepPlaces(used)
	}
	var rows []Region
	var err error
	if kept {
		rows, err = c.placeNew(used)
	} else {
		rows, err = c.placeAll()
	}
	if err != nil {
		return err
	}
	l := &c.place
	l.set(rows)
	l.names, l.keys, l.fills = names, l.keys[:0], l.fills[:0]
	for i := range c.pools.list {
		s := &c.pools.list[i]
		l.keys = append(l.keys, s.key)
		l.fills = append(l.fills, s.fill)
		img.Pools[i].Count = s.fill
	}
	c.numbered = true
	l.pieces.drop()
	l.boxes.drop()
	l.made.drop()
	l.cells.clear()
	for i := range c.made.slots {
		if s := &c.made.slots[i]; s.id != 0 {
			s.val = uint64(c.stands[c.where.S[s.val]].num)
		}
	}
	img.Regions = rows
	return nil
}

// keepPlaces finds the regions that keep their numbers, and marks these numbers
// as used. It reports false if too much of the pools would be unused. Then all
// regions get new places.
func (c *Collector) keepPlaces(used bitset) bool {
	l := &c.place
	old := make(map[poolKey]int, len(l.keys))
	for i, k := range l.keys {
		old[k] = i
	}
	stays := make([]bool, len(l.keys)) // the pools whose places are kept
	for i := range c.pools.list {
		s := &c.pools.list[i]
		s.old, s.kept = -1, 0
		if k, ok := old[s.key]; ok && s.placed {
			s.old = k
			stays[k] = true
		}
	}
	guess, taken := 0, uint32(0)
	last := uint32(0)
	c.leaders(func(d *leader) error {
		num := *d.num
		*d.num = none
		if p := c.plan(d.it); num == none && d.it.n() == 1 && (d.piece > 0 || d.box) { // it may have been a cell in the last image
			box := uint32(0)
			if d.box {
				box = 1
			}
			if r, rank := l.cells.lookup(d.addr, p, box, int32(d.root), &last); r != nil {
				num = l.cells.region(r, rank)
			}
		}
		if num == none || numbers(d.p, d.count) > 1 {
			return nil
		}
		s := &c.pools.list[c.poolOf(d)]
		r := l.regions[l.row(num, &guess)]
		if r.Pool < 0 || r.Count != d.count || s.placed && int(r.Pool) != s.old || !s.placed && stays[r.Pool] || l.keys[r.Pool].p != d.p || !used.add(num) {
			return nil
		}
		*d.num = num
		s.kept += d.count
		taken++
		return nil
	})
	taken += c.keepCells(used)
	if l.total-taken > l.total/2+1000 {
		return false
	}
	var live, dead uint64
	for i := range c.pools.list {
		if s := &c.pools.list[i]; s.placed && s.old >= 0 {
			size := uint64(s.p.form.Size)
			live += s.elems * size
			// New regions may fill unused places.
			dead += (l.fills[s.old] - min(l.fills[s.old], max(s.kept, s.elems))) * size
		}
	}
	return dead <= live/4+unusedAllowed
}

// rowList combines regions into rows.
type rowList struct {
	rows  []Region
	total uint32
}

func (r *rowList) add(pool int32, start, count uint64, n uint32) {
	if k := len(r.rows) - 1; k >= 0 {
		if l := &r.rows[k]; l.Pool == pool && l.Count == count && (pool < 0 || l.Start+uint64(l.Repeat)*count == start) && pool != NextSlots {
			l.Repeat += n
			r.total += n
			return
		}
	}
	r.rows = append(r.rows, Region{Pool: pool, Repeat: n, Start: start, Count: count})
	r.total += n
}

// placeAll gives all regions new places. The regions of a pool get consecutive
// numbers.
func (c *Collector) placeAll() ([]Region, error) {
	base := uint32(0)
	for i := range c.pools.list {
		s := &c.pools.list[i]
		s.fill, s.next, s.rows = 0, base, rowList{}
		base += uint32(s.regions - s.huge)
	}
	// Pools that keep places are filled in address order: objects that were
	// allocated together often change together.
	c.leaders(func(d *leader) error {
		if d.piece > 0 || d.box {
			*d.num = uint32(d.item)
		}
		return nil
	})
	for _, in := range []*sorted{&c.pieces, &c.boxes} {
		for k := range in.num.S {
			d := c.leaderOf(in, uint32(k))
			pool := c.poolOf(&d)
			*d.num = none
			if s := &c.pools.list[pool]; s.placed {
				s.rows.add(pool, s.take(d.count), d.count, 1)
				*d.num = s.next
				s.next++
			}
		}
	}
	c.placeCells()
	var tail rowList
	err := c.leaders(func(d *leader) error {
		pool := c.poolOf(d)
		s := &c.pools.list[pool]
		if s.placed && (d.piece > 0 || d.box) {
			return nil
		}
		start := s.take(d.count)
		if n := numbers(d.p, d.count); n > 1 {
			*d.num = base + tail.total
			tail.add(pool, start, d.count, 1)
			tail.add(NextSlots, 0, 0, n-1)
			return nil
		}
		*d.num = s.next
		s.next++
		s.rows.add(pool, start, d.count, 1)
		return nil
	})
	n := len(tail.rows)
	for i := range c.pools.list {
		n += len(c.pools.list[i].rows.rows)
	}
	rows := make([]Region, 0, n)
	for i := range c.pools.list {
		s := &c.pools.list[i]
		rows = append(rows, s.rows.rows...)
		s.rows = rowList{}
	}
	return append(rows, tail.rows...), err
}

// take gives a region the next place in the pool.
func (s *poolState) take(count uint64) (start uint64) {
	if s.p.form.Size == 0 {
		s.fill = max(s.fill, count)
		return 0
	}
	start = s.fill
	s.fill += count
	return start
}

// freeKey says which regions can replace each other.
type freeKey struct {
	pool  int
	count uint64
}

// placeNew gives a place to each region that has none yet, and new places to
// all regions of pools that keep the order of discovery.
func (c *Collector) placeNew(used bitset) ([]Region, error) {
	l := &c.place
	type denseRegion struct {
		num, n       uint32
		pool         int32
		start, count uint64
	}
	var dense []denseRegion
	var tail rowList
	newPool := make([]int32, len(l.keys)) // pool of the last image → pool of this image, if places are kept
	for i := range newPool {
		newPool[i] = Unused
	}
	for i := range c.pools.list {
		s := &c.pools.list[i]
		if s.fill = 0; s.old >= 0 {
			s.fill = l.fills[s.old]
			newPool[s.old] = int32(i)
		}
	}
	var free map[freeKey][]uint32
	place := func(pool int32, count uint64) uint32 {
		if free == nil {
			free = c.freePlaces(used, newPool)
		}
		k := freeKey{int(pool), count}
		if f := free[k]; len(f) > 0 {
			free[k] = f[:len(f)-1]
			return f[len(f)-1]
		}
		num := l.total + tail.total
		tail.add(pool, c.pools.list[pool].take(count), count, 1)
		return num
	}
	err := c.leaders(func(d *leader) error {
		pool := c.poolOf(d)
		s := &c.pools.list[pool]
		if !s.placed {
			start := s.take(d.count)
			n := numbers(d.p, d.count)
			if *d.num == none {
				*d.num = l.total + tail.total
				tail.add(pool, start, d.count, 1)
				if n > 1 {
					tail.add(NextSlots, 0, 0, n-1)
				}
				return nil
			}
			dense = append(dense, denseRegion{*d.num, n, pool, start, d.count})
			return nil
		}
		if *d.num == none {
			*d.num = place(pool, d.count)
		}
		return nil
	})
	c.cells.placeNew(place)
	slices.SortFunc(dense, func(a, b denseRegion) int { return int(int64(a.num) - int64(b.num)) })
	var out rowList
	for i, r := range l.regions {
		if r.Pool >= 0 && newPool[r.Pool] >= 0 {
			out.add(newPool[r.Pool], r.Start, r.Count, r.Repeat)
			continue
		}
		for at, end := l.firsts[i], l.firsts[i]+r.Repeat; at < end; {
			next := end
			if len(dense) > 0 && dense[0].num < end {
				next = dense[0].num
			}
			if next > at {
				out.add(Unused, 0, 0, next-at)
				at = next
			}
			if at < end {
				out.add(dense[0].pool, dense[0].start, dense[0].count, 1)
				dense = dense[1:]
				at++
			}
		}
	}
	for _, r := range tail.rows {
		if r.Pool == NextSlots {
			out.rows = append(out.rows, r)
			continue
		}
		out.add(r.Pool, r.Start, r.Count, r.Repeat)
	}
	return out.rows, err
}

// freePlaces lists the regions of the last image that are not used any more, in
// pools that keep places.
func (c *Collector) freePlaces(used bitset, newPool []int32) map[freeKey][]uint32 {
	l := &c.place
	free := make(map[freeKey][]uint32)
	for i, r := range l.regions {
		if r.Pool < 0 || newPool[r.Pool] < 0 {
			continue
		}
		k := freeKey{int(newPool[r.Pool]), r.Count}
		for num := l.firsts[i] + r.Repeat; num > l.firsts[i]; num-- { // descending, because places are taken from the end of the list
			if !used.has(num - 1) {
				free[k] = append(free[k], num-1)
			}
		}
	}
	return free
}
