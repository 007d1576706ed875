package place

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"math"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// A chosen loop may have one iteration only, over the files that a program is
// given, or a few that take days each. It may be in the part of a program that
// reads its input, or in one that this run does not use. The number of
// iterations is mostly unknown, and a point that is never reached costs
// nothing. So other loops get points too, if these cost little of an iteration.

const (
	maxExtra      = 16  // maximum number of loops in addition to the chosen ones
	maxInside     = 8   // maximum number of loops inside one loop
	maxPoints     = 32  // maximum number of points of a program
	minShare      = 100 // a loop gets no point if its weight is less than 1/minShare of the largest
	similarH      = 2.0 // difference of h between loops with similar work; doubled for the main module, if a library has more
	fewIterations = 10  // number of iterations that counts as few

	// levels is how many nested loops inside a chosen one get points. Loops
	// with few iterations do not count.
	levels = 2
	// maxDepth limits the nesting if loops with few iterations count.
	maxDepth = 6
)

// budget is the part of an iteration that a point may cost, and the part of a
// call that being on the resumable path may cost.
type budget struct {
	point, path float64
	lines       int // maximum number of lines of a function, times its points and calls on the path
}

var (
	// strict is for loops inside others with points: it is unknown how
	// often they begin. They must have enough work besides, because the
	// cost of a point is an estimate: a variable that moves to the heap may
	// cost more.
	strict = budget{0.01, 0.01, 3000}
	// phase is for loops that may have most of the work of a run, or none.
	phase = budget{0.01, 0.02, 3000}
	// lenient is for loops without a point around them, or only one with
	// few iterations: without a point, a run may never be saved.
	lenient = budget{0.1, 0.15, 20000}
	// job is for loops inside the loop of a goroutine that takes jobs: they
	// may be short or long, and a long one holds up all goroutines.
	job = budget{0.05, 0.1, 3000}
)

// placeMore places points in loops that are reached without passing through a
// loop with a point: those before the knee of the curve, and others with as
// much work that were not ranked because their function is called in a loop. An
// interpreter's main loop is of that kind, if the interpreter initialises its
// library in a loop.
func (pl *Placement) placeMore(knee int) {
	best, library := math.Inf(1), false // whether the best loop is in a library
	for n, l := range pl.infos {
		// h of a chosen loop may be that of another mode.
		if l.H != nil && (l.Rank > 0 || pl.hasPoint(n)) && *l.H < best {
			best, library = *l.H, !pl.inMainModule(n)
		}
	}
	for range maxExtra {
		free := pl.outermost()
		slices.SortFunc(free, func(a, b ast.Node) int {
			return cmp.Or(cmp.Compare(pl.loopH(a), pl.loopH(b)), cmp.Compare(a.Pos(), b.Pos()))
		})
		added := false
		for _, n := range free {
			if pl.Loops[n] == nil {
				continue
			}
			near := similarH
			if library && pl.inMainModule(n) {
				near *= 2
			}
			if l := pl.infos[n]; len(pl.Points) < maxPoints && (l.Rank > 0 && l.Rank <= knee || pl.loopH(n) <= best+near || pl.dispatches(n)) && pl.add(n, lenient) {
				added = true
				break // others may be inside it
			}
		}
		if !added {
			return
		}
	}
}

// inMainModule reports whether a loop is in the program's own module. Libraries
// for flags and commands call everything that a program does.
func (pl *Placement) inMainModule(n ast.Node) bool {
	m := pl.Loops[n].Pkg.Module
	return m == nil || m.Main
}

// loopH returns a loop's h.
func (pl *Placement) loopH(n ast.Node) float64 {
	if h := pl.infos[n].H; h != nil {
		return *h
	}
	return math.Inf(1)
}

