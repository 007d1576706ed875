package place

import (
	"cmp"
	"go/ast"
	"go/token"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// takeAll takes every loop and the beginning of every function that can have a
// point. One that can't leaves the others as they are.
func (in *Placement) takeAll() {
	var all []ast.Node
	for n := range in.Loops {
		all = append(all, n)
	}
	for _, fn := range in.Calls.All {
		if _, ok := fn.Node.(*ast.RangeStmt); ok { // the body of a loop
			continue
		}
		in.Loops[fn.Body] = fn
		all = append(all, fn.Body)
	}
	slices.SortFunc(all, func(a, b ast.Node) int { return cmp.Compare(a.Pos(), b.Pos()) })
	for _, n := range all {
		fn := in.Loops[n]
		if in.tried[n] || !in.from[fn] {
			continue
		}
		in.tried[n] = true
		if why := in.hindrance(n, fn); why != nil {
			in.Refused = append(in.Refused, why)
		} else {
			in.Points = append(in.Points, n.(ast.Stmt))
		}
	}
}

// firstIn is where the first statement of a function's body begins.
func FirstIn(body *ast.BlockStmt) token.Pos {
	if len(body.List) == 0 {
		return body.Rbrace
	}
	return body.List[0].Pos()
}

// thin drops every second of the points that some functions lead to, as long as
// there are several: a function with a hundred calls that lead to points is
// refused, and would take all points with it.
func (in *Placement) thin(found []*callgraph.Function, r *rewrite.Refusal) bool {
	var kept []ast.Stmt
	led := 0
	for _, n := range in.Points {
		spine := in.Calls.Leading(in.Loops[n], in.from, in.can)
		if slices.ContainsFunc(found, func(f *callgraph.Function) bool { return spine[f] }) {
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
	in.Points = kept
	return true
}
