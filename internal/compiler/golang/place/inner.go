package place

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"math"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// A chosen loop may have one round only, over the files that a program is given, say,
// or a few of which each takes days; it may be in the part of a program that reads its
// input, or in one that this run does not do. How many rounds loops have is mostly
// not known, and a point that is never reached costs nothing. So there are points in
// other loops too, as long as they cost little of what a round does.

const (
	mostMore   = 16  // loops besides the chosen ones
	mostInner  = 8   // loops that one gives points to
	mostPoints = 32  // of a program
	little     = 100 // part of the largest that is not looked at
	alike      = 2.0 // difference of h: the same part; its square in the program's own module, if a library has more
	fewAround  = 10  // rounds

	// levels is how many loops inside a chosen one, and inside each other, get points.
	// Those with few rounds do not count.
	levels = 2
	// deepest bounds it with these.
	deepest = 6
)

// part is what a point may cost of a round, and what being on the spine may of a
// call.
type part struct {
	point, spine float64
	lines        int // that are copied of a function, for all its places
}

var (
	// strict is for loops inside those that have points: how often they are begun
	// is not known. They must have enough work besides, since what is taken for the cost of a
	// point is an estimate: a variable that lies on the heap for it may cost more.
	strict = part{0.01, 0.01, 3000}
	// lenient is for loops where no other point is around, or one of a loop
	// with few rounds: without, a run may never be saved.
	lenient = part{0.1, 0.15, 20000}
)

// more makes points of loops that are reached without passing through one
// that has a point: of those before the knee of the curve, and of others with as
// much work, which only were not ranked because they are called in a loop elsewhere.
// An interpreter's loop is of that kind, if the library of its language is
// initialised in a loop.
func (in *Placement) more(knee int) {
	best, library := math.Inf(1), false // whether that is in one
	for n, l := range in.infos {
		// Of chosen ones h may be that of another mode.
		if l.H != nil && (l.Rank > 0 || in.pointed(n)) && *l.H < best {
			best, library = *l.H, !in.main(n)
		}
	}
	for range mostMore {
		free := in.free()
		slices.SortFunc(free, func(a, b ast.Node) int {
			return cmp.Or(cmp.Compare(in.load(a), in.load(b)), cmp.Compare(a.Pos(), b.Pos()))
		})
		added := false
		for _, n := range free {
			if in.Loops[n] == nil {
				continue
			}
			near := alike
			if library && in.main(n) {
				near *= 2
			}
			if l := in.infos[n]; len(in.Points) < mostPoints && (l.Rank > 0 && l.Rank <= knee || in.load(n) <= best+near || in.dispatches(n)) && in.add(n, lenient) {
				added = true
				break // it may hold others
			}
		}
		if !added {
			return
		}
	}
}

// main says that a loop is in the program's own module: libraries for flags and
// commands call all that a program does.
func (in *Placement) main(n ast.Node) bool {
	m := in.Loops[n].Pkg.Module
	return m == nil || m.Main
}

// load is a loop's h.
func (in *Placement) load(n ast.Node) float64 {
	if h := in.infos[n].H; h != nil {
		return *h
	}
	return math.Inf(1)
}

// free returns the loops that main reaches without passing through another one
// or one with a point. Of a function that calls itself in a loop with a point, and of
// what it calls, these are only loops with much work.
func (in *Placement) free() (out []ast.Node) {
	calls := in.price().calls
	seen := map[*callgraph.Function]bool{in.Calls.Main: true}
	around := false // it is so for all that is looked at
	var later []*callgraph.Function
	var walk func(fn *callgraph.Function)
	walk = func(fn *callgraph.Function) {
		if !around && in.recurs(fn) {
			later = append(later, fn)
			return
		}
		ast.Inspect(fn.Body, func(m ast.Node) bool {
			switch m := m.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ForStmt, *ast.RangeStmt:
				if !in.pointed(m) && (!around || in.work(m) >= enough) {
					out = append(out, m)
				}
				return false
			case *ast.CallExpr:
				if t := calls[m]; t != nil && t.Kind == callgraph.PlainCall {
					for _, to := range t.Callees {
						if !seen[to] {
							seen[to] = true
							walk(to)
						}
					}
				}
			}
			return true
		})
	}
	walk(in.Calls.Main)
	around = true
	for _, fn := range later {
		walk(fn)
	}
	return out
}

// recurs says that a function calls itself in a loop that has a point: then so
// does all that it calls have one around.
func (in *Placement) recurs(fn *callgraph.Function) bool {
	for _, t := range fn.Sites {
		if t.Kind != callgraph.PlainCall || !slices.Contains(t.Callees, fn) {
			continue
		}
		for n := in.enclosing(fn, t.At()); n != nil; n = in.enclosing(fn, n.Pos()) {
			if in.pointed(n) {
				return true
			}
		}
	}
	return false
}

// manyWays is how many ways a round may go in what is taken for an interpreter.
const manyWays = 16

