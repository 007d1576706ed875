package golang

import (
	"go/ast"
	"go/token"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// waits calls f for the go statements of a package whose goroutines wait for
// signals, and where they do: these can be started again.
func (s *source) waits(fset *token.FileSet, f func(g *ast.GoStmt, at ast.Stmt)) {
	for _, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				if at := rewrite.Waits(fset, s.info, g); at != nil {
					f(g, at)
				}
			}
			return true
		})
	}
}

// waitsOnly says that the goroutine that a text tells of only waits for signals.
func (in *instrumenter) waitsOnly(told string) bool {
	if in.waiting == nil {
		in.waiting = map[string]bool{}
		for _, s := range in.p.ld.sources {
			if in.p.own(s) {
				s.waits(in.p.ld.fset, func(g *ast.GoStmt, _ ast.Stmt) { in.waiting[in.p.at(g.Pos()).String()] = true })
			}
		}
	}
	m := startedAt.FindStringSubmatch(told)
	return m != nil && in.waiting[m[1]]
}

// markWaits marks them.
func (in *instrumenter) markWaits(s *source, mark func(s *source, at token.Pos, text string)) {
	s.waits(in.p.ld.fset, func(g *ast.GoStmt, at ast.Stmt) {
		mark(s, g.Go+token.Pos(len("go")), rewrite.WaitMark(in.p.ld.fset.Position(at.Pos()).Line))
	})
}
