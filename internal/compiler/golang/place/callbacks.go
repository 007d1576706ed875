package place

import (
	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// onlyCalledBack reports whether functions of the standard library that sort,
// search and the like are on every path to a function: they call it very often.
func (pl *Placement) onlyCalledBack(fn *callgraph.Function) bool {
	seen := map[*callgraph.Function]bool{}
	var only func(fn *callgraph.Function) bool
	only = func(fn *callgraph.Function) bool {
		if pl.roots[fn] {
			return false
		}
		if seen[fn] {
			return true
		}
		seen[fn] = true
		for _, t := range fn.Callers {
			if t.Kind != callgraph.PlainCall || !pl.reachable[t.Caller] || calledBack(t) {
				continue
			}
			if !only(t.Caller) {
				return false
			}
		}
		return true
	}
	return only(fn)
}

// calledBack reports whether a function of the standard library that sorts,
// searches and the like makes a call.
func calledBack(t *callgraph.Site) bool {
	return t.Call != nil && rewrite.RepeatsCallback(rewrite.CallbackFunction(t.Caller.Pkg.Info, t.Call))
}