// dispatches says that a loop looks like that of an interpreter: each round does one
// of many things.
func (in *Placement) dispatches(n ast.Node) (found bool) {
	calls := in.price().calls
	ast.Inspect(LoopBody(n), func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.FuncLit, *ast.ForStmt, *ast.RangeStmt:
			return false
		case *ast.SwitchStmt:
			found = found || len(m.Body.List) >= manyWays
		case *ast.TypeSwitchStmt:
			found = found || len(m.Body.List) >= manyWays
		case *ast.CallExpr:
			t := calls[m]
			found = found || t != nil && t.Kind == callgraph.PlainCall && len(t.Callees) >= manyWays
		}
		return !found
	})
	return found
}

// descend makes points of loops inside one with a point.
func (in *Placement) descend(n ast.Node, left, most int) {
	few := in.few(n)
	if left == 0 || most == 0 {
		return
	}
	type inner struct {
		ast.Node
		weight float64
	}
	var list []inner
	for _, m := range in.inside(n) {
		list = append(list, inner{m, in.weight(m)})
	}
	slices.SortFunc(list, func(a, b inner) int { return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.Pos(), b.Pos())) })
	if !few {
		left--
	}
	for i, m := range list {
		if i == mostInner || m.weight < list[0].weight/little || len(in.Points) >= mostPoints {
			break
		}
		may := strict
		if few && in.private(m.Node, n) || in.dispatches(m.Node) {
			may = lenient
		}
		if (may == lenient || in.work(m.Node) >= enough) && in.add(m.Node, may) {
			in.descend(m.Node, left, most-1)
		}
	}
}

// Of loops whose rounds are not known, or are many, ten are counted by work, and
// enough is a little less than two such loops inside each other have.
const (
	someRounds = 10
	enough     = 80
)

// work is how many rounds the loops inside one have in each of its rounds, at
// least, those inside each other multiplied.
func (in *Placement) work(n ast.Node) int {
	if w, ok := in.works[n]; ok {
		return w
	}
	in.works[n] = 1 // a function that calls itself is not followed again
	most := 1
	for _, m := range in.inside(n) {
		rounds := someRounds
		if t, ok := in.known(m); ok {
			rounds = min(max(t, 1), someRounds)
		}
		most = max(most, min(rounds*in.work(m), manyRounds))
	}
	in.works[n] = most
	return most
}

// private says that one loop is reached by way of another one only.
func (in *Placement) private(m, n ast.Node) bool {
	old := in.Path()
	now := in.Calls.Leading(in.Loops[m], in.from, in.can)
	for g := range now {
		if old[g] {
			continue
		}
		for _, t := range g.Callers {
			if t.Kind == callgraph.PlainCall && in.from[t.Caller] && (old[t.Caller] || !now[t.Caller]) && !(n.Pos() <= t.At() && t.At() < n.End()) {
				return false
			}
		}
	}
	return true
}

// add makes a point of a loop that was not chosen, if there can be one and it costs
// no more than that.
func (in *Placement) add(n ast.Node, may part) bool {
	fn := in.Loops[n]
	if fn == nil || in.tried[n] || in.skipped(n) || !in.affordable(n, fn, may) || in.hindrance(n, fn) != nil {
		return false
	}
	in.tried[n], in.inner[n] = true, true
	in.Points = append(in.Points, n.(ast.Stmt))
	return true
}

// weight is what all rounds of a loop are taken to take; with a profile, what was
// seen of it.
func (in *Placement) weight(n ast.Node) float64 {
	if in.shares != nil {
		return in.shares[in.p.At(n.Pos())]
	}
	return in.price().trip(n) * in.price().turn(in.Loops[n], n)
}

// affordable says whether a point costs no more than a part of a round of its
// loop, and its spine no more than a part of the calls that are on it.
func (in *Placement) affordable(n ast.Node, fn *callgraph.Function, may part) bool {
	p := in.lowest()
	if pricePoint > may.point*p.turn(fn, n) {
		return false
	}
	old := in.Path()
	now := in.Calls.Leading(fn, in.from, in.can)
	if in.tooLong(fn, now, old, may.lines) {
		return false
	}
	costs, times := map[int]float64{}, map[int]float64{} // of functions that call each other
	for g := range now {
		if old[g] || g == in.Calls.Main {
			continue
		}
		costs[p.group[g]] += priceFrame + p.boxes(g)
		times[p.group[g]] += p.function(g)
		for _, t := range g.Callers {
			// A frame is stored before such a call even if it leads elsewhere.
			elsewhere := slices.ContainsFunc(t.Callees, func(f *callgraph.Function) bool { return !now[f] && !old[f] })
			if t.Kind == callgraph.PlainCall && elsewhere && (now[t.Caller] || old[t.Caller]) && priceFrame > may.spine*in.aroundCall(t) {
				return false
			}
		}
	}
	for g, cost := range costs {
		if cost > may.spine*times[g] {
			return false
		}
	}
	return true
}

// aroundCall is what the innermost loop or function around a call takes in a round.
func (in *Placement) aroundCall(t *callgraph.Site) float64 {
	if n := in.enclosing(t.Caller, t.At()); n != nil {
		return in.lowest().turn(t.Caller, n)
	}
	return in.lowest().function(t.Caller)
}

