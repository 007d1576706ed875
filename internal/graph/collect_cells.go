package graph

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"sort"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// cells holds the objects that need no item. A cell is an object that pointers
// refer to as one value of one type, or a value in an interface. In a graph of
// small objects, most objects are cells. A cell is represented by one bit of
// the page that it lies in; the number of set bits before it leads to its
// region. Cells need not be sorted and take hardly any memory.
//
// A cell overlaps nothing. When all objects have been found, separateCells
// turns the cells of each page in which something overlaps into items. The
// following are items from the start:
//
//   - variables, slices, strings and stand-ins;
//   - objects in the program's own image, because they may have a name (see
//     binary_stdvars.go);
//   - values of a type if the variable leads to few values of that type;
//   - everything, if the path of an error is needed, or if objects need not
//     keep their places.
//
// Every image is collected from scratch. The image before it only determines
// the places of objects.
type cells struct {
	on    bool // there may be cells
	slots mem.OffHeap[cellSlot]
	used  int // slots in use
	shift uint
	pages mem.OffHeap[cellPage]
	bits  mem.OffHeap[uint64]
	ranks mem.OffHeap[uint16] // number of set bits in the page before each word
	kinds []cellKind          // in order of discovery
	byKey map[cellKey]int32
	nums  mem.OffHeap[uint32] // regions of the cells of pages that have a list
	last  uint32              // the page that was looked up last
	runs  []cellRun           // see memory
}

// cellKey identifies cells that are in the same pool and are treated alike.
type cellKey struct {
	root int32
	id   uint32 // plan id times 2, plus 1 for values in interfaces
}

// cellKind is what the collector knows about the cells of one key.
type cellKind struct {
	cellKey
	p    *plan
	n    int // number of cells
	pool int32
}

type cellSlot struct {
	page uintptr // 0: empty
	id   uint32
	at   uint32 // index in pages
}

// cellPage describes the values of one type that begin in one page.
type cellPage struct {
	page uintptr
	id   uint32
	kind int32  // index in kinds; -1: the values are items, not cells
	seen uint32 // first word of the bits of all values that were reached
	own  uint32 // first word of the bits of this kind's cells; may equal seen
	next uint32 // the cellPage of another root; 0: there is none
	n    uint32 // number of cells; 0: all have become items
	num  uint32 // region of the first cell, or the start of the list in nums
	list bool
	more bool // reached through next of another cellPage; it has no slot
}

// maxCell is the size of the largest cells. moreRoots is how many roots besides
// the first may have cells of one type in one page.
const (
	maxCell   = pageSize / 2
	moreRoots = 3
)

// A kind with fewer than fewCells cells is turned into items. Tests change it.
var fewCells = 16

// errAgain requests that everything is collected again, without cells.
var errAgain = errors.New("collect again")

func (v *cells) clear() {
	clear(v.slots.S)
	v.used, v.last = 0, 0
	v.kinds, v.runs = v.kinds[:0], v.runs[:0]
	v.pages.Reset()
	v.bits.Reset()
	v.ranks.Reset()
	v.nums.Reset()
	clear(v.byKey)
}

// drop frees the memory.
func (v *cells) drop() {
	v.bits.Drop()
	v.ranks.Drop()
	v.nums.Drop()
	v.slots.Drop()
	v.pages.Drop()
	v.used, v.kinds, v.byKey, v.runs = 0, nil, nil, nil
}

func (v *cells) close() {
	v.bits.Close()
	v.ranks.Close()
	v.nums.Close()
	v.slots.Close()
	v.pages.Close()
}

// room reserves n words of bits and returns the index of the first.
func (v *cells) room(n uint32) uint32 {
	at := len(v.bits.S)
	if at+int(n) > cap(v.bits.S) {
		v.bits.Reserve(at + at/2 + int(n))
	}
	v.bits.S = v.bits.S[:at+int(n)]
	clear(v.bits.S[at:])
	return uint32(at)
}

// words returns how many words of bits a page needs for values of p.
func (p *plan) words() uint32 { return uint32(pageSize>>p.align+63) / 64 }

