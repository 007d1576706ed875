package place

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
)

// A function that calls itself more than once, one level deeper each time, may
// take any time: two or ten times as long for each level. An iteration that
// calls it may be most of a run, and a checkpoint between iterations is then of
// little use. The work of other recursion is bounded by the data that it walks
// over.

// search is a recursive call that leads to several more.
type search struct {
	t    *callgraph.Site
	loop ast.Node // around the call; nil if the function has several such calls
}

// searches returns a warning for each recursion without a point that iterations
// of the loops lead to.
func (pl *Placement) searches(loops []ast.Node) (warnings []string) {
	members := map[int][]*callgraph.Function{} // of groups, in the order of the source
	for _, fn := range pl.Calls.All {
		g := pl.estimate().group[fn]
		members[g] = append(members[g], fn)
	}
	done := map[int]bool{}
	for _, n := range loops {
		for _, g := range pl.recursiveGroups(n) {
			if s := pl.search(members[g]); s != nil && !done[g] && pl.share(n, g) >= reportShare {
				done[g] = true
				warnings = append(warnings, pl.searchWarning(n, s))
			}
		}
	}
	return warnings
}

// searchWarning says that a kill loses a whole iteration.
func (pl *Placement) searchWarning(n ast.Node, s *search) string {
	text := fmt.Sprintf("the loop at %s is saved between its iterations ONLY, and an iteration may take most of the run: it leads to %s, which calls itself at %s and has no point inside; a kill loses the whole iteration",
		pl.p.At(n.Pos()), s.t.Caller.Name(), pl.p.At(s.t.At()))
	if s.loop == nil {
		return text + "; there is no loop around these calls that could have a point: do less in each iteration of the loop"
	}
	if r := pl.whyNoPoint(s.loop); r != nil {
		return fmt.Sprintf("%s; the loop at %s cannot have one: %s", text, pl.p.At(s.loop.Pos()), r.Reason)
	}
	return fmt.Sprintf("%s; put //cairn:point before the loop at %s to have one there, which may slow it down", text, pl.p.At(s.loop.Pos()))
}

// recursiveGroups returns the recursive groups of functions that iterations of
// a loop reach without passing through another loop with a point.
func (pl *Placement) recursiveGroups(n ast.Node) (groups []int) {
	p := pl.estimate()
	pl.visit(pl.Loops[n], n, map[*callgraph.Function]bool{}, func(m ast.Node) bool {
		return m == n || !pl.hasPoint(m)
	}, func(fn *callgraph.Function) bool {
		if g := p.group[fn]; g != p.group[pl.Loops[n]] && p.recursive(fn) && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
		return true
	})
	return groups
}

// search returns the call that makes a recursive group a search, or nil if
// there is none or the group leads to a point.
func (pl *Placement) search(group []*callgraph.Function) *search {
	if len(group) > maxGroup {
		return nil
	}
	p := pl.estimate()
	for _, f := range group {
		if pl.effort(f) < longIteration {
			continue
		}
		var back []*callgraph.Site
		for _, t := range f.Sites {
			if t.Kind == callgraph.PlainCall && t.Call != nil && len(t.Callees) > 0 && !slices.ContainsFunc(t.Callees, func(g *callgraph.Function) bool { return p.group[g] != p.group[f] }) {
				back = append(back, t)
			}
		}
		several := maxCallsOnPath(f.Body, back) > 1
		for _, t := range back {
			loop := pl.enclosing(f, t.At())
			if loop == nil && !several || !pl.backtracks(t, loop) && !pl.countsDepth(t, back) || pl.boundedDepth(t) {
				continue
			}
			if loop != nil && pl.skipped(loop) || pl.leadsToPoint(f) { // skipped on purpose, or it has a point
				return nil
			}
			return &search{t, loop}
		}
	}
	return nil
}

// maxGroup is the largest recursive group that is examined. In a larger one,
// such as an interpreter, it is unknown which function takes the time.
const maxGroup = 4

