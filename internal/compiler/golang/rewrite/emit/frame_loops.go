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

// loopTag describes, for each mark of a function, the outermost loop around it
// that counts to a known end, as resume.Loop reads it:
//
//	loops:"1=i<n@main.go:12 2=cairn_i1<len(cairn_r1)@main.go:20"
//
// Mark 1 is in a loop whose counter is field i of the frame, and which ends when
// i reaches field n. The run time says how far the program is from this.
func (w *generator) loopTag(fn *function) string {
	var out []string
	for _, m := range fn.marks {
		for _, st := range m.path {
			if st.i >= len(st.list) {
				break
			}
			if text := w.countedLoop(fn, m, st.list[st.i]); text != "" {
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

// countedLoop describes statement s, if it is a loop that counts and has mark m
// in its body.
func (w *generator) countedLoop(fn *function, m *mark, s ast.Stmt) string {
	if l, ok := s.(*ast.LabeledStmt); ok {
		s = l.Stmt
	}
	var counter, end ast.Expr
	last := "" // "=" if the counter may reach the end
	switch s := s.(type) {
	case *ast.ForStmt:
		c, ok := s.Cond.(*ast.BinaryExpr)
		if !ok || !inside(m, s.Body) || !countsUp(s.Post, c.X) {
			return ""
		}
		switch c.Op {
		case token.LSS:
		case token.LEQ:
			last = "="
		default:
			return ""
		}
		counter, end = c.X, c.Y
	case *ast.RangeStmt:
		if s.Key == nil || !inside(m, s.Body) {
			return ""
		}
		counter, end = s.Key, s.X
	default:
		return ""
	}
	from, to := w.saved(fn, m, counter), w.loopEnd(fn, m, end)
	if from == "" || to == "" {
		return ""
	}
	at := w.p.Fset.Position(s.Pos())
	return fmt.Sprintf("%s<%s%s@%s:%d", from, last, to, filepath.Base(at.Filename), at.Line)
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
	a, ok := x.(*ast.Ident)
	b, ok2 := i.(*ast.Ident)
	return ok && ok2 && a.Name == b.Name
}

// loopEnd describes where a loop ends: a number, an integer of the frame, or
// the length of a slice of the frame.
func (w *generator) loopEnd(fn *function, m *mark, e ast.Expr) string {
	if v := w.p.Info.Types[e].Value; v != nil {
		if n, ok := constant.Int64Val(constant.ToInt(v)); ok {
			return fmt.Sprint(n)
		}
		return ""
	}
	if c, ok := e.(*ast.CallExpr); ok && len(c.Args) == 1 {
		b, ok := c.Fun.(*ast.Ident)
		if !ok || w.p.Info.Uses[b] != types.Universe.Lookup("len") {
			return ""
		}
		if name := w.saved(fn, m, c.Args[0]); name != "" {
			return "len(" + name + ")"
		}
		return ""
	}
	name := w.saved(fn, m, e)
	if name == "" {
		return ""
	}
	switch t := w.p.Info.TypeOf(e).Underlying().(type) {
	case *types.Basic:
		if t.Info()&types.IsInteger != 0 {
			return name
		}
		if t.Info()&types.IsString == 0 {
			return ""
		}
	case *types.Slice, *types.Array:
	default:
		return ""
	}
	return "len(" + name + ")"
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
