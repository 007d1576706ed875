package place

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Wait is an operation that may block, in a function on the resumable path.
type Wait struct {
	Fn *callgraph.Function
	At token.Pos // of its mark
}

// Launch is a go statement, or a call of WaitGroup.Go, whose goroutine can be
// saved.
type Launch struct {
	Pkg        *load.Package
	At         token.Pos // of its mark
	Site       *callgraph.Site
	Background bool // it does not matter for the state
	Rebuilt    bool // likewise: a function with RebuildComment starts it
}

// findRoots finds the functions where goroutines begin, main's first, and what
// starts them. several says that other goroutines than main's can be saved.
func (pl *Placement) findRoots(several bool) {
	pl.roots = map[*callgraph.Function]bool{pl.Calls.Main: true}
	pl.background = map[int]bool{}
	from := []*callgraph.Function{pl.Calls.Main}
	if several {
		starts := from
		for _, fn := range pl.Calls.All {
			if d, ok := fn.Node.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
				starts = append(starts, fn)
			}
		}
		all := callgraph.Reach(starts, callgraph.PlainCall, callgraph.DeferCall, callgraph.GoCall, callgraph.SyncCallback, callgraph.AsyncCallback)
		sites := map[*ast.CallExpr]*callgraph.Site{}
		for fn := range all {
			for _, t := range fn.Sites {
				if t.Kind == callgraph.GoCall {
					sites[t.Call] = t
				}
			}
		}
		debugOnly := !slices.ContainsFunc(pl.p.Source.Sources, func(s *load.Package) bool { return rewrite.RegistersHandlers(s.Info) })
		signals := map[*ast.GoStmt]bool{}
		for _, s := range pl.p.Source.Sources {
			if s.Rewritable() {
				EachSignalWait(s, pl.p.Source.Fset, func(g *ast.GoStmt, _ ast.Stmt) { signals[g] = true })
			}
		}
		for _, fn := range pl.Calls.All {
			if !fn.Pkg.Rewritable() || !all[fn] {
				continue
			}
			rebuilt := rebuilds(fn)
			launch := func(call *ast.CallExpr, at token.Pos, serves bool) {
				t := sites[call]
				background := serves && debugOnly || pl.inBackground(call.Pos()) || rebuilt
				pl.Launches = append(pl.Launches, Launch{fn.Pkg, at, t, background, rebuilt})
				if t == nil || background {
					return
				}
				for _, f := range t.Callees {
					pl.roots[f] = true
					from = append(from, f)
				}
			}
			statements := map[ast.Node]bool{}
			fn.Walk(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					if !signals[n] && rewrite.CanStart(fn.Pkg.Info, n) {
						launch(n.Call, n.Go+token.Pos(len("go")), rewrite.ServesDebug(fn.Pkg.Info, n))
					}
				case *ast.ExprStmt:
					statements[n.X] = true
				case *ast.CallExpr:
					if statements[n] && rewrite.StartsGoroutine(fn.Pkg.Info, n) != nil {
						launch(n, n.Lparen+1, false)
					}
				}
				return true
			})
		}
	}
	pl.reachable = callgraph.Reach(from, callgraph.PlainCall)
	pl.noWaits = map[*callgraph.Function]bool{}
	if len(pl.Launches) > 0 {
		pl.waits = map[*callgraph.Function][]token.Pos{}
		for fn := range pl.reachable {
			if fn.Pkg.Rewritable() {
				rewrite.EachWait(fn.Pkg.Info, func(f func(ast.Node) bool) { fn.Walk(fn.Body, f) }, func(n ast.Node, at token.Pos) {
					if c, ok := n.(*ast.CallExpr); !ok || len(c.Args) > 0 || slices.Contains(fn.Pkg.Imports, "sync") {
						pl.waits[fn] = append(pl.waits[fn], at)
					}
				})
			}
		}
		pl.findLocks()
	}
}

// RebuildComment marks functions that make values which cannot be saved. Such a
// function runs again after a restart.
const RebuildComment = "//cairn:rebuild"

// rebuilds reports whether a function has RebuildComment. After a restart the
// function starts its goroutines again.
func rebuilds(fn *callgraph.Function) bool {
	return fn.Decl != nil && fn.Decl.Doc != nil && slices.ContainsFunc(fn.Decl.Doc.List, func(c *ast.Comment) bool {
		return strings.TrimSpace(c.Text) == RebuildComment
	})
}

// Several reports whether other goroutines than main's are saved.
func (pl *Placement) Several() bool { return len(pl.Launches) > 0 }

// rooted reports whether a path begins where a goroutine does.
func (pl *Placement) rooted(path map[*callgraph.Function]bool) bool {
	for f := range path {
		if pl.roots[f] {
			return true
		}
	}
	return false
}

// Waits returns the operations that may block, in functions that can be
// resumed.
func (pl *Placement) Waits() (list []Wait) {
	for fn, all := range pl.waits {
		if pl.waitsIn(fn) {
			for _, at := range all {
				list = append(list, Wait{fn, at})
			}
		}
	}
	return list
}

// waitsIn reports whether the waits of a function can be resumed.
func (pl *Placement) waitsIn(fn *callgraph.Function) bool {
	return len(pl.waits[fn]) > 0 && pl.parks(fn)
}

// parks reports whether a function can be resumed in a wait.
func (pl *Placement) parks(fn *callgraph.Function) bool {
	return !pl.noWaits[fn] && pl.can(fn) && pl.rooted(pl.Calls.PathTo(fn, pl.reachable, pl.can))
}

// dropWaits treats the waits in functions that were refused as calls that
// cannot be resumed. It returns false if there are none.
func (pl *Placement) dropWaits(refused []*callgraph.Function) (dropped bool) {
	drop := func(f, fn *callgraph.Function) {
		if fn.Decl == f.Decl && !pl.noWaits[fn] { // also of literals in it
			pl.noWaits[fn], dropped = true, true
		}
	}
	for _, f := range refused {
		for fn := range pl.waits {
			drop(f, fn)
		}
		for _, l := range pl.locks {
			drop(f, l.fn)
		}
	}
	return dropped
}

// inBackground reports whether a comment says that a goroutine does not matter
// for the state.
func (pl *Placement) inBackground(at token.Pos) bool {
	p := pl.p.At(at)
	for i, c := range pl.p.Background {
		if c.File == p.File && (c.Line == p.Line || c.Line == p.Line-1) {
			pl.background[i] = true
			return true
		}
	}
	return false
}

// StrayBackground lists the comments //cairn:background that belong to no go
// statement.
func (pl *Placement) StrayBackground() (warnings []string) {
	for i, c := range pl.p.Background {
		if !pl.background[i] {
			warnings = append(warnings, fmt.Sprintf("%s: //cairn:background has no effect: it must be on the line of a go statement that the program reaches, or on the line before", c))
		}
	}
	return warnings
}
