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
		if _, ok := r.can[s]; !ok {
			continue
		}
		if name[fn] = s; fast[fn.Pkg] == nil {
			fast[fn.Pkg] = map[string]bool{}
		}
		fast[fn.Pkg][s] = true
	}
	for changed := true; changed; {
		changed = false
		for fn, s := range name {
			bad := slices.ContainsFunc(in.sources[fn.Pkg].can[s], func(to string) bool { return !fast[fn.Pkg][to] })
			for _, t := range fn.Sites {
				kept := func(to *callgraph.Function) bool { return path[to] && name[to] == "" }
				if t.Kind == callgraph.PlainCall {
					bad = bad || slices.ContainsFunc(t.Callees, kept) || !(len(t.Callees) == 1 && lifted[t.Callees[0]]) && slices.ContainsFunc(t.MayCall, kept)
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
