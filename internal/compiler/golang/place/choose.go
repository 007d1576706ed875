package place

import (
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

// choose places points: in the loops that Explain chose, and in others where
// these do not do. With everywhere set, they are wherever they can be.
func (in *Placement) Choose(e *explain.Explanation, samples *explain.Samples, everywhere bool) {
	in.explained, in.everywhere = e, everywhere
	if samples != nil {
		in.shares = samples.Shares(in.p)
	}
	in.placeIn(e)
	if len(in.Points) == 0 {
		in.next()
	}
}

// placeIn finds the loops that Explain chose.
func (in *Placement) placeIn(e *explain.Explanation) {
	known := map[explain.Location]explain.LoopInfo{}
	for _, l := range e.Loops {
		known[explain.Location{File: l.File, Line: l.Line}] = l
	}
	var order []ast.Node
	for _, fn := range in.Calls.All {
		fn.Walk(fn.Body, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				in.Loops[n] = fn
				if body := in.Calls.ByNode[n]; body != nil {
					in.Loops[n] = body
				}
				at := in.p.At(n.Pos())
				if l, ok := known[explain.Location{File: at.File, Line: at.Line}]; ok {
					in.infos[n] = l
					order = append(order, n)
				}
			}
			return true
		})
	}
	if in.everywhere {
		in.takeAll()
		return
	}
	for _, n := range order {
		if in.infos[n].Chosen {
			in.take(n)
		}
	}
	if len(e.Ranks) > 0 { // with messages, places are chosen with more care
		return
	}
	if in.shares == nil {
		in.more(e.Knee)
	}
	for _, n := range slices.Clone(in.Points) {
		in.descend(n, levels, deepest)
	}
}

// next takes the best loop that was not tried yet.
func (in *Placement) next() bool {
	for len(in.Points) == 0 {
		var best ast.Node
		for n, l := range in.infos {
			if l.Rank > 0 && !in.tried[n] && !in.skipped(n) && (best == nil || l.Rank < in.infos[best].Rank) {
				best = n
			}
		}
		if best == nil {
			return false
		}
		in.take(best)
	}
	return true
}

// take makes a loop a point, or says why not and tries the loops around it.
func (in *Placement) take(n ast.Node) {
	if in.tried[n] {
		return
	}
	in.tried[n] = true
	fn := in.Loops[n]
	if why := in.hindrance(n, fn); why != nil {
		in.Refused = append(in.Refused, why)
		in.around(n, fn)
		return
	}
	in.Points = append(in.Points, n.(ast.Stmt))
}

// goroutines are those that may be alive in a loop, whether or not it was chosen.
func (in *Placement) goroutines(n ast.Node) []string {
	list, ok := in.alives[n]
	if ok {
		return list
	}
	in.alives[n] = nil // a function that calls itself is not followed again
	if l := in.infos[n].Loop; l != nil {
		list = in.explained.AliveAt(l)
	} else {
		list = in.aroundAlive(n)
	}
	in.alives[n] = list
	return list
}

// aroundAlive are those of a loop that was not counted, as that of a function that
// another loop ranges over: all that nothing waits for, and what is alive where it
// is called.
func (in *Placement) aroundAlive(n ast.Node) []string {
	list := in.explained.AliveAt(&hotloops.Loop{Pos: in.p.At(n.Pos()), Stmt: new(ir.Loop)})
	seen := map[*callgraph.Function]bool{}
	var up func(fn *callgraph.Function, at token.Pos)
	up = func(fn *callgraph.Function, at token.Pos) {
		if outer := in.enclosing(fn, at); outer != nil {
			list = append(list, in.goroutines(outer)...)
			return
		}
		if seen[fn] {
			return
		}
		seen[fn] = true
		for _, t := range fn.Callers {
			if t.Kind != callgraph.PlainCall || !in.from[t.Caller] {
				continue
			}
			if t.Loop != nil {
				list = append(list, in.goroutines(t.Loop)...)
			} else {
				up(t.Caller, t.At())
			}
		}
	}
	up(in.Loops[n], n.Pos())
	slices.Sort(list)
	return slices.Compact(list)
}

