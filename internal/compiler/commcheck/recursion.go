package commcheck

import "github.com/cairnrun/cairn/internal/compiler/ir"

const (
	deepEnough = 2  // calls of a procedure within itself that are interpreted as they are
	maxTries   = 12 // until a hypothesis holds
)

// hypothesis is an assumption about a recursive procedure: called with no
// message under way and these objects, it leaves no message under way and no
// other objects.
type hypothesis struct {
	s     *state // its heap
	first int32  // the first symbol made since
	grew  bool
}

// quiescent reports whether all ranks are here and nothing is under way.
func (a *analyzer) quiescent(s *state) bool {
	if s.poison != nil || !s.live.is(a.full) || len(s.reqs)+len(s.colls)+len(s.works)+len(s.opens) > 0 {
		return false
	}
	for r := range s.sends {
		if len(s.sends[r])+len(s.recvs[r]) > 0 {
			return false
		}
	}
	return true
}

// recurse interprets a call of p within p, for all arguments and any depth. It
// interprets p with the hypothesis for its calls of p, and weakens the
// hypothesis until the outcome confirms it. It reports whether that happens.
func (a *analyzer) recurse(c *ir.Call, p *ir.Proc, s *state) ([]*state, bool) {
	if a.failed[p] {
		return nil, false
	}
	if h := a.hyps[p]; h != nil {
		t := a.clone(s)
		a.nextIteration(t, h.first)
		if a.joinHeap(h.s, t, true) {
			h.grew = true
		}
		return []*state{a.after(c, p, s, h)}, true
	}
	h := &hypothesis{s: &state{heap: s.heap}, first: int32(len(a.terms))}
	a.hyps[p] = h
	defer delete(a.hyps, p)
	m := a.mark()
	holds := false
	for try := 0; try < maxTries && !holds && a.steps <= a.budget; try++ {
		a.back(m)
		h.grew = false
		holds = true
		t := a.before(p, s, h)
		args := make([]vec, len(p.Params))
		for i, v := range p.Params {
			args[i] = a.some(v)
		}
		var out []*state
		cases, states := a.focus(c, p, args, t)
		for i := range cases {
			out = append(out, a.callWith(c, p, cases[i], states[i])...)
		}
		for _, o := range out {
			if !a.quiescent(o) {
				a.back(m)
				a.failed[p] = true
				return nil, false
			}
			o.heap = o.heap.each(func(b *sum) bool { return b.views > 0 }, func(_ int, l []*object) []*object {
				return without(l, func(x *object) bool { return x.view })
			}, &a.work)
			a.nextIteration(o, h.first)
			if a.joinHeap(h.s, o, true) {
				h.grew = true
			}
		}
		holds = !h.grew
	}
	if !holds {
		a.back(m)
		a.failed[p] = true
		return nil, false
	}
	// Outcomes remembered meanwhile hold only with the hypothesis.
	for _, k := range a.cached[m.cached:] {
		delete(a.cache, k)
	}
	a.cached = a.cached[:m.cached]
	return []*state{a.after(c, p, s, h)}, true
}

// some is any value of v: the same on all ranks, if it is not made of ranks or
// messages.
func (a *analyzer) some(v *ir.Var) vec {
	if v == nil || a.info.varied[v] {
		return a.all(anything)
	}
	return a.all(a.fresh(true))
}

// before is a state in which p may be called, at any depth. The hypothesis
// contains what p does to objects, or grows by it.
func (a *analyzer) before(p *ir.Proc, s *state, h *hypothesis) *state {
	t := a.clone(s)
	t.heap = h.s.heap
	for v := range a.info.procs[p].writes {
		if v.Global {
			a.store(v, a.some(v), t)
		}
	}
	return t
}

// after is the state after a call of p, by the hypothesis.
func (a *analyzer) after(c *ir.Call, p *ir.Proc, s *state, h *hypothesis) *state {
	t := a.before(p, s, h)
	for _, v := range c.Results {
		a.store(v, a.some(v), t)
	}
	return t
}
