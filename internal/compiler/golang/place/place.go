package place

import (
	"go/ast"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// placement is where a program has points.
type Placement struct {
	p       *lower.Program
	Calls   *callgraph.Graph
	from    map[*callgraph.Function]bool            // that main leads to
	others  map[*callgraph.Function]*callgraph.Site // that may run on other goroutines
	Loops   map[ast.Node]*callgraph.Function
	tried   map[ast.Node]bool
	Points  []ast.Stmt
	inner   map[ast.Node]bool                        // of points: loops besides those that were chosen
	banned  map[*callgraph.Function]*rewrite.Refusal // they can't be on the spine
	lost    map[ast.Node]*rewrite.Refusal            // had a point, and can't
	infos   map[ast.Node]explain.LoopInfo
	rounds  int
	pricer  *pricer
	low     *pricer
	shares  map[ir.Pos]float64    // of samples, if there is a profile
	trips   map[ir.Pos]int        // rounds of loops that have a known number of them
	works   map[ast.Node]int      // see work
	alives  map[ast.Node][]string // see goroutines
	waiting map[string]bool       // go statements whose goroutines wait for signals; see waitsOnly
	Refused []*rewrite.Refusal

	explained  *explain.Explanation
	everywhere bool // see InstrumentOptions
}

// newPlacement makes one without points.
func New(p *lower.Program) *Placement {
	in := &Placement{p: p, Calls: callgraph.New(p.Source, p.Dynamic), Loops: map[ast.Node]*callgraph.Function{}, tried: map[ast.Node]bool{}, works: map[ast.Node]int{}, inner: map[ast.Node]bool{}, alives: map[ast.Node][]string{},
		banned: map[*callgraph.Function]*rewrite.Refusal{}, lost: map[ast.Node]*rewrite.Refusal{}, infos: map[ast.Node]explain.LoopInfo{}}
	if in.Calls.Main != nil {
		in.from = callgraph.Reach([]*callgraph.Function{in.Calls.Main}, callgraph.PlainCall)
		in.others = in.Calls.Concurrent()
	}
	return in
}

func LoopBody(n ast.Node) *ast.BlockStmt {
	switch n := n.(type) {
	case *ast.ForStmt:
		return n.Body
	case *ast.RangeStmt:
		return n.Body
	case *ast.BlockStmt: // of a function; see Everywhere
		return n
	}
	return nil
}

// without says why chosen loops have no point.
func (in *Placement) Without() map[explain.Location]*rewrite.Refusal {
	out := map[explain.Location]*rewrite.Refusal{}
	for n, l := range in.infos {
		if !l.Chosen || in.pointed(n) {
			continue
		}
		if r := in.why(n); r != nil {
			out[explain.Location{File: l.File, Line: l.Line}] = r
		}
	}
	return out
}
