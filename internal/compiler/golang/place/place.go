// Package place decides which loops get a point. Choose begins with the loops
// that package explain chose, adds loops where these may be reached too rarely
// (inner.go), and keeps to a budget of run time (cost.go). Retreat looks for
// other loops when a pass of package rewrite refuses a function. Uncovered
// warns of work that is not saved (diagnostics.go).
//
// The functions from main to the points are the resumable path: after a
// restart they are called again, and each continues where it was.
//
// search.go is long for a mere warning. Without it, a program that spends its
// run in a recursive search looks well covered: its main loop has a point, and
// one iteration takes all the time. The warning is of use only if it is right.
// A backtracking search and a walk over a tree look alike: both call
// themselves several times, with an argument for the depth. Most of the file
// tells them apart: by moves that are undone, by depth counters, by parts of
// the data that are passed on. The tests hold programs of both kinds.
package place

import (
	"go/ast"
	"go/token"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Placement is the set of points of a program.
type Placement struct {
	p           *lower.Program
	Calls       *callgraph.Graph
	Launches    []Launch                            // what starts goroutines that can be saved
	roots       map[*callgraph.Function]bool        // main, and functions where such goroutines begin
	waits       map[*callgraph.Function][]token.Pos // operations that may block
	locks       []*lockCall
	background  map[int]bool                            // comments that belong to a go statement, by index
	noWaits     map[*callgraph.Function]bool            // functions whose waits cannot be resumed
	reachable   map[*callgraph.Function]bool            // functions that roots reach
	live        map[*callgraph.Function]bool            // functions that main leads to in any way
	concurrent  map[*callgraph.Function]*callgraph.Site // functions that may run on other goroutines
	Loops       map[ast.Node]*callgraph.Function
	tried       map[ast.Node]bool
	Points      []ast.Stmt
	extra       map[ast.Node]bool                        // points in loops that were not chosen
	banned      map[*callgraph.Function]*rewrite.Refusal // functions that cannot be on the resumable path
	dropped     map[ast.Node]*rewrite.Refusal            // loops that had a point, and cannot have one
	infos       map[ast.Node]explain.LoopInfo
	attempts    int
	cost        *costModel
	lowCost     *costModel
	shares      map[ir.Pos]float64    // shares of the samples, if there is a profile
	trips       map[ir.Pos]int        // constant numbers of iterations
	nestedTrips map[ast.Node]int      // see tripsInside
	aliveAt     map[ast.Node][]string // see goroutines
	signalWaits map[string]bool       // go statements; see onlyWaitsForSignal
	Refused     []*rewrite.Refusal

	explanation *explain.Explanation
	everywhere  bool // for tests
}

// New returns a placement without points. several says that goroutines besides
// main's can be saved.
func New(p *lower.Program, several bool) *Placement {
	pl := &Placement{p: p, Calls: callgraph.New(p.Source, p.Dynamic), Loops: map[ast.Node]*callgraph.Function{}, tried: map[ast.Node]bool{}, nestedTrips: map[ast.Node]int{}, extra: map[ast.Node]bool{}, aliveAt: map[ast.Node][]string{},
		banned: map[*callgraph.Function]*rewrite.Refusal{}, dropped: map[ast.Node]*rewrite.Refusal{}, infos: map[ast.Node]explain.LoopInfo{}}
	if pl.Calls.Main != nil {
		pl.findRoots(several)
		pl.concurrent = pl.Calls.Concurrent()
		pl.live = callgraph.Reach([]*callgraph.Function{pl.Calls.Main}, callgraph.PlainCall, callgraph.DeferCall, callgraph.GoCall, callgraph.SyncCallback, callgraph.AsyncCallback)
	}
	return pl
}

// LoopBody returns the body of a loop, or n itself if it is a function's body.
func LoopBody(n ast.Node) *ast.BlockStmt {
	switch n := n.(type) {
	case *ast.ForStmt:
		return n.Body
	case *ast.RangeStmt:
		return n.Body
	case *ast.BlockStmt: // of a function; see placeEverywhere
		return n
	}
	return nil
}

// Without says why chosen loops have no point.
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
