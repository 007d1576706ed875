package commcheck

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"testing"
)

// TestPool_LikeMap applies the same random operations to a pool and to a map,
// and keeps old versions.
func TestPool_LikeMap(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	work := 0
	type version struct {
		p     pool
		model map[int32]*object
	}
	check := func(v version) {
		t.Helper()
		n := 0
		for kind := range 600 {
			l := v.p.of(kind)
			n += len(l)
			if !slices.IsSortedFunc(l, func(a, b *object) int { return int(a.sym) - int(b.sym) }) {
				t.Fatalf("objects of type %d are not in order", kind)
			}
			for _, o := range l {
				if v.model[o.sym] != o || o.kind != kind {
					t.Fatalf("object %d of type %d is another than was put", o.sym, kind)
				}
			}
		}
		s := sum{count: len(v.model)}
		types := map[int]int{}
		for sym, o := range v.model {
			if v.p.get(o.kind, sym) != o {
				t.Fatalf("object %d is gone", sym)
			}
			if types[o.kind]++; types[o.kind] == maxObjects+1 {
				s.over++
			}
			if o.view {
				s.views++
			}
			s.last, s.top = max(s.last, sym), max(s.top, o.top)
		}
		if n != len(v.model) || v.p.size() != n || n > 0 && v.p.root.sum != s {
			t.Fatalf("%d objects of %d, in sum %+v, want %+v", n, len(v.model), v.p.root.sum, s)
		}
	}
	all := []version{{model: map[int32]*object{}}}
	for i := range 3000 {
		v := all[r.Intn(len(all))]
		w := version{v.p, maps.Clone(v.model)}
		switch op := r.Intn(10); {
		case op < 7:
			o := &object{sym: int32(1 + r.Intn(2000)), kind: []int{r.Intn(3), r.Intn(30), r.Intn(600)}[r.Intn(3)], top: int32(r.Intn(3000)), view: r.Intn(9) == 0}
			if old := w.model[o.sym]; old != nil {
				o.kind = old.kind // a symbol has one type
			}
			w.p = w.p.put(o, &work)
			w.model[o.sym] = o
		case op == 7:
			first := int32(r.Intn(2000))
			w.p = w.p.each(func(s *sum) bool { return s.last >= first }, func(_ int, l []*object) []*object {
				i, _ := find(l, first)
				return l[:i:i]
			}, &work)
			maps.DeleteFunc(w.model, func(sym int32, _ *object) bool { return sym >= first })
		default:
			kind := r.Intn(30)
			w.p = w.p.with(kind, nil, &work)
			maps.DeleteFunc(w.model, func(_ int32, o *object) bool { return o.kind == kind })
		}
		x := all[r.Intn(len(all))]
		var want, got []string
		for sym, o := range x.model {
			if w.model[sym] != o {
				want = append(want, fmt.Sprint(sym))
			}
		}
		for _, o := range w.p.news(x.p, &work) {
			got = append(got, fmt.Sprint(o.sym))
			if x.model[o.sym] != o {
				t.Fatalf("object %d is in neither", o.sym)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("different are %v, want %v", got, want)
		}
		all = append(all, w)
		if i%50 == 0 {
			check(all[r.Intn(len(all))])
			check(w)
		}
	}
}

// TestPool_CostIndependentOfSize shows that an operation on one object costs
// the same however many there are.
func TestPool_CostIndependentOfSize(t *testing.T) {
	cost := func(types int) int {
		var p pool
		work := 0
		for k := range types {
			p = p.put(&object{sym: int32(k + 1), kind: k}, &work)
		}
		work = 0
		q := p.put(&object{sym: int32(types + 1), kind: types / 2}, &work)
		if l := p.news(q, &work); len(l) != 1 {
			t.Fatalf("%d objects differ", len(l))
		}
		return work
	}
	if few, many := cost(200), cost(20000); many > 3*few {
		t.Errorf("among 20000 objects one costs %d steps, among 200 %d", many, few)
	}
}

// TestGlobals_LikeSlices applies the same random operations to a table of
// variables and to slices.
func TestGlobals_LikeSlices(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	const n = 300
	g := newGlobals(n)
	type version struct {
		s     globals
		model []vec
	}
	same := func(x, y []vec) bool {
		return slices.EqualFunc(x, y, func(a, b vec) bool { return (a == nil) == (b == nil) && slices.Equal(a, b) })
	}
	check := func(v version) {
		t.Helper()
		for i, x := range v.model {
			if !same([]vec{g.get(v.s, i)}, []vec{x}) {
				t.Fatalf("variable %d is %v, want %v", i, g.get(v.s, i), x)
			}
		}
	}
	work := 0
	all := []version{{0, make([]vec, n)}}
	for range 2000 {
		v := all[r.Intn(len(all))]
		w := version{v.s, slices.Clone(v.model)}
		switch r.Intn(4) {
		case 0:
			x := all[r.Intn(len(all))]
			last := -1
			w.s = g.join(w.s, x.s, func(i int, a, b vec) vec {
				if i <= last || slices.Equal(a, b) && (a == nil) == (b == nil) {
					t.Fatalf("variable %d after %d: %v and %v", i, last, a, b)
				}
				last = i
				return b
			}, &work)
			w.model = slices.Clone(x.model)
		case 1:
			first := int32(1 + r.Intn(20))
			change := func(x vec) vec { return vec{num(int64(first)), num(7)} }
			w.s = g.renamed(w.s, first, change, &work)
			for i, x := range w.model {
				if x != nil && max(x[0].sym, x[1].sym, 0) >= first {
					w.model[i] = change(x)
				}
			}
		default:
			i := r.Intn(n)
			x := vec{{sym: int32(r.Intn(20))}, num(int64(r.Intn(3)))}
			if r.Intn(9) == 0 {
				x = nil
			}
			w.s = g.with(w.s, i, x)
			w.model[i] = x
		}
		check(w)
		for range 5 {
			if x := all[r.Intn(len(all))]; (x.s == w.s) != same(x.model, w.model) {
				t.Fatalf("numbers %d and %d are of %v and %v", x.s, w.s, x.model, w.model)
			}
		}
		all = append(all, w)
	}
}
