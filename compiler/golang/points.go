package golang

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/compiler/ir"
)

// choose finds the loops that Explain chose.
func (in *instrumenter) choose(e *Explanation) {
	type place struct {
		file string
		line int
	}
	known := map[place]LoopInfo{}
	for _, l := range e.Loops {
		known[place{l.File, l.Line}] = l
	}
	var order []ast.Node
	for _, fn := range in.calls.all {
		ast.Inspect(fn.body, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ForStmt, *ast.RangeStmt:
				in.loops[n] = fn
				at := in.p.at(n.Pos())
				if l, ok := known[place{at.File, at.Line}]; ok {
					in.infos[n] = l
					order = append(order, n)
				}
			}
			return true
		})
	}
	for _, n := range order {
		if in.infos[n].Chosen {
			in.take(n, in.infos[n])
		}
	}
	if len(e.Ranks) == 0 { // with messages, places are chosen with more care
		for _, n := range slices.Clone(in.points) {
			in.descend(n, 2)
		}
	}
}

// descend makes points of loops inside one with a point, levels deep. How many
// rounds loops have is not known, and a point that is never reached costs
// nothing. Only loops are taken that are begun a few times in a round of the one
// around them, and that have work for two loops more inside, so that a look at
// the point in each round is nothing.
func (in *instrumenter) descend(n ast.Node, levels int) {
	if levels == 0 {
		return
	}
	for _, m := range in.directly(in.loops[n], loopBody(n), map[*function]bool{}) {
		fn := in.loops[m]
		if in.tried[m] || in.work(fn, loopBody(m)) < enough || in.crowded(fn) || in.skipped(m) {
			continue
		}
		if in.hindrance(m, fn, in.infos[m]) != nil {
			continue
		}
		in.tried[m], in.inner[m] = true, true
		in.points = append(in.points, m.(ast.Stmt))
		in.descend(m, levels-1)
	}
}

// crowded says that a function is too long for more points than it must have: it
// is copied for each of them.
func (in *instrumenter) crowded(fn *function) bool {
	lines := in.p.at(fn.body.End()).Line - in.p.at(fn.body.Pos()).Line
	marks := 1
	for _, n := range in.points {
		if in.loops[n] == fn {
			marks++
		}
	}
	return lines*marks > 600
}

// skipped says that a comment asks for no point.
func (in *instrumenter) skipped(n ast.Node) bool {
	at := in.p.at(n.Pos())
	return slices.ContainsFunc(in.p.Skip, func(q ir.Pos) bool {
		return q.File == at.File && (q.Line == at.Line || q.Line+1 == at.Line)
	})
}

// directly returns the loops in a block, or in functions that it calls, that are
// inside no other loop there.
func (in *instrumenter) directly(fn *function, b *ast.BlockStmt, seen map[*function]bool) []ast.Node {
	var out []ast.Node
	calls := map[*ast.CallExpr]*site{}
	for _, t := range fn.sites {
		if t.kind == plainCall && len(t.to) == 1 && len(t.to[0].in) == 1 { // called from there only
			calls[t.call] = t
		}
	}
	ast.Inspect(b, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ForStmt, *ast.RangeStmt:
			out = append(out, n)
			return false
		case *ast.CallExpr:
			if t := calls[n]; t != nil && !seen[t.to[0]] {
				seen[t.to[0]] = true
				out = append(out, in.directly(t.to[0], t.to[0].body, seen)...)
			}
		}
		return true
	})
	return out
}

// Of loops whose rounds are not known, or are many, ten are counted by work, and
// enough is a little less than two such loops inside each other have.
const (
	someRounds = 10
	enough     = 80
	mostWork   = 1000
)

