package graph

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// found is a region that a collector found in the program's memory.
type found struct {
	lo, hi uintptr
	root   int
	box    bool
	p      *plan
}

// memoryFound lists the regions of the image that c has collected. The
// addresses of boxes are left out: boxes may lie in copies that were made for
// an image.
func memoryFound(t *testing.T, c *Collector) (all []found) {
	row := 0
	var cursor cellCursor
	add := func(addr uintptr, num uint32, box bool) {
		r := c.place.regions[c.place.row(num, &row)]
		at := c.refs.S[num]
		if at == 0 {
			if num%7 == 0 { // sometimes jump back: regions must be found in any order
				cursor.addr(&c.cells, num/2)
			}
			at = cursor.addr(&c.cells, num)
		}
		if r.Pool < 0 || at != addr {
			t.Fatalf("region %d of pool %d is at %#x, not at %#x", num, r.Pool, at, addr)
		}
		s := &c.pools.list[r.Pool]
		f := found{addr, addr + uintptr(r.Count)*s.p.size, s.key.root, box, s.p}
		if box {
			f.lo, f.hi = 0, f.hi-f.lo
		}
		all = append(all, f)
	}
	for k, num := range c.pieces.num.S {
		add(c.pieces.lo.S[k], num, false)
	}
	for k, num := range c.boxes.num.S {
		add(c.boxes.lo.S[k], num, true)
	}
	for i := range c.cells.pages.S {
		if r := &c.cells.pages.S[i]; r.n > 0 {
			n := 0
			c.cells.each(r, func(rank int, addr uintptr) {
				n++
				add(addr, c.cells.region(r, uint32(rank)), r.id&1 != 0)
			})
			if n != int(r.n) {
				t.Fatalf("%d cells, %d were counted", n, r.n)
			}
		}
	}
	slices.SortFunc(all, func(a, b found) int {
		box := 0
		if a.box != b.box {
			if box = 1; b.box {
				box = -1
			}
		}
		return cmp.Or(box, cmp.Compare(a.lo, b.lo), cmp.Compare(a.hi, b.hi), cmp.Compare(a.root, b.root), cmp.Compare(a.p.id, b.p.id))
	})
	return all
}

// sameFound compares the regions that two collectors have found.
func sameFound(t *testing.T, name string, a, b []found) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%s: %d regions with cells, %d without", name, len(a), len(b))
	}
	for i := range a {
		f, g := a[i], b[i]
		if f.lo != g.lo || f.hi != g.hi || f.root != g.root || f.box != g.box || !same(f.p, g.p) {
			t.Fatalf("%s: %v with cells, %v without", name, f, g)
		}
	}
}

// cellBlock and cellNode point to each other, to whole objects and into them.
type cellBlock struct {
	n    int64
	node *cellNode
	f    [3]float64
}

type cellTwin struct { // has the size of a cellBlock
	f    [4]float64
	next *cellTwin
}

// cellBig often begins in one page and ends in the next.
type cellBig struct {
	next *cellBig
	f    [175]float64
}

type cellNode struct {
	next, other *cellNode
	block       *cellBlock
	twin        *cellTwin
	pair        *[2]cellBlock
	in          *float64 // an object of its own, or part of a block
	n           *int64
	word        **cellNode // a field of a node
	held        any
	all         []cellBlock
	text        string
	big         *cellBig
	bad         chan int
}

type cellGraph struct {
	*rand.Rand
	nodes  []*cellNode
	blocks []*cellBlock
	twins  []*cellTwin
}

func pickOne[T any](g *cellGraph, from []T) (v T) {
	if len(from) > 0 {
		v = from[g.IntN(len(from))]
	}
	return v
}

func (g *cellGraph) block() *cellBlock {
	if g.IntN(3) > 0 && len(g.blocks) > 0 {
		return pickOne(g, g.blocks)
	}
	b := &cellBlock{n: g.Int64(), node: pickOne(g, g.nodes), f: [3]float64{g.Float64()}}
	g.blocks = append(g.blocks, b)
	return b
}

