package place

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/hotloops"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Choose places points in the loops that e chose, and in others if these do not
// suffice. With everywhere set, it places points wherever they can be.
func (pl *Placement) Choose(e *explain.Explanation, samples *explain.Samples, everywhere bool) {
	pl.explanation, pl.everywhere = e, everywhere
	if samples != nil {
		pl.shares = samples.Shares(pl.p)
	}
	pl.placeChosen(e)
	if len(pl.Points) == 0 {
		pl.next()
	}
}

// placeChosen places points in the loops that e chose.
func (pl *Placement) placeChosen(e *explain.Explanation) {
	known := map[explain.Location]explain.LoopInfo{}
	for _, l := range e.Loops {
		known[explain.Location{File: l.File, Line: l.Line}] = l
	}
	var order []ast.Node
	for _, fn := range pl.Calls.All {
		fn.Walk(fn.Body, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				pl.Loops[n] = fn
				if body := pl.Calls.ByNode[n]; body != nil {
					pl.Loops[n] = body
				}
				at := pl.p.At(n.Pos())
				if l, ok := known[explain.Location{File: at.File, Line: at.Line}]; ok {
					pl.infos[n] = l
					order = append(order, n)
				}
			}
			return true
		})
	}
	if pl.everywhere {
		pl.placeEverywhere()
		return
	}
	for _, n := range order {
		if pl.infos[n].Chosen {
			pl.take(n)
		}
	}
	if len(e.Ranks) > 0 { // only chosen loops were checked for messages in flight
		return
	}
	if pl.shares == nil {
		pl.placeMore(e.Knee)
	}
	for _, n := range slices.Clone(pl.Points) {
		pl.placeInside(n, levels, maxDepth)
	}
	pl.placeInGoroutines()
	pl.placeInWalks()
}

// next takes the best loop that was not tried yet. It returns false if there is
// none.
func (pl *Placement) next() bool {
	for len(pl.Points) == 0 {
		var best ast.Node
		for n, l := range pl.infos {
			if l.Rank > 0 && !pl.tried[n] && !pl.skipped(n) && (best == nil || l.Rank < pl.infos[best].Rank) {
				best = n
			}
		}
		if best == nil {
			return false
		}
		pl.take(best)
	}
	return true
}

// take places a point in a loop. If the loop cannot have one, take records why,
// and takes the loops around it.
func (pl *Placement) take(n ast.Node) {
	if pl.tried[n] {
		return
	}
	pl.tried[n] = true
	fn := pl.Loops[n]
	why := pl.obstacle(n, fn)
	if why == nil && !pl.requested(n) && pl.onlyCalledBack(fn) && !pl.affordable(n, fn, lenient) {
		at := pl.p.Source.Fset.Position(n.Pos())
		at.Filename = pl.p.At(n.Pos()).File
		why = &rewrite.Refusal{Pos: at, Reason: "a point in it would cost too much of each iteration", Remedy: "put //cairn:point before it to have one all the same"}
		pl.dropped[n] = why
	}
	if why != nil {
		pl.Refused = append(pl.Refused, why)
		pl.takeAround(n, fn)
		return
	}
	pl.Points = append(pl.Points, n.(ast.Stmt))
}

// goroutines returns the goroutines that may be alive in a loop, chosen or not.
func (pl *Placement) goroutines(n ast.Node) []string {
	list, ok := pl.aliveAt[n]
	if ok {
		return list
	}
	pl.aliveAt[n] = nil // a recursive function is not followed again
	if l := pl.infos[n].Loop; l != nil {
		list = pl.explanation.AliveAt(l)
	} else {
		list = pl.aliveAround(n)
	}
	pl.aliveAt[n] = list
	return list
}

// aliveAround returns the goroutines that may be alive in a loop that was not
// counted, such as one in a function that another loop ranges over: those that
// nothing waits for, and those that are alive at its calls.
func (pl *Placement) aliveAround(n ast.Node) []string {
	list := pl.explanation.AliveAt(&hotloops.Loop{Pos: pl.p.At(n.Pos()), Stmt: new(ir.Loop)})
	seen := map[*callgraph.Function]bool{}
	var up func(fn *callgraph.Function, at token.Pos)
	up = func(fn *callgraph.Function, at token.Pos) {
		if outer := pl.enclosing(fn, at); outer != nil {
			list = append(list, pl.goroutines(outer)...)
			return
		}
		if seen[fn] {
			return
		}
		seen[fn] = true
		for _, t := range fn.Callers {
			if t.Kind != callgraph.PlainCall || !pl.reachable[t.Caller] {
				continue
			}
			if t.Loop != nil {
				list = append(list, pl.goroutines(t.Loop)...)
			} else {
				up(t.Caller, t.At())
			}
		}
	}
	up(pl.Loops[n], n.Pos())
	slices.Sort(list)
	return slices.Compact(list)
}

