package place

import (
	"cmp"
	"go/ast"
	"go/token"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// placeEverywhere places a point in every loop and at the beginning of every
// function that can have one.
func (pl *Placement) placeEverywhere() {
	all := slices.Collect(maps.Keys(pl.Loops))
	for _, fn := range pl.Calls.All {
		if _, ok := fn.Node.(*ast.RangeStmt); ok { // the body of a loop
			continue
		}
		pl.Loops[fn.Body] = fn
		all = append(all, fn.Body)
	}
	slices.SortFunc(all, func(a, b ast.Node) int { return cmp.Compare(a.Pos(), b.Pos()) })
	for _, n := range all {
		fn := pl.Loops[n]
		if pl.tried[n] || !pl.reachable[fn] {
			continue
		}
		pl.tried[n] = true
		if why := pl.obstacle(n, fn); why != nil {
			pl.Refused = append(pl.Refused, why)
		} else {
			pl.Points = append(pl.Points, n.(ast.Stmt))
		}
	}
}

// FirstPos returns the position of the first statement of a function's body.
func FirstPos(body *ast.BlockStmt) token.Pos {
	if len(body.List) == 0 {
		return body.Rbrace
	}
	return body.List[0].Pos()
}

// thinOut drops every second of the points that the functions in found lead to,
// if there are at least four. A function with a hundred calls that lead to
// points is refused, and would take all points with it.
func (pl *Placement) thinOut(found []*callgraph.Function, r *rewrite.Refusal) bool {
	var kept, dropped []ast.Stmt
	led := 0
	for _, n := range pl.Points {
		path := pl.Calls.PathTo(pl.Loops[n], pl.reachable, pl.can)
		if slices.ContainsFunc(found, func(f *callgraph.Function) bool { return path[f] }) {
			if led++; led%2 == 0 {
				dropped = append(dropped, n)
				continue
			}
		}
		kept = append(kept, n)
	}
	if led < 4 {
		return false
	}
	for _, n := range dropped {
		pl.dropped[n] = r
	}
	pl.Points = kept
	return true
}
