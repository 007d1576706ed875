package emit

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// loopTag describes, for each mark of a function, the outermost loop around it,
// as resume.Loop reads it:
//
//	loops:"1=i<n@main.go:12 2=cairn_i1-5<=len(cairn_r1)-1@main.go:20 3=?"
//
// Mark 1 is in a loop whose counter is field i of the frame, and which ends
// when i reaches field n. The counter of the loop around mark 2 begins at 5,
// and may be as large as the length of field cairn_r1, less 1. The loop around
// mark 3 does not tell when it ends. The run time says how far the program is
// from this.
func (w *generator) loopTag(fn *function) string {
	var out []string
	for _, m := range fn.marks {
		for _, st := range m.path {
			if st.i >= len(st.list) {
				break
			}
			if text := w.loop(fn, m, st.list[st.i]); text != "" {
				out = append(out, fmt.Sprintf("%d=%s", m.n, text))
				break
			}
		}
	}
	if out == nil {
		return ""
	}
	return fmt.Sprintf("loops:%q", strings.Join(out, " "))
}

// unknownLoop describes a loop that does not tell when it ends. A counting loop
// in it would begin again and again.
const unknownLoop = "?"

// loop describes statement s, if it is a loop that has mark m in its body.
func (w *generator) loop(fn *function, m *mark, s ast.Stmt) string {
	if l, ok := s.(*ast.LabeledStmt); ok {
		s = l.Stmt
	}
	var counter, end ast.Expr
	from, last := "", "" // where the counter begins; "=" if it may reach the end
	switch s := s.(type) {
	case *ast.ForStmt:
		if !inside(m, s.Body) {
			return ""
		}
		c, ok := s.Cond.(*ast.BinaryExpr)
		if !ok || !countsUp(s.Post, c.X) {
			return unknownLoop
		}
		switch c.Op {
		case token.LSS:
		case token.LEQ:
			last = "="
		default:
			return unknownLoop
		}
		counter, end = c.X, c.Y
		if from, ok = w.loopBegin(fn, m, s.Init, counter); !ok {
			return unknownLoop
		}
	case *ast.RangeStmt:
		if !inside(m, s.Body) {
			return ""
		}
		if s.Key == nil {
			return unknownLoop
		}
		counter, end = s.Key, s.X
	default:
		return ""
	}
	name, to := w.saved(fn, m, counter), w.loopEnd(fn, m, end)
	if name == "" || to == "" {
		return unknownLoop
	}
	at := w.p.Fset.Position(s.Pos())
	return fmt.Sprintf("%s%s<%s%s@%s:%d", name, from, last, to, filepath.Base(at.Filename), at.Line)
}

// loopBegin describes where a counter begins: "", which means 0 or before the
// loop, or a minus sign and a number or an integer of the frame.
func (w *generator) loopBegin(fn *function, m *mark, init ast.Stmt, counter ast.Expr) (string, bool) {
	a, ok := init.(*ast.AssignStmt)
	if !ok {
		return "", init == nil
	}
	k := slices.IndexFunc(a.Lhs, func(e ast.Expr) bool { return sameName(e, counter) })
	if k < 0 {
		return "", true
	}
	if len(a.Rhs) != len(a.Lhs) {
		return "", false
	}
	switch from := w.integer(fn, m, a.Rhs[k]); from {
	case "":
		return "", false
	case "0":
		return "", true
	default:
		return "-" + from, true
	}
}

// inside reports whether a mark is in the body of a loop.
func inside(m *mark, body *ast.BlockStmt) bool {
	return slices.ContainsFunc(m.path, func(st step) bool { return st.owner == body })
}

// countsUp reports whether a statement is i++ or i += x.
func countsUp(s ast.Stmt, i ast.Expr) bool {
	x := ast.Expr(nil)
	switch s := s.(type) {
	case *ast.IncDecStmt:
		if s.Tok == token.INC {
			x = s.X
		}
	case *ast.AssignStmt:
		if s.Tok == token.ADD_ASSIGN {
			x = s.Lhs[0]
		}
	}
	return sameName(x, i)
}

// sameName reports whether two expressions are the same identifier.
func sameName(x, y ast.Expr) bool {
	a, ok := x.(*ast.Ident)
	b, ok2 := y.(*ast.Ident)
	return ok && ok2 && a.Name == b.Name
}

// loopEnd describes where a loop ends: a number, an integer of the frame, or
// the length of a slice of the frame; the latter two also plus or minus a
// number.
func (w *generator) loopEnd(fn *function, m *mark, e ast.Expr) string {
	if b, ok := ast.Unparen(e).(*ast.BinaryExpr); ok && w.p.Info.Types[e].Value == nil && (b.Op == token.ADD || b.Op == token.SUB) {
		of, by := w.loopEnd(fn, m, b.X), w.constant(b.Y)
		if of == "" || by == "" || strings.ContainsAny(of+by, "+-") {
			return ""
		}
		return of + b.Op.String() + by
	}
	if c, ok := e.(*ast.CallExpr); ok && len(c.Args) == 1 && w.p.Info.Types[e].Value == nil {
		b, ok := c.Fun.(*ast.Ident)
		if !ok || w.p.Info.Uses[b] != types.Universe.Lookup("len") {
			return ""
		}
		if name := w.saved(fn, m, c.Args[0]); name != "" {
			return "len(" + name + ")"
		}
		return ""
	}
	if n := w.integer(fn, m, e); n != "" {
		return n
	}
	name := w.saved(fn, m, e)
	if name == "" {
		return ""
	}
	switch t := w.p.Info.TypeOf(e).Underlying().(type) {
	case *types.Basic:
		if t.Info()&types.IsString == 0 {
			return ""
		}
	case *types.Slice, *types.Array:
	default:
		return ""
	}
	return "len(" + name + ")"
}

// integer describes a number, or an integer of the frame.
func (w *generator) integer(fn *function, m *mark, e ast.Expr) string {
	if w.p.Info.Types[e].Value != nil {
		return w.constant(e)
	}
	if t, ok := w.p.Info.TypeOf(e).Underlying().(*types.Basic); !ok || t.Info()&types.IsInteger == 0 {
		return ""
	}
	return w.saved(fn, m, e)
}

// constant returns the value of an integer constant.
func (w *generator) constant(e ast.Expr) string {
	v := w.p.Info.Types[e].Value
	if v == nil {
		return ""
	}
	n, ok := constant.Int64Val(constant.ToInt(v))
	if !ok {
		return ""
	}
	return fmt.Sprint(n)
}

// saved returns the field of a variable in the frame, if it is saved at a mark.
func (w *generator) saved(fn *function, m *mark, e ast.Expr) string {
	id, ok := e.(*ast.Ident)
	if !ok {
		return ""
	}
	v, ok := w.p.Info.ObjectOf(id).(*types.Var)
	if !ok || !slices.Contains(m.saved, v) || fn.byVar[v] == nil || strings.HasPrefix(v.Name(), rewrite.SharedVar) {
		return ""
	}
	return fn.byVar[v].name
}
