package rewrite

import (
	"go/token"
	"go/types"
)

// typ writes a type.
func (w *generator) typ(t types.Type, at token.Pos) string {
	t = w.p.spelled(t)
	if n, ok := t.(*types.Named); ok && foreign(n.Obj(), w.p.Types) != "" {
		if sig, ok := n.Underlying().(*types.Signature); ok { // its values are as good without the name
			t = sig
		}
	}
	if name := unnameable(t, w.p.Types, map[types.Type]bool{}); name != "" && w.bad == nil {
		w.bad = w.p.refuse(at, "keep such a value in a variable of an exported type or of an interface", "a variable of type %s is needed at a point, and that type has no name here", name)
	}
	w.needType(t, at, map[types.Type]bool{})
	return types.TypeString(t, w.qual)
}

// unnameable returns a type inside t that package p can't name.
func unnameable(t types.Type, p *types.Package, seen map[types.Type]bool) string {
	if seen[t] {
		return ""
	}
	seen[t] = true
	some := func(list ...types.Type) string {
		for _, t := range list {
			if s := unnameable(t, p, seen); s != "" {
				return s
			}
		}
		return ""
	}
	switch t := t.(type) {
	case *types.Alias:
		if n := foreign(t.Obj(), p); n != "" {
			return unnameable(types.Unalias(t), p, seen)
		}
		for a := range t.TypeArgs().Types() {
			if s := some(a); s != "" {
				return s
			}
		}
	case *types.Named:
		if n := foreign(t.Obj(), p); n != "" {
			return n
		}
		for a := range t.TypeArgs().Types() {
			if s := some(a); s != "" {
				return s
			}
		}
	case *types.Pointer:
		return some(t.Elem())
	case *types.Slice:
		return some(t.Elem())
	case *types.Array:
		return some(t.Elem())
	case *types.Chan:
		return some(t.Elem())
	case *types.Map:
		return some(t.Key(), t.Elem())
	case *types.Signature:
		for v := range t.Params().Variables() {
			if s := some(v.Type()); s != "" {
				return s
			}
		}
		for v := range t.Results().Variables() {
			if s := some(v.Type()); s != "" {
				return s
			}
		}
	case *types.Struct:
		for f := range t.Fields() {
			if s := some(f.Type()); s != "" {
				return s
			}
		}
	}
	return ""
}

// foreign returns the name of a type that p can't name: not exported by another
// package, or declared in a function.
func foreign(o *types.TypeName, p *types.Package) string {
	if o.Pkg() == nil {
		return ""
	}
	if o.Pkg() != p && !o.Exported() {
		return o.Pkg().Name() + "." + o.Name()
	}
	if o.Parent() != nil && o.Parent() != o.Pkg().Scope() && o.Parent() != types.Universe {
		return o.Name()
	}
	return ""
}