// work is how many rounds the loops in a block have at least, those inside each
// other multiplied, and those of functions that it calls counted too. A function
// that calls itself is not followed again.
func (in *instrumenter) work(fn *function, b *ast.BlockStmt) int {
	most := 1
	byCall := map[*ast.CallExpr]*site{}
	for _, t := range fn.sites {
		byCall[t.call] = t
	}
	ast.Inspect(b, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ForStmt, *ast.RangeStmt:
			most = max(most, min(mostWork, in.trip(n)*in.work(fn, loopBody(n))))
			return false
		case *ast.CallExpr:
			if t := byCall[n]; t != nil {
				for _, to := range t.to {
					d, ok := in.works[to]
					if !ok {
						in.works[to] = 1
						d = in.work(to, to.body)
						in.works[to] = d
					}
					most = max(most, d)
				}
			}
		}
		return true
	})
	return most
}

// trip is how many rounds of a loop count.
func (in *instrumenter) trip(n ast.Node) int {
	if in.trips == nil {
		in.trips = map[ir.Pos]int{}
		for _, q := range in.p.Procs {
			ir.Each(q.Body, func(s ir.Stmt) {
				if l, ok := s.(*ir.Loop); ok && l.Trip >= 0 {
					in.trips[l.Pos] = max(1, l.Trip)
				}
			})
		}
	}
	if t, ok := in.trips[in.p.at(n.Pos())]; ok {
		return min(t, someRounds)
	}
	return someRounds
}

// next takes the best loop that was not tried yet.
func (in *instrumenter) next() bool {
	for len(in.points) == 0 {
		var best ast.Node
		for n, l := range in.infos {
			if l.Rank > 0 && !in.tried[n] && !in.skipped(n) && (best == nil || l.Rank < in.infos[best].Rank) {
				best = n
			}
		}
		if best == nil {
			return false
		}
		in.take(best, in.infos[best])
	}
	return true
}

// take makes a loop a point, or says why not and tries the loops around it.
func (in *instrumenter) take(n ast.Node, l LoopInfo) {
	if in.tried[n] {
		return
	}
	in.tried[n] = true
	fn := in.loops[n]
	if why := in.hindrance(n, fn, l); why != nil {
		in.refused = append(in.refused, why)
		in.around(n, fn)
		return
	}
	in.points = append(in.points, n.(ast.Stmt))
	if len(l.Goroutines) > 0 {
		in.warnings = append(in.warnings, fmt.Sprintf("%s: goroutines may be alive at the point: %s; while they are, no checkpoint is taken", in.p.at(n.Pos()), strings.Join(l.Goroutines, "; ")))
	}
}

// around tries the loops around one that has no point.
func (in *instrumenter) around(n ast.Node, fn *function) {
	if outer := in.enclosing(fn, n.Pos()); outer != nil {
		in.take(outer, LoopInfo{})
		return
	}
	seen := map[*function]bool{}
	var up func(fn *function)
	up = func(fn *function) {
		if seen[fn] {
			return
		}
		seen[fn] = true
		for _, t := range fn.in {
			if t.kind == deferCall || !in.from[t.from] && t.kind == plainCall {
				continue
			}
			if outer := in.enclosing(t.from, t.call.Pos()); outer != nil {
				in.take(outer, LoopInfo{})
			} else {
				up(t.from)
			}
		}
	}
	up(fn)
}

// enclosing returns the innermost loop of a function around a position, which is
// not the one that begins there.
func (in *instrumenter) enclosing(fn *function, at token.Pos) ast.Node {
	var best ast.Node
	for n, f := range in.loops {
		if f == fn && n.Pos() < at && at < n.End() && (best == nil || best.Pos() < n.Pos()) {
			best = n
		}
	}
	return best
}