// first records that the value of p at addr was reached from c.root. fresh says
// that it was not reached before. cell says that it is a cell; a fresh value
// that is not a cell must become an item. The address must be a multiple of the
// type's alignment.
func (c *Collector) first(addr uintptr, p *plan, box uint32) (fresh, cell bool) {
	v := &c.cells
	page, id := addr>>pageShift, p.id<<1|box
	if int(v.last) >= len(v.pages.S) || v.pages.S[v.last].page != page || v.pages.S[v.last].id != id {
		v.last = c.cellPage(page, id, p)
	}
	r := &v.pages.S[v.last]
	i := uint32(addr & (pageSize - 1) >> p.align)
	w, bit := i/64, uint64(1)<<(i%64)
	seen := &v.bits.S[r.seen+w]
	switch {
	case *seen&bit != 0:
		return false, false
	case r.kind < 0:
		*seen |= bit
		return true, false
	case int(v.kinds[r.kind].root) != c.root:
		return true, c.otherRoot(v.last, p, w, bit)
	}
	*seen |= bit
	v.bits.S[r.own+w] |= bit
	r.n++
	v.kinds[r.kind].n++
	return true, true
}

// otherRoot does the work of first for a page whose cells belong to another
// root.
func (c *Collector) otherRoot(at uint32, p *plan, w uint32, bit uint64) bool {
	v := &c.cells
	words := p.words()
	if r := &v.pages.S[at]; r.own == r.seen {
		r.own = v.room(words)
		copy(v.bits.S[r.own:], v.bits.S[r.seen:r.seen+words])
	}
	v.bits.S[v.pages.S[at].seen+w] |= bit
	k, n := at, 0
	for v.pages.S[k].next != 0 {
		k = v.pages.S[k].next
		if int(v.kinds[v.pages.S[k].kind].root) == c.root {
			break
		}
		n++
	}
	if k == at || int(v.kinds[v.pages.S[k].kind].root) != c.root {
		kind := c.cellKind(v.pages.S[at].id, p)
		if n >= moreRoots || kind < 0 {
			return false
		}
		own := v.room(words)
		next := v.addPage(cellPage{page: v.pages.S[at].page, id: v.pages.S[at].id, kind: kind, seen: own, own: own, more: true})
		v.pages.S[k].next = next
		k = next
	}
	r := &v.pages.S[k]
	v.bits.S[r.own+w] |= bit
	r.n++
	v.kinds[r.kind].n++
	return true
}

// cellPage returns the index of the cellPage for values of p, and creates it if
// necessary.
func (c *Collector) cellPage(page uintptr, id uint32, p *plan) uint32 {
	v := &c.cells
	if v.used >= len(v.slots.S)/2 {
		v.grow()
	}
	s := v.find(page, id)
	if s.page != 0 {
		return s.at
	}
	kind := int32(-1)
	if v.on && c.cellsIn(page) {
		kind = c.cellKind(id, p)
	}
	own := v.room(p.words())
	*s = cellSlot{page, id, v.addPage(cellPage{page: page, id: id, kind: kind, seen: own, own: own})}
	v.used++
	return s.at
}

// cellKind returns the kind of the values of p that the current root leads to,
// or -1 if they must not be cells.
func (c *Collector) cellKind(id uint32, p *plan) int32 {
	v := &c.cells
	key := cellKey{int32(c.root), id}
	if k, ok := v.byKey[key]; ok {
		return k
	}
	k := int32(-1)
	if !c.barred[key] && c.know(p) == nil && p.size <= maxCell && p.base.form.Size > 0 && !p.base.remote && p.base.t != byteType && numbers(p.base, p.mult) == 1 {
		k = int32(len(v.kinds))
		v.kinds = append(v.kinds, cellKind{cellKey: key, p: p})
	}
	if v.byKey == nil {
		v.byKey = make(map[cellKey]int32)
	}
	v.byKey[key] = k
	return k
}

