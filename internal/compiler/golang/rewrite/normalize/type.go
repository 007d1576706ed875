package normalize

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// typ writes a type for use at a place. from is the place of a value of that
// type. It adds missing imports to the file.
func (n *normalizer) typ(t types.Type, at, from token.Pos) string {
	t = n.p.Spelled(t)
	is := func(s string, pos token.Pos) bool {
		got, err := types.Eval(n.p.Fset, n.p.Types, pos, s)
		return err == nil && got.IsType() && types.Identical(got.Type, t)
	}
	missing := map[string]string{}
	s := types.TypeString(t, n.p.Qualifier(n.file, func(p *types.Package) string {
		if missing[p.Path()] == "" {
			missing[p.Path()] = n.imported(p)
		}
		return missing[p.Path()]
	}))
	if is(s, at) || n.usesMoved(t, map[types.Type]bool{}) && is(s, from) {
		return s
	}
	if len(missing) > 0 && rewrite.Unnameable(t, n.p.Types, map[types.Type]bool{}) == "" && n.plainAt(s, at) {
		ok := true
		for path := range missing {
			ok = ok && rewrite.Importable(path, n.p.Path)
		}
		if ok {
			maps.Copy(n.imports, missing)
			return s
		}
	}
	n.refuse(from, "give the value to a variable of a type that can be written here", "a variable of type %s is needed here, and this type cannot be written here", t)
	return ""
}

// imported imports a package that the file lacks, and returns its name.
func (n *normalizer) imported(p *types.Package) string {
	if s, ok := n.imports[p.Path()]; ok {
		return s
	}
	for i := 1; ; i++ {
		s := fmt.Sprintf("%sp%d_%s", rewrite.Prefix, i, p.Name())
		taken := n.names[s]
		for _, other := range n.imports {
			taken = taken || other == s
		}
		if !taken {
			return s
		}
	}
}

// plainAt reports whether the names in a type have the same meaning at a place
// as at package level.
func (n *normalizer) plainAt(s string, at token.Pos) bool {
	e, err := parser.ParseExpr(s)
	if err != nil {
		return false
	}
	scope := n.p.Types.Scope().Innermost(at)
	ok := scope != nil
	ast.Inspect(e, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.SelectorExpr:
			if id, is := m.X.(*ast.Ident); is && strings.HasPrefix(id.Name, rewrite.Prefix) {
				return false
			}
		case *ast.Ident:
			if ok {
				in, o := scope.LookupParent(m.Name, at)
				_, pkg := o.(*types.PkgName)
				ok = o == nil || pkg || in == types.Universe || in == n.p.Types.Scope()
			}
		}
		return true
	})
	return ok
}

// usesMoved reports whether a type contains one that moves to package level.
func (n *normalizer) usesMoved(t types.Type, seen map[types.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		return n.moved[t.Obj()] || n.usesMoved(t.Rhs(), seen)
	case *types.Named:
		if n.moved[t.Obj()] {
			return true
		}
	case *types.Interface, *types.Union:
		return false
	}
	for part := range rewrite.TypeParts(t) {
		if n.usesMoved(part, seen) {
			return true
		}
	}
	return false
}

// findTypes finds the types that are declared in functions to rewrite, and
// refuses those that cannot move to package level.
func (n *normalizer) findTypes(f *ast.File) {
	for fn, is := range n.in.Funcs {
		if !is || fn.Pos() < f.FileStart || fn.Pos() > f.FileEnd {
			continue
		}
		rewrite.InspectOwn(fn, func(m ast.Node) bool {
			s, ok := m.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if o, ok := n.p.Info.Defs[s.Name].(*types.TypeName); ok && s.Name.Name != "_" {
				n.moved[o] = true
			}
			return true
		})
	}
}

// moveTypes moves declarations of types to package level.
func (w *funcNormalizer) moveTypes(o *lines, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		s := spec.(*ast.TypeSpec)
		if s.Name.Name != "_" {
			w.movable(s)
		}
		doc := ""
		if s.Doc != nil {
			doc = w.p.Text(s.Doc.Pos(), s.Doc.End()) + "\n"
		}
		w.decls = append(w.decls, "\n"+doc+"type "+w.p.NodeText(s, nil)+"\n")
	}
	o.add("")
}

// movable refuses a type that cannot move to package level.
func (w *funcNormalizer) movable(s *ast.TypeSpec) {
	const remedy = "declare it outside of the function"
	name := s.Name.Name
	obj := w.p.Info.Defs[s.Name].(*types.TypeName)
	taken := func(what string) {
		w.refuse(s.Pos(), "give it another name", "type %s is declared in a function on the way to a point and must move out of it, where its name is taken by %s", name, what)
	}
	if why := w.p.KeptTypes[localType(w.p, obj)]; why != "" {
		taken(why)
	}
	if types.Universe.Lookup(name) != nil {
		taken("Go's own " + name)
	}
	if w.p.Types.Scope().Lookup(name) != nil {
		taken(name + " of the package")
	}
	for _, f := range w.p.Files {
		if sc := w.p.Info.Scopes[f]; sc != nil && sc.Lookup(name) != nil {
			taken("the import " + name)
		}
	}
	for other := range w.moved {
		if other != obj && other.Name() == name {
			taken("the one of " + w.p.Fset.Position(other.Pos()).String())
		}
	}
	pkg := w.p.Types.Scope()
	for sc := obj.Parent().Parent(); sc != nil && sc != pkg; sc = sc.Parent() {
		if sc.Lookup(name) != nil {
			w.refuse(s.Pos(), remedy, "type %s is declared in a function on the way to a point, in which its name is used for something else too", name)
		}
	}
	ast.Inspect(s, func(m ast.Node) bool {
		id, ok := m.(*ast.Ident)
		if !ok {
			return true
		}
		used := w.p.Info.Uses[id]
		if used == nil || used.Pkg() != w.p.Types || used.Parent() == pkg || used.Parent() == nil {
			return true
		}
		if _, ok := used.(*types.PkgName); ok {
			return true
		}
		if t, ok := used.(*types.TypeName); ok && w.moved[t] {
			return true
		}
		if v, ok := used.(*types.Var); ok && s.Pos() <= v.Pos() && v.Pos() < s.End() {
			return true // the name of a parameter in a function type
		}
		w.refuse(s.Pos(), remedy, "type %s is declared in a function on the way to a point, and depends on %s, which is declared there too", name, strings.TrimSpace(id.Name))
		return true
	})
}
