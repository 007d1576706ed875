package callgraph

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/callgraph"
	"golang.org/x/tools/go/callgraph/rta"
	"golang.org/x/tools/go/callgraph/vta"
	"golang.org/x/tools/go/ssa"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// Dynamic holds what calls lead to, as the analyses of x/tools find it.
type Dynamic struct {
	// Sites holds the callees of every call, by the position of its opening
	// parenthesis, or of its go or defer keyword.
	Sites map[token.Pos][]Callee
	// ranges holds what loops over functions call, by the position of the
	// keyword range. bodies holds the loops whose bodies a call leads to,
	// keyed as Sites.
	ranges map[token.Pos][]Callee
	bodies map[token.Pos][]*ast.RangeStmt
	// coarse holds callees of Sites that only the coarser analysis finds.
	coarse map[token.Pos][]Callee
	// Failed is set if there is no graph. Callees are then found by type.
	Failed   bool
	Warnings []string
	// Boxed holds the structs that libraries may reach.
	Boxed map[*types.TypeName]bool
}

// Callee is a function with or without source.
type Callee struct {
	Obj *types.Func  // of a declaration, nil for a literal
	Lit *ast.FuncLit // or nil
}

// Resolve finds the callees of dynamic calls. If the analysis fails, Failed is
// set and a warning says so.
func Resolve(ld *load.Program) (g *Dynamic) {
	g = &Dynamic{Sites: make(map[token.Pos][]Callee), ranges: make(map[token.Pos][]Callee), bodies: make(map[token.Pos][]*ast.RangeStmt), coarse: make(map[token.Pos][]Callee)}
	defer func() {
		if p := recover(); p != nil {
			g.Failed = true
			g.Warnings = append(g.Warnings, fmt.Sprintf("cannot build the call graph (%v): dynamic calls are assumed to lead to all functions of their type", p))
		}
	}()
	prog := ssa.NewProgram(ld.Fset, ssa.InstantiateGenerics)
	seen := make(map[*types.Package]bool)
	for _, s := range ld.Sources {
		seen[s.Types] = true
	}
	var add func(list []*types.Package)
	add = func(list []*types.Package) {
		for _, p := range list {
			if !seen[p] {
				seen[p] = true
				prog.CreatePackage(p, nil, nil, true)
				add(p.Imports())
			}
		}
	}
	var main *ssa.Package
	for _, s := range ld.Sources {
		add(s.Types.Imports())
		p := prog.CreatePackage(s.Types, s.Files, s.Info, true)
		if s == ld.Main {
			main = p
		}
	}
	prog.Build()
	if main == nil || main.Func("main") == nil {
		return g
	}
	reach := reachable(main)
	funcs := make(map[*ssa.Function]bool)
	for f := range reach.Reachable {
		if len(f.Blocks) > 0 {
			funcs[f] = true
		}
	}
	// Only the coarser analysis sees types and functions that come out of a
	// library.
	g.collect(vta.CallGraph(funcs, reach.CallGraph), nil)
	fine := make(map[token.Pos]bool)
	for pos := range g.Sites {
		fine[pos] = true
	}
	for pos := range g.ranges {
		fine[pos] = true
	}
	for pos := range g.bodies {
		fine[pos] = true
	}
	g.collect(reach.CallGraph, fine)
	g.box(ld, funcs)
	return g
}

// box finds the structs that are put into interfaces of libraries, or whose
// addresses become unsafe pointers.
func (g *Dynamic) box(ld *load.Program, funcs map[*ssa.Function]bool) {
	g.Boxed = make(map[*types.TypeName]bool)
	seen := make(map[types.Type]bool)
	var mark func(t types.Type)
	mark = func(t types.Type) {
		t = types.Unalias(t)
		if seen[t] {
			return
		}
		seen[t] = true
		if named, ok := t.(*types.Named); ok {
			g.Boxed[named.Obj()] = true
		}
		switch u := t.Underlying().(type) {
		case *types.Pointer:
			mark(u.Elem())
		case *types.Slice:
			mark(u.Elem())
		case *types.Array:
			mark(u.Elem())
		case *types.Chan:
			mark(u.Elem())
		case *types.Map:
			mark(u.Key())
			mark(u.Elem())
		case *types.Struct:
			for f := range u.Fields() {
				mark(f.Type())
			}
		}
	}
	own := make(map[types.Type][]types.Type) // by the program's interface
	ours := func(t types.Type) bool {
		named, ok := types.Unalias(t).(*types.Named)
		return ok && named.Obj().Pkg() != nil && !ld.Library[named.Obj().Pkg().Path()]
	}
	for f := range funcs {
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				switch i := i.(type) {
				case *ssa.MakeInterface:
					if ours(i.Type()) {
						own[i.Type()] = append(own[i.Type()], i.X.Type())
					} else {
						mark(i.X.Type())
					}
				case *ssa.Convert:
					if b, ok := i.Type().Underlying().(*types.Basic); ok && b.Kind() == types.UnsafePointer {
						mark(i.X.Type())
					}
				}
			}
		}
	}
	for f := range funcs {
		for _, b := range f.Blocks {
			for _, i := range b.Instrs {
				if c, ok := i.(*ssa.ChangeInterface); ok && !ours(c.Type()) {
					for _, t := range own[c.X.Type()] {
						mark(t)
					}
				}
			}
		}
	}
}

