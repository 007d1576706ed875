package golang

import (
	"cmp"
	"go/ast"
	"go/token"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// takeAll takes every loop and the beginning of every function that can have a
// point. One that can't leaves the others as they are.
func (in *instrumenter) takeAll() {
	var all []ast.Node
	for n := range in.loops {
		all = append(all, n)
	}
	for _, fn := range in.calls.all {
		if _, ok := fn.node.(*ast.RangeStmt); ok { // the body of a loop
			continue
		}
		in.loops[fn.body] = fn
		all = append(all, fn.body)
	}
	slices.SortFunc(all, func(a, b ast.Node) int { return cmp.Compare(a.Pos(), b.Pos()) })
	for _, n := range all {
		fn := in.loops[n]
		if in.tried[n] || !in.from[fn] {
			continue
		}
		in.tried[n] = true
		if why := in.hindrance(n, fn); why != nil {
			in.refused = append(in.refused, why)
		} else {
			in.points = append(in.points, n.(ast.Stmt))
		}
	}
}

// firstIn is where the first statement of a function's body begins.
func firstIn(body *ast.BlockStmt) token.Pos {
	if len(body.List) == 0 {
		return body.Rbrace
	}
	return body.List[0].Pos()
}

// thin drops every second of the points that some functions lead to, as long as
// there are several: a function with a hundred calls that lead to points is
// refused, and would take all points with it.
func (in *instrumenter) thin(found []*function, r *rewrite.Refusal) bool {
	var kept []ast.Stmt
	led := 0
	for _, n := range in.points {
		spine := in.calls.leading(in.loops[n], in.from, in.can)
		if slices.ContainsFunc(found, func(f *function) bool { return spine[f] }) {
			if led++; led%2 == 0 {
				in.lost[n] = r
				continue
			}
		}
		kept = append(kept, n)
	}
	if led < 4 {
		return false
	}
	in.points = kept
	return true
}
