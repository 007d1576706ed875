package commcheck

import "github.com/cairnrun/cairn/internal/compiler/ir"

const (
	deepEnough = 2  // nested calls of a procedure in itself that are interpreted normally
	maxTries   = 12 // maximum number of attempts until a hypothesis holds
)

// hypothesis is an assumption about a recursive procedure: if it is called with
// no message in flight and these objects, it leaves no message in flight and no
// other objects.
type hypothesis struct {
	s     *state // the state with its objects
	first int32  // the first symbol made since then
	grew  bool
}

// quiescent reports whether all ranks are live and nothing is in flight.
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
// hypothesis until the result confirms it. It reports whether that succeeds.
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
	// Results cached meanwhile hold only under the hypothesis.
	for _, k := range a.cached[m.cached:] {
		delete(a.cache, k)
	}
	a.cached = a.cached[:m.cached]
	return []*state{a.after(c, p, s, h)}, true
}

// some returns an arbitrary value of v. It is the same on all ranks, unless v
// may depend on ranks or messages.
func (a *analyzer) some(v *ir.Var) vec {
	if v == nil || a.info.varied[v] {
		return a.all(anything)
	}
	return a.all(a.fresh(true))
}

// before returns a state in which p may be called, at any depth. The hypothesis
// contains p's effect on objects, or grows by it.
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

// after returns the state after a call of p, according to the hypothesis.
func (a *analyzer) after(c *ir.Call, p *ir.Proc, s *state, h *hypothesis) *state {
	t := a.before(p, s, h)
	for _, v := range c.Results {
		a.store(v, a.some(v), t)
	}
	return t
}
