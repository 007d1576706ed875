package place

import (
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// placeInWalks places points at the beginning of functions that
// filepath.WalkDir and the like call for each file. The functions may have no
// loops, and to find a file takes much longer than to pass a point.
func (pl *Placement) placeInWalks() {
	for _, fn := range pl.Calls.All {
		if !walksFiles(fn) || pl.tried[fn.Body] || pl.skipped(fn.Node) || len(pl.Points) >= maxPoints || !pl.reachable[fn] {
			continue
		}
		pl.Loops[fn.Body] = fn
		if pl.obstacle(fn.Body, fn) == nil {
			pl.tried[fn.Body], pl.extra[fn.Body] = true, true
			pl.Points = append(pl.Points, fn.Body)
		}
	}
}

// walksFiles reports whether only functions that walk over files call fn.
func walksFiles(fn *callgraph.Function) bool {
	return len(fn.Callers) > 0 && !slices.ContainsFunc(fn.Callers, func(t *callgraph.Site) bool {
		return t.Call == nil || t.Kind != callgraph.PlainCall || !strings.Contains(rewrite.CallbackFunction(t.Caller.Pkg.Info, t.Call), ".Walk")
	})
}
