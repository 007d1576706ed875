package emit

import (
	"cmp"
	"fmt"
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
	for i, v := range slices.SortedFunc(maps.Keys(toRename), func(a, b *types.Var) int { return cmp.Compare(a.Pos(), b.Pos()) }) {
		objects[v] = fmt.Sprintf("%sh%d_%s", rewrite.Prefix, i+1, v.Name())
	}
	return p.Rename(objects)
}
