package rewrite

import (
	"go/types"
	"iter"
	"strings"
)

// TypeParts returns the types that a type is directly made of. It does not look
// behind the names of types.
func TypeParts(t types.Type) iter.Seq[types.Type] {
	return func(yield func(types.Type) bool) {
		switch t := t.(type) {
		case interface{ TypeArgs() *types.TypeList }:
			t.TypeArgs().Types()(yield)
		case *types.Map:
			_ = yield(t.Key()) && yield(t.Elem())
		case interface{ Elem() types.Type }:
			yield(t.Elem())
		case *types.Signature:
			_ = yield(t.Params()) && yield(t.Results())
		case *types.Tuple:
			for v := range t.Variables() {
				if !yield(v.Type()) {
					return
				}
			}
		case *types.Struct:
			for v := range t.Fields() {
				if !yield(v.Type()) {
					return
				}
			}
		case *types.Interface:
			for m := range t.ExplicitMethods() {
				if !yield(m.Type()) {
					return
				}
			}
			t.EmbeddedTypes()(yield)
		case *types.Union:
			for term := range t.Terms() {
				if !yield(term.Type()) {
					return
				}
			}
		}
	}
}

// TypeArgs returns type parameters as they are written as arguments: [A, B], or
// nothing.
func TypeArgs(list []*types.TypeParam) string {
	if len(list) == 0 {
		return ""
	}
	var names []string
	for _, t := range list {
		names = append(names, t.Obj().Name())
	}
	return "[" + strings.Join(names, ", ") + "]"
}