// outermost returns the loops that main reaches without passing through another
// loop or a loop with a point. If a function calls itself in a loop with a
// point, outermost returns only those of its loops, and of its callees' loops,
// that have much work.
func (pl *Placement) outermost() (out []ast.Node) {
	around := false // a loop with a point is around all that is visited
	var later []*callgraph.Function
	loop := func(n ast.Node) bool {
		if !pl.hasPoint(n) && (!around || pl.tripsInside(n) >= enoughTrips) {
			out = append(out, n)
		}
		return false
	}
	enter := func(fn *callgraph.Function) bool {
		if !around && pl.recurs(fn) {
			later = append(later, fn)
			return false
		}
		return true
	}
	seen := map[*callgraph.Function]bool{pl.Calls.Main: true}
	if enter(pl.Calls.Main) {
		pl.walk(pl.Calls.Main, pl.Calls.Main.Body, seen, loop, enter, true)
	}
	around = true
	for _, fn := range later {
		pl.walk(fn, fn.Body, seen, loop, enter, true)
	}
	return out
}

// visit walks over a piece of a function and over the functions that it calls,
// except those in seen and branches that end with an error. It looks into a
// loop if loop returns true, and into a function if enter does.
func (pl *Placement) visit(fn *callgraph.Function, root ast.Node, seen map[*callgraph.Function]bool, loop func(ast.Node) bool, enter func(*callgraph.Function) bool) {
	pl.walk(fn, root, seen, loop, enter, false)
}

// walk is visit. If failures is set, it walks over branches that end with an
// error, too.
func (pl *Placement) walk(fn *callgraph.Function, root ast.Node, seen map[*callgraph.Function]bool, loop func(ast.Node) bool, enter func(*callgraph.Function) bool, failures bool) {
	calls := pl.estimate().calls
	skip := map[ast.Node]bool{}
	ast.Inspect(root, func(n ast.Node) bool {
		if n != nil && skip[n] {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.IfStmt:
			skip[n.Body] = !failures && fails(fn.Pkg.Info, n)
		case *ast.ForStmt, *ast.RangeStmt:
			return loop(n)
		case *ast.CallExpr:
			t := calls[n]
			if t == nil || t.Kind != callgraph.PlainCall {
				return true
			}
			for _, to := range t.Callees {
				if !seen[to] {
					seen[to] = true
					if enter(to) {
						pl.walk(to, to.Body, seen, loop, enter, failures)
					}
				}
			}
		}
		return true
	})
}

// recurs reports whether a function calls itself in a loop that has a point.
func (pl *Placement) recurs(fn *callgraph.Function) bool {
	for _, t := range fn.Sites {
		if t.Kind != callgraph.PlainCall || !slices.Contains(t.Callees, fn) {
			continue
		}
		for n := pl.enclosing(fn, t.At()); n != nil; n = pl.enclosing(fn, n.Pos()) {
			if pl.hasPoint(n) {
				return true
			}
		}
	}
	return false
}

// manyCases is the number of cases of a switch that is taken for an
// interpreter's.
const manyCases = 16

// dispatches reports whether a loop looks like that of an interpreter: each
// iteration does one of many things.
func (pl *Placement) dispatches(n ast.Node) (found bool) {
	calls := pl.estimate().calls
	ast.Inspect(LoopBody(n), func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.FuncLit, *ast.ForStmt, *ast.RangeStmt:
			return false
		case *ast.SwitchStmt:
			found = found || len(m.Body.List) >= manyCases
		case *ast.TypeSwitchStmt:
			found = found || len(m.Body.List) >= manyCases
		case *ast.CallExpr:
			t := calls[m]
			found = found || t != nil && t.Kind == callgraph.PlainCall && len(t.Callees) >= manyCases
		}
		return !found
	})
	return found
}

// placeInside places points in loops inside one with a point.
func (pl *Placement) placeInside(n ast.Node, left, most int) {
	few := pl.fewTrips(n)
	if left == 0 || most == 0 {
		return
	}
	type inner struct {
		ast.Node
		weight float64
	}
	var list []inner
	for _, m := range pl.loopsInside(n) {
		list = append(list, inner{m, pl.weight(m)})
	}
	slices.SortFunc(list, func(a, b inner) int { return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.Pos(), b.Pos())) })
	if !few {
		left--
	}
	for i, m := range list {
		if i == maxInside || m.weight < list[0].weight/minShare || len(pl.Points) >= maxPoints {
			break
		}
		may := strict
		switch {
		case few && pl.onlyThrough(m.Node, n) || pl.dispatches(m.Node):
			may = lenient
		case pl.takesJobs(n):
			may = job
		case pl.isPhase(m.Node, n):
			may = phase
		}
		if (may != strict || pl.tripsInside(m.Node) >= enoughTrips) && pl.add(m.Node, may) {
			pl.placeInside(m.Node, left, most-1)
		}
	}
}

