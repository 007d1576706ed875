package instrument

import (
	"go/ast"
	"go/token"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/place"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// markSignalWaits marks the go statements whose goroutines only wait for
// signals.
func (in *instrumenter) markSignalWaits(s *load.Package, mark func(s *load.Package, at token.Pos, text string)) {
	place.EachSignalWait(s, in.p.Source.Fset, func(g *ast.GoStmt, at ast.Stmt) {
		mark(s, g.Go+token.Pos(len("go")), rewrite.WaitMark(in.p.Source.Fset.Position(at.Pos()).Line))
	})
}
