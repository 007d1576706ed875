package normalize

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// stdLoops lists functions of the standard library that return iterators, and
// how the loop is written without them.
var stdLoops = map[string]loopForm{
	"slices.All":            overBoth,
	"slices.Values":         overValues,
	"slices.Backward":       backward,
	"slices.Chunk":          collected,
	"maps.All":              overBoth,
	"maps.Keys":             overKeys,
	"maps.Values":           overValues,
	"strings.Lines":         collected,
	"strings.SplitSeq":      collected,
	"strings.SplitAfterSeq": collected,
	"strings.FieldsSeq":     collected,
}

type loopForm int

const (
	overBoth   loopForm = iota // for k, v := range x
	overKeys                   // for k := range x
	overValues                 // for _, v := range x
	backward                   // for i := len(x) - 1; i >= 0; i--
	collected                  // collects all values first: what they are computed from cannot change
)

// PlainRange reports whether a loop over a function can be written as an
// ordinary loop.
func PlainRange(info *types.Info, s *ast.RangeStmt) bool {
	_, _, ok := stdLoopOf(info, s)
	return ok
}

func stdLoopOf(info *types.Info, s *ast.RangeStmt) (loopForm, *ast.CallExpr, bool) {
	c, ok := ast.Unparen(s.X).(*ast.CallExpr)
	if !ok || c.Ellipsis.IsValid() {
		return 0, nil, false
	}
	sel, ok := rewrite.Uninstantiated(c.Fun).(*ast.SelectorExpr)
	if !ok {
		return 0, nil, false
	}
	f, ok := info.Uses[sel.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
		return 0, nil, false
	}
	l, ok := stdLoops[f.Pkg().Path()+"."+f.Name()]
	return l, c, ok
}

// ordinary writes a loop over the result of such a function as an ordinary
// loop.
func (r *ranges) ordinary(s *ast.RangeStmt, label string) string {
	form, c, _ := stdLoopOf(r.p.Info, s)
	if label != "" {
		label += ":\n"
	}
	brace := s.Body.Lbrace + 1
	body := r.p.Text(brace, s.Body.Rbrace)
	x := r.p.NodeText(c.Args[0], nil)
	op := " " + s.Tok.String() + " "
	var vars []string
	for _, e := range []ast.Expr{s.Key, s.Value} {
		if e != nil {
			vars = append(vars, r.p.NodeText(e, nil))
		}
	}
	simple := func(x string, vars ...string) string {
		if len(vars) == 0 {
			return label + "for range " + x + " {" + body + "}"
		}
		return label + "for " + strings.Join(vars, ", ") + op + "range " + x + " {" + body + "}"
	}
	names := r.loopNames("q", "n")
	r.keepImport(c)
	switch form {
	case overBoth, overKeys:
		return simple(x, vars...)
	case overValues:
		if len(vars) > 0 {
			vars = append([]string{"_"}, vars...)
		}
		return simple(x, vars...)
	case collected:
		r.predeclared("append", s.Pos())
		sig := rewrite.CoreType(r.p.Info.TypeOf(s.X)).(*types.Signature)
		yield := rewrite.CoreType(sig.Params().At(0).Type()).(*types.Signature)
		if len(vars) > 0 {
			vars = append([]string{"_"}, vars...)
		}
		return fmt.Sprintf("{\nvar %s []%s\nfor %s := range %s {\n%s = append(%s, %s)\n}\n%s\n}", names[0], r.typ(yield.Params().At(0).Type(), s.Pos(), s.X.Pos()),
			names[1], r.p.NodeText(s.X, nil), names[0], names[0], names[1], simple(names[0], vars...))
	}
	// backward
	r.predeclared("len", s.Pos())
	point := ""
	if r.marks[brace] == rewrite.PointMark {
		point, body = rewrite.PointMark, strings.Replace(body, rewrite.PointMark, "", 1)
	}
	give := ""
	if len(vars) > 0 {
		give = strings.Join(vars, ", ") + op + names[1]
		if len(vars) > 1 {
			give += ", " + names[0] + "[" + names[1] + "]"
		}
	}
	if s.Tok == token.DEFINE && len(vars) == 1 && vars[0] == "_" {
		give = ""
	}
	return fmt.Sprintf("{\n%s := %s\n%sfor %s := len(%s) - 1; %s >= 0; %s-- {%s\n%s\n{%s}\n}\n}", names[0], x, label, names[1], names[0], names[1], names[1], point, give, body)
}

// keepImport keeps an import in use after its call was removed.
func (r *ranges) keepImport(c *ast.CallExpr) {
	sel := rewrite.Uninstantiated(c.Fun).(*ast.SelectorExpr)
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return
	}
	if r.p.Types.Scope().Lookup("int") != nil {
		r.refuse(c.Pos(), "give it another name", "int is declared by the package, and needed for this loop as Go's own")
	}
	switch r.p.Info.Uses[sel.Sel].Pkg().Path() {
	case "slices":
		r.decls = append(r.decls, fmt.Sprintf("\n\nvar _ = %s.Sort[[]int] // keeps the import in use\n", id.Name))
	case "maps":
		r.decls = append(r.decls, fmt.Sprintf("\n\nvar _ = %s.Keys[map[int]int] // keeps the import in use\n", id.Name))
	}
}