// takeAround takes the loops around one without a point.
func (pl *Placement) takeAround(n ast.Node, fn *callgraph.Function) {
	if outer := pl.enclosing(fn, n.Pos()); outer != nil {
		pl.take(outer)
		return
	}
	pl.takeCallers(fn)
}

// takeCallers takes the loops around the calls of a function.
func (pl *Placement) takeCallers(fn *callgraph.Function) {
	seen := map[*callgraph.Function]bool{}
	var up func(fn *callgraph.Function)
	up = func(fn *callgraph.Function) {
		if seen[fn] {
			return
		}
		seen[fn] = true
		for _, t := range fn.Callers {
			if t.Kind == callgraph.DeferCall || !pl.reachable[t.Caller] && t.Kind == callgraph.PlainCall {
				continue
			}
			if outer := pl.enclosing(t.Caller, t.At()); outer != nil {
				pl.take(outer)
			} else {
				up(t.Caller)
			}
		}
	}
	up(fn)
}

// enclosing returns the innermost loop of a function around a position, other
// than the loop that begins there.
func (pl *Placement) enclosing(fn *callgraph.Function, at token.Pos) ast.Node {
	var best ast.Node
	for n, f := range pl.Loops {
		if f == fn && n.Pos() < at && at < n.End() && (best == nil || best.Pos() < n.Pos()) {
			best = n
		}
	}
	return best
}

// obstacle says why a loop cannot have a point. It returns nil if it can.
func (pl *Placement) obstacle(n ast.Node, fn *callgraph.Function) *rewrite.Refusal {
	at := pl.p.Source.Fset.Position(n.Pos())
	at.Filename = pl.p.At(n.Pos()).File
	if r := pl.banned[fn]; r != nil {
		return r
	}
	if !pl.can(fn) {
		return &rewrite.Refusal{Pos: at, Reason: "the loop is in a package that is not rewritten", Remedy: "put a comment //cairn:point before the loop that calls it"}
	}
	path := pl.Calls.PathTo(fn, pl.reachable, pl.can)
	if r := pl.unknownRange(fn); r != nil && !pl.rooted(path) {
		return &rewrite.Refusal{Pos: at, Reason: fmt.Sprintf("the loop is in, or is, a range over a function that is not the program's own, at %s, whose progress cannot be saved", pl.p.At(r.Pos())),
			Remedy: "collect the values first, with slices.Collect, and range over these; or choose the loop around it with //cairn:point"}
	}
	if !pl.rooted(path) {
		why, remedy := pl.notCalled(fn)
		return &rewrite.Refusal{Pos: at, Reason: "the loop cannot be resumed: " + why, Remedy: remedy}
	}
	if pl.everywhere || pl.Several() { // the program checks at run time whether other goroutines are alive
		return nil
	}
	if alive := pl.startedBefore(n, fn, pl.goroutines(n)); len(alive) > 0 {
		return &rewrite.Refusal{Pos: at, Reason: "goroutines may be alive at the loop's point: " + strings.Join(alive, "; "),
			Remedy: "wait for them in each iteration, or choose another loop with //cairn:point"}
	}
	return nil
}

// unknownRange returns the loop over a library's function whose body fn is, or
// which alone leads to fn.
func (pl *Placement) unknownRange(fn *callgraph.Function) *ast.RangeStmt {
	seen := map[*callgraph.Function]bool{}
	var up func(fn *callgraph.Function) *ast.RangeStmt
	up = func(fn *callgraph.Function) *ast.RangeStmt {
		if seen[fn] {
			return nil
		}
		seen[fn] = true
		if s, ok := fn.Node.(*ast.RangeStmt); ok && !slices.ContainsFunc(fn.Callers, func(t *callgraph.Site) bool { return t.Kind == callgraph.PlainCall && pl.can(t.Caller) }) {
			return s
		}
		for _, t := range fn.Callers {
			if t.Kind == callgraph.PlainCall {
				if s := up(t.Caller); s != nil {
					return s
				}
			}
		}
		return nil
	}
	return up(fn)
}

var startedAt = regexp.MustCompile(`started at ([^ ,;]+:\d+)`)

// startedBefore returns the goroutines in all that are certainly started before
// the loop. The program checks at run time whether others are alive.
func (pl *Placement) startedBefore(n ast.Node, fn *callgraph.Function, all []string) []string {
	before := map[string]bool{}
	path := pl.Calls.PathTo(fn, pl.reachable, pl.can)
	for f := range path {
		// The calls that lead to the loop, or the loop itself.
		var ways []token.Pos
		for _, t := range f.Sites {
			if t.Kind == callgraph.PlainCall && slices.ContainsFunc(t.Callees, func(g *callgraph.Function) bool { return path[g] }) {
				ways = append(ways, t.At())
			}
		}
		if f == fn {
			ways = append(ways, n.Pos())
		}
		if len(ways) > 0 {
			pl.goStatements(f.Body.List, slices.Min(ways), before)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		m := startedAt.FindStringSubmatch(s)
		return m == nil || !before[m[1]] || pl.onlyWaitsForSignal(s)
	})
}

