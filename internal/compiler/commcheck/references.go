package commcheck

import "github.com/cairnrun/cairn/internal/compiler/ir"

// plain returns a copy of o in which only numbers and communicators are known.
func (a *analyzer) plain(o *object) *object {
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

// focus splits a call into cases, by the objects that its references may lead
// to, if communications depend on these. In each case the references lead to
// objects with the same contents on all ranks. focus returns the arguments and
// the state of each case.
func (a *analyzer) focus(c *ir.Call, p *ir.Proc, args []vec, s *state) (cases [][]vec, states []*state) {
	cases, states = [][]vec{args}, []*state{s}
	if !a.uniform || !a.info.procs[p].acts || !s.live.is(a.full) || s.heap.size() == 0 {
		return cases, states
	}
	for i, v := range p.Params {
		nilTest, reads := a.info.procs[p].looks[v].null, a.info.procs[p].looks[v].reads
		if v.Type == "" || !reads || a.info.raced[v.Type] {
			continue
		}
		x := args[i]
		if x[0].sym <= 0 || a.object(s, x[0]) != nil || !equalVec(x, a.all(x[0])) {
			continue
		}
		var kinds []*object
		var there []*object
		if kind, ok := a.kinds[v.Type]; ok {
			there = s.heap.of(kind)
		}
		for _, o := range there {
			if o.view {
				continue
			}
			a.work += 1 + len(kinds)
			o = a.plain(o)
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
				t := a.clone(states[k])
				view := o.clone()
				view.view = true
				a.name(view)
				a.refs[view.sym] = true
				a.setObject(t, view)
				put(entry{sym: view.sym}, t)
			}
			if nilTest {
				put(num(0), a.clone(states[k]))
			}
		}
		cases, states = moreCases, moreStates
	}
	return cases, states
}
