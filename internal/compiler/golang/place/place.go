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
	p           *lower.Program
	Calls       *callgraph.Graph
	reachable   map[*callgraph.Function]bool            // that main leads to
	concurrent  map[*callgraph.Function]*callgraph.Site // that may run on other goroutines
	Loops       map[ast.Node]*callgraph.Function
	tried       map[ast.Node]bool
	Points      []ast.Stmt
	extra       map[ast.Node]bool                        // of points: loops besides those that were chosen
	banned      map[*callgraph.Function]*rewrite.Refusal // they can't be on the spine
	dropped     map[ast.Node]*rewrite.Refusal            // had a point, and can't
	infos       map[ast.Node]explain.LoopInfo
	attempts    int
	cost        *costModel
	lowCost     *costModel
	shares      map[ir.Pos]float64    // of samples, if there is a profile
	trips       map[ir.Pos]int        // rounds of loops that have a known number of them
	nestedTrips map[ast.Node]int      // see work
	aliveAt     map[ast.Node][]string // see goroutines
	signalWaits map[string]bool       // go statements whose goroutines wait for signals; see onlyWaitsForSignal
	Refused     []*rewrite.Refusal

	explanation *explain.Explanation
	everywhere  bool // see InstrumentOptions
}

// newPlacement makes one without points.
func New(p *lower.Program) *Placement {
	pl := &Placement{p: p, Calls: callgraph.New(p.Source, p.Dynamic), Loops: map[ast.Node]*callgraph.Function{}, tried: map[ast.Node]bool{}, nestedTrips: map[ast.Node]int{}, extra: map[ast.Node]bool{}, aliveAt: map[ast.Node][]string{},
		banned: map[*callgraph.Function]*rewrite.Refusal{}, dropped: map[ast.Node]*rewrite.Refusal{}, infos: map[ast.Node]explain.LoopInfo{}}
	if pl.Calls.Main != nil {
		pl.reachable = callgraph.Reach([]*callgraph.Function{pl.Calls.Main}, callgraph.PlainCall)
		pl.concurrent = pl.Calls.Concurrent()
	}
	return pl
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
func (pl *Placement) Without() map[explain.Location]*rewrite.Refusal {
	out := map[explain.Location]*rewrite.Refusal{}
	for n, l := range pl.infos {
		if !l.Chosen || pl.hasPoint(n) {
			continue
		}
		if r := pl.whyNoPoint(n); r != nil {
			out[explain.Location{File: l.File, Line: l.Line}] = r
		}
	}
	return out
}