// set changes a node.
func (g *cellGraph) set(n *cellNode) {
	switch g.IntN(17) {
	case 0, 1:
		n.next = pickOne(g, g.nodes)
	case 2:
		n.other = pickOne(g, g.nodes)
	case 3, 4:
		n.block = g.block()
	case 5:
		n.twin = &cellTwin{next: pickOne(g, g.twins)}
		g.twins = append(g.twins, n.twin)
	case 6:
		n.pair = new([2]cellBlock)
		n.pair[1].node = n
		if g.IntN(2) == 0 {
			g.blocks = append(g.blocks, &n.pair[g.IntN(2)])
		}
	case 7:
		if n.in = new(float64); g.IntN(3) == 0 {
			n.in = &g.block().f[g.IntN(3)]
		}
	case 8:
		if n.n = new(int64); g.IntN(3) == 0 {
			n.n = &g.block().n
		}
	case 9:
		n.word = &pickOne(g, g.nodes).other
	case 10:
		n.held = pick[any](g.Rand, nil, *g.block(), g.block(), n, int64(g.IntN(1000)), float64(g.IntN(5)), [2]int64{1, 2}, "text", n.in, struct{}{})
	case 11:
		n.all = make([]cellBlock, 1+g.IntN(3), 4)
		if g.IntN(2) == 0 {
			g.blocks = append(g.blocks, &n.all[0])
		}
	case 12:
		n.all = pickOne(g, g.nodes).all
		if len(n.all) > 1 {
			n.all = n.all[1:]
		}
	case 13:
		bigs := new([7]cellBig) // adjacent, whatever the allocator's size classes are
		n.big = &bigs[g.IntN(7)]
		n.big.next = pickOne(g, g.nodes).big
	case 14:
		if b := pickOne(g, g.nodes).big; b != nil && g.IntN(2) == 0 {
			n.in = &b.f[g.IntN(len(b.f))]
		}
	case 15:
		if g.IntN(100) == 0 {
			n.all = make([]cellBlock, 500)
			g.blocks = append(g.blocks, &n.all[g.IntN(500)], &n.all[g.IntN(500)])
		}
	case 16:
		n.text = fmt.Sprint("text ", g.IntN(100))
	}
}