// reachable runs rapid type analysis. It takes functions as reached if their
// address is taken: a library may call them.
func reachable(main *ssa.Package) *rta.Result {
	roots := []*ssa.Function{main.Func("init"), main.Func("main")}
	in := map[*ssa.Function]bool{}
	for {
		r := rta.Analyze(roots, true)
		more := false
		for f := range r.Reachable {
			for _, b := range f.Blocks {
				for _, i := range b.Instrs {
					for _, op := range i.Operands(nil) {
						t, ok := (*op).(*ssa.Function)
						if !ok || in[t] || len(t.Blocks) == 0 {
							continue
						}
						if _, ok := r.Reachable[t]; !ok {
							in[t], more = true, true
							roots = append(roots, t)
						}
					}
				}
			}
		}
		if !more {
			return r
		}
	}
}

// collect adds the calls of a graph, except those in done.
func (g *Dynamic) collect(cg *callgraph.Graph, done map[token.Pos]bool) {
	for _, n := range cg.Nodes {
		for _, e := range n.Out {
			if e.Site == nil {
				continue
			}
			for _, f := range behindWrapper(e.Callee, map[*callgraph.Node]bool{}) {
				g.collectCall(e.Site, f, done)
			}
		}
	}
}

func (g *Dynamic) collectCall(site ssa.CallInstruction, f *ssa.Function, done map[token.Pos]bool) {
	if s := rangeSite(site); s != nil {
		if !done[s.Range] {
			g.add(g.ranges, s.Range, f)
		}
		return
	}
	if !site.Pos().IsValid() {
		return
	}
	to := g.Sites
	if done[site.Pos()] && (!site.Common().IsInvoke() || f.Origin() == nil) { // the finer analysis misses methods of generic types
		if to = g.coarse; rangeBody(f) != nil {
			return
		}
	}
	g.add(to, site.Pos(), f)
}

// behindWrapper returns what a function calls that package ssa has made: for a
// method value, a method expression, or a method of an embedded field. For
// others, it returns the function itself.
func behindWrapper(n *callgraph.Node, seen map[*callgraph.Node]bool) (list []*ssa.Function) {
	if seen[n] {
		return nil
	}
	seen[n] = true
	if n.Func.Syntax() == nil && n.Func.Origin() == nil && n.Func.Object() != nil && n.Func.Synthetic != "" {
		for _, e := range n.Out {
			list = append(list, behindWrapper(e.Callee, seen)...)
		}
	}
	if len(list) == 0 {
		list = []*ssa.Function{n.Func}
	}
	return list
}

// rangeSite returns the loop over a function that a call stands for, or nil.
func rangeSite(i ssa.CallInstruction) *ast.RangeStmt {
	if i.Pos().IsValid() || len(i.Common().Args) == 0 {
		return nil
	}
	args := i.Common().Args
	c, ok := args[len(args)-1].(*ssa.MakeClosure)
	if !ok {
		return nil
	}
	return rangeBody(c.Fn.(*ssa.Function))
}

// rangeBody returns the loop whose body f is, or nil.
func rangeBody(f *ssa.Function) *ast.RangeStmt {
	s, _ := f.Syntax().(*ast.RangeStmt)
	return s
}

func (g *Dynamic) add(to map[token.Pos][]Callee, pos token.Pos, f *ssa.Function) {
	if o := f.Origin(); o != nil {
		f = o
	}
	var c Callee
	if s := rangeBody(f); s != nil {
		if !slices.Contains(g.bodies[pos], s) {
			g.bodies[pos] = append(g.bodies[pos], s)
		}
		return
	}
	if lit, ok := f.Syntax().(*ast.FuncLit); ok {
		c.Lit = lit
	} else if obj, ok := f.Object().(*types.Func); ok {
		c.Obj = obj.Origin()
	} else {
		return
	}
	if !slices.Contains(to[pos], c) {
		to[pos] = append(to[pos], c)
	}
}
