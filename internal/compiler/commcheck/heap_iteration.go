package commcheck

import (
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// nextIteration prepares objects for the next iteration of a loop. Symbols made
// since first mean something else there, and an object made in this iteration
// stands for many.
func (a *analyzer) nextIteration(s *state, first int32) {
	s.heap = s.heap.each(func(b *sum) bool { return b.top >= first }, func(_ int, l []*object) []*object {
		out := l
		for i, o := range l {
			if c := o.nextIteration(first); c != o {
				if &out[0] == &l[0] {
					out = slices.Clone(l)
				}
				out[i] = c
			}
		}
		return out
	}, &a.work)
	// Objects made in this iteration become one if their contents are equal.
	var made []*object
	s.heap = s.heap.each(func(b *sum) bool { return b.last >= first }, func(_ int, l []*object) []*object {
		i, _ := find(l, first)
		made = append(made, l[i:]...)
		return l[:i:i]
	}, &a.work)
	if len(made) == 0 {
		return
	}
	fresh := pool{}
	for _, o := range made {
		fresh = fresh.put(o, &a.work)
	}
	a.joinHeap(s, &state{heap: fresh}, true)
}

// nextIteration returns o, in which values that are symbols made since first
// are unknown.
func (o *object) nextIteration(first int32) *object {
	if o.top < first {
		return o
	}
	c := o
	for f, x := range o.fields {
		old := young(x.rest, first)
		for _, v := range x.all {
			old = old || young(v, first)
		}
		if !old {
			continue
		}
		blur := func(v vec) vec {
			v = append(vec(nil), v...)
			for r := range v {
				if v[r].sym >= first {
					v[r] = anything
				}
			}
			return v
		}
		n := &cells{all: make(map[int64]vec, len(x.all))}
		if x.rest != nil {
			n.rest = blur(x.rest)
		}
		for i, v := range x.all {
			n.all[i] = blur(v)
		}
		if c == o {
			c = o.clone()
		}
		c.fields[f] = n
	}
	c.top = first - 1
	return c
}

func young(v vec, first int32) bool {
	return slices.ContainsFunc(v, func(e entry) bool { return e.sym >= first })
}

// renewHeap gives new names to the symbols made since first.
func (a *analyzer) renewHeap(s *state, first int32, name func(entry) entry, vector func(vec) vec) {
	var list []*object // in the order of their symbols, because names are given in order
	s.heap = s.heap.each(func(b *sum) bool { return b.last >= first || b.top >= first }, func(_ int, l []*object) []*object {
		keep := make([]*object, 0, len(l))
		for _, o := range l {
			if o.sym >= first || o.top >= first {
				list = append(list, o)
			} else {
				keep = append(keep, o)
			}
		}
		if len(keep) == len(l) {
			return l
		}
		return keep
	}, &a.work)
	slices.SortFunc(list, func(x, y *object) int { return int(x.sym) - int(y.sym) })
	for _, o := range list {
		sym := o.sym
		o = o.clone()
		o.sym = name(entry{sym: sym}).sym
		a.kindOf[o.sym] = o.kind
		if a.refs[sym] {
			a.refs[o.sym] = true
		}
		for f, c := range o.fields {
			n := &cells{all: map[int64]vec{}}
			for i, x := range c.all {
				n.all[i] = vector(x)
			}
			if c.rest != nil {
				n.rest = vector(c.rest)
			}
			o.fields[f] = n
		}
		a.setObject(s, o)
	}
}

// discard removes arrays that a call made and does not return: only its
// variables refer to them.
func (a *analyzer) discard(p *ir.Proc, s *state, first int32) {
	kind, ok := a.kinds["array"]
	if !ok {
		return
	}
	all := s.heap.of(kind)
	left := without(all, func(o *object) bool {
		if o.sym < first {
			return false
		}
		kept := false
		for _, v := range p.Results {
			for _, e := range a.varOf(v, s.env, s) {
				kept = kept || e.sym == o.sym
			}
		}
		return !kept
	})
	if len(left) < len(all) {
		s.heap = s.heap.with(kind, left, &a.work)
	}
}
