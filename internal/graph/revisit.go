package graph

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// Most objects of an image were in the last one, too, at the same address, with
// the same type. Such a one needs no item, is in order already, and keeps its
// region: revisit finds it in the placement. What it can't decide is left to the
// slow way, which makes items of everything and knows nothing of the past but
// the places:
//
//   - objects that are not in the placement, or not as they were, become items;
//   - so do those in pools in order of discovery, those that variables lie in,
//     and those that were merged of several pieces;
//   - if an item and such an object overlap, all is collected again.
type revisit struct {
	on     bool
	pause  int              // images for which it is not tried
	fails  int              // in a row
	queue  mem.Room[uint32] // what is to be walked: an item, a piece or a box
	head   int
	pieces bitset // of the placement, that were reached
	boxes  bitset
	inside bitset // pieces that something leads into: they must be reached
	apart  bitset // pieces that it does not decide about
	used   bitset // regions
	pools  []knownPool
	hi     mem.Room[uintptr] // where the pieces that are made of items end
	taken  uint32
	row    int // guess
	piece  int
	box    int
}

// knownPool is what was reached of a pool of the placement.
type knownPool struct {
	placed  bool
	bytes   bool // reached as other than strings
	regions int
	elems   uint64
}

// Kinds of entries in the queue.
const (
	queueItem = iota << 30
	queuePiece
	queueBox
)

// errSlow says that all must be collected in the slow way.
var errSlow = errors.New("collect everything")

// begin prepares a walk.
func (v *revisit) begin(c *Collector, shown bool) {
	l := &c.place
	v.on = false
	if v.pause > 0 {
		v.pause--
		return
	}
	if !c.Remember || l.total == 0 || shown || l.pieces.len() == 0 && l.boxes.len() == 0 {
		return
	}
	if len(l.names) != len(c.roots) {
		return
	}
	for i, r := range c.roots {
		if r.Name != l.names[i] {
			return
		}
	}
	if !slices.Contains(l.placed, true) {
		return
	}
	v.on = true
	v.pieces, v.boxes = newBitset(l.pieces.len()), newBitset(l.boxes.len())
	v.inside, v.apart = newBitset(l.pieces.len()), newBitset(l.pieces.len())
	v.used = newBitset(int(l.total))
	v.queue.Open()
	v.head, v.taken, v.row, v.piece, v.box = 0, 0, 0, 0, 0
	for k := range l.apart {
		v.apart.add(l.apart[k])
	}
	v.pools = make([]knownPool, len(l.keys))
	for i := range v.pools {
		v.pools[i].placed = l.placed[i]
	}
}

// fail notes that the walk was in vain.
func (v *revisit) fail() {
	v.on = false
	v.fails = min(v.fails+1, 6)
	v.pause = 1<<v.fails - 1
}

// end gives the memory back.
func (v *revisit) end() {
	v.queue.Drop()
	v.hi.Drop()
	v.pieces, v.boxes, v.inside, v.apart, v.used, v.pools = nil, nil, nil, nil, nil, nil
}

func (v *revisit) push(entry uint32) {
	if len(v.queue.S) == cap(v.queue.S) {
		v.queue.More()
	}
	v.queue.S = append(v.queue.S, entry)
}

// reached looks for n elements of p at addr, which root leads to. It reports
// false if it does not know them: then they become an item.
func (v *revisit) reached(l *placement, addr uintptr, p *plan, n uint64, how via, root int) bool {
	k := l.pieces.find(addr, &v.piece)
	if k < 0 {
		return false
	}
	lo, num := l.pieces.lo.S[k], l.pieces.num.S[k]
	v.row = l.row(num, &v.row)
	r := &l.regions[v.row]
	if r.Pool < 0 || !v.pools[r.Pool].placed || v.apart.has(uint32(k)) {
		return false
	}
	q, key := &v.pools[r.Pool], &l.keys[r.Pool]
	if lo == addr && key.p == p.base && r.Count == n*p.mult {
		if how != viaString {
			q.bytes = true
		}
		if v.pieces.has(uint32(k)) {
			return true
		}
		if key.root != root {
			return false
		}
		v.pieces.add(uint32(k))
		v.note(q, num, r.Count)
		if key.p.enc {
			v.push(queuePiece | uint32(k))
		}
		return true
	}
	hi, end := lo+uintptr(r.Count)*key.p.size, addr+uintptr(n)*p.size
	if addr >= hi || end > hi {
		return false
	}
	off := (addr - lo) % key.p.size
	if !(off == 0 && same(key.p, p.base)) && !key.p.fits(off, uint64((hi-addr+off)/key.p.size), p.base, n*p.mult) {
		return false
	}
	if how != viaString {
		q.bytes = true
	}
	v.inside.add(uint32(k))
	return true
}

func (v *revisit) note(q *knownPool, num uint32, count uint64) {
	v.used.add(num)
	v.taken++
	q.regions++
	q.elems += count
}

// boxed is reached for a value of p in an interface.
func (v *revisit) boxed(l *placement, addr uintptr, p *plan, root int) bool {
	for k := l.boxes.find(addr, &v.box); k >= 0 && l.boxes.lo.S[k] == addr; k-- {
		num := l.boxes.num.S[k]
		v.row = l.row(num, &v.row)
		r := &l.regions[v.row]
		if r.Pool < 0 || !v.pools[r.Pool].placed || l.keys[r.Pool].p != p.base || r.Count != p.mult {
			continue
		}
		if v.boxes.has(uint32(k)) {
			return true
		}
		if l.keys[r.Pool].root != root {
			return false
		}
		v.boxes.add(uint32(k))
		v.note(&v.pools[r.Pool], num, r.Count)
		if p.base.enc {
			v.push(queueBox | uint32(k))
		}
		return true
	}
	return false
}