// around tries the loops around one that has no point.
func (in *Placement) around(n ast.Node, fn *callgraph.Function) {
	if outer := in.enclosing(fn, n.Pos()); outer != nil {
		in.take(outer)
		return
	}
	in.callers(fn)
}

// callers tries the loops around the calls of a function.
func (in *Placement) callers(fn *callgraph.Function) {
	seen := map[*callgraph.Function]bool{}
	var up func(fn *callgraph.Function)
	up = func(fn *callgraph.Function) {
		if seen[fn] {
			return
		}
		seen[fn] = true
		for _, t := range fn.Callers {
			if t.Kind == callgraph.DeferCall || !in.from[t.Caller] && t.Kind == callgraph.PlainCall {
				continue
			}
			if outer := in.enclosing(t.Caller, t.At()); outer != nil {
				in.take(outer)
			} else {
				up(t.Caller)
			}
		}
	}
	up(fn)
}

// enclosing returns the innermost loop of a function around a position, which is
// not the one that begins there.
func (in *Placement) enclosing(fn *callgraph.Function, at token.Pos) ast.Node {
	var best ast.Node
	for n, f := range in.Loops {
		if f == fn && n.Pos() < at && at < n.End() && (best == nil || best.Pos() < n.Pos()) {
			best = n
		}
	}
	return best
}

// hindrance says why there can be no point in a loop.
func (in *Placement) hindrance(n ast.Node, fn *callgraph.Function) *rewrite.Refusal {
	at := in.p.Source.Fset.Position(n.Pos())
	at.Filename = in.p.At(n.Pos()).File
	if r := in.banned[fn]; r != nil {
		return r
	}
	if !in.can(fn) {
		return &rewrite.Refusal{Pos: at, Reason: "the loop is in a package of another module, which is not rewritten", Remedy: "put a comment //cairn:point before the loop that calls it"}
	}
	spine := in.Calls.Leading(fn, in.from, in.can)
	if r := in.unknownRange(fn); r != nil && !spine[in.Calls.Main] {
		return &rewrite.Refusal{Pos: at, Reason: fmt.Sprintf("the loop is in, or is, a range over a function that is not the program's own, at %s: what that has done can't be saved", in.p.At(r.Pos())),
			Remedy: "collect the values first, with slices.Collect, and range over these; or choose the loop around it with //cairn:point"}
	}
	if !spine[in.Calls.Main] {
		why := "main does not call " + fn.Name() + " directly"
		if t := in.others[fn]; t != nil {
			why = fmt.Sprintf("%s runs on a goroutine that is started at %s", fn.Name(), in.p.At(t.At()))
		}
		return &rewrite.Refusal{Pos: at, Reason: "the loop can't be gone on with: " + why, Remedy: "choose a loop on main's own goroutine with //cairn:point"}
	}
	if in.everywhere { // whether a goroutine is alive is looked at when the program runs
		return nil
	}
	if alive := in.alive(n, fn, in.goroutines(n)); len(alive) > 0 {
		return &rewrite.Refusal{Pos: at, Reason: "goroutines may be alive at the loop's point: " + strings.Join(alive, "; "),
			Remedy: "wait for them in each round, or choose another loop with //cairn:point"}
	}
	return nil
}

