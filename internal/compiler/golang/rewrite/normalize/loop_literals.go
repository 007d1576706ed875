package normalize

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// MoveLoopLiterals moves func literals that the head of a for loop gives to
// variables before the loop, into a block around it:
//
//	for f := func() {…}; …  becomes  { f := func() {…}; for ; …  }
//
// There a restart can make them again. It leaves variables alone that the
// program changes: each iteration may have its own.
func MoveLoopLiterals(p *rewrite.Package, resumable rewrite.ResumablePath) (*rewrite.Package, error) {
	text := map[string][]byte{}
	for _, f := range p.Files {
		var edits []rewrite.Edit
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || d.Body == nil {
				continue
			}
			changed := rewrite.Vars{}
			gotos := map[string]bool{}
			onPath := false
			ast.Inspect(d, func(n ast.Node) bool {
				if n == nil {
					return false
				}
				onPath = onPath || resumable.Funcs[n]
				p.Changes(n, changed)
				if v := p.Addressed(n); v != nil {
					changed[v] = true
				}
				if b, ok := n.(*ast.BranchStmt); ok && b.Tok == token.GOTO {
					gotos[b.Label.Name] = true
				}
				return true
			})
			if !onPath {
				continue
			}
			labels := map[ast.Stmt]*ast.LabeledStmt{}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.LabeledStmt:
					labels[n.Stmt] = n
				case *ast.ForStmt:
					l := labels[n]
					if l == nil || !gotos[l.Label.Name] {
						edits = append(edits, moveLiterals(p, n, l, changed)...)
					}
				}
				return true
			})
		}
		if len(edits) > 0 {
			text[p.FileName(f)] = []byte(p.Apply(f.FileStart, f.FileEnd, edits))
		}
	}
	if len(text) == 0 {
		return p, nil
	}
	return p.With(text)
}

// moveLiterals returns the edits for one loop.
func moveLiterals(p *rewrite.Package, s *ast.ForStmt, label *ast.LabeledStmt, changed rewrite.Vars) []rewrite.Edit {
	a, ok := s.Init.(*ast.AssignStmt)
	if !ok || a.Tok != token.DEFINE || len(a.Lhs) != len(a.Rhs) {
		return nil
	}
	names := map[string]bool{} // used in the values
	for _, x := range a.Rhs {
		ast.Inspect(x, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				names[id.Name] = true
			}
			return true
		})
	}
	var moved, left, right []string
	for i, x := range a.Lhs {
		id := x.(*ast.Ident)
		v, _ := p.Info.Defs[id].(*types.Var)
		if _, lit := a.Rhs[i].(*ast.FuncLit); lit && v != nil && !changed[v] && !names[id.Name] {
			moved = append(moved, id.Name+" := "+p.NodeText(a.Rhs[i], nil))
			continue
		}
		left, right = append(left, p.NodeText(x, nil)), append(right, p.NodeText(a.Rhs[i], nil))
	}
	if len(moved) == 0 {
		return nil
	}
	init := ""
	if len(left) > 0 {
		init = strings.Join(left, ", ") + " := " + strings.Join(right, ", ")
	}
	at := s.Pos()
	if label != nil {
		at = label.Pos()
	}
	return []rewrite.Edit{
		{Lo: at, Hi: at, Text: "{\n" + strings.Join(moved, "\n") + "\n" + p.LineComment(s.Pos())},
		{Lo: a.Pos(), Hi: a.End(), Text: init},
		{Lo: s.End(), Hi: s.End(), Text: "\n}"},
	}
}
