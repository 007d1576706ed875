package commcheck

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

const maxDepth = 64

// call interprets a call.
func (a *analyzer) call(c *ir.Call, s *state) []*state {
	what := "call of " + c.Name
	switch len(c.Procs) {
	case 0:
		var made []*ir.Var
		differs := false
		for _, e := range c.Args {
			vars(e, func(v *ir.Var) { made = append(made, v) })
			differs = differs || ir.Ranked(e)
		}
		for _, v := range c.Results {
			x := a.all(anything)
			if !differs {
				x = a.opaque(made, s)
			}
			a.store(v, x, s)
		}
		return []*state{s}
	case 1:
		return a.callProc(c, c.Procs[0], s)
	}
	acts := false
	for _, p := range c.Procs {
		acts = acts || a.info.procs[p].acts
	}
	why := Reason{c.Pos, what, "leads to one of several procedures, which may differ from rank to rank"}
	switch {
	case a.uniform || s.live.count() == 1:
		if s.live.count() > 1 {
			a.given = append(a.given, Reason{c.Pos, what, "leads to the same procedure on all ranks"})
		}
		var out []*state
		for _, p := range c.Procs {
			out = append(out, a.callProc(c, p, a.clone(s))...)
		}
		return a.merge(out, c.Pos)
	case acts:
		a.walk([]ir.Stmt{c}, Unknown, why)
		a.giveUp(s, why)
	default:
		for _, p := range c.Procs {
			a.walkProc(p, Unknown, why)
		}
		a.forget([]ir.Stmt{c}, s)
	}
	return []*state{s}
}

// callProc interprets p as called by c, or uses a cached result.
func (a *analyzer) callProc(c *ir.Call, p *ir.Proc, s *state) []*state {
	pi := a.info.procs[p]
	depth := 0
	for _, f := range a.frames {
		if f.proc == p {
			depth++
		}
	}
	switch {
	case !known(p):
		a.giveUp(s, Reason{c.Pos, "call of " + p.Name, "leads to a procedure whose source is not known"})
		return []*state{s}
	case pi.gotos, len(a.frames) >= maxDepth:
		why := gotoReason(p)
		if !pi.gotos {
			why = Reason{c.Pos, "call of " + p.Name, fmt.Sprintf("is more than %d calls deep", maxDepth)}
		}
		a.walkProc(p, Unknown, why)
		if pi.acts {
			a.giveUp(s, why)
		} else {
			a.forget([]ir.Stmt{c}, s)
		}
		return []*state{s}
	}

	args := make([]vec, len(p.Params))
	for i := range args {
		if i < len(c.Args) && c.Args[i] != nil && len(c.Args) == len(p.Params) {
			args[i] = a.eval(c.Args[i], s)
		} else {
			args[i] = a.all(anything)
		}
	}
	if depth > 0 {
		for v := range pi.writes {
			if !v.Global {
				for _, r := range s.live.list() {
					a.lose(v, r, s)
				}
			}
		}
	}
	if depth >= deepEnough && pi.acts && a.uniform && a.quiescent(s) {
		if out, ok := a.recurse(c, p, s); ok {
			return out
		}
	}
	cases, states := a.focus(c, p, args, s)
	var out []*state
	for i, t := range states {
		for _, u := range a.callWith(c, p, cases[i], t) {
			for k, x := range cases[i] {
				if o := a.object(u, x[0]); o != nil && x[0] != args[k][0] {
					a.dropObject(u, o) // it is a view, made for this case
				}
			}
			out = append(out, u)
		}
	}
	return a.merge(out, c.Pos)
}

// callWith interprets p, as called by c, with args.
func (a *analyzer) callWith(c *ir.Call, p *ir.Proc, args []vec, s *state) []*state {
	pi := a.info.procs[p]
	// Set the caller's variables aside: p uses only its own.
	outer := s.env
	s.env = make([]vec, a.info.size[p])
	a.work += len(s.env) + len(outer)
	caller := a.cur
	a.cur = p
	here, jumps := s.live, append([]jump(nil), s.jumps...)
	for i, v := range p.Params {
		a.store(v, args[i], s)
		if from := passed(c, i); from != nil {
			a.rename(from, v, here, s)
		}
	}
	first, comms := int32(len(a.terms)), len(a.comms)
	key := ""
	var out []*state
	if len(s.opens) == 0 {
		key = a.callKey(p, s)
	}
	if got, ok := a.cache[key]; ok && key != "" {
		for _, t := range got {
			out = append(out, a.renew(t, t.entry))
		}
	} else {
		a.frames = append(a.frames, &frame{proc: p})
		out = a.exec(p.Body, []*state{s})
		a.arrive(out, ir.Return, nil)
		for _, t := range out {
			a.discard(p, t, first)
		}
		out = a.merge(out, c.Pos)
		a.frames = a.frames[:len(a.frames)-1]
		if key != "" && len(a.comms) == comms {
			kept := make([]*state, len(out))
			for i, t := range out {
				kept[i] = a.clone(t)
				kept[i].entry = first
			}
			a.cache[key] = kept
			a.cached = append(a.cached, key)
		}
	}
	a.cur = caller
	for _, t := range out {
		if t.poison != nil {
			continue
		}
		for r := range jumps {
			if !here.has(r) {
				t.jumps[r] = jumps[r]
			}
		}
		inner := t.env
		t.env = append([]vec(nil), outer...)
		a.returnTo(c, p, pi, inner, here, t)
	}
	return a.merge(out, c.Pos)
}

