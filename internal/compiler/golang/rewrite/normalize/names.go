package normalize

import (
	"go/ast"
	"go/types"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// RenameLocals gives local variables, constants and labels other names where
// the passes need their names: those that begin as the names of the passes do,
// and on the resumable path also those that hide a predeclared name.
func RenameLocals(p *rewrite.Package, resumable rewrite.ResumablePath) (*rewrite.Package, error) {
	taken := map[string]bool{}
	for _, f := range p.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				taken[id.Name] = true
			}
			return true
		})
	}
	names := map[types.Object]string{}
	rename := func(o types.Object, predeclared bool) {
		switch v := o.(type) {
		case *types.Var:
			if v.IsField() {
				return
			}
		case *types.Const, *types.Label:
		default:
			return
		}
		if o.Parent() == p.Types.Scope() || names[o] != "" {
			return
		}
		if !strings.HasPrefix(o.Name(), rewrite.Prefix) && !(predeclared && types.Universe.Lookup(o.Name()) != nil) {
			return
		}
		to := "own_" + o.Name()
		for taken[to] {
			to = "own_" + to
		}
		names[o] = to
	}
	for _, f := range p.Files {
		for _, d := range f.Decls {
			onPath := false
			ast.Inspect(d, func(n ast.Node) bool {
				onPath = onPath || n != nil && resumable.Funcs[n]
				return !onPath
			})
			ast.Inspect(d, func(n ast.Node) bool {
				if n == nil {
					return false
				}
				rename(p.Info.Implicits[n], onPath)
				if id, ok := n.(*ast.Ident); ok {
					rename(p.Info.Defs[id], onPath)
				}
				return true
			})
		}
	}
	if len(names) == 0 {
		return p, nil
	}
	return p.Rename(names)
}
