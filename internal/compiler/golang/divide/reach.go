package divide

import (
	"go/ast"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// reach finds the fields that can be reached from variables, by their types.
type reach struct {
	d     *dependence
	v     *variant
	stop  func(types.Object) bool // nothing is reached through these
	found map[types.Object]bool
	seen  map[string]bool
	// How named types are reached: directly from a variable, and in other
	// ways.
	direct map[*types.TypeName][]types.Object
	other  map[*types.TypeName]bool
}

func (d *dependence) newReach(v *variant) *reach {
	return &reach{d: d, v: v, found: map[types.Object]bool{}, seen: map[string]bool{},
		direct: map[*types.TypeName][]types.Object{}, other: map[*types.TypeName]bool{}}
}

// root adds a variable.
func (r *reach) root(o types.Object) {
	if r.found[o] {
		return
	}
	r.found[o] = true
	if r.stop != nil && r.stop(o) {
		return
	}
	t := o.Type()
	if r.v != nil && r.v.of == o {
		t = r.v.as.Type()
	}
	if n := typeName(t); n != nil {
		r.direct[n] = append(r.direct[n], o)
		if st, ok := n.Type().Underlying().(*types.Struct); ok && !r.library(n) {
			r.fields(st, n.Type())
			return
		}
	}
	r.walk(t)
}

func (r *reach) library(n *types.TypeName) bool {
	return n.Pkg() == nil || r.d.ld.Library[n.Pkg().Path()]
}

func (r *reach) fields(st *types.Struct, t types.Type) {
	if r.seen["fields "+typeKey(t)] {
		return
	}
	r.seen["fields "+typeKey(t)] = true
	for f := range st.Fields() {
		f = f.Origin()
		r.found[f] = true
		if r.stop == nil || !r.stop(f) {
			r.walk(f.Type())
		}
	}
}

// walk adds what values of a type lead to.
func (r *reach) walk(t types.Type) {
	if n := typeName(t); n != nil {
		r.other[n] = true
	}
	if r.seen[typeKey(t)] {
		return
	}
	r.seen[typeKey(t)] = true
	if n, ok := types.Unalias(t).(*types.Named); ok {
		for a := range n.TypeArgs().Types() {
			r.walk(a)
		}
		if r.library(n.Obj()) {
			if _, ok := n.Underlying().(*types.Interface); !ok {
				return // a library's
			}
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		r.walk(u.Elem())
	case *types.Slice:
		r.walk(u.Elem())
	case *types.Array:
		r.walk(u.Elem())
	case *types.Chan:
		r.walk(u.Elem())
	case *types.Map:
		r.walk(u.Key())
		r.walk(u.Elem())
	case *types.Struct:
		r.fields(u, t)
	case *types.Interface:
		if load.IsError(t) {
			return
		}
		if u.Empty() {
			for _, s := range r.d.ld.Sources {
				for _, name := range s.Types.Scope().Names() {
					if n, ok := s.Types.Scope().Lookup(name).(*types.TypeName); ok && !types.IsInterface(n.Type()) {
						r.walk(n.Type())
					}
				}
			}
			return
		}
		for _, n := range r.d.implementations(t) {
			r.walk(n.Type())
		}
	case *types.Signature:
		r.captured(u)
	}
}

// captured adds the variables that function literals of a type capture.
func (r *reach) captured(sig *types.Signature) {
	for _, fn := range r.d.g.All {
		lit, ok := fn.Node.(*ast.FuncLit)
		if !ok || !r.d.live[fn] {
			continue
		}
		if s, ok := fn.Pkg.Info.TypeOf(lit).(*types.Signature); !ok || !types.Identical(s, sig) {
			continue
		}
		ast.Inspect(lit.Body, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				v, ok := fn.Pkg.Info.Uses[id].(*types.Var)
				if ok && !v.IsField() && v.Parent() != fn.Pkg.Types.Scope() && (v.Pos() < lit.Pos() || v.Pos() >= lit.End()) && !r.found[v] {
					r.found[v] = true
					r.walk(v.Type())
				}
			}
			return true
		})
	}
}

// dependent returns what was found and depends on the devices.
func (r *reach) dependent() map[types.Object]Cause {
	out := map[types.Object]Cause{}
	for o := range r.found {
		if c, ok := r.d.cause(o); ok {
			out[o] = c
		}
	}
	return out
}

// unique refuses if a derived field may belong to several objects, of which the
// statements set only one's.
func (r *reach) unique(derived map[types.Object]Cause) *Refusal {
	for _, o := range sortedObjects(derived) {
		f := o.(*types.Var)
		if !f.IsField() {
			continue
		}
		for n := range r.owners(f) {
			in := map[*ast.FuncDecl]int{} // nil: package variables
			for _, root := range r.direct[n] {
				decl := r.d.declaring(root)
				in[decl]++
				if in[decl] > 1 || in[nil] > 0 && len(in) > 1 {
					return &Refusal{Variable: Variable{f.Name(), f.Pos(), Cause{root.Pos(), "there may be several values of type " + n.Name() + ", and only one is divided anew"}}}
				}
			}
			if r.other[n] {
				return &Refusal{Variable: Variable{f.Name(), f.Pos(), Cause{n.Pos(), "there may be several values of type " + n.Name() + ", and only one is divided anew"}}}
			}
		}
	}
	return nil
}

// declaring returns the function that declares a variable, or nil.
func (d *dependence) declaring(o types.Object) *ast.FuncDecl {
	for _, fn := range d.g.All {
		if decl, ok := fn.Node.(*ast.FuncDecl); ok && decl.Pos() <= o.Pos() && o.Pos() < decl.End() {
			return decl
		}
	}
	return nil
}

// owners returns the named types whose values have a field.
func (r *reach) owners(f *types.Var) map[*types.TypeName]bool {
	out := map[*types.TypeName]bool{}
	for _, m := range []map[*types.TypeName]bool{r.other, keys(r.direct)} {
		for n := range m {
			if st, ok := n.Type().Underlying().(*types.Struct); ok {
				for x := range st.Fields() {
					if x.Origin() == f {
						out[n] = true
					}
				}
			}
		}
	}
	return out
}

func keys[V any](m map[*types.TypeName]V) map[*types.TypeName]bool {
	out := map[*types.TypeName]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}