// cellsIn reports whether a page may have cells. Pages with package variables
// may not: their values are looked up by address later.
func (c *Collector) cellsIn(page uintptr) bool {
	if page >= imageStart()>>pageShift && page<<pageShift < imageEnd() {
		return false
	}
	if c.named == nil {
		c.named = make(map[uintptr]bool)
		for i := range stdErrors {
			if r, ok := stdVarAt(i); ok {
				c.named[uintptr(r.ptr)>>pageShift] = true
			}
		}
	}
	return !c.named[page]
}

func (v *cells) find(page uintptr, id uint32) *cellSlot {
	h := (uint64(page) ^ uint64(id)<<40) * 0x9e3779b97f4a7c15 >> v.shift
	mask := uint64(len(v.slots.S) - 1)
	for {
		s := &v.slots.S[h]
		if s.page == 0 || s.page == page && s.id == id {
			return s
		}
		h = (h + 1) & mask
	}
}

func (v *cells) grow() {
	n := max(64, 2*len(v.slots.S))
	v.slots.Grow(n)
	v.shift = 64 - uint(bits.TrailingZeros(uint(n)))
	for i := range v.pages.S {
		if r := &v.pages.S[i]; !r.more {
			*v.find(r.page, r.id) = cellSlot{r.page, r.id, uint32(i)}
		}
	}
}

// addPage adds a cellPage and returns its index.
func (v *cells) addPage(r cellPage) uint32 {
	if len(v.pages.S) == cap(v.pages.S) {
		v.pages.GrowOne()
	}
	v.pages.S = append(v.pages.S, r)
	return uint32(len(v.pages.S) - 1)
}

// each calls f for the cells of a page, in address order.
func (v *cells) each(r *cellPage, f func(rank int, addr uintptr)) {
	p := v.kinds[r.kind].p
	rank := 0
	for w := range p.words() {
		for word := v.bits.S[r.own+w]; word != 0; word &= word - 1 {
			i := uintptr(w)*64 + uintptr(bits.TrailingZeros64(word))
			f(rank, r.page<<pageShift+i<<p.align)
			rank++
		}
	}
}

// lookup returns the cellPage of the cell of p at addr and the cell's rank in
// it, or nil if there is no such cell. If root is not -1, the cell must belong
// to that root. last is a guess, which lookup updates.
func (v *cells) lookup(addr uintptr, p *plan, box uint32, root int32, last *uint32) (r *cellPage, rank uint32) {
	if len(v.slots.S) == 0 || addr&(1<<p.align-1) != 0 {
		return nil, 0
	}
	page, id := addr>>pageShift, p.id<<1|box
	at := *last
	if int(at) >= len(v.pages.S) || v.pages.S[at].page != page || v.pages.S[at].id != id || v.pages.S[at].more {
		s := v.find(page, id)
		if s.page == 0 {
			return nil, 0
		}
		at = s.at
		*last = at
	}
	i := uint32(addr & (pageSize - 1) >> p.align)
	w, bit := i/64, uint64(1)<<(i%64)
	for {
		r := &v.pages.S[at]
		if r.n > 0 && v.bits.S[r.own+w]&bit != 0 && (root < 0 || v.kinds[r.kind].root == root) {
			return r, uint32(v.ranks.S[r.own+w]) + uint32(bits.OnesCount64(v.bits.S[r.own+w]&(bit-1)))
		}
		if at = r.next; at == 0 {
			return nil, 0
		}
	}
}

// region returns the region of a cell.
func (v *cells) region(r *cellPage, rank uint32) uint32 {
	if r.list {
		return v.nums.S[r.num+rank]
	}
	return r.num + rank
}

// queued is a cell whose references have not been followed yet.
type queued struct {
	addr uintptr
	id   uint32 // plan id
}

// enqueue adds a cell of p to the queue of walkCells.
func (c *Collector) enqueue(addr uintptr, p *plan) {
	if len(c.queue.S) == cap(c.queue.S) {
		c.queue.GrowOne()
	}
	c.queue.S = append(c.queue.S, queued{addr, p.id})
}

