package commcheck

import (
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// analyzer interprets a program for n ranks.
type analyzer struct {
	p       *ir.Program
	info    *info
	n       int
	uniform bool
	budget  int
	steps   int
	work    int // see Result.Work
	full    set

	terms   []term // by symbol; symbol 0 does not exist
	assumed []bool // by symbol: whether it is the same on all ranks by assumption only
	cons    map[term]int32
	globals *globalTable
	comms   []*comm
	handles map[int32]*comm
	refs    map[int32]bool // symbols that refer to objects
	kinds   map[string]int // numbers of types of objects
	kindOf  map[int32]int  // types of the objects that symbols refer to
	hyps    map[*ir.Proc]*hypothesis
	failed  map[*ir.Proc]bool // procedures for which no hypothesis held
	ids     map[any]int

	frames []*frame
	cur    *ir.Proc // the procedure whose variables the states hold
	cache  map[string][]*state

	// The following lists only grow. They are cut back when an attempt fails.
	log    []record
	seen   map[recordKey]bool
	given  []Reason
	cached []string
	walked []*ir.Proc
	inWalk map[*ir.Proc]bool
}

// frame is a call that is being interpreted.
type frame struct {
	proc    *ir.Proc
	targets []any // loops and switches that are being interpreted
	levels  []level
}

// record is one observation at a place.
type record struct {
	recordKey
	reason Reason
}

type recordKey struct {
	place int
	kind  Kind
	cause any
}

func newAnalyzer(p *ir.Program, in *info, n int, o Options) *analyzer {
	a := &analyzer{p: p, info: in, n: n, uniform: o.Uniform, budget: o.Budget, full: fullSet(n), globals: newGlobals(in.globals),
		terms: make([]term, 1), assumed: make([]bool, 1), cons: map[term]int32{}, handles: map[int32]*comm{}, refs: map[int32]bool{}, kinds: map[string]int{}, kindOf: map[int32]int{}, hyps: map[*ir.Proc]*hypothesis{}, failed: map[*ir.Proc]bool{}, ids: map[any]int{},
		cache: map[string][]*state{}, seen: map[recordKey]bool{}, inWalk: map[*ir.Proc]bool{}}
	a.newComm(a.world())
	return a
}

func (a *analyzer) run() {
	if a.p.Main == nil || !known(a.p.Main) {
		return
	}
	s := &state{live: a.full, jumps: make([]jump, a.n), env: make([]vec, a.info.size[a.p.Main]),
		sends: make([][]msg, a.n), recvs: make([][]msg, a.n)}
	a.cur = a.p.Main
	if a.uniform {
		for v, i := range a.info.index {
			if v.Global {
				s.shared = a.globals.with(s.shared, i, a.all(a.fresh(true)))
			}
		}
		for _, v := range a.p.Main.Params {
			a.store(v, a.all(a.fresh(true)), s)
		}
	}
	a.frames = append(a.frames, &frame{proc: a.p.Main})
	if a.info.procs[a.p.Main].gotos {
		a.giveUp(s, gotoReason(a.p.Main))
	}
	a.exec(a.p.Main.Body, []*state{s})
}

func gotoReason(p *ir.Proc) Reason {
	return Reason{p.Pos, p.Name, "has a goto, which is not followed"}
}

func (a *analyzer) verdicts() []Verdict {
	out := make([]Verdict, len(a.info.stmts))
	for _, r := range a.log {
		v := Verdict{Kind: r.kind}
		if r.kind != Safe {
			v.Because = []Reason{r.reason}
		}
		out[r.place] = worse(out[r.place], v)
	}
	for i := range out {
		if out[i].Kind == 0 {
			out[i].Never = []int{a.n}
		}
	}
	return out
}

// note records a kind for a place, and its cause.
func (a *analyzer) note(place int, k Kind, cause any, r Reason) {
	key := recordKey{place, k, cause}
	if a.seen[key] {
		return
	}
	a.seen[key] = true
	a.log = append(a.log, record{key, r})
}

// mark is a position in the lists. back removes everything recorded after it.
type mark struct{ log, given, cached, walked int }

func (a *analyzer) mark() mark {
	return mark{len(a.log), len(a.given), len(a.cached), len(a.walked)}
}

func (a *analyzer) back(m mark) {
	for _, r := range a.log[m.log:] {
		delete(a.seen, r.recordKey)
	}
	for _, k := range a.cached[m.cached:] {
		delete(a.cache, k)
	}
	for _, p := range a.walked[m.walked:] {
		delete(a.inWalk, p)
	}
	a.log, a.given, a.cached, a.walked = a.log[:m.log], a.given[:m.given], a.cached[:m.cached], a.walked[:m.walked]
}

// visit records what holds at a place in state s.
func (a *analyzer) visit(key any, s *state) {
	p := a.info.places[key]
	clear := true
	bad := func(cause any, at ir.Pos, what, why string, args ...any) {
		clear = false
		if !a.seen[recordKey{p, Unsafe, cause}] {
			a.note(p, Unsafe, cause, Reason{at, what, fmt.Sprintf(why, args...)})
		}
	}
	if !s.live.is(a.full) {
		bad("some", a.info.stmts[p], "", "only %v of %d come here", s.live, a.n)
	}
	// A few of the messages in flight are enough as reasons.
	a.steps += 1 + len(s.opens)
	more := 4 * maxReasons
	for _, l := range s.sends {
		for _, m := range l[:min(more, len(l))] {
			more--
			bad(m.by, m.by.Pos, called(m.by), "from rank %d to %d is not received yet", m.src, m.dst)
		}
	}
	for _, l := range s.recvs {
		for _, m := range l[:min(max(more, 1), len(l))] {
			more--
			if m.src < 0 {
				bad(m.by, m.by.Pos, called(m.by), "from any on rank %d has no sends that are clearly meant", m.dst)
			} else {
				bad(m.by, m.by.Pos, called(m.by), "on rank %d waits for a message of rank %d that is not sent yet", m.dst, m.src)
			}
		}
	}
	for _, q := range s.reqs[:min(4*maxReasons, len(s.reqs))] {
		if q.lost {
			bad(q.by, q.by.Pos, called(q.by), "on rank %d cannot be waited for any more, as its request is gone", q.rank)
		} else {
			bad(q.by, q.by.Pos, called(q.by), "on rank %d is not waited for yet", q.rank)
		}
	}
	for _, c := range s.colls[:min(4*maxReasons, len(s.colls))] {
		bad(c.by, c.by.Pos, called(c.by), "was called by %v so far", c.came)
	}
	for _, w := range s.works {
		bad(w.by, w.by.Pos, launched(w.by), "starts here and is not waited for")
	}
	if clear {
		a.note(p, Safe, nil, Reason{})
	}
	if len(s.opens) > 0 {
		s.opens = append([]open(nil), s.opens...)
		for i := range s.opens {
			s.opens[i].since = s.opens[i].since.with(p)
			a.work += len(s.opens[i].since)
		}
	}
}

func launched(l *ir.Launch) string {
	if l.Proc != nil && l.Proc.Name != "" {
		return "concurrent " + l.Proc.Name
	}
	return "concurrent work"
}

// giveUp records that nothing is known about s from here on.
func (a *analyzer) giveUp(s *state, r Reason) {
	if s.poison != nil {
		return
	}
	for _, o := range s.opens {
		a.revokeSafe(o, nil)
	}
	*s = state{poison: &r, live: a.full, jumps: make([]jump, a.n), env: make([]vec, len(s.env)),
		sends: make([][]msg, a.n), recvs: make([][]msg, a.n)}
}

// walk records a kind for all places of list and of its callees.
func (a *analyzer) walk(list []ir.Stmt, k Kind, r Reason) {
	ir.Each(list, func(s ir.Stmt) {
		a.work++
		a.note(a.info.places[s], k, "walk", r)
		switch s := s.(type) {
		case *ir.Loop:
			a.note(a.info.places[bodyOf{s}], k, "walk", r)
		case *ir.Call:
			for _, p := range s.Procs {
				a.walkProc(p, k, r)
			}
		case *ir.Launch:
			if s.Proc != nil {
				a.walkProc(s.Proc, k, r)
			}
		}
	})
}

func (a *analyzer) walkProc(p *ir.Proc, k Kind, r Reason) {
	if k == Unknown {
		if a.inWalk[p] {
			return
		}
		a.inWalk[p] = true
		a.walked = append(a.walked, p)
		a.walk(p.Body, k, r)
		return
	}
	if len(p.Body) > 0 && a.seen[recordKey{a.info.places[p.Body[0]], k, "walk"}] {
		return
	}
	a.walk(p.Body, k, r)
}

// exec interprets list from each of the states in, which it may change. It
// returns the states after it.
func (a *analyzer) exec(list []ir.Stmt, in []*state) []*state {
	f := a.frames[len(a.frames)-1]
	k := len(f.levels)
	f.levels = append(f.levels, level{list: list})
	for i, st := range list {
		f.levels[k].i = i
		var out []*state
		for _, s := range in {
			out = append(out, a.step(st, s)...)
		}
		in = a.merge(out, st.At())
	}
	f.levels = f.levels[:k]
	return in
}

// gone reports whether all ranks have ended the program.
func (a *analyzer) gone(s *state) bool {
	if s.poison != nil || !s.live.empty() {
		return false
	}
	return !slices.ContainsFunc(s.jumps, func(j jump) bool { return j.kind != ir.Exit && !(j.kind == ir.Return && j.depth == 1) })
}

func (a *analyzer) step(st ir.Stmt, s *state) []*state {
	if s.poison != nil {
		a.walk([]ir.Stmt{st}, Unknown, *s.poison)
		return []*state{s}
	}
	if s.live.empty() {
		return []*state{s}
	}
	a.steps += a.n
	if a.steps > a.budget {
		a.giveUp(s, Reason{st.At(), "", "is reached after too much work for the analysis; a larger budget may help"})
		return a.step(st, s)
	}
	a.visit(st, s)
	switch st := st.(type) {
	case *ir.Decl:
		for _, v := range st.Vars {
			a.store(v, a.all(anything), s)
		}
	case *ir.Assign:
		a.assign(st, s)
	case *ir.Call:
		return a.call(st, s)
	case *ir.If:
		return a.branch(st, st.Cond, s, st.Then, st.Else, nil)
	case *ir.Switch:
		f := a.frames[len(a.frames)-1]
		f.targets = append(f.targets, st)
		out := a.switchOn(st, 0, s)
		f.targets = f.targets[:len(f.targets)-1]
		a.arrive(out, ir.Break, st)
		return a.merge(out, st.Pos)
	case *ir.Loop:
		return a.loop(st, s)
	case *ir.Jump:
		a.jump(st, s)
		if a.gone(s) {
			return nil
		}
	case *ir.Comm:
		a.communicate(st, s)
		if a.gone(s) {
			return nil
		}
	case *ir.New:
		a.create(st, s)
	case *ir.Put:
		a.put(st, s)
	case *ir.Launch:
		a.launch(st, s)
	case *ir.Join:
		a.join(st, s)
	}
	return []*state{s}
}

// store gives v a value on the live ranks.
func (a *analyzer) store(v *ir.Var, x vec, s *state) {
	if v == nil {
		return
	}
	if len(s.reqs)+len(s.works) > 0 {
		for _, r := range s.live.list() {
			a.lose(v, r, s)
		}
	}
	if _, ok := a.info.index[v]; !ok || !v.Global && a.info.owner[v] != a.cur {
		return
	}
	if s.live.is(a.full) {
		a.setVar(v, x, s)
		return
	}
	old := a.varOf(v, s.env, s)
	out := make(vec, a.n)
	for r := range out {
		switch {
		case s.live.has(r):
			out[r] = x[r]
		case old != nil:
			out[r] = old[r]
		default:
			out[r] = anything
		}
	}
	a.setVar(v, out, s)
}

// varOf returns the value of a variable that has one. The value of a
// procedure's variable is in env.
func (a *analyzer) varOf(v *ir.Var, env []vec, s *state) vec {
	i, ok := a.info.index[v]
	switch {
	case !ok:
		return nil
	case v.Global:
		return a.globals.get(s.shared, i)
	}
	return env[i]
}

func (a *analyzer) setVar(v *ir.Var, x vec, s *state) {
	if v.Global {
		s.shared = a.globals.with(s.shared, a.info.index[v], x)
		a.work += (a.globals.depth + 1) * fanout
	} else {
		s.env[a.info.index[v]] = x
	}
}

func (a *analyzer) assign(st *ir.Assign, s *state) {
	vals := make([]vec, len(st.Dst))
	for i, d := range st.Dst {
		if _, ok := a.info.index[d]; ok && i < len(st.Src) && st.Src[i] != nil {
			vals[i] = a.eval(st.Src[i], s)
		} else if ok {
			vals[i] = a.opaque(st.Reads, s)
		}
	}
	for i, d := range st.Dst {
		x := vals[i]
		if x == nil {
			x = a.all(anything)
		}
		var from *ir.Var
		if i < len(st.Src) {
			if r, ok := st.Src[i].(ir.Ref); ok {
				from = r.Var
			}
		}
		if from != nil && from == d {
			continue
		}
		a.store(d, x, s)
		if from != nil && d != nil {
			if len(st.Dst) == 1 {
				a.rename(from, d, s.live, s)
			} else {
				for _, r := range s.live.list() {
					a.lose(from, r, s)
				}
			}
		}
	}
}

// rename records that to now holds the requests and groups of work that from
// held.
func (a *analyzer) rename(from, to *ir.Var, ranks set, s *state) {
	for i, q := range s.reqs {
		if q.v == from && from != nil && ranks.has(q.rank) {
			s.reqs = append([]req(nil), s.reqs...)
			s.reqs[i].v = to
		}
	}
	for i, w := range s.works {
		if w.group == from && from != nil && w.ranks.sub(ranks).empty() {
			s.works = append([]work(nil), s.works...)
			s.works[i].group = to
		}
	}
}

// jump moves the live ranks elsewhere.
func (a *analyzer) jump(st *ir.Jump, s *state) {
	f := a.frames[len(a.frames)-1]
	j := jump{kind: st.Kind, depth: len(a.frames)}
	switch st.Kind {
	case ir.Break, ir.Continue:
		for i := len(f.targets) - 1; i >= 0 && j.to == nil; i-- {
			l, ok := f.targets[i].(*ir.Loop)
			switch {
			case st.Label != "":
				if ok && l.Label == st.Label {
					j.to = l
				}
			case ok || st.Kind == ir.Break:
				j.to = f.targets[i]
			}
		}
	case ir.Return:
		vals := make([]vec, len(st.Results))
		for i, e := range st.Results {
			if e != nil {
				vals[i] = a.eval(e, s)
			} else {
				vals[i] = a.all(anything)
			}
		}
		for i, v := range f.proc.Results {
			if i >= len(vals) {
				break
			}
			r, ok := st.Results[i].(ir.Ref)
			if ok && r.Var == v {
				continue
			}
			a.store(v, vals[i], s)
			if ok {
				a.rename(r.Var, v, s.live, s)
			}
		}
	}
	if j.to == nil && (st.Kind == ir.Break || st.Kind == ir.Continue || st.Kind == ir.Goto) {
		a.giveUp(s, Reason{st.Pos, "", "is a jump that is not followed"})
		return
	}
	for _, r := range s.live.list() {
		s.jumps[r] = j
	}
	s.live = newSet(a.n)
}

// arrive brings back the ranks that jumped in a given way.
func (a *analyzer) arrive(in []*state, kind ir.JumpKind, to any) {
	for _, s := range in {
		if s.poison != nil {
			continue
		}
		for r, j := range s.jumps {
			if j.kind == kind && j.to == to && j.depth == len(a.frames) && !s.live.has(r) {
				s.live = s.live.with(r)
				s.jumps[r] = jump{}
			}
		}
	}
}

// launch interprets the start of concurrent work. If the work communicates,
// nothing is known after its join.
func (a *analyzer) launch(st *ir.Launch, s *state) {
	works, found := append([]work(nil), s.works...), false
	for i, w := range works {
		if w.by == st && w.group == st.Group {
			works[i].ranks, found = w.ranks.or(s.live), true
		}
	}
	if !found {
		works = append(works, work{st.Group, s.live, st})
	}
	s.works = works
	if st.Proc != nil {
		a.walkProc(st.Proc, Unsafe, Reason{st.Pos, launched(st), "runs beside the ranks' other work"})
	}
	if a.talks(st) {
		for _, o := range s.opens {
			a.revokeSafe(o, nil)
		}
	}
}

func (a *analyzer) talks(st *ir.Launch) bool { return st.Proc == nil || a.info.procs[st.Proc].talks }

func (a *analyzer) join(st *ir.Join, s *state) {
	if st.Group == nil {
		return
	}
	var left []work
	var talked *ir.Launch
	for _, w := range s.works {
		if w.group == st.Group {
			if a.talks(w.by) {
				talked = w.by
			}
			w.ranks = w.ranks.sub(s.live)
			if w.ranks.empty() {
				continue
			}
		}
		left = append(left, w)
	}
	s.works = left
	if talked != nil && len(left) == 0 {
		a.giveUp(s, Reason{talked.Pos, launched(talked), "communicates, or may, and what it left under way is not known"})
	}
}
