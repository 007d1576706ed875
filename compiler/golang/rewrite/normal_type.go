package rewrite

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// typ writes a type so that it can be used at a place; from is where a value of
// it stands.
func (n *normal) typ(t types.Type, at, from token.Pos) string {
	s := types.TypeString(t, n.p.qualify(n.file, func(p *types.Package) string { return p.Name() }))
	if got, err := types.Eval(n.p.Fset, n.p.Types, at, s); err == nil && got.IsType() && types.Identical(got.Type, t) {
		return s
	}
	if n.usesMoved(t, map[types.Type]bool{}) {
		if got, err := types.Eval(n.p.Fset, n.p.Types, from, s); err == nil && got.IsType() && types.Identical(got.Type, t) {
			return s
		}
	}
	n.refuse(from, "give the value to a variable of a type that can be written here", "a variable of type %s is needed here, and this type can't be written here", t)
	return ""
}

// usesMoved says that a type is made of one that moves to package level.
func (n *normal) usesMoved(t types.Type, seen map[types.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	in := func(t types.Type) bool { return n.usesMoved(t, seen) }
	switch t := t.(type) {
	case *types.Alias:
		return n.moved[t.Obj()] || in(t.Rhs())
	case *types.Named:
		for a := range t.TypeArgs().Types() {
			if in(a) {
				return true
			}
		}
		return n.moved[t.Obj()]
	case *types.Map:
		return in(t.Key()) || in(t.Elem())
	case interface{ Elem() types.Type }:
		return in(t.Elem())
	case *types.Struct:
		for f := range t.Fields() {
			if in(f.Type()) {
				return true
			}
		}
	case *types.Tuple:
		for v := range t.Variables() {
			if in(v.Type()) {
				return true
			}
		}
	case *types.Signature:
		return in(t.Params()) || in(t.Results())
	}
	return false
}

// findTypes finds the types that are declared in functions to rewrite, and
// refuses those that can't move to package level.
func (n *normal) findTypes(f *ast.File) {
	for fn := range n.in.Funcs {
		if fn.Pos() < f.FileStart || fn.Pos() > f.FileEnd {
			continue
		}
		own(fn, func(m ast.Node) bool {
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
func (w *nfunc) moveTypes(o *lines, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		s := spec.(*ast.TypeSpec)
		if s.Name.Name != "_" {
			w.movable(s)
		}
		doc := ""
		if s.Doc != nil {
			doc = w.p.at(s.Doc.Pos(), s.Doc.End()) + "\n"
		}
		w.decls = append(w.decls, "\n"+doc+"type "+w.p.text(s, nil)+"\n")
	}
	o.add("")
}

// movable refuses a type that can't move to package level.
func (w *nfunc) movable(s *ast.TypeSpec) {
	const remedy = "declare it outside of the function"
	name := s.Name.Name
	obj := w.p.Info.Defs[s.Name].(*types.TypeName)
	taken := func(what string) {
		w.refuse(s.Pos(), remedy, "type %s is declared in a function on the way to a point, and its name is taken outside: %s", name, what)
	}
	if types.Universe.Lookup(name) != nil {
		taken("it is one of Go's own")
	}
	if w.p.Types.Scope().Lookup(name) != nil {
		taken("by the package")
	}
	for _, f := range w.p.Files {
		if sc := w.p.Info.Scopes[f]; sc != nil && sc.Lookup(name) != nil {
			taken("by an import")
		}
	}
	for other := range w.moved {
		if other != obj && other.Name() == name {
			taken("there is another one in " + w.p.Fset.Position(other.Pos()).String())
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
			return true // a parameter's name in a function type
		}
		w.refuse(s.Pos(), remedy, "type %s is declared in a function on the way to a point, and depends on %s, which is declared there too", name, strings.TrimSpace(id.Name))
		return true
	})
}
