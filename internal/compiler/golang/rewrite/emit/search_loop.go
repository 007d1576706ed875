package emit

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// A search loop belongs to a function that calls itself in a loop with a point,
// and does next to nothing else. It tests whether a checkpoint is due when it
// begins, not in each iteration, which would cost several percent. No
// checkpoint is delayed: an iteration without a call takes nanoseconds; there
// are at most as many iterations as a slice in memory has elements, because
// each indexes one; and a callee begins a loop or returns at once.

// searchLoop returns the loop of a point if it is a search loop, otherwise nil.
func (w *generator) searchLoop(fn *function, m *mark) *ast.ForStmt {
	if m.call || len(m.path) < 2 || m.last().i != 0 {
		return nil
	}
	st := &m.path[len(m.path)-2]
	loop, ok := unlabelled(st.list[st.i]).(*ast.ForStmt)
	if !ok || ast.Node(loop.Body) != m.last().owner || loop.Cond == nil || !w.pure(loop.Cond) {
		return nil
	}
	init, ok := loop.Init.(*ast.AssignStmt)
	if !ok || init.Tok != token.DEFINE || len(init.Lhs) != 1 || !w.pure(init.Rhs[0]) {
		return nil
	}
	c, _ := w.p.Info.Defs[init.Lhs[0].(*ast.Ident)].(*types.Var)
	post, ok := loop.Post.(*ast.IncDecStmt)
	if !ok || c == nil || post.Tok != token.INC || w.p.Root(post.X) != c || !w.uses(loop.Cond, c) {
		return nil
	}
	calls, cheap := false, true
	changed := rewrite.Vars{}
	ast.Inspect(fn.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt:
			cheap = cheap && n == loop
		case *ast.RangeStmt, *ast.FuncLit, *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt:
			cheap = false
		case *ast.UnaryExpr:
			cheap = cheap && n.Op != token.ARROW && !(n.Op == token.AND && w.p.Root(n.X) == c)
		case *ast.CallExpr:
			t := w.p.Info.Types[n.Fun]
			id, _ := ast.Unparen(n.Fun).(*ast.Ident)
			switch {
			case w.calls[n] == fn:
				calls = true
			case t.IsBuiltin() && id != nil && cheapBuiltins[id.Name]:
			case t.IsType():
				_, basic := t.Type.Underlying().(*types.Basic)
				cheap = cheap && basic && !isString(t.Type)
			default:
				cheap = false
			}
		case *ast.BinaryExpr:
			cheap = cheap && !(n.Op == token.ADD && isString(w.p.Info.TypeOf(n)))
		}
		return cheap
	})
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		w.p.Changes(n, changed)
		return true
	})
	if !cheap || !calls || changed[c] || len(loop.Body.List) == 0 || !w.indexes(loop.Body.List[0], c) {
		return nil
	}
	return loop
}

var cheapBuiltins = map[string]bool{"len": true, "cap": true, "min": true, "max": true}

func isString(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}

// indexes reports whether a statement certainly indexes a slice, an array or a
// string by a variable, because its first evaluated expression does.
func (w *generator) indexes(s ast.Stmt, c *types.Var) bool {
	var x ast.Expr
	switch s := s.(type) {
	case *ast.IfStmt:
		if s.Init != nil {
			return w.indexes(s.Init, c)
		}
		x = s.Cond
	case *ast.AssignStmt:
		x = s.Rhs[0]
	default:
		return false
	}
	for {
		switch e := ast.Unparen(x).(type) {
		case *ast.BinaryExpr:
			x = e.X
			continue
		case *ast.UnaryExpr:
			x = e.X
			continue
		case *ast.IndexExpr:
			id, ok := ast.Unparen(e.Index).(*ast.Ident)
			if !ok || w.p.Info.Uses[id] != c {
				return false
			}
			switch rewrite.CoreType(w.p.Info.TypeOf(e.X)).(type) {
			case *types.Slice, *types.Array, *types.Pointer, *types.Basic:
				return true
			}
		}
		return false
	}
}

// beforeSearchLoop writes the test before a search loop.
func (e *emitter) beforeSearchLoop(m *mark) string {
	loop := e.w.searchLoop(e.fn, m)
	return fmt.Sprintf("if %s; (%s) && %s.Due() {\n%s\n}\n",
		e.region(loop.Init.Pos(), loop.Init.End(), loop.Init), e.region(loop.Cond.Pos(), loop.Cond.End(), loop.Cond), rewrite.Prefix, e.unwind(m))
}

// loopInit returns the init statement of a point's loop, if it is a for loop.
func loopInit(m *mark) ast.Stmt {
	if len(m.path) < 2 {
		return nil
	}
	st := &m.path[len(m.path)-2]
	if loop, ok := unlabelled(st.list[st.i]).(*ast.ForStmt); ok {
		return loop.Init
	}
	return nil
}