// passed returns the variable that c passes as argument i, or nil.
func passed(c *ir.Call, i int) *ir.Var {
	if i < len(c.Args) {
		if r, ok := c.Args[i].(ir.Ref); ok {
			return r.Var
		}
	}
	return nil
}

// returnTo gives the results of p to the caller of c.
func (a *analyzer) returnTo(c *ir.Call, p *ir.Proc, pi *procInfo, inner []vec, here set, s *state) {
	for i, v := range p.Params {
		if from := passed(c, i); from != nil && !pi.writes[v] {
			a.rename(v, from, here, s)
		}
	}
	for i, v := range c.Results {
		x := a.all(anything)
		var from *ir.Var
		if i < len(p.Results) && len(c.Results) == len(p.Results) {
			from = p.Results[i]
			if y := a.varOf(from, inner, s); y != nil {
				x = y
			}
		}
		if v != nil {
			a.store(v, x, s)
			if from != nil {
				a.rename(from, v, here, s)
			}
		}
	}
	if len(s.reqs)+len(s.works) == 0 {
		return
	}
	// The values of p's own variables are out of reach now.
	mine := map[*ir.Var]bool{}
	for _, v := range append(append([]*ir.Var(nil), p.Params...), p.Results...) {
		mine[v] = true
	}
	ir.Each(p.Body, func(st ir.Stmt) {
		for _, v := range writes(st) {
			mine[v] = mine[v] || !v.Global && !v.Shared
		}
	})
	for _, v := range c.Results {
		delete(mine, v)
	}
	for i := range p.Params {
		if from := passed(c, i); from != nil {
			delete(mine, from)
		}
	}
	for v := range mine {
		for _, r := range here.list() {
			a.lose(v, r, s)
		}
	}
}

// callKey returns a text of everything that the result of p may depend on.
func (a *analyzer) callKey(p *ir.Proc, s *state) string {
	var b []byte
	put := func(x ...int64) {
		for _, v := range x {
			b = append(strconv.AppendInt(b, v, 36), ' ')
		}
	}
	defer func() { a.work += len(b) / 8 }()
	put(int64(a.id(p)), int64(len(a.frames)), int64(s.heap.stamp), int64(s.shared))
	b = append(append(b, a.key(s)...), ';')
	for i, x := range s.env {
		if x == nil {
			continue
		}
		put(int64(i))
		for _, e := range x {
			put(int64(e.sym), e.v)
		}
	}
	b = append(b, ';')
	for _, k := range slices.Sorted(maps.Keys(s.facts)) {
		put(int64(k), s.facts[k])
	}
	return string(b)
}

// renew copies a cached state. Symbols that the call made get new names,
// because their values need not be the same a second time.
func (a *analyzer) renew(s *state, first int32) *state {
	t := a.clone(s)
	names := map[int32]int32{}
	name := func(e entry) entry {
		if e.sym < first { // this holds for numbers, too
			return e
		}
		n, ok := names[e.sym]
		if !ok {
			f := a.fresh(a.assumed[e.sym])
			n = f.sym
			names[e.sym] = n
		}
		return entry{sym: n}
	}
	vector := func(x vec) vec {
		y := append(vec(nil), x...)
		for r := range y {
			y[r] = name(y[r])
		}
		return y
	}
	for i, x := range t.env {
		if x != nil {
			t.env[i] = vector(x)
		}
	}
	t.shared = a.globals.renamed(t.shared, first, vector, &a.work)
	for _, l := range [][][]msg{t.sends, t.recvs} {
		for r := range l {
			ms := append([]msg(nil), l[r]...)
			for i := range ms {
				ms[i].tag = name(ms[i].tag)
			}
			l[r] = ms
		}
	}
	t.facts = oldFacts(t.facts, first)
	a.renewHeap(t, first, name, vector)
	return t
}

func oldFacts(m map[int32]int64, first int32) map[int32]int64 {
	var out map[int32]int64
	for k, v := range m {
		if k < first {
			if out == nil {
				out = map[int32]int64{}
			}
			out[k] = v
		}
	}
	return out
}
