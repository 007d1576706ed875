package commcheck

import "github.com/cairnrun/cairn/internal/compiler/ir"

// test evaluates a condition. It returns the ranks on which the condition
// holds, those on which it does not, and those for which that is unknown. If
// all of the latter share one value (one), sym is that value.
func (a *analyzer) test(e ir.Expr, s *state) (yes, no, maybe set, sym entry, one bool) {
	yes, no, maybe = newSet(a.n), newSet(a.n), newSet(a.n)
	if e == nil {
		return s.live, no, maybe, entry{}, false
	}
	one = true
	for r, x := range a.eval(e, s) {
		if !s.live.has(r) {
			continue
		}
		x = s.fact(a.cond(x, s))
		switch {
		case !x.known():
			if !maybe.empty() {
				one = one && same(x, sym)
			}
			sym = x
			maybe = maybe.with(r)
		case x.v != 0:
			yes = yes.with(r)
		default:
			no = no.with(r)
		}
	}
	return yes, no, maybe, sym, one
}

// noteAssumption records that a condition was assumed to be the same on all
// ranks.
func (a *analyzer) noteAssumption(at ir.Pos, sym entry) {
	if a.isAssumed(sym) {
		a.given = append(a.given, Reason{at, "", "decides in the same way on all ranks"})
	}
}

// branch interprets a conditional. If other is not nil, it interprets the other
// branch; els then lists the statements of that branch in any order.
func (a *analyzer) branch(st ir.Stmt, cond ir.Expr, s *state, then, els []ir.Stmt, other func(*state) []*state) []*state {
	plain := other == nil
	if plain {
		other = func(s *state) []*state { return a.exec(els, []*state{s}) }
	}
	yes, no, maybe, sym, one := a.test(cond, s)
	if i, ok := st.(*ir.If); ok && !maybe.empty() && i.Assume != 0 {
		if i.Assume > 0 {
			yes = yes.or(maybe)
		} else {
			no = no.or(maybe)
		}
		maybe = newSet(a.n)
	}
	if !maybe.empty() {
		why := Reason{st.At(), "", "is a condition that may differ from rank to rank"}
		switch {
		case a.ends(then):
			a.walk(then, Unknown, why)
			no = no.or(maybe)
		case plain && a.ends(els):
			a.walk(els, Unknown, why)
			yes = yes.or(maybe)
		case one:
			a.noteAssumption(st.At(), sym)
			t := a.clone(s)
			a.assume(s, sym, 1)
			a.assume(t, sym, 0)
			out := a.both(s, yes.or(maybe), no, then, other)
			out = append(out, a.both(t, yes, no.or(maybe), then, other)...)
			return a.merge(out, st.At())
		default:
			a.walk(then, Unknown, why)
			a.walk(els, Unknown, why)
			switch {
			case a.info.acts(then) || a.info.acts(els):
				a.giveUp(s, why)
			case a.escapes(then) || a.escapes(els):
				if !a.diverge(st, s, why, then, els) {
					a.giveUp(s, why)
				}
			default:
				a.forget(then, s)
				a.forget(els, s)
			}
			return []*state{s}
		}
	}
	return a.merge(a.both(s, yes, no, then, other), st.At())
}

// both interprets then on the ranks in yes, and the other branch on those in
// no.
func (a *analyzer) both(s *state, yes, no set, then []ir.Stmt, other func(*state) []*state) []*state {
	s.live = yes
	var out []*state
	for _, t := range a.exec(then, []*state{s}) {
		if t.poison != nil {
			out = append(out, other(t)...)
			continue
		}
		here := t.live
		t.live = no
		for _, u := range other(t) {
			if u.poison == nil {
				u.live = u.live.or(here)
			}
			out = append(out, u)
		}
	}
	return out
}

// forget makes everything that list may write unknown, on the live ranks.
func (a *analyzer) forget(list []ir.Stmt, s *state) {
	for v := range a.info.written(list) {
		a.store(v, a.all(anything), s)
	}
	puts, news := a.info.objects(list)
	for _, f := range puts {
		a.forgetFieldEverywhere(f, s.live.list(), s)
	}
	for _, t := range news {
		a.unknownObject(t, s)
	}
}

// inMain reports whether a return ends the program.
func (a *analyzer) inMain() bool { return len(a.frames) == 1 }

// ends reports whether list ends the program without an effect on other ranks.
// A rank that executes it passes no place any more.
func (a *analyzer) ends(list []ir.Stmt) bool {
	if len(list) == 0 || a.info.acts(list) || a.escapes(list[:len(list)-1]) {
		return false
	}
	j, ok := list[len(list)-1].(*ir.Jump)
	return ok && (j.Kind == ir.Exit || j.Kind == ir.Return && a.inMain())
}

// escapes reports whether list has a jump out of it, except one that ends the
// program.
func (a *analyzer) escapes(list []ir.Stmt) bool {
	return escapes(list, a.inMain(), nil, 0, 0)
}

func escapes(list []ir.Stmt, main bool, labels []string, loops, breaks int) bool {
	ways := map[out]bool{}
	collectOuts(list, main, labels, loops, breaks, ways)
	return len(ways) > 0
}

// switchOn interprets a switch, from case i on, like the conditionals that it
// is equivalent to.
func (a *analyzer) switchOn(st *ir.Switch, i int, s *state) []*state {
	var def, rest []ir.Stmt
	for k, c := range st.Cases {
		if c.Values == nil {
			def = c.Body
		} else if k < i {
			continue
		}
		rest = append(rest, c.Body...)
	}
	for i < len(st.Cases) && st.Cases[i].Values == nil {
		i++
	}
	if s.poison != nil {
		a.walk(rest, Unknown, *s.poison)
		return []*state{s}
	}
	if i == len(st.Cases) {
		return a.exec(def, []*state{s})
	}
	var cond ir.Expr = ir.Const{}
	for k, v := range st.Cases[i].Values {
		c := v
		if st.Tag != nil {
			c = ir.Binary{Op: ir.Eq, X: st.Tag, Y: v}
		}
		if k == 0 {
			cond = c
		} else {
			cond = ir.Binary{Op: ir.OrElse, X: cond, Y: c}
		}
	}
	return a.branch(st, cond, s, st.Cases[i].Body, rest, func(s *state) []*state { return a.switchOn(st, i+1, s) })
}
