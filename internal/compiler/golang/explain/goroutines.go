package explain

import (
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/hotloops"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// liveness finds which goroutines may be alive at a loop.
type liveness struct {
	launches []launch
}

// launch is a go statement.
type launch struct {
	*ir.Launch
	in      *ir.Proc
	loops   []*ir.Loop // around it
	join    *ir.Join   // the join that follows it in the same procedure, or nil
	between []ir.Stmt  // statements between the launch and the join

	runs  map[*ir.Proc]bool // procedures that the goroutine may run
	calls map[*ir.Proc]bool // procedures that are called between the launch and the join
}

func newLiveness(p *ir.Program) *liveness {
	a := new(liveness)
	for _, q := range p.Procs {
		a.collect(q, q.Body, nil, nil)
	}
	return a
}

// collect finds the launches in a list that rest follows.
func (a *liveness) collect(in *ir.Proc, list []ir.Stmt, loops []*ir.Loop, rest [][]ir.Stmt) {
	for i, s := range list {
		after := append(rest[:len(rest):len(rest)], list[i+1:])
		switch s := s.(type) {
		case *ir.If:
			a.collect(in, s.Then, loops, after)
			a.collect(in, s.Else, loops, after)
		case *ir.Switch:
			for _, c := range s.Cases {
				a.collect(in, c.Body, loops, after)
			}
		case *ir.Loop:
			a.collect(in, s.Init, loops, after)
			a.collect(in, s.Body, append(loops[:len(loops):len(loops)], s), after)
		case *ir.Launch:
			l := launch{Launch: s, in: in, loops: loops}
			for i := len(after) - 1; i >= 0 && l.join == nil && s.Group != nil; i-- {
				for _, t := range after[i] {
					if l.join = joins(t, s.Group); l.join != nil {
						break
					}
					l.between = append(l.between, t)
				}
			}
			if s.Proc != nil {
				l.runs = a.reached([]ir.Stmt{s})
			}
			l.calls = a.reached(l.between)
			a.launches = append(a.launches, l)
		}
	}
}

// joins returns the join of a group that s is, or begins with.
func joins(s ir.Stmt, group *ir.Var) *ir.Join {
	switch s := s.(type) {
	case *ir.Join:
		if s.Group == group {
			return s
		}
	case *ir.If: // one that only keeps a statement from being counted
		if c, ok := s.Cond.(ir.Const); ok && c.Value == 1 && len(s.Then) == 1 && len(s.Else) == 0 {
			return joins(s.Then[0], group)
		}
	}
	return nil
}

// reached returns all procedures that a list calls, directly or not.
func (a *liveness) reached(list []ir.Stmt) map[*ir.Proc]bool {
	seen := make(map[*ir.Proc]bool)
	var todo []*ir.Proc
	add := func(list []ir.Stmt) {
		ir.Each(list, func(s ir.Stmt) {
			for _, q := range lower.Callees(s) {
				if !seen[q] {
					seen[q] = true
					todo = append(todo, q)
				}
			}
		})
	}
	add(list)
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		add(p.Body)
	}
	return seen
}

// at returns the goroutines that may be alive when an iteration of l begins.
func (a *liveness) at(l *hotloops.Loop) (list []string) {
	for _, w := range a.launches {
		name := "a function"
		if w.Proc != nil {
			name = w.Proc.Name
		}
		at := fmt.Sprintf("%s, started at %s", name, w.Pos)
		switch {
		case w.runs[l.Proc]:
			list = append(list, at+": the loop itself runs there")
		case w.join == nil:
			if endsBefore(l, w) {
				continue
			}
			list = append(list, at+", which nothing here waits for")
		default:
			during := w.calls[l.Proc]
			ir.Each(w.between, func(s ir.Stmt) { during = during || s == ir.Stmt(l.Stmt) })
			// The goroutines of an iteration may be alive when the
			// next one begins.
			joined := false
			ir.Each(l.Stmt.Body, func(s ir.Stmt) { joined = joined || s == ir.Stmt(w.join) })
			if slices.Contains(w.loops, l.Stmt) && !joined {
				during = true
			}
			if during {
				list = append(list, fmt.Sprintf("%s, until %s", at, w.join.Pos))
			}
		}
	}
	return list
}

// endsBefore reports whether l ends before w is launched.
func endsBefore(l *hotloops.Loop, w launch) bool {
	if l.Proc != w.in {
		return false
	}
	for o := l; o != nil; o = o.Outer {
		if slices.Contains(w.loops, o.Stmt) {
			return false
		}
	}
	p, q := l.Pos, w.Pos
	return p.File == q.File && (p.Line < q.Line || p.Line == q.Line && p.Col < q.Col)
}

// AliveAt returns the goroutines that may be alive when an iteration of l
// begins.
func (e *Explanation) AliveAt(l *hotloops.Loop) []string { return e.liveness.at(l) }
