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
