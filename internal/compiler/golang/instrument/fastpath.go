package instrument

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/closures"
)

// fastPaths returns the functions that can be unwound when a checkpoint is due,
// by package. A function can if all functions on the resumable path that it
// calls can.
func (in *instrumenter) fastPaths(path map[*callgraph.Function]bool) map[*load.Package]map[string]bool {
	name := map[*callgraph.Function]string{}
	lifted := map[*callgraph.Function]bool{} // their callers can call nothing else
	fast := map[*load.Package]map[string]bool{}
	add := func(s *load.Package, fn string) bool {
		if _, ok := in.sources[s].can[fn]; !ok {
			return false
		}
		if fast[s] == nil {
			fast[s] = map[string]bool{}
		}
		fast[s][fn] = true
		return true
	}
	for i, fn := range in.Calls.All {
		r := in.sources[fn.Pkg]
		if !path[fn] || r == nil {
			continue
		}
		s := r.lits[fmt.Sprint(i)]
		if lifted[fn] = s != ""; !lifted[fn] {
			s = r.made.Forward[fmt.Sprint(i)]
		}
		if d, ok := fn.Node.(*ast.FuncDecl); ok {
			s = rewrite.FuncName(d)
		}
		if add(fn.Pkg, s) {
			name[fn] = s
		}
	}
	// The graph has the methods that method expressions stand for, and not the
	// functions made for these.
	slow := map[string]bool{} // methods that such a function calls which cannot be unwound
	for s, r := range in.sources {
		for fn, method := range r.made.Exprs {
			slow[method] = !add(s, fn) || slow[method]
		}
	}
	kept := func(to *callgraph.Function) bool { return path[to] && name[to] == "" }
	callsSlow := func(pkg *load.Package, fn string) bool {
		return slices.ContainsFunc(in.sources[pkg].can[fn], func(to string) bool { return !fast[pkg][to] })
	}
	for changed := true; changed; {
		changed = false
		for s, r := range in.sources {
			for fn, method := range r.made.Exprs {
				if fast[s][fn] && (callsSlow(s, fn) || slices.ContainsFunc(in.Calls.All, func(to *callgraph.Function) bool { return to.Method() == method && kept(to) })) {
					delete(fast[s], fn)
					slow[method], changed = true, true
				}
			}
		}
		for fn, s := range name {
			bad := callsSlow(fn.Pkg, s)
			for _, t := range fn.Sites {
				if t.Kind == callgraph.PlainCall {
					bad = bad || slices.ContainsFunc(t.Callees, kept) || !(len(t.Callees) == 1 && lifted[t.Callees[0]]) && slices.ContainsFunc(t.MayCall, kept) ||
						t.OfValue() && slices.ContainsFunc(slices.Concat(t.Callees, t.MayCall), func(to *callgraph.Function) bool { return path[to] && slow[to.Method()] })
				}
			}
			if bad {
				delete(name, fn)
				delete(fast[fn.Pkg], s)
				changed = true
			}
		}
	}
	return fast
}

// rewrittenPackage is the state of a package between the passes.
type rewrittenPackage struct {
	marks map[token.Pos]string
	was   map[string][]byte // its files before the passes
	p     *rewrite.Package  // ready for emit
	made  *closures.Converted
	lits  map[string]string   // see closures.Lifted
	can   map[string][]string // functions that can be unwound, and the functions that they call
	fast  map[string]bool     // the functions that were emitted with a fast path
	out   *Result
}
