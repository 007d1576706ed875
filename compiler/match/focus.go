package match

import (
	"slices"

	"github.com/cairnrun/cairn/compiler/ir"
)

// plain is an object like o of which only numbers are known, and communicators.
func (a *analyser) plain(o *object) *object {
	o = o.clone()
	for f, c := range o.fields {
		n := &cells{all: map[int64]vec{}}
		blur := func(x vec) vec {
			y := append(vec(nil), x...)
			for r := range y {
				if y[r].sym > 0 && a.handles[y[r].sym] == nil {
					y[r] = anything
				}
			}
			return y
		}
		for i, x := range c.all {
			n.all[i] = blur(x)
		}
		if c.rest != nil {
			n.rest = blur(c.rest)
		}
		o.fields[f] = n
	}
	return o
}

// focus tells apart what the references that p is given lead to, if communications
// depend on it: on all ranks to objects of the same contents, one of those that
// there are. It returns the arguments of each case.
func (a *analyser) focus(c *ir.Call, p *ir.Proc, args []vec, s *state) (cases [][]vec, states []*state) {
	cases, states = [][]vec{args}, []*state{s}
	if !a.uniform || !a.info.procs[p].acts || !s.live.is(a.full) || len(s.heap) == 0 {
		return cases, states
	}
	for i, v := range p.Params {
		nilTest, reads := a.info.procs[p].looks[v].null, a.info.procs[p].looks[v].reads
		if v.Type == "" || !reads || a.info.raced[v.Type] {
			continue
		}
		x := args[i]
		if x[0].sym <= 0 || s.object(x[0]) != nil || !equalVec(x, a.all(x[0])) {
			continue
		}
		var kinds []*object
		var syms []int32
		for sym, o := range s.heap {
			if o.typ == v.Type && !o.view {
				syms = append(syms, sym)
			}
		}
		slices.Sort(syms)
		for _, sym := range syms {
			o := a.plain(s.heap[sym])
			new := true
			for _, k := range kinds {
				new = new && !a.equal(k, o)
			}
			if new {
				kinds = append(kinds, o)
			}
		}
		if len(kinds) == 0 || len(kinds)*len(cases) > maxContents {
			continue
		}
		a.given = append(a.given, Reason{c.Pos, "call of " + p.Name, "is of the same object on all ranks"})
		var moreCases [][]vec
		var moreStates []*state
		for k := range cases {
			put := func(x entry, t *state) {
				args := append([]vec(nil), cases[k]...)
				args[i] = a.all(x)
				moreCases, moreStates = append(moreCases, args), append(moreStates, t)
			}
			for _, o := range kinds {
				t := states[k].clone()
				view := o.clone()
				view.sym, view.view = a.fresh(false).sym, true
				a.refs[view.sym] = true
				t.setObject(view)
				put(entry{sym: view.sym}, t)
			}
			if nilTest {
				put(num(0), states[k].clone())
			}
		}
		cases, states = moreCases, moreStates
	}
	return cases, states
}