// walkCells follows the references in the queued cells, newest first. Cells lie
// anywhere in memory. It touches several of them at once, so that the cache
// misses overlap.
func (c *Collector) walkCells() error {
	var batch [16]queued
	for len(c.queue.S) > 0 && c.head == len(c.items.S) {
		from := max(len(c.queue.S)-len(batch), 0)
		n := copy(batch[:], c.queue.S[from:])
		c.queue.Truncate(from)
		t := c.touched
		for i := range batch[:n] {
			t += *(*byte)(address(batch[i].addr))
		}
		c.touched = t
		for _, q := range batch[:n] {
			p := c.byID[q.id]
			b := p.base
			for e := range uintptr(p.mult) {
				if err := c.walkOps(b.walk, unsafe.Add(address(q.addr), e*b.size), -1, 0); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// itemRun says that the items before index end, and after the previous run,
// were reached from root.
type itemRun struct{ end, root int }

// endRun records that the items since the last run were reached from root.
func (c *Collector) endRun(root int) {
	n := len(c.items.S)
	if k := len(c.runs) - 1; k >= 0 && (c.runs[k].root == root || c.runs[k].end == n) {
		if c.runs[k].end < n {
			c.runs[k].end = n
		}
		return
	}
	c.runs = append(c.runs, itemRun{n, root})
}

// rootOf returns the root that item i was reached from.
func (c *Collector) rootOf(i int) int {
	k := c.lastRun
	if k >= len(c.runs) || i >= c.runs[k].end || k > 0 && i < c.runs[k-1].end {
		k = sort.Search(len(c.runs), func(k int) bool { return c.runs[k].end > i })
		c.lastRun = k
	}
	return c.runs[k].root
}

// before reports whether item i was reached before item j. For items that were
// cells, only the roots are compared.
func (c *Collector) before(i, j uint32) bool {
	if max(i, j) < uint32(c.walked) || min(i, j) < uint32(len(c.roots)) {
		return i < j
	}
	return cmp.Or(cmp.Compare(c.rootOf(int(i)), c.rootOf(int(j))), cmp.Compare(i, j)) < 0
}

// group describes what begins in one page: either cells, or items that may
// overlap.
type group struct {
	page   uintptr
	lo, hi uintptr // extent of the objects that begin there
	from   int     // for cells: index of the first in byPage
	to     int
	items  bool
}

// separateCells decides which cells stay cells. The others become items.
func (c *Collector) separateCells() error {
	v := &c.cells
	c.walked = len(c.items.S)
	if !v.on || len(v.kinds) == 0 {
		return nil
	}
	var items []uint32
	byPage := make([]uint32, 0, len(v.pages.S))
	for i := range v.pages.S {
		r := &v.pages.S[i]
		switch {
		case r.n == 0:
		case v.kinds[r.kind].n < fewCells:
			items = append(items, uint32(i))
		case r.id&1 == 0: // values in interfaces are distinguished by their types, so they may overlap
			byPage = append(byPage, uint32(i))
		}
	}
	slices.SortFunc(byPage, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(v.pages.S[a].page, v.pages.S[b].page), cmp.Compare(a, b))
	})
	groups := slices.Grow(c.itemGroups(), len(byPage))
	for _, i := range items {
		v.each(&v.pages.S[i], func(_ int, addr uintptr) {
			if p := v.kinds[v.pages.S[i].kind].p; v.pages.S[i].id&1 == 0 {
				groups = append(groups, group{page: v.pages.S[i].page, lo: addr, hi: addr + p.size, items: true})
			}
		})
	}
	var scratch []span
	for i := 0; i < len(byPage); {
		g := group{page: v.pages.S[byPage[i]].page, from: i}
		for ; i < len(byPage) && v.pages.S[byPage[i]].page == g.page; i++ {
		}
		g.to = i
		scratch = v.extent(&g, byPage, scratch)
		groups = append(groups, g)
	}
	groups = byPages(groups)
	// An object that begins before the end of another one becomes an item, and
	// so does the other one.
	longest := 0
	for i := range groups {
		g, l := &groups[i], &groups[longest]
		if i > 0 && g.lo < l.hi {
			g.items, l.items = true, true
		}
		if g.hi > l.hi {
			longest = i
		}
	}
	for _, g := range groups {
		if g.items {
			items = append(items, byPage[g.from:g.to]...)
		}
	}
	return c.makeItems(items)
}

// byPages sorts groups by page. Several groups of one page are merged into one
// group of items.
func byPages(groups []group) []group {
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.page, b.page) })
	n := 0
	for i, g := range groups {
		if i == 0 || g.page != groups[n-1].page {
			groups[n] = g
			n++
			continue
		}
		h := &groups[n-1]
		h.lo, h.hi, h.items = min(h.lo, g.lo), max(h.hi, g.hi), true
		if g.to > g.from {
			h.from, h.to = g.from, g.to
		}
	}
	return groups[:n]
}