// price is for comparing loops, lowest for saying what a point may cost: loops
// in loops may have few rounds each.
func (in *Placement) price() *pricer {
	if in.pricer == nil {
		in.pricer = newPricer(in, 10)
	}
	return in.pricer
}

func (in *Placement) lowest() *pricer {
	if in.low == nil {
		in.low = newPricer(in, 3)
	}
	return in.low
}

// spine is made of all functions that lead to a point.
func (in *Placement) Path() map[*callgraph.Function]bool {
	out := map[*callgraph.Function]bool{}
	done := map[*callgraph.Function]bool{}
	for _, n := range in.Points {
		fn := in.Loops[n]
		if done[fn] {
			continue
		}
		done[fn] = true
		for f := range in.Calls.Leading(fn, in.from, in.can) {
			out[f] = true
		}
	}
	return out
}

// tooLong says that a function would be too long with a point in fn and the
// functions of now on the spine: it is copied for each of its points, and for each call on
// the way to others.
func (in *Placement) tooLong(fn *callgraph.Function, now, old map[*callgraph.Function]bool, most int) bool {
	places := map[*callgraph.Function]int{fn: 1}
	for _, n := range in.Points {
		places[in.Loops[n]]++
	}
	for g := range now {
		more := g == fn
		for _, t := range g.Sites {
			if t.Kind == callgraph.PlainCall && slices.ContainsFunc(t.Callees, func(f *callgraph.Function) bool { return now[f] || old[f] }) {
				places[g]++
				more = more || !slices.ContainsFunc(t.Callees, func(f *callgraph.Function) bool { return old[f] })
			}
		}
		lines := in.p.At(g.Body.End()).Line - in.p.At(g.Body.Pos()).Line
		if more && lines*places[g] > most {
			return true
		}
	}
	return false
}

// skipped says that a comment asks for no point.
func (in *Placement) skipped(n ast.Node) bool {
	at := in.p.At(n.Pos())
	return slices.ContainsFunc(in.p.Skip, func(q ir.Pos) bool {
		return q.File == at.File && (q.Line == at.Line || q.Line+1 == at.Line)
	})
}

// inside returns the loops in a loop, or in functions that it calls, that are
// inside no other loop there.
func (in *Placement) inside(n ast.Node) []ast.Node {
	var out []ast.Node
	calls := in.price().calls
	seen := map[*callgraph.Function]bool{in.Loops[n]: true}
	var walk func(root ast.Node)
	walk = func(root ast.Node) {
		ast.Inspect(root, func(m ast.Node) bool {
			switch m := m.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ForStmt, *ast.RangeStmt:
				if m == n {
					return true
				}
				out = append(out, m)
				return false
			case *ast.CallExpr:
				if t := calls[m]; t != nil && t.Kind == callgraph.PlainCall {
					for _, to := range t.Callees {
						if !seen[to] {
							seen[to] = true
							walk(to.Body)
						}
					}
				}
			}
			return true
		})
	}
	walk(n)
	return out
}

// manyRounds is how many rounds of a loop count at most, where they are known.
const manyRounds = 1000

// known is the number of rounds of a loop, where it is a constant.
func (in *Placement) known(n ast.Node) (int, bool) {
	if in.trips == nil {
		in.trips = map[ir.Pos]int{}
		for _, q := range in.p.Procs {
			ir.Each(q.Body, func(s ir.Stmt) {
				if l, ok := s.(*ir.Loop); ok && l.Trip >= 0 {
					in.trips[l.Pos] = l.Trip
				}
			})
		}
	}
	t, ok := in.trips[in.p.At(n.Pos())]
	return t, ok
}

// few says that a loop has few rounds, as far as can be told: a small constant
// number, one for each value of a list in the source, for each argument that
// the program is given, or for each of some strings, which may be names of files.
func (in *Placement) few(n ast.Node) bool {
	if t, ok := in.known(n); ok {
		return t <= fewAround
	}
	r, ok := n.(*ast.RangeStmt)
	if !ok {
		return false
	}
	fn := in.Loops[n]
	if t, ok := fn.Pkg.Info.TypeOf(r.X).Underlying().(*types.Slice); ok {
		if b, ok := t.Elem().Underlying().(*types.Basic); ok && b.Kind() == types.String {
			return true
		}
	}
	x := ast.Unparen(r.X)
	if id, ok := x.(*ast.Ident); ok {
		if x = in.only(fn, id); x == nil {
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
		f, ok := load.Callee(fn.Pkg, x).(*types.Func)
		return ok && f.Pkg() != nil && f.Pkg().Path() == "flag" && f.Name() == "Args"
	case *ast.SelectorExpr:
		v, ok := info.Uses[x.Sel].(*types.Var)
		return ok && v.Pkg() != nil && v.Pkg().Path() == "os" && v.Name() == "Args"
	}
	return false
}

// only returns what a variable of a function is given, if that is done once.
func (in *Placement) only(fn *callgraph.Function, id *ast.Ident) (value ast.Expr) {
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
