package match

import (
	"maps"
	"slices"

	"github.com/cairnrun/cairn/compiler/ir"
)

// age prepares objects for another round of a loop: symbols made since first mean
// something else there, and what was made in this round is one of many.
func (a *analyser) age(s *state, first int32) {
	made := false
	for sym := range s.heap {
		made = made || sym >= first
	}
	var heap map[int32]*object
	for sym, o := range s.heap {
		if c := o.aged(first); c != o {
			if heap == nil {
				heap = maps.Clone(s.heap)
			}
			heap[sym] = c
		}
	}
	if heap != nil {
		s.setHeap(heap)
	}
	if !made {
		return
	}
	// Of those made in this round, the ones that look the same are one.
	old, new := &state{heap: map[int32]*object{}}, &state{heap: map[int32]*object{}, stamp: 1}
	for sym, o := range s.heap {
		if sym < first {
			old.heap[sym] = o
		} else {
			new.heap[sym] = o
		}
	}
	a.joinHeap(old, new, true)
	s.setHeap(old.heap)
}

// aged is o, in which what is a symbol made since first is unknown.
func (o *object) aged(first int32) *object {
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
	for _, e := range v {
		if e.sym >= first {
			return true
		}
	}
	return false
}

// renewHeap gives new names to what was made since first.
func (a *analyser) renewHeap(s *state, first int32, name func(entry) entry) {
	fresh := false
	for sym, o := range s.heap {
		fresh = fresh || sym >= first || o.top >= first
	}
	if !fresh {
		return
	}
	heap := make(map[int32]*object, len(s.heap))
	vector := func(x vec) vec {
		y := append(vec(nil), x...)
		for r := range y {
			y[r] = name(y[r])
		}
		return y
	}
	for _, sym := range objects(s) {
		o := s.heap[sym].clone()
		o.sym = name(entry{sym: sym}).sym
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
		o.top = int32(len(a.terms)) // or less
		heap[o.sym] = o
	}
	s.setHeap(heap)
}

// discard takes away the arrays that a call made, but for those that it returns:
// they are only in variables.
func (a *analyser) discard(p *ir.Proc, s *state, first int32) {
	var gone []int32
	for sym, o := range s.heap {
		if o.typ != "array" || sym < first {
			continue
		}
		kept := false
		for _, v := range p.Results {
			if i, ok := a.info.index[v]; ok && s.env[i] != nil {
				for _, e := range s.env[i] {
					kept = kept || e.sym == sym
				}
			}
		}
		if !kept {
			gone = append(gone, sym)
		}
	}
	if len(gone) == 0 {
		return
	}
	heap := make(map[int32]*object, len(s.heap))
	for k, x := range s.heap {
		if !slices.Contains(gone, k) {
			heap[k] = x
		}
	}
	s.setHeap(heap)
}