// isPhase reports whether loop m inside loop n is a phase of n's iterations, so
// that it may have most of the work of a run: its work is in loops inside it,
// and either these are in functions that it calls, or another loop of n has
// loops inside, too. A simulation that first only computes, and then also
// measures, is of that kind.
func (pl *Placement) isPhase(m, n ast.Node) bool {
	fn := pl.Loops[m]
	if pl.tripsInside(m) < assumedTrips || pl.estimate().recursive(fn) {
		return false
	}
	inside, called := 0.0, false
	pl.visit(fn, LoopBody(m), map[*callgraph.Function]bool{fn: true}, func(o ast.Node) bool {
		inside += pl.weight(o)
		called = called || pl.Loops[o] != fn
		return false
	}, func(*callgraph.Function) bool { return true })
	all := pl.estimate().iteration(fn, m)
	if pl.shares != nil {
		all = pl.weight(m)
	}
	return inside >= phaseShare*all && (called || slices.ContainsFunc(pl.loopsInside(n), func(o ast.Node) bool {
		return o != m && pl.tripsInside(o) >= assumedTrips
	}))
}

// phaseShare is the part of a phase's iteration that its loops take, at least.
const phaseShare = 0.7

// assumedTrips is the number of iterations that tripsInside counts for a loop
// if the number is unknown or larger. enoughTrips is a little less than two
// such nested loops have.
const (
	assumedTrips = 10
	enoughTrips  = 80
)

// tripsInside returns how many iterations the loops inside a loop have in each
// of its iterations, at least; those of nested loops are multiplied.
func (pl *Placement) tripsInside(n ast.Node) int {
	if w, ok := pl.nestedTrips[n]; ok {
		return w
	}
	pl.nestedTrips[n] = 1 // a recursive function is not followed again
	most := 1
	for _, m := range pl.loopsInside(n) {
		trips := assumedTrips
		if t, ok := pl.knownTrips(m); ok {
			trips = min(max(t, 1), assumedTrips)
		}
		most = max(most, min(trips*pl.tripsInside(m), maxTrips))
	}
	pl.nestedTrips[n] = most
	return most
}

// onlyThrough reports whether loop m is reached through loop n only.
func (pl *Placement) onlyThrough(m, n ast.Node) bool {
	old := pl.ResumablePath()
	now := pl.Calls.PathTo(pl.Loops[m], pl.reachable, pl.can)
	for g := range now {
		if old[g] {
			continue
		}
		for _, t := range g.Callers {
			if t.Kind == callgraph.PlainCall && pl.reachable[t.Caller] && (old[t.Caller] || !now[t.Caller]) && !(n.Pos() <= t.At() && t.At() < n.End()) {
				return false
			}
		}
	}
	return true
}

// add places a point in a loop that was not chosen, if it can have one within
// the budget.
func (pl *Placement) add(n ast.Node, may budget) bool {
	fn := pl.Loops[n]
	if fn == nil || pl.tried[n] || pl.skipped(n) || !pl.affordable(n, fn, may) || pl.obstacle(n, fn) != nil {
		return false
	}
	pl.tried[n], pl.extra[n] = true, true
	pl.Points = append(pl.Points, n.(ast.Stmt))
	return true
}

// weight returns the estimated cost of all iterations of a loop, or its share
// of the samples if there is a profile.
func (pl *Placement) weight(n ast.Node) float64 {
	if pl.shares != nil {
		return pl.shares[pl.p.At(n.Pos())]
	}
	return pl.estimate().trips(n) * pl.estimate().iteration(pl.Loops[n], n)
}