// leadsToPoint reports whether a function has a point, or leads to one.
func (pl *Placement) leadsToPoint(fn *callgraph.Function) bool {
	all := callgraph.Reach([]*callgraph.Function{fn}, callgraph.PlainCall)
	return slices.ContainsFunc(pl.Points, func(n ast.Stmt) bool { return all[pl.Loops[n]] })
}

// effort returns the assumed cost of a recursive function.
func (pl *Placement) effort(fn *callgraph.Function) float64 {
	return float64(pl.estimate().unknownTrips) * pl.estimate().function(fn)
}

// share returns the part of an iteration that a recursive group takes, by the
// cost model or by the profile.
func (pl *Placement) share(n ast.Node, group int) float64 {
	p := pl.estimate()
	if pl.shares != nil {
		part := 0.0
		for m, fn := range pl.Loops {
			if p.group[fn] == group {
				part = max(part, pl.weight(m))
			}
		}
		return part / max(pl.weight(n), 1e-9)
	}
	without := *p
	without.times = map[*callgraph.Function]float64{}
	for fn, g := range p.group {
		if g == group {
			without.times[fn] = 0
		}
	}
	fn := pl.Loops[n]
	all := p.iteration(fn, n)
	return (all - without.iteration(fn, n)) / max(all, 1)
}

// reportShare is the share of an iteration that is reported.
const reportShare = 1.0 / 3

// backtracks reports whether a loop assigns the same before and after a call,
// as a search does that takes its steps back.
func (pl *Placement) backtracks(t *callgraph.Site, loop ast.Node) bool {
	if loop == nil {
		return false
	}
	before, after := map[string]bool{}, map[string]bool{}
	t.Caller.Walk(loop, func(m ast.Node) bool {
		var list []ast.Stmt
		switch m := m.(type) {
		case *ast.BlockStmt:
			list = m.List
		case *ast.CaseClause:
			list = m.Body
		case *ast.CommClause:
			list = m.Body
		case ast.Stmt:
			if m.Pos() > t.Call.End() {
				sets(m, after)
			}
		}
		if m != nil && m.Pos() <= t.At() && t.At() < m.End() { // other branches do not count
			for _, s := range list {
				if s.End() <= t.At() {
					sets(s, before)
				}
			}
		}
		return true
	})
	for s := range before {
		if after[s] {
			return true
		}
	}
	return false
}

// sets adds what a statement assigns to, except local variables and values
// computed from the old ones.
func sets(s ast.Stmt, out map[string]bool) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		if s.Tok != token.ASSIGN || len(s.Lhs) != len(s.Rhs) {
			return
		}
		for i, l := range s.Lhs {
			_, id := ast.Unparen(l).(*ast.Ident)
			if text := types.ExprString(l); !id && !mentions(s.Rhs[i], text) {
				out[text] = true
			}
		}
	case *ast.ExprStmt:
		c, ok := s.X.(*ast.CallExpr)
		if !ok || len(c.Args) != 2 {
			return
		}
		if id, ok := c.Fun.(*ast.Ident); ok && id.Name == "delete" {
			out[types.ExprString(c.Args[0])+"["+types.ExprString(c.Args[1])+"]"] = true
		}
	}
}

// mentions reports whether an expression contains another one.
func mentions(e ast.Expr, text string) (found bool) {
	ast.Inspect(e, func(m ast.Node) bool {
		x, ok := m.(ast.Expr)
		found = found || ok && types.ExprString(x) == text
		return !found
	})
	return found
}

// countsDepth reports whether a recursive call passes a parameter plus or minus
// a constant, as if it counted levels, and no part of the data that the
// function was given. A parameter that grows in one call and shrinks in another
// is a position.
func (pl *Placement) countsDepth(t *callgraph.Site, back []*callgraph.Site) bool {
	return !pl.passesPart(t) && slices.ContainsFunc(t.Call.Args, func(e ast.Expr) bool {
		v, by := pl.depthStep(t.Caller, e)
		return v != nil && !slices.ContainsFunc(back, func(u *callgraph.Site) bool {
			return slices.ContainsFunc(u.Call.Args, func(e ast.Expr) bool {
				w, other := pl.depthStep(u.Caller, e)
				return w == v && other != by
			})
		})
	})
}

