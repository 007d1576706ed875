package place

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// lockCall is a call of a method of a lock or of a sync.Cond.
type lockCall struct {
	fn    *callgraph.Function
	call  *ast.CallExpr
	of    *types.Var // the variable or field; nil if it is not known
	waits bool
	until token.Pos // of a call that locks: where it is unlocked again, at the latest; NoPos: not in the function
}

// findLocks finds the calls of methods of locks and of sync.Cond. Those that
// wait for a sync.Cond are in waits already.
func (pl *Placement) findLocks() {
	shared := map[*types.Var]bool{} // those whose address is taken
	for _, fn := range pl.Calls.All {
		if !fn.Pkg.Rewritable() || !slices.Contains(fn.Pkg.Imports, "sync") {
			continue
		}
		info := fn.Pkg.Info
		skip := map[*ast.CallExpr]bool{}
		first := len(pl.locks)
		fn.Walk(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				skip[n.Call] = true
			case *ast.DeferStmt:
				if _, waits := rewrite.SyncCall(info, n.Call); waits {
					skip[n.Call] = true
				}
			case *ast.UnaryExpr:
				if v := lockVar(info, n.X); n.Op == token.AND && v != nil {
					shared[v] = true
				}
			case *ast.CallExpr:
				function, waits := rewrite.SyncCall(info, n)
				if function == "" || function == "CondWait" || skip[n] || !rewrite.CanName(info, n) || pl.callsSource(fn, n) {
					break
				}
				pl.locks = append(pl.locks, &lockCall{fn: fn, call: n, of: receiverVar(info, n), waits: waits})
			}
			return true
		})
		for _, l := range pl.locks[first:] {
			if l.waits {
				l.until = l.unlocked(pl.locks[first:])
			}
		}
	}
	for _, l := range pl.locks {
		if shared[l.of] {
			l.of = nil
		}
	}
}

// callsSource reports whether a call leads to a function with source.
func (pl *Placement) callsSource(fn *callgraph.Function, c *ast.CallExpr) bool {
	return slices.ContainsFunc(fn.Sites, func(t *callgraph.Site) bool { return t.Call == c })
}

// receiverVar returns the variable or field whose method a call names, or nil.
func receiverVar(info *types.Info, c *ast.CallExpr) *types.Var {
	sel := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	s := info.Selections[sel]
	t := info.TypeOf(sel.X)
	var v *types.Var
	for _, i := range s.Index()[:len(s.Index())-1] { // embedded fields
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		v = t.Underlying().(*types.Struct).Field(i).Origin()
		t = v.Type()
	}
	if v == nil {
		v = lockVar(info, sel.X)
	}
	if _, ok := t.Underlying().(*types.Pointer); ok || types.IsInterface(t) {
		return nil
	}
	return v
}

// lockVar returns the variable or field that an expression is, or is an element
// of.
func lockVar(info *types.Info, x ast.Expr) *types.Var {
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		v, _ := info.Uses[x].(*types.Var)
		return v
	case *ast.SelectorExpr:
		if v, ok := info.Uses[x.Sel].(*types.Var); ok {
			return v.Origin()
		}
	case *ast.IndexExpr:
		return lockVar(info, x.X)
	}
	return nil
}

// unlocked returns where the lock that l locks is unlocked again: at a later
// statement of the same list, or at the end of the function.
func (l *lockCall) unlocked(all []*lockCall) token.Pos {
	end := token.NoPos
	unlocks := map[ast.Expr]bool{}
	for _, u := range all {
		if !u.waits && u.of == l.of && u.call.Pos() > l.call.Pos() {
			unlocks[u.call] = true
			end = l.fn.Body.End()
		}
	}
	within := func(list []ast.Stmt) {
		locked := false
		for _, s := range list {
			x, ok := s.(*ast.ExprStmt)
			if !ok {
				continue
			}
			locked = locked || x.X == ast.Expr(l.call)
			if locked && unlocks[x.X] {
				end = min(end, x.Pos())
				return
			}
		}
	}
	l.fn.Walk(l.fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			within(n.List)
		case *ast.CaseClause:
			within(n.Body)
		case *ast.CommClause:
			within(n.Body)
		}
		return true
	})
	return end
}

// heldAcross reports whether the lock that l locks may be held at a point, or
// in a wait. path has the functions that lead to a point or a wait.
func (pl *Placement) heldAcross(l *lockCall, path map[*callgraph.Function]bool) bool {
	if l.until == token.NoPos { // another function unlocks it
		return true
	}
	inside := func(at token.Pos) bool { return l.call.End() < at && at < l.until }
	for _, n := range pl.Points {
		if pl.Loops[n] == l.fn && inside(LoopBody(n).Lbrace) {
			return true
		}
	}
	if path[l.fn] && slices.ContainsFunc(pl.waits[l.fn], inside) {
		return true
	}
	return slices.ContainsFunc(l.fn.Sites, func(t *callgraph.Site) bool {
		return t.Kind == callgraph.PlainCall && inside(t.At()) && slices.ContainsFunc(t.Callees, func(f *callgraph.Function) bool { return path[f] })
	})
}

// addLocks adds the functions that wait for a lock which may be held at a point
// or in a wait. The holder of any other lock can always continue. addLocks
// returns the locks; nil stands for all locks that are not known.
func (pl *Placement) addLocks(path map[*callgraph.Function]bool) map[*types.Var]bool {
	needed := map[*types.Var]bool{}
	added := map[*callgraph.Function]bool{}
	for more := len(pl.locks) > 0; more; {
		more = false
		for _, l := range pl.locks {
			if l.waits && !needed[l.of] && (pl.reachable[l.fn] || pl.concurrent[l.fn] != nil) && pl.heldAcross(l, path) {
				needed[l.of], more = true, true
			}
		}
		for _, l := range pl.locks {
			if l.waits && needed[l.of] && !added[l.fn] && pl.parks(l.fn) {
				added[l.fn], more = true, true
				for f := range pl.Calls.PathTo(l.fn, pl.reachable, pl.can) {
					path[f] = true
				}
			}
		}
	}
	return needed
}

// Wakes returns the calls that wait for locks which may be held at a point or
// in a wait, the calls that unlock these, and the calls that wake waits for a
// sync.Cond.
func (pl *Placement) Wakes() (list []Wait) {
	needed := pl.addLocks(pl.pathWithoutLocks())
	for _, l := range pl.locks {
		function, _ := rewrite.SyncCall(l.fn.Pkg.Info, l.call)
		condition := function == "Signal" || function == "Broadcast"
		if condition || needed[l.of] && (!l.waits || pl.parks(l.fn)) {
			list = append(list, Wait{l.fn, l.call.Lparen + 1})
		}
	}
	return list
}