// goStatements finds the go statements that certainly run before a position.
func (pl *Placement) goStatements(list []ast.Stmt, until token.Pos, out map[string]bool) {
	for _, s := range list {
		if s.Pos() >= until {
			return
		}
		switch s := s.(type) {
		case *ast.GoStmt:
			out[pl.p.At(s.Pos()).String()] = true
		case *ast.BlockStmt:
			pl.goStatements(s.List, until, out)
		case *ast.ForStmt: // one goroutine for each worker
			if s.End() < until {
				pl.goStatements(s.Body.List, until, out)
			}
		case *ast.RangeStmt:
			if s.End() < until {
				pl.goStatements(s.Body.List, until, out)
			}
		}
	}
}

// can reports whether a function's source can be replaced.
func (pl *Placement) can(fn *callgraph.Function) bool {
	return fn.Pkg.Rewritable() && pl.banned[fn] == nil
}

// Retreat removes the points that a refusal concerns: those that cannot be
// reached without the refused function. It places others instead, and returns
// false if there are none.
func (pl *Placement) Retreat(r *rewrite.Refusal) bool {
	found := pl.refused(r)
	if r.Mistake() { // reported in any case
		pl.Refused = append(pl.Refused, r)
	}
	if pl.dropWaits(found) {
		return true
	}
	if pl.everywhere && pl.thinOut(found, r) {
		return true
	}
	was := pl.Points
	pl.Points = nil
	var gone []ast.Node
	if len(found) == 0 { // no function is named: begin with the innermost point
		gone, pl.Points = []ast.Node{was[len(was)-1]}, was[:len(was)-1]
	}
	asked := false // a chosen point may still be reached on other paths
	for _, f := range found {
		for _, n := range was {
			asked = asked || !pl.extra[n] && pl.Calls.PathTo(pl.Loops[n], pl.reachable, pl.can)[f]
		}
	}
	for _, f := range found {
		pl.banned[f] = r
	}
	for _, n := range was {
		if len(found) == 0 {
			break
		}
		if pl.rooted(pl.Calls.PathTo(pl.Loops[n], pl.reachable, pl.can)) {
			pl.Points = append(pl.Points, n)
		} else {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		pl.dropped[n] = r
		asked = asked || !pl.extra[n]
	}
	if asked {
		if !r.Mistake() {
			pl.Refused = append(pl.Refused, r)
		}
		for _, n := range gone {
			if !pl.extra[n] {
				pl.takeAround(n, pl.Loops[n])
			}
		}
		for _, f := range found {
			pl.takeCallers(f)
		}
	}
	if pl.attempts++; pl.attempts > maxAttempts && !pl.everywhere {
		return false
	}
	return len(pl.Points) > 0 || pl.next()
}

// refused returns the functions on the resumable path that a refusal concerns:
// those of the function that it names, or else the innermost one that it is in:
// a literal of a package variable, or one that a pass has made a function of.
func (pl *Placement) refused(r *rewrite.Refusal) (found []*callgraph.Function) {
	var inner *callgraph.Function
	made := strings.HasPrefix(r.Func, rewrite.Prefix)
	for f := range pl.ResumablePath() {
		switch {
		case f.Pkg.ImportPath != r.Package:
		case f.Decl != nil && r.Func == rewrite.FuncName(f.Decl):
			found = append(found, f)
		case (made || f.Decl == nil && r.Func == "") && pl.contains(f, r.Pos) && (inner == nil || inner.Node.Pos() < f.Node.Pos()):
			inner = f
		}
	}
	if inner != nil {
		found = append(found, inner)
	}
	slices.SortFunc(found, func(f, g *callgraph.Function) int { return cmp.Compare(f.Node.Pos(), g.Node.Pos()) })
	return found
}

// contains reports whether a position of the source is in a function.
func (pl *Placement) contains(f *callgraph.Function, at token.Position) bool {
	begin, end := pl.p.Source.Fset.Position(f.Node.Pos()), pl.p.Source.Fset.Position(f.Node.End())
	before := func(a, b token.Position) bool { return a.Line < b.Line || a.Line == b.Line && a.Column <= b.Column }
	return at.Filename == begin.Filename && before(begin, at) && before(at, end)
}

// maxAttempts is how often a program is rewritten with other points.
const maxAttempts = 60