// boundedDepth reports whether a recursive call decreases a number that is
// small wherever the recursion begins.
func (pl *Placement) boundedDepth(t *callgraph.Site) bool {
	p := pl.estimate()
	for i, e := range t.Call.Args {
		v, by := pl.depthStep(t.Caller, e)
		if v == nil || by > 0 || !slices.Contains(t.Callees, t.Caller) || t.Caller.Position(v) != i {
			continue
		}
		if !slices.ContainsFunc(t.Caller.Callers, func(u *callgraph.Site) bool {
			return p.group[u.Caller] != p.group[t.Caller] && (u.Call == nil || i >= len(u.Call.Args) || !small(u.Caller.Pkg.Info.Types[u.Call.Args[i]].Value))
		}) {
			return true
		}
	}
	return false
}

// small reports whether a value is a constant that allows few levels of
// recursion only.
func small(v constant.Value) bool {
	if v == nil || v.Kind() != constant.Int {
		return false
	}
	n, ok := constant.Int64Val(v)
	return ok && n <= fewIterations
}

// depthStep returns the parameter to which an expression adds a constant, and
// the constant's sign.
func (pl *Placement) depthStep(fn *callgraph.Function, e ast.Expr) (types.Object, int) {
	e = ast.Unparen(e)
	if id, ok := e.(*ast.Ident); ok {
		if e = pl.singleValue(fn, id); e == nil {
			return nil, 0
		}
	}
	b, ok := ast.Unparen(e).(*ast.BinaryExpr)
	if !ok || b.Op != token.ADD && b.Op != token.SUB {
		return nil, 0
	}
	v := fn.Pkg.Info.Types[b.Y].Value
	id, ok := ast.Unparen(b.X).(*ast.Ident)
	if !ok || v == nil || v.Kind() != constant.Int || constant.Sign(v) == 0 {
		return nil, 0
	}
	o := fn.Pkg.Info.Uses[id]
	if o == nil || !fn.Parameter(o) {
		return nil, 0
	}
	if sign := constant.Sign(v); b.Op == token.ADD {
		return o, sign
	} else {
		return o, -sign
	}
}

// passesPart reports whether a call passes a part of a parameter: a field, an
// element or a slice of it, other than numbers and the like. If the function
// calls itself directly, the part of a parameter must be passed as the same
// parameter: a function that takes parts of its other parameters only chooses
// among them.
func (pl *Placement) passesPart(t *callgraph.Site) bool {
	is := func(e ast.Expr, place func(types.Object) bool) bool {
		typ := t.Caller.Pkg.Info.TypeOf(e)
		if typ == nil {
			return false
		}
		if _, basic := typ.Underlying().(*types.Basic); basic {
			return false
		}
		o := pl.partOf(t.Caller, e, 0)
		return o != nil && (!slices.Contains(t.Callees, t.Caller) || place(o))
	}
	sig, ok := t.Caller.Pkg.Info.TypeOf(t.Call.Fun).(*types.Signature)
	if !ok {
		return false
	}
	if s, ok := ast.Unparen(t.Call.Fun).(*ast.SelectorExpr); ok && is(s.X, t.Caller.Receiver) {
		return true
	}
	for i, e := range t.Call.Args {
		if is(e, func(o types.Object) bool { return t.Caller.Position(o) == min(i, sig.Params().Len()-1) }) {
			return true
		}
	}
	return false
}

// partOf returns the parameter that an expression is a part of.
func (pl *Placement) partOf(fn *callgraph.Function, e ast.Expr, depth int) types.Object {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		if e := pl.sourceOf(fn, x); e != nil && depth < 5 {
			return pl.rootParam(fn, e, false, depth+1)
		}
	case *ast.UnaryExpr:
		if x.Op == token.AND {
			return pl.partOf(fn, x.X, depth)
		}
	case *ast.SelectorExpr, *ast.IndexExpr, *ast.SliceExpr:
		return pl.rootParam(fn, x, false, depth)
	}
	return nil
}