// TestCells_RandomGraphs changes random graphs and collects them with cells and
// without. Both images must be equal and restorable. In between, some images
// fail, some are given up, and objects are freed.
func TestCells_RandomGraphs(t *testing.T) {
	defer func(n int) { fewCells = n }(fewCells)
	long := time.Duration(0)
	if s := os.Getenv("CELLS_FOR"); s != "" {
		long, _ = time.ParseDuration(s)
	}
	began := time.Now()
	images, cellsSeen, asItems := 0, 0, 0
	for seed := uint64(0); seed < stressed(4, 600) || time.Since(began) < long; seed++ {
		g := &cellGraph{Rand: rand.New(rand.NewPCG(seed, 5))}
		fewCells = pick(g.Rand, 1, 1, 4, 16)
		roots := make([]Root, 1+g.IntN(5))
		for i := range roots {
			n := new(cellNode)
			g.nodes = append(g.nodes, n)
			roots[i] = Root{fmt.Sprint("r", i), n}
			if g.IntN(2) == 0 {
				p := new(*cellNode)
				*p = pickOne(g, g.nodes)
				roots[i].Ptr = p
			}
		}
		size := 20 + g.IntN(600)
		wild := g.IntN(3) // 0: no pointers into other objects
		round := 0
		change := func(times int) {
			for range times {
				n := &cellNode{next: pickOne(g, g.nodes)}
				if len(g.nodes) < size {
					g.nodes = append(g.nodes, n)
				}
				for range 3 {
					if wild == 0 {
						n := pickOne(g, g.nodes)
						switch g.IntN(5) {
						case 4:
							bigs := new([7]cellBig)
							bigs[5].next, bigs[6].next = n.big, &bigs[5]
							if n.big = &bigs[6]; g.IntN(50) == 0 && round%2 == 1 {
								n.in = &n.big.f[g.IntN(175)]
							}
						case 0:
							n.next = pickOne(g, g.nodes)
						case 1:
							n.other = pickOne(g, g.nodes)
						case 2:
							n.block = &cellBlock{n: 3}
						case 3:
							n.twin = &cellTwin{next: n.twin}
						}
						continue
					}
					g.set(pickOne(g, g.nodes))
				}
			}
		}
		change(size)
		with, without := &Collector{Remember: true}, &Collector{Remember: true}
		for round = range 8 {
			name := fmt.Sprintf("seed %d, round %d", seed, round)
			if g.IntN(4) == 0 { // make an image fail
				n := roots[0].Ptr
				if p, ok := n.(**cellNode); ok {
					n = *p
				}
				bad := n.(*cellNode)
				bad.bad = make(chan int)
				if _, err := with.Collect(roots, nil); err == nil {
					t.Fatalf("%s: a channel was saved", name)
				}
				bad.bad = nil
			}
			img, err := with.Collect(roots, nil)
			if e := new(UnsupportedError); errors.As(err, &e) {
				without.plain = true
				if _, again := without.Collect(roots, nil); again == nil || again.Error() != err.Error() {
					t.Fatalf("%s: refused (%v) only with cells (%v)", name, err, again)
				}
				change(size / 4)
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			images++
			for _, k := range with.cells.kinds {
				cellsSeen += k.n
			}
			asItems += with.pieces.len()
			mine := memoryFound(t, with)
			if g.IntN(5) == 0 { // give the image up
				with.Release()
			} else {
				f := store(t, img)
				into := make([]Root, len(roots))
				for i, r := range roots {
					into[i] = Root{r.Name, reflect.New(reflect.TypeOf(r.Ptr).Elem()).Interface()}
				}
				loaded, err := f.image()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				b, err := Prepare(into, loaded, nil, Options{Limit: 1 << 30})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if err := fillTargets(b, loaded, f.data); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if err := isomorphicRoots(roots, into); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				with.Release()
				if g.IntN(5) == 0 { // continue with what was restored
					with.KeepPlaces(b, into)
					roots = into
					g.nodes, g.blocks, g.twins = nil, nil, nil
					for _, r := range roots {
						switch n := r.Ptr.(type) {
						case *cellNode:
							g.nodes = append(g.nodes, n)
						case **cellNode:
							g.nodes = append(g.nodes, *n)
						}
					}
					runtime.GC()
					change(size / 4)
					continue
				}
			}
			without.plain = true
			if _, err := without.Collect(roots, nil); err != nil {
				t.Fatalf("%s: refused only without cells: %v", name, err)
			}
			if n := len(without.cells.kinds); n > 0 {
				t.Fatalf("%s: %d kinds of cells", name, n)
			}
			sameFound(t, name, mine, memoryFound(t, without))
			without.Release()
			if g.IntN(3) == 0 { // free most objects
				g.nodes = g.nodes[:1+g.IntN(len(g.nodes))]
				g.blocks, g.twins = nil, nil
				for _, r := range roots {
					if p, ok := r.Ptr.(**cellNode); ok {
						*p = g.nodes[0]
					}
				}
				runtime.GC()
			}
			change(1 + g.IntN(size/2))
		}
		with.Close()
		without.Close()
	}
	t.Log(images, "images,", cellsSeen, "cells,", asItems, "other pieces")
	if cellsSeen < asItems/4 {
		t.Errorf("only %d cells, %d other pieces", cellsSeen, asItems)
	}
}

// TestCells_AcrossPages has pointers into objects that begin in one page and
// end in another.
func TestCells_AcrossPages(t *testing.T) {
	type state struct {
		list *cellBig
		in   []*float64
	}
	s := new(state)
	bigs := new([200]cellBig) // adjacent
	for i := range bigs {
		bigs[i].next = s.list
		s.list = &bigs[i]
	}
	for b := s.list; b != nil; b = b.next {
		last := &b.f[len(b.f)-1]
		if uintptr(unsafe.Pointer(b))>>pageShift != uintptr(unsafe.Pointer(last))>>pageShift {
			s.in = append(s.in, last)
		}
	}
	if len(s.in) < 10 {
		t.Fatalf("only %d objects lie across pages", len(s.in))
	}
	roots := []Root{{"s", s}}
	with, without := &Collector{Remember: true}, &Collector{Remember: true, plain: true}
	defer with.Close()
	defer without.Close()
	for range 2 {
		img, err := with.Collect(roots, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := without.Collect(roots, nil); err != nil {
			t.Fatal(err)
		}
		sameFound(t, "pages", memoryFound(t, with), memoryFound(t, without))
		got := new(state)
		if err := store(t, img).load([]Root{{"s", got}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := isomorphic(s, got); err != nil {
			t.Fatal(err)
		}
		s.list.next.next = s.list.next.next.next
	}
}

// TestCells_NoneBesideLargeArrays has single objects and large arrays of one
// type. The pool is not copied object by object, so there must be no cells in
// it.
func TestCells_NoneBesideLargeArrays(t *testing.T) {
	type state struct {
		large []float64
		small []*float64
	}
	s := &state{large: make([]float64, 100_000)}
	for i := range 100 {
		x := float64(i)
		s.small = append(s.small, &x)
	}
	c := &Collector{Remember: true}
	defer c.Close()
	for range 3 {
		img, err := c.Collect([]Root{{"s", s}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range img.Pools {
			if p.Elem == "float64" && p.Gather != nil {
				t.Error("the large array is copied")
			}
		}
		got := new(state)
		if err := store(t, img).load([]Root{{"s", got}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := isomorphic(s, got); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.barred) != 1 || c.cells.on && len(c.cells.kinds) > 0 {
		t.Errorf("%d kinds are barred, there are %d", len(c.barred), len(c.cells.kinds))
	}
}

// cellPanic panics when it is saved, if now is set.
type cellPanic struct{ now, n int64 }

func (p *cellPanic) CairnState(c *Coder) error {
	if p.now != 0 {
		panic("now")
	}
	Field(c, "n", &p.n)
	return nil
}

// TestCells_Panic continues after a CairnState method has panicked.
func TestCells_Panic(t *testing.T) {
	type state struct {
		list  *chained
		panic *cellPanic
	}
	s := &state{panic: &cellPanic{n: 5}}
	more := func() {
		for i := range 2000 {
			s.list = &chained{next: s.list, v: int64(i)}
		}
	}
	c := &Collector{Remember: true}
	defer c.Close()
	roots := []Root{{"s", s}}
	for round := range 4 {
		more()
		if s.panic.now = int64(round % 2); round%2 == 1 {
			func() {
				defer func() { recover() }()
				c.Collect(roots, nil)
				t.Error("no panic")
			}()
			s.panic.now = 0
			more()
		}
		img, err := c.Collect(roots, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := &state{}
		if err := store(t, img).load([]Root{{"s", got}}, nil); err != nil {
			t.Fatal(err)
		}
		if err := isomorphic(s, got); err != nil {
			t.Fatal(err)
		}
	}
}
