package rewrite

import (
	"go/ast"
	"go/types"
	"regexp"
)

// mayInspectCallers reports whether a package may inspect its callers. (Package
// log inspects only their lines.)
func (p *Package) mayInspectCallers(q *types.Package) bool {
	return q.Path() == "log/slog" || p.InspectsCallers != nil && p.InspectsCallers(q.Path())
}

// InspectsCallers reports whether functions of a package inspect their callers.
func InspectsCallers(info *types.Info) bool {
	for _, o := range info.Uses {
		f, ok := o.(*types.Func)
		if ok && f.Pkg() != nil && (f.Pkg().Path() == "runtime" || f.Pkg().Path() == "runtime/debug") && callers.MatchString(f.Name()) {
			return true
		}
	}
	return false
}

var callers = regexp.MustCompile(`^(Callers?|FuncForPC|Stack|PrintStack)$`)

// MustStay reports whether it matters which function some code is in: recover
// works only in a deferred function, and logs may show the name of their
// caller.
func (p *Package) MustStay(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			switch o := p.Info.Uses[id].(type) {
			case *types.Builtin:
				found = found || o.Name() == "recover"
			case *types.Func:
				found = found || o.Pkg() != nil && o.Pkg() != p.Types && p.mayInspectCallers(o.Pkg())
			}
		}
		return !found
	})
	return found
}

// NeverRecovers reports whether a function of the package does not call recover
// itself.
func (p *Package) NeverRecovers(f *types.Func) bool {
	for _, file := range p.Files {
		for _, d := range file.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || p.Info.Defs[d.Name] != types.Object(f.Origin()) {
				continue
			}
			found := d.Body == nil
			if !found {
				ast.Inspect(d.Body, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						b, ok := p.Info.Uses[id].(*types.Builtin)
						found = found || ok && b.Name() == "recover"
					}
					return !found
				})
			}
			return !found
		}
	}
	return false
}
