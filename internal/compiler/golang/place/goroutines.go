package place

import (
	"cmp"
	"go/ast"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
)

// placeInGoroutines places points in the loops of goroutines that are saved. A
// goroutine that computes without a point holds up all others, and a loop that
// only starts goroutines is over before a checkpoint is due.
func (pl *Placement) placeInGoroutines() {
	for _, l := range pl.Launches {
		if l.Site == nil || l.Background {
			continue
		}
		for _, f := range l.Site.Callees {
			pl.placeFrom(f)
		}
	}
}

// placeFrom places points in the outermost loops of a goroutine that begins
// with f, if they have much of its work. A loop over a channel has a wait in
// each iteration; only the loops inside it get points.
func (pl *Placement) placeFrom(f *callgraph.Function) {
	var list []ast.Node
	most := 0.0
	pl.visit(f.Body, map[*callgraph.Function]bool{f: true}, func(n ast.Node) bool {
		if pl.Loops[n] != nil {
			list = append(list, n)
			most = max(most, pl.weight(n))
		}
		return false
	}, func(*callgraph.Function) bool { return true })
	slices.SortFunc(list, func(a, b ast.Node) int {
		return cmp.Or(cmp.Compare(pl.weight(b), pl.weight(a)), cmp.Compare(a.Pos(), b.Pos()))
	})
	for _, n := range list {
		switch {
		case pl.weight(n) < most/minShare || len(pl.Points) >= maxPoints:
			return
		case pl.hasPoint(n):
		case pl.overChannel(n), pl.add(n, lenient):
			pl.placeInside(n, levels, maxDepth)
		}
	}
}

// overChannel reports whether a loop ranges over a channel, in a function whose
// waits can be resumed.
func (pl *Placement) overChannel(n ast.Node) bool {
	r, ok := n.(*ast.RangeStmt)
	if !ok || !pl.waitsIn(pl.Loops[n]) {
		return false
	}
	_, ok = types.Unalias(pl.Loops[n].Pkg.Info.TypeOf(r.X)).Underlying().(*types.Chan)
	return ok
}
