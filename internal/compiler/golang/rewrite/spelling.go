package rewrite

import "go/types"

// spelled returns a type in which aliases that are declared in functions, or that
// the package can't name, are replaced by what they stand for, and types that other
// packages do not export by the names that these get for it.
func (p *Package) spelled(t types.Type) types.Type {
	same := true
	each := func(t types.Type) types.Type {
		s := p.spelled(t)
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
		if foreign(t.Obj(), p.Types) != "" {
			return p.spelled(types.Unalias(t))
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
