package commcheck

import (
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

const (
	maxHeads  = 12      // maximum number of different states at the head of a loop
	maxPasses = 200     // maximum number of passes until a fixed point
	manyTurns = 1 << 14 // iterations that are interpreted one by one when nothing else helps
)

// loop interprets a loop.
func (a *analyzer) loop(l *ir.Loop, s *state) []*state {
	var out []*state
	for _, t := range a.exec(l.Init, []*state{s}) {
		out = append(out, a.loopFrom(l, t)...)
	}
	return a.merge(out, l.Pos)
}

func (a *analyzer) loopFrom(l *ir.Loop, s *state) []*state {
	if s.poison != nil {
		a.walk([]ir.Stmt{l}, Unknown, *s.poison)
		return []*state{s}
	}
	f := a.frames[len(a.frames)-1]
	f.targets = append(f.targets, l)
	defer func() { f.targets = f.targets[:len(f.targets)-1] }()
	few := 2*a.n + 16
	m := a.mark()
	turns := l.Cond != nil && a.info.decides[l]
	end := tooMany
	if turns && l.Trip <= few {
		var out []*state
		if out, end = a.unroll(l, a.clone(s), few); end == done {
			return out
		}
		a.back(m)
	}
	out := a.fixpoint(l, a.clone(s))
	if !turns || end != tooMany || !ruined(out) || a.steps > a.budget {
		return out
	}
	a.back(m)
	budget := a.budget
	a.budget = a.steps + (budget-a.steps)/4
	all, end := a.unroll(l, a.clone(s), manyTurns)
	a.budget = budget
	if end == done {
		return all
	}
	a.back(m)
	return a.fixpoint(l, a.clone(s))
}

func ruined(l []*state) bool {
	return slices.ContainsFunc(l, func(s *state) bool { return s.poison != nil })
}

type unrollEnd uint8

const (
	done unrollEnd = iota
	tooMany
	notKnown
)

// unroll interprets l iteration by iteration. It gives up if the condition is
// unknown, if nothing is known, or if there are more iterations than limit.
func (a *analyzer) unroll(l *ir.Loop, s *state, limit int) (out []*state, end unrollEnd) {
	cur := []*state{s}
	begun := a.steps
	for i := 0; len(cur) > 0; i++ {
		// If iterations are expensive, allow fewer the first time.
		if i > limit || limit < manyTurns && i == 2 && (a.steps-begun)/2*limit > (a.budget-a.steps)/4 {
			return nil, tooMany
		}
		var next []*state
		for _, t := range cur {
			if t.poison != nil || a.steps > a.budget {
				return nil, notKnown
			}
			if !l.AtEnd || i > 0 {
				yes, no, maybe, _, _ := a.test(l.Cond, t)
				if !maybe.empty() {
					return nil, notKnown
				}
				a.exit(l, t, no)
				t.live = yes
			}
			if t.live.empty() {
				out = append(out, t)
				continue
			}
			next = append(next, a.iterate(l, t)...)
		}
		cur = a.merge(next, l.Pos)
	}
	a.arrive(out, ir.Break, l)
	return a.merge(out, l.Pos), done
}

// iterate interprets one iteration of l and its Post.
func (a *analyzer) iterate(l *ir.Loop, s *state) []*state {
	a.visit(bodyOf{l}, s)
	out := a.exec(l.Body, []*state{s})
	a.arrive(out, ir.Continue, l)
	out = a.merge(out, l.Pos)
	return a.exec(l.Post, out)
}

// exit makes ranks exit l.
func (a *analyzer) exit(l *ir.Loop, s *state, ranks set) {
	for _, r := range ranks.list() {
		s.jumps[r] = jump{ir.Break, l, len(a.frames)}
	}
	s.live = s.live.sub(ranks)
}

// head is a state at the head of a loop. It stands for all states there that
// have the same messages in flight.
type head struct {
	s     *state
	wide  []bool       // variables of the procedure that change from iteration to iteration
	wider map[int]bool // variables of the program that do
	todo  bool
	exits []*state
}

// fixpoint interprets l until each iteration ends in a state that is known at
// its head.
func (a *analyzer) fixpoint(l *ir.Loop, s *state) []*state {
	first := int32(len(a.terms))
	var heads []*head
	by := map[string]*head{}
	var failed *Reason
	add := func(t *state) {
		t.facts = oldFacts(t.facts, first)
		forgetTags(t, first)
		a.nextIteration(t, first)
		k := a.key(t)
		if h := by[k]; h != nil {
			if a.widen(h, t) {
				h.todo = true
			}
			return
		}
		if len(heads) == maxHeads {
			failed = &Reason{l.Pos, "", fmt.Sprintf("is a loop whose iterations leave more and more under way, or in too many ways (%d)", maxHeads)}
			return
		}
		h := &head{s: a.clone(t), wide: make([]bool, len(t.env)), wider: map[int]bool{}, todo: true}
		heads = append(heads, h)
		by[k] = h
	}
	add(s)
	for pass := 0; failed == nil; pass++ {
		var h *head
		for _, x := range heads {
			if x.todo {
				h = x
				break
			}
		}
		if h == nil {
			break
		}
		if pass >= maxPasses {
			failed = &Reason{l.Pos, "", "is a loop that does not settle"}
			break
		}
		h.todo, h.exits = false, nil
		starts := []*state{a.clone(h.s)}
		if !l.AtEnd {
			starts, h.exits = a.decide(l, starts[0])
		}
		for _, t := range starts {
			for _, u := range a.iterate(l, t) {
				if u.poison != nil {
					a.walk([]ir.Stmt{l}, Unknown, *u.poison)
					h.exits = append(h.exits, u)
					continue
				}
				if u.live.empty() {
					h.exits = append(h.exits, u)
					continue
				}
				if !l.AtEnd {
					add(u)
					continue
				}
				on, off := a.decide(l, u)
				h.exits = append(h.exits, off...)
				for _, v := range on {
					add(v)
				}
			}
		}
	}
	if failed != nil {
		for _, h := range heads {
			a.giveUp(h.s, *failed)
		}
		a.walk([]ir.Stmt{l}, Unknown, *failed)
		return []*state{heads[0].s}
	}
	var out []*state
	for _, h := range heads {
		out = append(out, h.exits...)
	}
	a.arrive(out, ir.Break, l)
	return a.merge(out, l.Pos)
}

// decide tests l's condition. It returns the states that stay in l, and those
// that exit.
func (a *analyzer) decide(l *ir.Loop, s *state) (on, off []*state) {
	put := func(t *state) {
		if t.live.empty() {
			off = append(off, t)
		} else {
			on = append(on, t)
		}
	}
	yes, no, maybe, sym, one := a.test(l.Cond, s)
	switch {
	case maybe.empty():
		a.exit(l, s, no)
		s.live = yes
		put(s)
	case one:
		a.noteAssumption(l.Pos, sym)
		t := a.clone(s)
		a.assume(s, sym, 1)
		a.exit(l, s, no)
		put(s)
		a.assume(t, sym, 0)
		a.exit(l, t, no.or(maybe))
		put(t)
	default:
		why := Reason{l.Pos, "", "is a loop that may have more iterations on some ranks than on others"}
		a.walk([]ir.Stmt{l}, Unknown, why)
		switch {
		case a.info.acts([]ir.Stmt{l}):
			a.giveUp(s, why)
		case escapes(l.Body, a.inMain(), []string{l.Label}, 1, 1):
			if !a.diverge(l, s, why, []ir.Stmt{l}) {
				a.giveUp(s, why)
			}
		default:
			a.forget(l.Body, s)
			a.forget(l.Post, s)
			a.exit(l, s, s.live)
		}
		off = append(off, s)
	}
	return on, off
}

// forgetTags makes tags unknown that are symbols made since first, because
// these mean something else in the next iteration.
func forgetTags(s *state, first int32) {
	for _, l := range [][][]msg{s.sends, s.recvs} {
		for r, ms := range l {
			for i, m := range ms {
				if m.tag.sym >= first {
					if &ms[0] == &l[r][0] {
						l[r] = append([]msg(nil), ms...)
					}
					l[r][i].tag = anything
				}
			}
		}
	}
	for i, o := range s.opens {
		if o.tag.sym >= first {
			s.opens = append([]open(nil), s.opens...)
			s.opens[i].tag = anything
		}
	}
}

// widen joins t into h and reports whether h has changed. It keeps what the
// ranks have in common: a counter is no longer a number, but it is still the
// same on all ranks.
func (a *analyzer) widen(h *head, t *state) (changed bool) {
	a.work += len(t.env)
	for i, x := range h.s.env {
		if x == nil {
			continue
		}
		y := a.mergeVec(x, t.env[i])
		if y != nil && h.wide[i] && alike(x, y) {
			continue
		}
		if y != nil && &y[0] == &x[0] {
			continue
		}
		h.s.env[i], h.wide[i], changed = y, true, true
	}
	h.s.shared = a.globals.join(h.s.shared, t.shared, func(i int, x, y vec) vec {
		if x == nil {
			return nil
		}
		y = a.mergeVec(x, y)
		if y != nil && h.wider[i] && alike(x, y) || y != nil && &y[0] == &x[0] {
			return x
		}
		h.wider[i], changed = true, true
		return y
	}, &a.work)
	facts := commonFacts(h.s.facts, t.facts)
	if len(facts) != len(h.s.facts) {
		h.s.facts, changed = facts, true
	}
	opens := mergeOpens(h.s.opens, t.opens)
	for i := range opens {
		if !opens[i].since.is(h.s.opens[i].since) {
			changed = true
		}
	}
	h.s.opens = opens
	return a.joinHeap(h.s, t, true) || changed
}

// alike reports whether y has as much information as x: the same numbers, and
// the same ranks in common.
func alike(x, y vec) bool {
	xy, yx := map[entry]entry{}, map[entry]entry{}
	for i := range x {
		if x[i].known() || y[i].known() || x[i].isAny() || y[i].isAny() {
			if x[i] != y[i] {
				return false
			}
			continue
		}
		if p, ok := xy[x[i]]; ok && p != y[i] {
			return false
		}
		if p, ok := yx[y[i]]; ok && p != x[i] {
			return false
		}
		xy[x[i]], yx[y[i]] = y[i], x[i]
	}
	return true
}
