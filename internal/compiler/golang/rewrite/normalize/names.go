package normalize

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// RenameLocals gives local variables, constants and labels other names where
// the passes need their names: those that begin as the names of the passes do,
// and on the resumable path also those that hide a predeclared name. Local
// types get other names where they could not move to package level.
func RenameLocals(p *rewrite.Package, resumable rewrite.ResumablePath) (*rewrite.Package, error) {
	taken := map[string]bool{}
	repeats := map[types.Object]bool{} // constants of groups that repeat expressions
	for _, f := range p.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				taken[n.Name] = true
			case *ast.GenDecl:
				noteRepeats(p.Info, n, repeats)
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
		case *types.Const:
			if repeats[o] { // one name may then mean Go's own and this one
				return
			}
		case *types.Label:
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
	keep := map[string]string{}
	renameTypes(p, resumable, taken, names, keep)
	if len(names) > 0 {
		q, err := p.Rename(names)
		if err != nil { // types keep their names then, and one of each name moves
			maps.DeleteFunc(names, func(o types.Object, _ string) bool { _, is := o.(*types.TypeName); return is })
			q, err = p.Rename(names)
		}
		if err != nil {
			return nil, err
		}
		p = q
	}
	if len(keep) > 0 {
		q := *p
		q.KeptTypes = keep
		p = &q
	}
	return p, nil
}

// noteRepeats notes the constants of a group in which an expression stands for
// several of them.
func noteRepeats(info *types.Info, d *ast.GenDecl, repeats map[types.Object]bool) {
	if d.Tok != token.CONST || !slices.ContainsFunc(d.Specs, func(s ast.Spec) bool { return len(s.(*ast.ValueSpec).Values) == 0 }) {
		return
	}
	for _, s := range d.Specs {
		for _, id := range s.(*ast.ValueSpec).Names {
			repeats[info.Defs[id]] = true
		}
	}
}