// itemGroups lists the pages in which items begin.
func (c *Collector) itemGroups() []group {
	var x pageIndex
	var groups []group
	for _, it := range c.items.S {
		if it.alone() {
			continue
		}
		page, end := it.addr>>pageShift, c.end(it)
		n := int(x.add(page))
		if n == len(groups) {
			groups = append(groups, group{page: page, lo: it.addr, hi: end, items: true})
			continue
		}
		groups[n].lo, groups[n].hi = min(groups[n].lo, it.addr), max(groups[n].hi, end)
	}
	return groups
}

// extent finds where the cells of a group begin and end. If they overlap, the
// group becomes one of items.
func (v *cells) extent(g *group, byPage []uint32, scratch []span) []span {
	g.lo = ^uintptr(0)
	if g.to == g.from+1 {
		r := &v.pages.S[byPage[g.from]]
		size := v.kinds[r.kind].p.size
		v.each(r, func(_ int, addr uintptr) {
			if g.lo == ^uintptr(0) {
				g.lo = addr
			} else if addr < g.hi {
				g.items = true
			}
			g.hi = addr + size
		})
		return scratch
	}
	all := scratch[:0]
	for _, i := range byPage[g.from:g.to] {
		r := &v.pages.S[i]
		size := v.kinds[r.kind].p.size
		v.each(r, func(_ int, addr uintptr) { all = append(all, span{addr, addr + size}) })
	}
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	g.lo = all[0].lo
	for i, s := range all {
		if i > 0 && s.lo < g.hi {
			g.items = true
		}
		g.hi = max(g.hi, s.hi)
	}
	return all
}

// makeItems turns the cells of some pages into items, and computes the ranks of
// the others.
func (c *Collector) makeItems(pages []uint32) error {
	v := &c.cells
	// The new items follow the order in which their cells were found, as far as
	// it is known.
	slices.SortFunc(pages, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(v.kinds[v.pages.S[a].kind].root, v.kinds[v.pages.S[b].kind].root), cmp.Compare(a, b))
	})
	for _, i := range slices.Compact(pages) {
		r := &v.pages.S[i]
		k := &v.kinds[r.kind]
		how, box := viaPtr, r.id&1 != 0
		if box {
			how = viaIface
		}
		var err error
		v.each(r, func(_ int, addr uintptr) {
			if e := c.add(addr, k.p, 1, how, box, -1, 0); e != nil {
				err = e
			}
		})
		if err != nil {
			return err
		}
		k.n -= int(r.n)
		r.n = 0
		c.endRun(int(k.root))
	}
	v.ranks.Reset()
	v.ranks.Reserve(len(v.bits.S))
	v.ranks.S = v.ranks.S[:len(v.bits.S)]
	for i := range v.pages.S {
		r := &v.pages.S[i]
		if r.n == 0 {
			continue
		}
		n := 0
		for w := r.own; w < r.own+v.kinds[r.kind].p.words(); w++ {
			v.ranks.S[w] = uint16(n)
			n += bits.OnesCount64(v.bits.S[w])
		}
	}
	return nil
}