// unknownRange returns the loop over a function of a library that a function is
// the body of, or is only called from.
func (in *Placement) unknownRange(fn *callgraph.Function) *ast.RangeStmt {
	seen := map[*callgraph.Function]bool{}
	var up func(fn *callgraph.Function) *ast.RangeStmt
	up = func(fn *callgraph.Function) *ast.RangeStmt {
		if seen[fn] {
			return nil
		}
		seen[fn] = true
		if s, ok := fn.Node.(*ast.RangeStmt); ok && !slices.ContainsFunc(fn.Callers, func(t *callgraph.Site) bool { return t.Kind == callgraph.PlainCall && in.can(t.Caller) }) {
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

// alive returns those of some goroutines that are certainly started before the
// loop. Whether others are alive is looked at when the program runs.
func (in *Placement) alive(n ast.Node, fn *callgraph.Function, all []string) []string {
	before := map[string]bool{}
	spine := in.Calls.Leading(fn, in.from, in.can)
	for f := range spine {
		// The calls that lead to the loop, or the loop itself.
		var ways []token.Pos
		for _, t := range f.Sites {
			if t.Kind == callgraph.PlainCall && slices.ContainsFunc(t.Callees, func(g *callgraph.Function) bool { return spine[g] }) {
				ways = append(ways, t.At())
			}
		}
		if f == fn {
			ways = append(ways, n.Pos())
		}
		if len(ways) > 0 {
			in.started(f.Body.List, slices.Min(ways), before)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		m := startedAt.FindStringSubmatch(s)
		return m == nil || !before[m[1]] || in.waitsOnly(s)
	})
}

// started finds the go statements that are run whenever a place is reached.
func (in *Placement) started(list []ast.Stmt, until token.Pos, out map[string]bool) {
	for _, s := range list {
		if s.Pos() >= until {
			return
		}
		switch s := s.(type) {
		case *ast.GoStmt:
			out[in.p.At(s.Pos()).String()] = true
		case *ast.BlockStmt:
			in.started(s.List, until, out)
		case *ast.ForStmt: // for as many workers as there are
			if s.End() < until {
				in.started(s.Body.List, until, out)
			}
		case *ast.RangeStmt:
			if s.End() < until {
				in.started(s.Body.List, until, out)
			}
		}
	}
}

// can says that a function's source can be replaced.
func (in *Placement) can(fn *callgraph.Function) bool { return fn.Pkg.Own() && in.banned[fn] == nil }

// retreat leaves out what a refusal concerns: the function, and the points that
// can't be reached without it.
func (in *Placement) Retreat(r *rewrite.Refusal) bool {
	var found []*callgraph.Function
	for f := range in.Path() {
		if f.Decl != nil && r.Func == rewrite.FuncName(f.Decl) && f.Pkg.ImportPath == r.Package {
			found = append(found, f)
		}
	}
	if r.Mistake() { // told, whatever else is found
		in.Refused = append(in.Refused, r)
	}
	if in.everywhere && in.thin(found, r) {
		return true
	}
	was := in.Points
	in.Points = nil
	var gone []ast.Node
	if len(found) == 0 { // whoever it concerns: begin with the innermost
		gone, in.Points = []ast.Node{was[len(was)-1]}, was[:len(was)-1]
	}
	asked := false // a point that was chosen may be reached by other ways only
	for _, f := range found {
		for _, n := range was {
			asked = asked || !in.inner[n] && in.Calls.Leading(in.Loops[n], in.from, in.can)[f]
		}
	}
	for _, f := range found {
		in.banned[f] = r
	}
	for _, n := range was {
		if len(found) == 0 {
			break
		}
		if in.Calls.Leading(in.Loops[n], in.from, in.can)[in.Calls.Main] {
			in.Points = append(in.Points, n)
		} else {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		in.lost[n] = r
		asked = asked || !in.inner[n]
	}
	if asked {
		if !r.Mistake() {
			in.Refused = append(in.Refused, r)
		}
		for _, n := range gone {
			if !in.inner[n] {
				in.around(n, in.Loops[n])
			}
		}
		for _, f := range found {
			in.callers(f)
		}
	}
	if in.rounds++; in.rounds > maxRounds && !in.everywhere {
		return false
	}
	return len(in.Points) > 0 || in.next()
}

// maxRounds bounds how often a program is rewritten with other points.
const maxRounds = 60
