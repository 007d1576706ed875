package commcheck

import (
	"slices"
	"sort"
	"sync/atomic"
)

// pool holds the objects of a state by type, as a persistent tree: put returns
// a new pool that shares all but one path. So a comparison of two pools skips
// what they share, and sums answer questions about whole branches. A longer
// program has more objects, but each statement still costs the same.
type pool struct {
	root  *branch // nil: empty
	depth int     // branches between the root and the leaves
	stamp uint64  // equal for equal pools
}

// branch is a part of a pool. A leaf holds the objects of one type, in the
// order of their symbols.
type branch struct {
	kids []*branch // fanout branches; none in a leaf
	list []*object
	sum
}

// sum describes all objects in a branch.
type sum struct {
	count int
	over  int   // number of types with more than maxObjects objects
	views int   // number of objects that are views
	last  int32 // the largest symbol of an object
	top   int32 // the largest symbol in an object
}

const (
	fanBits = 4
	fanout  = 1 << fanBits
)

var stamps atomic.Uint64

func (p pool) size() int {
	if p.root == nil {
		return 0
	}
	return p.root.count
}

// of returns the objects of a type, in the order of their symbols. The caller
// must not change them.
func (p pool) of(kind int) []*object {
	if kind>>((p.depth+1)*fanBits) != 0 {
		return nil
	}
	b := p.root
	for d := p.depth; b != nil && d >= 0; d-- {
		b = b.kids[kind>>(d*fanBits)&(fanout-1)]
	}
	if b == nil {
		return nil
	}
	return b.list
}

// get returns the object of a symbol, or nil.
func (p pool) get(kind int, sym int32) *object {
	l := p.of(kind)
	if i, ok := find(l, sym); ok {
		return l[i]
	}
	return nil
}

func find(l []*object, sym int32) (int, bool) {
	i := sort.Search(len(l), func(i int) bool { return l[i].sym >= sym })
	return i, i < len(l) && l[i].sym == sym
}

// with returns p in which list replaces the objects of a type.
func (p pool) with(kind int, list []*object, work *int) pool {
	for kind>>((p.depth+1)*fanBits) != 0 {
		p = p.raised()
	}
	p.root = p.root.with(kind, p.depth, list)
	p.stamp = stamps.Add(1)
	*work += len(list) + (p.depth+1)*fanout
	return p
}

// raised returns p with one more level between root and leaves.
func (p pool) raised() pool {
	if p.root != nil {
		b := &branch{kids: make([]*branch, fanout), sum: p.root.sum}
		b.kids[0] = p.root
		p.root = b
	}
	p.depth++
	return p
}

func (b *branch) with(kind, depth int, list []*object) *branch {
	if depth < 0 {
		if len(list) == 0 {
			return nil
		}
		return leaf(list)
	}
	n := &branch{kids: make([]*branch, fanout)}
	if b != nil {
		copy(n.kids, b.kids)
	}
	i := kind >> (depth * fanBits) & (fanout - 1)
	n.kids[i] = n.kids[i].with(kind, depth-1, list)
	n.add()
	if n.count == 0 {
		return nil
	}
	return n
}

func leaf(list []*object) *branch {
	b := &branch{list: list, sum: sum{count: len(list), last: list[len(list)-1].sym}}
	for _, o := range list {
		b.top = max(b.top, o.top)
		if o.view {
			b.views++
		}
	}
	if len(list) > maxObjects {
		b.over = 1
	}
	return b
}

// add computes the sum of an inner branch.
func (b *branch) add() {
	b.sum = sum{}
	for _, k := range b.kids {
		if k != nil {
			b.count, b.over, b.views = b.count+k.count, b.over+k.over, b.views+k.views
			b.last, b.top = max(b.last, k.last), max(b.top, k.top)
		}
	}
}

// put returns p in which o replaces the object of its symbol.
func (p pool) put(o *object, work *int) pool {
	l := p.of(o.kind)
	i, ok := find(l, o.sym)
	if ok {
		l = slices.Clone(l)
		l[i] = o
	} else {
		l = slices.Insert(slices.Clip(l), i, o)
	}
	return p.with(o.kind, l, work)
}

// each calls f with the objects of each type, in branches for which want
// reports true. The result of f replaces them.
func (p pool) each(want func(*sum) bool, f func(kind int, list []*object) []*object, work *int) pool {
	var visit func(b *branch, depth, kind int) *branch
	visit = func(b *branch, depth, kind int) *branch {
		*work++
		if b == nil || !want(&b.sum) {
			return b
		}
		if depth < 0 {
			*work += len(b.list)
			l := f(kind, b.list)
			switch {
			case len(l) == 0:
				return nil
			case len(l) == len(b.list) && &l[0] == &b.list[0]:
				return b
			}
			return leaf(l)
		}
		out := b
		for i, k := range b.kids {
			c := visit(k, depth-1, kind<<fanBits|i)
			if c == k {
				continue
			}
			if out == b {
				out = &branch{kids: slices.Clone(b.kids)}
			}
			out.kids[i] = c
		}
		if out != b {
			if out.add(); out.count == 0 {
				return nil
			}
		}
		return out
	}
	if root := visit(p.root, p.depth, 0); root != p.root {
		p.root, p.stamp = root, stamps.Add(1)
	}
	return p
}

// news returns the objects of q that p does not have, or has with other
// contents, in the order of their symbols.
func (p pool) news(q pool, work *int) []*object {
	for p.depth < q.depth {
		p = p.raised()
	}
	for q.depth < p.depth {
		q = q.raised()
	}
	var out []*object
	var visit func(x, y *branch)
	visit = func(x, y *branch) {
		*work++
		if x == y || y == nil {
			return
		}
		if y.kids == nil {
			var l []*object
			if x != nil {
				l = x.list
			}
			*work += len(y.list)
			for _, o := range y.list {
				if i, ok := find(l, o.sym); !ok || l[i] != o {
					out = append(out, o)
				}
			}
			return
		}
		for i, k := range y.kids {
			if x == nil {
				visit(nil, k)
			} else {
				visit(x.kids[i], k)
			}
		}
	}
	visit(p.root, q.root)
	slices.SortFunc(out, func(a, b *object) int { return int(a.sym) - int(b.sym) })
	return out
}
