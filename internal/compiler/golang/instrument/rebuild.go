package instrument

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/golang/place"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// rebuilder is a function with such a comment, and the package variables that
// it assigns. These are not saved.
type rebuilder struct {
	pkg   *load.Package
	decl  *ast.FuncDecl
	vars  []*types.Var
	fails bool // it returns an error
}

// findRebuilders returns the functions with a comment //cairn:rebuild, in the
// order of the packages' initialization.
func findRebuilders(p *lower.Program) (list []rebuilder, err error) {
	var errs []string
	for _, s := range p.Source.Sources {
		for _, f := range s.Files {
			at := map[token.Pos]bool{} // comments without a function
			for _, g := range f.Comments {
				for _, c := range g.List {
					if strings.TrimSpace(c.Text) == place.RebuildComment {
						at[c.Pos()] = true
					}
				}
			}
			if len(at) == 0 || !s.Rewritable() {
				continue
			}
			for _, d := range f.Decls {
				d, ok := d.(*ast.FuncDecl)
				if !ok || d.Doc == nil || !slices.ContainsFunc(d.Doc.List, func(c *ast.Comment) bool { return at[c.Pos()] }) {
					continue
				}
				for _, c := range d.Doc.List {
					delete(at, c.Pos())
				}
				r, why := newRebuilder(s, d)
				if why != "" {
					errs = append(errs, fmt.Sprintf("%s: %s %s", p.At(d.Pos()), place.RebuildComment, why))
					continue
				}
				list = append(list, r)
			}
			for pos := range at {
				errs = append(errs, fmt.Sprintf("%s: %s belongs to no function: put it directly before one that assigns package variables", p.At(pos), place.RebuildComment))
			}
		}
	}
	if len(errs) > 0 {
		slices.Sort(errs)
		return nil, fmt.Errorf("%w:\n%s", ErrRefused, strings.Join(errs, "\n"))
	}
	return list, nil
}

// newRebuilder examines a function. why says what is wrong with it.
func newRebuilder(s *load.Package, d *ast.FuncDecl) (r rebuilder, why string) {
	r = rebuilder{pkg: s, decl: d}
	sig := s.Info.Defs[d.Name].(*types.Func).Signature()
	r.fails = sig.Results().Len() == 1 && load.IsError(sig.Results().At(0).Type())
	if d.Recv != nil || d.Body == nil || sig.TypeParams().Len() > 0 || sig.Params().Len() > 0 || sig.Results().Len() > 0 && !r.fails {
		return r, "needs a function without parameters that returns nothing or an error; keep what the function needs in package variables"
	}
	assigned := func(e ast.Expr) {
		if id, ok := ast.Unparen(e).(*ast.Ident); ok {
			if v, ok := s.Info.Uses[id].(*types.Var); ok && v.Parent() == s.Types.Scope() && !slices.Contains(r.vars, v) {
				r.vars = append(r.vars, v)
			}
		}
	}
	ast.Inspect(d.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if n.Tok == token.ASSIGN {
					assigned(e)
				}
			}
		}
		return true
	})
	if len(r.vars) == 0 {
		return r, "has no effect: the function assigns no variable of its package; let it assign the values that cannot be saved to package variables"
	}
	return r, ""
}

// rebuilt reports whether a function makes a package variable again.
func (in *instrumenter) rebuilt(v *types.Var) bool {
	return slices.ContainsFunc(in.rebuilders, func(r rebuilder) bool { return slices.Contains(r.vars, v) })
}

// rebuildCalls returns the calls that register the functions of a package that
// make values again.
func (in *instrumenter) rebuildCalls(s *load.Package, out *Result) string {
	var b strings.Builder
	for _, r := range in.rebuilders {
		if r.pkg != s {
			continue
		}
		name := r.decl.Name.Name
		make := name
		if !r.fails {
			make = fmt.Sprintf("func() error { %s(); return nil }", name)
		}
		at := in.p.At(r.decl.Name.Pos())
		fmt.Fprintf(&b, "%s.Rebuild(%q, %q, %s", rewrite.Prefix, in.globalName(s, name), at.String(), make)
		var vars []string
		for _, v := range r.vars {
			fmt.Fprintf(&b, ", &%s", v.Name())
			vars = append(vars, in.globalName(s, v.Name()))
		}
		b.WriteString(")\n")
		out.Rebuilt = append(out.Rebuilt, fmt.Sprintf("%s, by %s at %s", strings.Join(vars, ", "), name, at))
	}
	return b.String()
}
