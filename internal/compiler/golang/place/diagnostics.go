package place

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// reportH limits what Uncovered reports: loops without a point whose h is at
// most this much larger than h of the best loop with a point. Such a loop has
// at least a tenth of that loop's share of the work.
const reportH = 1.0

// Uncovered reports loops with much of the work that have no point in them or
// inside, loops with few iterations and no point inside, and loops whose
// iterations may take any time. Work there is not saved, so these are warnings
// rather than notes. refused are the refusals that the warnings repeat.
func (pl *Placement) Uncovered() (warnings, refused []string) {
	type left struct {
		n   ast.Node
		h   float64
		why *rewrite.Refusal
	}
	best := 1e9
	var all []left
	for n, l := range pl.infos {
		if l.Rank == 0 && !l.Chosen || l.H == nil {
			continue
		}
		if pl.covered(n) {
			best = min(best, *l.H)
		} else {
			all = append(all, left{n, *l.H, pl.whyNoPoint(n)})
		}
	}
	all = slices.DeleteFunc(all, func(x left) bool {
		// Skipped loops are left out on purpose; init runs before main.
		return x.h > best+reportH || pl.skipped(x.n) || x.why == nil || pl.beforeMain(pl.Loops[x.n]) || pl.onlyBackground(pl.Loops[x.n])
	})
	slices.SortFunc(all, func(a, b left) int {
		return cmp.Or(cmp.Compare(a.h, b.h), cmp.Compare(a.n.Pos(), b.n.Pos()))
	})
	if len(all) > 0 {
		x := all[0]
		refused = append(refused, x.why.Error())
		s := fmt.Sprintf("work in the loop at %s is NOT saved: %s", pl.p.At(x.n.Pos()), x.why.Reason)
		if n := len(all) - 1; n > 0 {
			var at []string
			for _, y := range all[1:min(len(all), 4)] {
				at = append(at, pl.p.At(y.n.Pos()).String())
			}
			if n > 3 {
				at = append(at, "…")
			}
			s += fmt.Sprintf(" (nor is work in %s, at %s)", explain.Plural(n, "other loop"), strings.Join(at, ", "))
		}
		warnings = append(warnings, s+"; "+cmp.Or(x.why.Remedy, "mark another loop with //cairn:point")+", or give a profile of a run with --cpuprofile")
	}
	var rest []ast.Node
	for _, n := range pl.Points {
		if pl.extra[n] && pl.loopH(n) > best+reportH || pl.requested(n) {
			continue
		}
		if s := pl.coarseWarning(n); s != "" {
			warnings = append(warnings, s)
		} else {
			rest = append(rest, n)
		}
	}
	return slices.Concat(warnings, pl.searches(rest), pl.jobWarnings()), refused
}

// covered reports whether a loop has a point, or loops inside it have one. The
// latter only helps on main's goroutine.
func (pl *Placement) covered(n ast.Node) bool {
	return pl.hasPoint(n) || pl.reachable[pl.Loops[n]] && slices.ContainsFunc(pl.loopsInside(n), pl.hasPoint)
}

func (pl *Placement) hasPoint(n ast.Node) bool {
	s, ok := n.(ast.Stmt)
	return ok && slices.Contains(pl.Points, s)
}

// whyNoPoint says why a loop has no point. It returns nil if none was tried.
func (pl *Placement) whyNoPoint(n ast.Node) *rewrite.Refusal {
	if r := pl.dropped[n]; r != nil {
		return r
	}
	return pl.obstacle(n, pl.Loops[n])
}

// beforeMain reports whether a function runs only before main.
func (pl *Placement) beforeMain(fn *callgraph.Function) bool {
	return !pl.live[fn] && pl.concurrent[fn] == nil
}

// onlyBackground reports whether a function runs only on goroutines that do not
// matter for the state.
func (pl *Placement) onlyBackground(fn *callgraph.Function) bool {
	return !pl.reachable[fn] && slices.ContainsFunc(pl.Launches, func(l Launch) bool {
		return l.Background && l.Site != nil && l.Site == pl.concurrent[fn]
	})
}

// coarseWarning reports a loop with a point and few iterations if the loop
// inside it with most of the work has no point.
func (pl *Placement) coarseWarning(n ast.Node) string {
	inside := pl.loopsInside(n)
	if len(inside) == 0 {
		return ""
	}
	if !pl.fewTrips(n) {
		return pl.phaseWarning(n, inside)
	}
	most := slices.MaxFunc(inside, func(a, b ast.Node) int {
		return cmp.Or(cmp.Compare(pl.weight(a), pl.weight(b)), cmp.Compare(b.Pos(), a.Pos()))
	})
	if pl.covered(most) || pl.weight(most) < longIteration {
		return ""
	}
	why := "a point in it would cost too much of each iteration"
	if r := pl.whyNoPoint(most); r != nil {
		why = r.Reason
	}
	return fmt.Sprintf("the loop at %s seems to have few iterations, and checkpoints are taken between them ONLY: the loop at %s, inside it, has no point: %s; put //cairn:point before it to have one all the same",
		pl.p.At(n.Pos()), pl.p.At(most.Pos()), why)
}

// phaseWarning reports a loop inside n that may have most of the work of an
// iteration, and cannot have a point.
func (pl *Placement) phaseWarning(n ast.Node, inside []ast.Node) string {
	for _, m := range inside {
		if pl.covered(m) || pl.skipped(m) || !pl.isPhase(m, n) || pl.weight(m) < longIteration {
			continue
		}
		if r := pl.whyNoPoint(m); r != nil {
			return fmt.Sprintf("the loop at %s, inside the loop at %s, may have most of the work, and no checkpoint is taken in it: %s; put //cairn:skip before it if it has little",
				pl.p.At(m.Pos()), pl.p.At(n.Pos()), r.Reason)
		}
	}
	return ""
}

// longIteration is the cost of an iteration that should have a point inside.
const longIteration = 1000

// requested reports whether a comment asks for a point.
func (pl *Placement) requested(n ast.Node) bool {
	return strings.Contains(pl.infos[n].Why, "a comment in the source")
}

// GoroutineWarnings lists the goroutines that may be alive at points, each
// once.
func (pl *Placement) GoroutineWarnings() (warnings []string) {
	if pl.Several() { // they are saved
		return nil
	}
	where := map[string][]string{}
	for _, n := range pl.Points {
		for _, g := range pl.goroutines(n) {
			if pl.onlyWaitsForSignal(g) {
				continue
			}
			where[g] = append(where[g], pl.p.At(n.Pos()).String())
		}
	}
	for _, g := range slices.Sorted(maps.Keys(where)) {
		at := where[g]
		if len(at) > 3 {
			at = append(at[:3:3], fmt.Sprintf("%d more", len(at)-3))
		}
		warnings = append(warnings, fmt.Sprintf("%s: this goroutine may be alive at the points of %s; while it is alive, no checkpoint is taken there", g, strings.Join(at, ", ")))
	}
	return warnings
}
