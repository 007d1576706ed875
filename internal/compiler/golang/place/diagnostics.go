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

// heavy is how much larger the h of a loop without a point may be than that of the
// best one with, so that it is told of: a tenth.
const heavy = 1.0

// uncovered says which loops that hold much of the work have no point, neither in
// them nor inside, which have few rounds and none inside, and which have rounds that
// may take any time. A run that is there is not saved, so these are no notes among
// others.
//
// It returns what was refused there, too, which need not be told of again.
func (in *Placement) Uncovered() (told, refused []string) {
	type left struct {
		n   ast.Node
		h   float64
		why *rewrite.Refusal
	}
	best := 1e9
	var all []left
	for n, l := range in.infos {
		if l.Rank == 0 && !l.Chosen || l.H == nil {
			continue
		}
		if in.covered(n) {
			best = min(best, *l.H)
		} else {
			all = append(all, left{n, *l.H, in.why(n)})
		}
	}
	all = slices.DeleteFunc(all, func(x left) bool {
		// What is skipped is left out on purpose; init runs before main.
		return x.h > best+heavy || in.skipped(x.n) || x.why == nil || in.initial(in.Loops[x.n])
	})
	slices.SortFunc(all, func(a, b left) int {
		return cmp.Or(cmp.Compare(a.h, b.h), cmp.Compare(a.n.Pos(), b.n.Pos()))
	})
	if len(all) > 0 {
		x := all[0]
		refused = append(refused, x.why.Error())
		s := fmt.Sprintf("a run whose work is in the loop at %s is NOT saved: %s", in.p.At(x.n.Pos()), x.why.Reason)
		if n := len(all) - 1; n > 0 {
			var at []string
			for _, y := range all[1:min(len(all), 4)] {
				at = append(at, in.p.At(y.n.Pos()).String())
			}
			if n > 3 {
				at = append(at, "…")
			}
			s += fmt.Sprintf(" (nor is one whose work is in %s, at %s)", explain.Plural(n, "other"), strings.Join(at, ", "))
		}
		told = append(told, s+"; "+cmp.Or(x.why.Remedy, "mark another loop with //cairn:point")+", or give a profile of a run with --cpuprofile")
	}
	var rest []ast.Node
	for _, n := range in.Points {
		if in.inner[n] && in.load(n) > best+heavy || in.asked(n) {
			continue
		}
		if s := in.coarse(n); s != "" {
			told = append(told, s)
		} else {
			rest = append(rest, n)
		}
	}
	return append(told, in.searches(rest)...), refused
}

// covered says that a loop has a point, or that loops inside it have, which are
// of use on main's goroutine only.
func (in *Placement) covered(n ast.Node) bool {
	return in.pointed(n) || in.from[in.Loops[n]] && slices.ContainsFunc(in.inside(n), in.pointed)
}

func (in *Placement) pointed(n ast.Node) bool {
	s, ok := n.(ast.Stmt)
	return ok && slices.Contains(in.Points, s)
}

// why says why a loop has no point; nil if it was not tried.
func (in *Placement) why(n ast.Node) *rewrite.Refusal {
	if r := in.lost[n]; r != nil {
		return r
	}
	return in.hindrance(n, in.Loops[n])
}

// initial says that a function runs before main only.
func (in *Placement) initial(fn *callgraph.Function) bool {
	return !in.from[fn] && in.others[fn] == nil
}

// coarse says that a loop with a point has few rounds, and that the one inside it
// that has most of its work has none.
func (in *Placement) coarse(n ast.Node) string {
	if !in.few(n) {
		return ""
	}
	inside := in.inside(n)
	if len(inside) == 0 {
		return ""
	}
	most := slices.MaxFunc(inside, func(a, b ast.Node) int {
		return cmp.Or(cmp.Compare(in.weight(a), in.weight(b)), cmp.Compare(b.Pos(), a.Pos()))
	})
	if in.covered(most) || in.weight(most) < coarsest {
		return ""
	}
	why := "a point in it would cost too much of each round"
	if r := in.why(most); r != nil {
		why = r.Reason
	}
	return fmt.Sprintf("the loop at %s seems to have few rounds, and a run is saved between these ONLY: the loop at %s, in it, has no point, as %s; //cairn:point before it asks for one all the same",
		in.p.At(n.Pos()), in.p.At(most.Pos()), why)
}

// coarsest is what a round may take in which there is no point, as it is counted.
const coarsest = 1000

// asked says that a comment asks for a point.
func (in *Placement) asked(n ast.Node) bool {
	return strings.Contains(in.infos[n].Why, "a comment in the source")
}

// company says which goroutines may be alive at points, each once.
func (in *Placement) GoroutineWarnings() (told []string) {
	where := map[string][]string{}
	for _, n := range in.Points {
		for _, g := range in.goroutines(n) {
			if in.waitsOnly(g) {
				continue
			}
			where[g] = append(where[g], in.p.At(n.Pos()).String())
		}
	}
	for _, g := range slices.Sorted(maps.Keys(where)) {
		at := where[g]
		if len(at) > 3 {
			at = append(at[:3:3], fmt.Sprintf("%d more", len(at)-3))
		}
		told = append(told, fmt.Sprintf("%s: this goroutine may be alive at the points of %s; while it is, no checkpoint is taken there", g, strings.Join(at, ", ")))
	}
	return told
}