// affordable reports whether a point, and the functions that it adds to the
// resumable path, are within the budget.
func (pl *Placement) affordable(n ast.Node, fn *callgraph.Function, may budget) bool {
	p := pl.lowEstimate()
	if costPoint > may.point*p.iteration(fn, n) {
		return false
	}
	old := pl.ResumablePath()
	now := pl.Calls.PathTo(fn, pl.reachable, pl.can)
	if pl.tooLong(fn, now, old, may.lines) {
		return false
	}
	costs, times := map[int]float64{}, map[int]float64{} // by group
	for g := range now {
		if old[g] || g == pl.Calls.Main {
			continue
		}
		costs[p.group[g]] += costFrame + p.heapVars(g)
		times[p.group[g]] += p.function(g)
		for _, t := range g.Callers {
			// A frame is stored before such a call even if it leads
			// elsewhere.
			elsewhere := slices.ContainsFunc(t.Callees, func(f *callgraph.Function) bool { return !now[f] && !old[f] })
			if t.Kind == callgraph.PlainCall && elsewhere && (now[t.Caller] || old[t.Caller]) && costFrame > may.path*pl.costAround(t) {
				return false
			}
		}
	}
	for g, cost := range costs {
		if cost > may.path*times[g] {
			return false
		}
	}
	return true
}

// costAround returns the cost of an iteration of the innermost loop around a
// call, or of a call of its function.
func (pl *Placement) costAround(t *callgraph.Site) float64 {
	if n := pl.enclosing(t.Caller, t.At()); n != nil {
		return pl.lowEstimate().iteration(t.Caller, n)
	}
	return pl.lowEstimate().function(t.Caller)
}

// estimate returns the cost model for comparing loops. lowEstimate returns the
// cost model for what a point may cost: it assumes that nested loops have few
// iterations each.
func (pl *Placement) estimate() *costModel {
	if pl.cost == nil {
		pl.cost = newCostModel(pl, 10)
	}
	return pl.cost
}

func (pl *Placement) lowEstimate() *costModel {
	if pl.lowCost == nil {
		pl.lowCost = newCostModel(pl, 3)
	}
	return pl.lowCost
}

// ResumablePath returns all functions that lead to a point, or to a wait of a
// goroutine that can be saved.
func (pl *Placement) ResumablePath() map[*callgraph.Function]bool {
	path := pl.pathWithoutLocks()
	pl.addLocks(path)
	return path
}

// pathWithoutLocks is ResumablePath without the waits for locks.
func (pl *Placement) pathWithoutLocks() map[*callgraph.Function]bool {
	out := map[*callgraph.Function]bool{}
	done := map[*callgraph.Function]bool{}
	add := func(fn *callgraph.Function) {
		if done[fn] {
			return
		}
		done[fn] = true
		for f := range pl.Calls.PathTo(fn, pl.reachable, pl.can) {
			out[f] = true
		}
	}
	for _, n := range pl.Points {
		add(pl.Loops[n])
	}
	for fn := range pl.waits {
		if pl.waitsIn(fn) {
			add(fn)
		}
	}
	return out
}

// tooLong reports whether a function would get too long with a point in fn and
// the functions of now on the resumable path: a function is copied for each of
// its points, and for each call on the path.
func (pl *Placement) tooLong(fn *callgraph.Function, now, old map[*callgraph.Function]bool, most int) bool {
	places := map[*callgraph.Function]int{fn: 1}
	for _, n := range pl.Points {
		places[pl.Loops[n]]++
	}
	for g := range now {
		more := g == fn
		for _, t := range g.Sites {
			if t.Kind == callgraph.PlainCall && slices.ContainsFunc(t.Callees, func(f *callgraph.Function) bool { return now[f] || old[f] }) {
				places[g]++
				more = more || !slices.ContainsFunc(t.Callees, func(f *callgraph.Function) bool { return old[f] })
			}
		}
		lines := pl.p.At(g.Body.End()).Line - pl.p.At(g.Body.Pos()).Line
		if more && lines*places[g] > most {
			return true
		}
	}
	return false
}

// skipped reports whether a comment asks for no point.
func (pl *Placement) skipped(n ast.Node) bool {
	at := pl.p.At(n.Pos())
	return slices.ContainsFunc(pl.p.Skip, func(q ir.Pos) bool {
		return q.File == at.File && (q.Line == at.Line || q.Line+1 == at.Line)
	})
}

