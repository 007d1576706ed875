package place

import (
	"fmt"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// onlyCalledBack reports whether functions of the standard library that sort,
// search and the like are on every path to a function: they call the function
// very often.
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

// calledBack reports whether a call passes a callback to a function of the
// standard library that sorts, searches or the like.
func calledBack(t *callgraph.Site) bool {
	return t.Call != nil && rewrite.RepeatsCallback(rewrite.CallbackFunction(t.Caller.Pkg.Info, t.Call))
}

// notCalled says why a function cannot be resumed if no plain calls lead to it
// from main or from a goroutine's function, and what the user can do.
func (pl *Placement) notCalled(fn *callgraph.Function) (why, remedy string) {
	remedy = "choose a loop on main's own goroutine with //cairn:point"
	t, of := pl.indirect(fn)
	switch {
	case t == nil && pl.concurrent[fn] != nil:
		return fmt.Sprintf("%s runs on a goroutine that is started at %s", fn.Name(), pl.p.At(pl.concurrent[fn].At())), remedy
	case t == nil:
		return "main does not call " + fn.Name() + " directly", remedy
	case t.Kind == callgraph.DeferCall:
		return fmt.Sprintf("a call that is deferred at %s leads to it", pl.p.At(t.At())), "do the work before the function returns, or put //cairn:point before another loop"
	}
	name, at := types.ExprString(t.Call.Fun), t.At()
	if once := pl.Calls.Once[of]; once != nil {
		name, at = types.ExprString(once.Fun), once.Lparen
	}
	if t.Kind == callgraph.AsyncCallback {
		return fmt.Sprintf("%s is passed to %s at %s, a function of a library, which calls it or has it called", of.Name(), name, pl.p.At(at)), remedy
	}
	return fmt.Sprintf("%s at %s, a function of a library, calls %s", name, pl.p.At(at), of.Name()), "call it in a loop of your own, or put //cairn:point before another loop"
}

// indirect returns the deferred call, or the call of a library's function, that
// leads to a function, and the function that it calls.
func (pl *Placement) indirect(fn *callgraph.Function) (t *callgraph.Site, of *callgraph.Function) {
	seen := map[*callgraph.Function]bool{fn: true}
	todo := []*callgraph.Function{fn}
	for len(todo) > 0 {
		of = todo[0]
		todo = todo[1:]
		for _, t := range of.Callers {
			switch {
			case !pl.live[t.Caller]:
			case t.Kind == callgraph.DeferCall, t.Call != nil && (t.Kind == callgraph.SyncCallback || t.Kind == callgraph.AsyncCallback):
				return t, of
			case t.Kind == callgraph.PlainCall && !seen[t.Caller]:
				seen[t.Caller] = true
				todo = append(todo, t.Caller)
			}
		}
	}
	return nil, nil
}