// hindrance says why there can be no point in a loop.
func (in *instrumenter) hindrance(n ast.Node, fn *function, l LoopInfo) *rewrite.Refusal {
	at := in.p.ld.fset.Position(n.Pos())
	at.Filename = in.p.at(n.Pos()).File
	if !in.can(fn) {
		return &rewrite.Refusal{Pos: at, Reason: "the loop is in a package of another module, which is not rewritten", Remedy: "put a comment //cairn:point before the loop that calls it"}
	}
	spine := in.calls.leading(fn, in.from, in.can)
	if !spine[in.calls.main] {
		why := "main does not call " + fn.name() + " directly"
		if t := in.others[fn]; t != nil {
			why = fmt.Sprintf("%s runs on a goroutine that is started at %s", fn.name(), in.p.at(t.call.Pos()))
		}
		return &rewrite.Refusal{Pos: at, Reason: "the loop can't be gone on with: " + why, Remedy: "choose a loop on main's own goroutine with //cairn:point"}
	}
	if alive := in.alive(n, fn, l.Goroutines); len(alive) > 0 {
		return &rewrite.Refusal{Pos: at, Reason: "goroutines may be alive at the loop's point: " + strings.Join(alive, "; "),
			Remedy: "wait for them in each round, or choose another loop with //cairn:point"}
	}
	if r, ok := n.(*ast.RangeStmt); ok {
		if _, ok := fn.s.info.TypeOf(r.X).Underlying().(*types.Signature); ok {
			return &rewrite.Refusal{Pos: at, Reason: "the loop ranges over a function, whose state can't be saved", Remedy: "choose the loop around it with //cairn:point"}
		}
	}
	return nil
}

var startedAt = regexp.MustCompile(`started at ([^ ,;]+:\d+)`)

// alive returns those of some goroutines that are certainly started before the
// loop. Whether others are alive is looked at when the program runs.
func (in *instrumenter) alive(n ast.Node, fn *function, all []string) []string {
	before := map[string]bool{}
	spine := in.calls.leading(fn, in.from, in.can)
	for f := range spine {
		// The calls that lead to the loop, or the loop itself.
		var ways []token.Pos
		for _, t := range f.sites {
			if t.kind == plainCall && slices.ContainsFunc(t.to, func(g *function) bool { return spine[g] }) {
				ways = append(ways, t.call.Pos())
			}
		}
		if f == fn {
			ways = append(ways, n.Pos())
		}
		if len(ways) > 0 {
			in.started(f.body.List, slices.Min(ways), before)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		m := startedAt.FindStringSubmatch(s)
		return m == nil || !before[m[1]]
	})
}

// started finds the go statements that are run whenever a place is reached.
func (in *instrumenter) started(list []ast.Stmt, until token.Pos, out map[string]bool) {
	for _, s := range list {
		if s.Pos() >= until {
			return
		}
		switch s := s.(type) {
		case *ast.GoStmt:
			out[in.p.at(s.Pos()).String()] = true
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
func (in *instrumenter) can(fn *function) bool { return in.p.own(fn.s) }

// retreat drops the points that a refusal concerns.
func (in *instrumenter) retreat(r *rewrite.Refusal) bool {
	was := in.points
	in.points = nil
	var gone []ast.Node
	for _, n := range was {
		fn := in.loops[n]
		hit := false
		for f := range in.calls.leading(fn, in.from, in.can) {
			hit = hit || f.decl != nil && r.Func == rewrite.FuncName(f.decl) && f.s.ImportPath == r.Package
		}
		if hit || r.Func == "" {
			gone = append(gone, n)
		} else {
			in.points = append(in.points, n)
		}
	}
	if len(gone) == 0 { // whoever it concerns: begin with the innermost
		gone, in.points = []ast.Node{was[len(was)-1]}, was[:len(was)-1]
	}
	if slices.ContainsFunc(gone, func(n ast.Node) bool { return in.inner[n] }) { // it may be these alone
		for _, n := range gone {
			if !in.inner[n] {
				in.points = append(in.points, n.(ast.Stmt))
			}
		}
	} else {
		in.refused = append(in.refused, r)
		for _, n := range gone {
			in.around(n, in.loops[n])
		}
	}
	if in.rounds++; in.rounds > maxRounds {
		return false
	}
	return len(in.points) > 0 || in.next()
}

// maxRounds bounds how often a program is rewritten with other points.
const maxRounds = 24
