package rewrite

import (
	"go/types"
	"strings"
)

// Spelled returns a type as the package can write it. Aliases that are local to
// a function, or that the package cannot name, are resolved; types that other
// packages do not export get the names of Named.
func (p *Package) Spelled(t types.Type) types.Type {
	same := true
	each := func(t types.Type) types.Type {
		s := p.Spelled(t)
		same = same && s == t
		return s
	}
	tuple := func(t *types.Tuple) *types.Tuple {
		var list []*types.Var
		for v := range t.Variables() {
			list = append(list, types.NewParam(v.Pos(), v.Pkg(), v.Name(), each(v.Type())))
		}
		return types.NewTuple(list...)
	}
	out := t
	switch t := t.(type) {
	case *types.Alias:
		if Foreign(t.Obj(), p.Types) != "" {
			return p.Spelled(types.Unalias(t))
		}
	case *types.Pointer:
		out = types.NewPointer(each(t.Elem()))
	case *types.Slice:
		out = types.NewSlice(each(t.Elem()))
	case *types.Array:
		out = types.NewArray(each(t.Elem()), t.Len())
	case *types.Chan:
		out = types.NewChan(t.Dir(), each(t.Elem()))
	case *types.Map:
		out = types.NewMap(each(t.Key()), each(t.Elem()))
	case *types.Signature:
		if t.Recv() == nil && t.TypeParams().Len() == 0 {
			out = types.NewSignatureType(nil, nil, nil, tuple(t.Params()), tuple(t.Results()), t.Variadic())
		}
	case *types.Named:
		if t.TypeArgs().Len() == 0 {
			if o := t.Obj(); o.Pkg() != nil && o.Pkg() != p.Types && !o.Exported() && p.Named != nil {
				if a := p.Named(o); a != nil {
					return a
				}
			}
			return t
		}
		var args []types.Type
		for a := range t.TypeArgs().Types() {
			args = append(args, each(a))
		}
		if same {
			return t
		}
		if n, err := types.Instantiate(nil, t.Origin(), args, false); err == nil {
			out = n
		}
	case *types.Struct:
		var fields []*types.Var
		var tags []string
		for i := range t.NumFields() {
			v := t.Field(i)
			fields = append(fields, types.NewField(v.Pos(), v.Pkg(), v.Name(), each(v.Type()), v.Embedded()))
			tags = append(tags, t.Tag(i))
		}
		out = types.NewStruct(fields, tags)
	}
	if same {
		return t
	}
	return out
}

// Unnameable returns a type inside t that package p cannot name.
func Unnameable(t types.Type, p *types.Package, seen map[types.Type]bool) string {
	if seen[t] {
		return ""
	}
	seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		if Foreign(t.Obj(), p) != "" {
			return Unnameable(types.Unalias(t), p, seen)
		}
	case *types.Named:
		if n := Foreign(t.Obj(), p); n != "" {
			return n
		}
	case *types.Interface:
		for m := range t.Methods() {
			if !m.Exported() && m.Pkg() != p { // m of another package is another method
				return types.TypeString(t, types.RelativeTo(p))
			}
		}
		return ""
	case *types.Struct:
		for f := range t.Fields() {
			if !f.Exported() && f.Pkg() != p {
				return types.TypeString(t, types.RelativeTo(p))
			}
		}
	case *types.Union:
		return ""
	}
	for part := range TypeParts(t) {
		if s := Unnameable(part, p, seen); s != "" {
			return s
		}
	}
	return ""
}

// Foreign returns the name of a type that p cannot name: not exported by
// another package, or declared in a function.
func Foreign(o *types.TypeName, p *types.Package) string {
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

// Importable reports whether a package can import another one.
func Importable(path, by string) bool {
	at := strings.LastIndex("/"+path+"/", "/internal/")
	if at < 0 {
		return path != "main"
	}
	root := strings.TrimSuffix(path[:at], "/")
	return by == root || strings.HasPrefix(by, root+"/")
}

// SharedVar begins the names of pointers to variables that are captured and may
// change.
const SharedVar = Prefix + "p_"

// Kinds of functions that Cairn writes for method values and expressions, in
// their names. A name in the source does not begin with a digit. Package resume
// knows the first: such a function only calls the method. The other one has a
// frame with the receiver.
const (
	MethodValueKind = "0value_"
	MethodExprKind  = "0expr_"
)

// EnvName is the name of the environment in constructors.
const EnvName = Prefix + "e"
