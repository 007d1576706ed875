package emit

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// A variable gets a new name if the emitted code must name it where another
// variable shadows it, or if it shadows the name of a type that must be
// written. Then Emit starts again.

// needName records that a variable is named at a place.
func (w *generator) needName(v *types.Var, at token.Pos) {
	if o := w.lookup(v.Name(), at); o != nil && o != types.Object(v) {
		w.toRename[v] = true
	}
}

// lookup finds what a name means at a place.
func (w *generator) lookup(name string, at token.Pos) types.Object {
	s := w.p.Types.Scope().Innermost(at)
	if s == nil {
		return nil
	}
	_, o := s.LookupParent(name, at)
	return o
}

// needType records the names that are needed to write a type at a place.
func (w *generator) needType(t types.Type, at token.Pos, seen map[types.Type]bool) {
	if t == nil || seen[t] {
		return
	}
	seen[t] = true
	name := func(n string) {
		switch o := w.lookup(n, at).(type) {
		case *types.Var:
			if o.Parent() != w.p.Types.Scope() {
				w.toRename[o] = true
			}
		case *types.Const, *types.Func:
			if o.Parent() != w.p.Types.Scope() && o.Parent() != types.Universe && w.bad == nil {
				w.bad = w.p.Refuse(o.Pos(), "rename it", "%s hides a type that is needed at a point", n)
			}
		}
	}
	named := func(o *types.TypeName) {
		switch {
		case o.Pkg() == nil || o.Pkg() == w.p.Types:
			name(o.Name())
			if is, ok := w.lookup(o.Name(), at).(*types.TypeName); ok && is != o && w.bad == nil {
				w.bad = w.p.Refuse(is.Pos(), "rename it", "%s hides a type that is needed at a point", o.Name())
			}
		default:
			name(w.qual(o.Pkg()))
		}
	}
	switch t := t.(type) {
	case *types.Basic:
		name(t.Name())
	case *types.Alias:
		named(t.Obj())
	case *types.Named:
		named(t.Obj())
	case *types.TypeParam:
		name(t.Obj().Name())
	case *types.Interface, *types.Union:
		return
	}
	for part := range rewrite.TypeParts(t) {
		w.needType(part, at, seen)
	}
}

// rename returns the package with new names for some local variables.
func rename(p *rewrite.Package, toRename map[*types.Var]bool) (*rewrite.Package, error) {
	objects := map[types.Object]string{}
	idents := map[*ast.Ident]string{} // of type switches, which declare no object
	for i, v := range slices.SortedFunc(maps.Keys(toRename), func(a, b *types.Var) int { return cmp.Compare(a.Pos(), b.Pos()) }) {
		objects[v] = fmt.Sprintf("%sh%d_%s", rewrite.Prefix, i+1, v.Name())
	}
	text := map[string][]byte{}
	for _, f := range p.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			// A type switch has one name, and a variable for each clause.
			s, ok := n.(*ast.TypeSwitchStmt)
			if !ok {
				return true
			}
			name := ""
			for _, c := range s.Body.List {
				if to := objects[p.Info.Implicits[c]]; to != "" && p.Info.Implicits[c] != nil {
					name = to
				}
			}
			if name == "" {
				return true
			}
			for _, c := range s.Body.List {
				if o := p.Info.Implicits[c]; o != nil {
					objects[o] = name
				}
			}
			idents[s.Assign.(*ast.AssignStmt).Lhs[0].(*ast.Ident)] = name
			return true
		})
		changed := false
		t := p.Span(f.FileStart, f.FileEnd, f, func(n ast.Node) (string, bool) {
			id, ok := n.(*ast.Ident)
			if !ok {
				return "", false
			}
			to := idents[id]
			if o := p.Info.ObjectOf(id); to == "" && o != nil {
				to = objects[o]
			}
			changed = changed || to != ""
			return to, to != ""
		})
		if changed {
			text[p.FileName(f)] = []byte(t)
		}
	}
	return p.With(text)
}
