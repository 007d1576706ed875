package place

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
)

// placeInGoroutines places points in the loops of goroutines that are saved. A
// goroutine that computes without a point holds up all others, and a loop that
// only starts goroutines is over before a checkpoint is due.
func (pl *Placement) placeInGoroutines() {
	for _, l := range pl.Launches {
		if l.Site == nil || l.Background {
			continue
		}
		for _, f := range l.Site.Callees {
			pl.placeFrom(f)
		}
	}
}

// placeFrom places points in the outermost loops of a goroutine that begins
// with f, if they have much of its work. A loop over a channel has a wait in
// each iteration; only the loops inside it get points.
func (pl *Placement) placeFrom(f *callgraph.Function) {
	var list []ast.Node
	most := 0.0
	pl.visit(f, f.Body, map[*callgraph.Function]bool{f: true}, func(n ast.Node) bool {
		if pl.Loops[n] != nil {
			list = append(list, n)
			most = max(most, pl.weight(n))
		}
		return false
	}, func(*callgraph.Function) bool { return true })
	slices.SortFunc(list, func(a, b ast.Node) int {
		return cmp.Or(cmp.Compare(pl.weight(b), pl.weight(a)), cmp.Compare(a.Pos(), b.Pos()))
	})
	for _, n := range list {
		switch {
		case pl.weight(n) < most/minShare || len(pl.Points) >= maxPoints:
			return
		case pl.hasPoint(n) && !pl.takesJobs(n):
		case pl.hasPoint(n), pl.overChannel(n), pl.add(n, lenient):
			pl.placeInside(n, levels, maxDepth)
		}
	}
}

// takesJobs reports whether a loop of a goroutine receives in each iteration.
func (pl *Placement) takesJobs(n ast.Node) (found bool) {
	if pl.concurrent[pl.Loops[n]] == nil {
		return false
	}
	if pl.overChannel(n) {
		return true
	}
	ast.Inspect(LoopBody(n), func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.FuncLit, *ast.ForStmt, *ast.RangeStmt, *ast.GoStmt:
			return false
		case *ast.UnaryExpr:
			found = found || m.Op == token.ARROW
		}
		return !found
	})
	return found
}

// jobWarnings reports goroutines whose jobs may take long without a point.
func (pl *Placement) jobWarnings() (warnings []string) {
	seen := map[ast.Node]bool{}
	for _, l := range pl.Launches {
		if l.Site == nil || l.Background {
			continue
		}
		for _, f := range l.Site.Callees {
			pl.visit(f, f.Body, map[*callgraph.Function]bool{f: true}, func(n ast.Node) bool {
				if m := pl.longJob(n); m != nil && !seen[m] {
					seen[m] = true
					why := "a point in it would cost too much of each iteration"
					if r := pl.whyNoPoint(m); r != nil {
						why = r.Reason
					}
					warnings = append(warnings, fmt.Sprintf("while a goroutine that is started at %s is in the loop at %s, no checkpoint can be taken: %s; put //cairn:point before the loop if it takes long, //cairn:skip if not",
						pl.p.At(l.At), pl.p.At(m.Pos()), why))
				}
				return false
			}, func(*callgraph.Function) bool { return true })
		}
	}
	return warnings
}

// longJob returns the loop with most of the work of each job that a loop takes,
// if it may take long and has no point.
func (pl *Placement) longJob(n ast.Node) ast.Node {
	if pl.Loops[n] == nil || pl.skipped(n) || !pl.takesJobs(n) {
		return nil
	}
	inside := slices.DeleteFunc(pl.loopsInside(n), func(m ast.Node) bool { return pl.Loops[m] == nil })
	if len(inside) == 0 {
		return nil
	}
	m := slices.MaxFunc(inside, func(a, b ast.Node) int {
		return cmp.Or(cmp.Compare(pl.weight(a), pl.weight(b)), cmp.Compare(b.Pos(), a.Pos()))
	})
	if slices.ContainsFunc(append(pl.loopsInside(m), m), func(o ast.Node) bool { return pl.hasPoint(o) || pl.skipped(o) }) {
		return nil
	}
	f, ok := m.(*ast.ForStmt)
	while := ok && f.Post == nil // nothing says that it has few iterations
	if _, known := pl.knownTrips(m); known && pl.weight(m) < longIteration || !while && pl.tripsInside(m) < assumedTrips {
		return nil
	}
	return m
}

// overChannel reports whether a loop ranges over a channel, in a function whose
// waits can be resumed.
func (pl *Placement) overChannel(n ast.Node) bool {
	r, ok := n.(*ast.RangeStmt)
	if !ok || !pl.waitsIn(pl.Loops[n]) {
		return false
	}
	_, ok = types.Unalias(pl.Loops[n].Pkg.Info.TypeOf(r.X)).Underlying().(*types.Chan)
	return ok
}
