package commcheck

import "encoding/binary"

// globals stands for the values of a program's variables. It is the number of a
// tree; equal values have equal numbers. A table holds each tree once, and
// leaves are numbers of values. So a call that changes one variable out of a
// thousand copies a few numbers, and a comparison of two states skips what they
// share.
type globals int32

// globalTable holds all trees of an analysis. Number 0 stands for no value, and
// for a tree without values.
type globalTable struct {
	depth  int // levels of a tree above the leaves
	values []vec
	tops   []int32 // the largest symbol in each value
	byText map[string]int32
	trees  []globalTree
	byTree map[globalTree]int32
}

type globalTree struct {
	level int8
	kids  [fanout]int32
	top   int32 // the largest symbol in it
}

func newGlobals(n int) *globalTable {
	g := &globalTable{values: make([]vec, 1), tops: make([]int32, 1), byText: map[string]int32{}, trees: make([]globalTree, 1), byTree: map[globalTree]int32{}}
	for n > 1<<((g.depth+1)*fanBits) {
		g.depth++
	}
	return g
}

// value returns the number of a value.
func (g *globalTable) value(x vec) int32 {
	if x == nil {
		return 0
	}
	text := make([]byte, 0, 12*len(x))
	top := int32(0)
	for _, e := range x {
		text = binary.LittleEndian.AppendUint32(text, uint32(e.sym))
		text = binary.LittleEndian.AppendUint64(text, uint64(e.v))
		top = max(top, e.sym)
	}
	if n, ok := g.byText[string(text)]; ok {
		return n
	}
	n := int32(len(g.values))
	g.values, g.tops = append(g.values, x), append(g.tops, top)
	g.byText[string(text)] = n
	return n
}

// tree returns the number of a tree.
func (g *globalTable) tree(level int, kids [fanout]int32) int32 {
	if kids == [fanout]int32{} {
		return 0
	}
	t := globalTree{level: int8(level), kids: kids}
	for _, k := range kids {
		if level == 0 {
			t.top = max(t.top, g.tops[k])
		} else {
			t.top = max(t.top, g.trees[k].top)
		}
	}
	n, ok := g.byTree[t]
	if !ok {
		n = int32(len(g.trees))
		g.trees = append(g.trees, t)
		g.byTree[t] = n
	}
	return n
}

// get returns the value of variable i.
func (g *globalTable) get(s globals, i int) vec {
	n := int32(s)
	for d := g.depth; d >= 0; d-- {
		n = g.trees[n].kids[i>>(d*fanBits)&(fanout-1)]
	}
	return g.values[n]
}

// with returns s with another value of variable i.
func (g *globalTable) with(s globals, i int, x vec) globals {
	var set func(n int32, d int) int32
	set = func(n int32, d int) int32 {
		if d < 0 {
			return g.value(x)
		}
		kids := g.trees[n].kids
		k := &kids[i>>(d*fanBits)&(fanout-1)]
		*k = set(*k, d-1)
		return g.tree(d, kids)
	}
	return globals(set(int32(s), g.depth))
}

// join calls f for the variables whose values differ in s and t, in order. The
// result of f replaces the value in s.
func (g *globalTable) join(s, t globals, f func(i int, x, y vec) vec, work *int) globals {
	var visit func(m, n int32, d, i int) int32
	visit = func(m, n int32, d, i int) int32 {
		if *work++; m == n {
			return m
		}
		if d < 0 {
			return g.value(f(i, g.values[m], g.values[n]))
		}
		kids, others := g.trees[m].kids, g.trees[n].kids
		for k := range kids {
			kids[k] = visit(kids[k], others[k], d-1, i<<fanBits|k)
		}
		return g.tree(d, kids)
	}
	return globals(visit(int32(s), int32(t), g.depth, 0))
}

// renamed returns s, in which f has replaced each value that contains a symbol
// from first on.
func (g *globalTable) renamed(s globals, first int32, f func(vec) vec, work *int) globals {
	var visit func(n int32, d int) int32
	visit = func(n int32, d int) int32 {
		*work++
		switch {
		case n == 0 || d < 0 && g.tops[n] < first || d >= 0 && g.trees[n].top < first:
			return n
		case d < 0:
			return g.value(f(g.values[n]))
		}
		kids := g.trees[n].kids
		for k := range kids {
			kids[k] = visit(kids[k], d-1)
		}
		return g.tree(d, kids)
	}
	return globals(visit(int32(s), g.depth))
}