// drain walks what is in the queue.
func (v *revisit) drain(c *Collector) error {
	l := &c.place
	row := 0
	var ready int
	for ; v.head < len(v.queue.S); v.head++ {
		if v.head >= ready {
			ready = v.prefetch(c)
		}
		entry := v.queue.S[v.head]
		k := entry &^ inMask
		in := &l.pieces
		switch entry & inMask {
		case queueItem:
			if err := c.walkItem(int(k)); err != nil {
				return err
			}
			continue
		case queueBox:
			in = &l.boxes
		}
		row = l.row(in.num.S[k], &row)
		r := &l.regions[row]
		p, at := l.keys[r.Pool].p, address(in.lo.S[k])
		for n := r.Count; ; {
			if err := c.walkOps(p.walk, at, -1, 0); err != nil {
				return err
			}
			if n--; n == 0 {
				break
			}
			at = unsafe.Add(at, p.size)
		}
	}
	return nil
}

// batch is how many objects are brought into the processor's cache together.
// They lie anywhere, and one after the other each would be waited for.
const batch = 16

// prefetch touches the next objects in the queue. It returns where those after
// them begin.
func (v *revisit) prefetch(c *Collector) (ready int) {
	var at [batch]uintptr
	next := v.queue.S[v.head:min(v.head+batch, len(v.queue.S))]
	for i, entry := range next {
		k := entry &^ inMask
		switch entry & inMask {
		case queuePiece:
			at[i] = c.place.pieces.lo.S[k]
		case queueBox:
			at[i] = c.place.boxes.lo.S[k]
		}
	}
	touch(&c.touched, at[:len(next)])
	return v.head + len(next)
}

// touch reads a byte at each address that is not 0.
func touch(sum *byte, at []uintptr) {
	s := *sum
	for _, a := range at {
		if a != 0 {
			s += *(*byte)(address(a))
		}
	}
	*sum = s
}

// prefetch touches the next items.
func (c *Collector) prefetch() (ready int) {
	var at [batch]uintptr
	next := c.items.S[c.head:min(c.head+batch, len(c.items.S))]
	for i, it := range next {
		if p := c.plan(it); p.base.enc && it.n() > 0 && p.size > 0 {
			at[i] = it.addr
		}
	}
	touch(&c.touched, at[:len(next)])
	return c.head + len(next)
}

// merge puts the pieces and boxes that were reached beside those of the items.
func (c *Collector) merge() error {
	v, l := &c.revisit, &c.place
	for i := range v.inside {
		if v.inside[i]&^v.pieces[i] != 0 {
			return errSlow
		}
	}
	ends := v.hi.S
	row, last := 0, uintptr(0)
	pieceMap, err := mergeSorted(&c.pieces, &l.pieces, v.pieces, func(old bool, k int, lo uintptr) bool {
		ok := lo >= last
		if old {
			row = l.row(l.pieces.num.S[k], &row)
			r := &l.regions[row]
			last = lo + uintptr(r.Count)*l.keys[r.Pool].p.size
		} else {
			last = ends[k]
		}
		return ok
	})
	if err != nil {
		return err
	}
	boxMap, err := mergeSorted(&c.boxes, &l.boxes, v.boxes, func(bool, int, uintptr) bool { return true })
	if err != nil {
		return err
	}
	where := c.where.S
	for i, it := range c.items.S {
		switch {
		case !it.alone():
			where[i] = pieceMap[where[i]]
		case it.via() == viaIface && c.plan(it).size > 0:
			where[i] = boxMap[where[i]]
		}
	}
	all := make(map[uint32]merged, len(c.merged))
	for k, m := range c.merged {
		all[pieceMap[k]] = m
	}
	held := make(map[uint32]bool, len(c.held))
	for k := range c.held {
		held[pieceMap[k]] = true
	}
	c.merged, c.held = all, held
	return nil
}

// mergeSorted adds the entries of old that are in the set to s, and returns where
// those of s are now. next is told of all in order, and says whether to go on.
func mergeSorted(s, old *sorted, set bitset, next func(old bool, k int, lo uintptr) bool) ([]uint32, error) {
	n := 0
	for k := range old.lo.S {
		if set.has(uint32(k)) {
			n++
		}
	}
	newLo := append([]uintptr(nil), s.lo.S...)
	moved := make([]uint32, len(newLo))
	s.open()
	s.lo.Reserve(n + len(newLo))
	s.num.Reserve(n + len(newLo))
	s.index.clear()
	page := uintptr(0)
	add := func(lo uintptr, num uint32) {
		if lo>>pageShift != page || len(s.first) == 0 {
			page = lo >> pageShift
			s.index.add(page)
			s.first = append(s.first, uint32(len(s.lo.S)))
		}
		s.lo.S = append(s.lo.S, lo)
		s.num.S = append(s.num.S, num)
	}
	j := 0
	for k, lo := range old.lo.S {
		if !set.has(uint32(k)) {
			continue
		}
		for ; j < len(newLo) && newLo[j] <= lo; j++ {
			if !next(false, j, newLo[j]) {
				return nil, errSlow
			}
			moved[j] = uint32(len(s.lo.S))
			add(newLo[j], none)
		}
		if !next(true, k, lo) {
			return nil, errSlow
		}
		add(lo, old.num.S[k])
	}
	for ; j < len(newLo); j++ {
		if !next(false, j, newLo[j]) {
			return nil, errSlow
		}
		moved[j] = uint32(len(s.lo.S))
		add(newLo[j], none)
	}
	s.first = append(s.first, uint32(len(s.lo.S)))
	return moved, nil
}
