package emit

import (
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// typ writes a type.
func (w *generator) typ(t types.Type, at token.Pos) string {
	t = w.p.Spelled(t)
	if n, ok := t.(*types.Named); ok && rewrite.Foreign(n.Obj(), w.p.Types) != "" {
		if sig, ok := n.Underlying().(*types.Signature); ok { // its values can be used without the name
			t = sig
		}
	}
	if name := rewrite.Unnameable(t, w.p.Types, map[types.Type]bool{}); name != "" && w.bad == nil {
		w.bad = w.p.Refuse(at, "keep such a value in a variable of an exported type or of an interface", "a variable of type %s is needed at a point, and that type has no name here", name)
	}
	w.needType(t, at, map[types.Type]bool{})
	return types.TypeString(t, w.qual)
}