// loopsInside returns the loops in a loop, or in functions that it calls, that
// are inside no other loop there.
func (pl *Placement) loopsInside(n ast.Node) (out []ast.Node) {
	pl.visit(pl.Loops[n], n, map[*callgraph.Function]bool{pl.Loops[n]: true}, func(m ast.Node) bool {
		if m != n {
			out = append(out, m)
		}
		return m == n
	}, func(*callgraph.Function) bool { return true })
	return out
}

// maxTrips is how many iterations of a loop count at most.
const maxTrips = 1000

// knownTrips returns the number of iterations of a loop if it is constant.
func (pl *Placement) knownTrips(n ast.Node) (int, bool) {
	if pl.trips == nil {
		pl.trips = map[ir.Pos]int{}
		for _, q := range pl.p.Procs {
			ir.Each(q.Body, func(s ir.Stmt) {
				if l, ok := s.(*ir.Loop); ok && l.Trip >= 0 {
					pl.trips[l.Pos] = l.Trip
				}
			})
		}
	}
	t, ok := pl.trips[pl.p.At(n.Pos())]
	return t, ok
}

// fewTrips reports whether a loop seems to have few iterations: a small
// constant number, one for each element of a literal or for each argument of
// the program, or one for each of some strings, which may be names of files.
func (pl *Placement) fewTrips(n ast.Node) bool {
	if t, ok := pl.knownTrips(n); ok {
		return t <= fewIterations
	}
	r, ok := n.(*ast.RangeStmt)
	if !ok {
		return false
	}
	fn := pl.Loops[n]
	if t, ok := fn.Pkg.Info.TypeOf(r.X).Underlying().(*types.Slice); ok {
		if b, ok := t.Elem().Underlying().(*types.Basic); ok && b.Kind() == types.String {
			return true
		}
	}
	x := ast.Unparen(r.X)
	if id, ok := x.(*ast.Ident); ok {
		if x = pl.singleValue(fn, id); x == nil {
			return false
		}
	}
	if s, ok := x.(*ast.SliceExpr); ok {
		x = ast.Unparen(s.X)
	}
	info := fn.Pkg.Info
	switch x := x.(type) {
	case *ast.CompositeLit:
		return true
	case *ast.CallExpr:
		if info.Types[x.Fun].IsBuiltin() && len(x.Args) > 1 { // make with a length
			n, exact := constant.Int64Val(constant.ToInt(cmp.Or(info.Types[x.Args[1]].Value, constant.MakeUnknown())))
			return exact && n <= fewIterations
		}
		f, ok := load.Callee(fn.Pkg, x).(*types.Func)
		return ok && f.Pkg() != nil && f.Pkg().Path() == "flag" && f.Name() == "Args"
	case *ast.SelectorExpr:
		v, ok := info.Uses[x.Sel].(*types.Var)
		return ok && v.Pkg() != nil && v.Pkg().Path() == "os" && v.Name() == "Args"
	}
	return false
}

// singleValue returns the value of a variable that is assigned once, or nil.
func (pl *Placement) singleValue(fn *callgraph.Function, id *ast.Ident) (value ast.Expr) {
	obj := fn.Pkg.Info.Uses[id]
	times := 0
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				if l, ok := l.(*ast.Ident); ok && fn.Pkg.Info.ObjectOf(l) == obj {
					times++
					if len(n.Lhs) == len(n.Rhs) {
						value = ast.Unparen(n.Rhs[i])
					}
				}
			}
		case *ast.ValueSpec:
			for i, l := range n.Names {
				if fn.Pkg.Info.Defs[l] == obj {
					times++
					if len(n.Names) == len(n.Values) {
						value = ast.Unparen(n.Values[i])
					}
				}
			}
		case *ast.UnaryExpr:
			if x, ok := n.X.(*ast.Ident); ok && n.Op == token.AND && fn.Pkg.Info.Uses[x] == obj {
				times++
			}
		}
		return true
	})
	if times != 1 {
		return nil
	}
	return value
}
