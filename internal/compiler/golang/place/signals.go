package place

import (
	"go/ast"
	"go/token"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// eachWait calls f for the go statements of a package whose goroutines wait for
// signals, and where they do: these can be started again.
func EachWait(s *load.Package, fset *token.FileSet, f func(g *ast.GoStmt, at ast.Stmt)) {
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

// waitsOnly says that the goroutine that a text tells of only waits for signals.
func (in *Placement) waitsOnly(told string) bool {
	if in.waiting == nil {
		in.waiting = map[string]bool{}
		for _, s := range in.p.Source.Sources {
			if s.Own() {
				EachWait(s, in.p.Source.Fset, func(g *ast.GoStmt, _ ast.Stmt) { in.waiting[in.p.At(g.Pos()).String()] = true })
			}
		}
	}
	m := startedAt.FindStringSubmatch(told)
	return m != nil && in.waiting[m[1]]
}
