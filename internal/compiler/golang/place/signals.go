package place

import (
	"go/ast"
	"go/token"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// EachSignalWait calls f for the go statements of a package whose goroutines
// only wait for signals, with the statement that waits. Such a goroutine can be
// started again.
func EachSignalWait(s *load.Package, fset *token.FileSet, f func(g *ast.GoStmt, at ast.Stmt)) {
	for _, file := range s.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				if at := rewrite.Waits(fset, s.Info, g); at != nil {
					f(g, at)
				}
			}
			return true
		})
	}
}

// onlyWaitsForSignal reports whether the goroutine that a text describes only
// waits for signals.
func (pl *Placement) onlyWaitsForSignal(warnings string) bool {
	if pl.signalWaits == nil {
		pl.signalWaits = map[string]bool{}
		for _, s := range pl.p.Source.Sources {
			if s.Rewritable() {
				EachSignalWait(s, pl.p.Source.Fset, func(g *ast.GoStmt, _ ast.Stmt) { pl.signalWaits[pl.p.At(g.Pos()).String()] = true })
			}
		}
	}
	m := startedAt.FindStringSubmatch(warnings)
	return m != nil && pl.signalWaits[m[1]]
}