// rootParam returns the parameter that an expression is, or is a part of. With
// inside set, a call with the parameter as argument counts too.
func (pl *Placement) rootParam(fn *callgraph.Function, e ast.Expr, inside bool, depth int) types.Object {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident:
		if o := fn.Pkg.Info.Uses[x]; o != nil && fn.Parameter(o) {
			return o
		}
		if e := pl.sourceOf(fn, x); e != nil && depth < 5 {
			return pl.rootParam(fn, e, inside, depth+1)
		}
	case *ast.SelectorExpr:
		return pl.rootParam(fn, x.X, true, depth)
	case *ast.IndexExpr:
		return pl.rootParam(fn, x.X, true, depth)
	case *ast.SliceExpr:
		return pl.rootParam(fn, x.X, true, depth)
	case *ast.StarExpr:
		return pl.rootParam(fn, x.X, inside, depth)
	case *ast.TypeAssertExpr:
		return pl.rootParam(fn, x.X, inside, depth)
	case *ast.UnaryExpr:
		if x.Op == token.AND {
			return pl.rootParam(fn, x.X, inside, depth)
		}
	case *ast.CallExpr:
		from := slices.Clone(x.Args)
		if s, ok := ast.Unparen(x.Fun).(*ast.SelectorExpr); ok {
			from = append(from, s.X)
		}
		for _, e := range from {
			if id, ok := ast.Unparen(e).(*ast.Ident); ok && inside {
				if o := fn.Pkg.Info.Uses[id]; o != nil && fn.Parameter(o) {
					return o
				}
			}
		}
	}
	return nil
}

// sourceOf returns the only value of a variable, or what the loop ranges over
// that declares it.
func (pl *Placement) sourceOf(fn *callgraph.Function, id *ast.Ident) (from ast.Expr) {
	if o := fn.Pkg.Info.Uses[id]; o != nil {
		fn.Walk(fn.Body, func(m ast.Node) bool {
			if r, ok := m.(*ast.RangeStmt); ok && r.Value != nil {
				if v, ok := r.Value.(*ast.Ident); ok && fn.Pkg.Info.Defs[v] == o {
					from = r.X
				}
			}
			return true
		})
	}
	if from != nil {
		return from
	}
	return pl.singleValue(fn, id)
}

// maxCallsOnPath returns how many of some calls a single path through a piece
// of a function makes at most. Each loop counts as one iteration.
func maxCallsOnPath(root ast.Node, of []*callgraph.Site) int {
	count := func(n ast.Node) (k int) {
		if n == nil {
			return 0
		}
		for _, t := range of {
			if n.Pos() <= t.At() && t.At() < n.End() {
				k++
			}
		}
		return k
	}
	var list func(l []ast.Stmt) int
	cases := func(b *ast.BlockStmt) (k int) {
		for _, c := range b.List {
			k = max(k, list(c.(*ast.CaseClause).Body))
		}
		return k
	}
	one := func(s ast.Stmt) (k int) {
		switch s := s.(type) {
		case *ast.BlockStmt:
			return list(s.List)
		case *ast.LabeledStmt:
			return list([]ast.Stmt{s.Stmt})
		case *ast.SwitchStmt:
			return cases(s.Body)
		case *ast.TypeSwitchStmt:
			return cases(s.Body)
		case *ast.ForStmt:
			return list(s.Body.List)
		case *ast.RangeStmt:
			return list(s.Body.List)
		}
		return count(s)
	}
	list = func(l []ast.Stmt) (k int) {
		for i, s := range l {
			n, ok := s.(*ast.IfStmt)
			if !ok {
				k += one(s)
				continue
			}
			k += count(n.Cond)
			if n.Init != nil {
				k += count(n.Init)
			}
			other := 0
			if n.Else != nil {
				other = list([]ast.Stmt{n.Else})
			}
			if ends(n.Body) {
				return k + max(list(n.Body.List), other+list(l[i+1:]))
			}
			k += max(list(n.Body.List), other)
		}
		return k
	}
	return list([]ast.Stmt{root.(ast.Stmt)})
}

// ends reports whether control does not reach what follows a block.
func ends(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}
