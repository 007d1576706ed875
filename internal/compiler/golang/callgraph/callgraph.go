// Package callgraph finds what the calls of a program lead to. Resolve asks
// the analyses of golang.org/x/tools (SSA, RTA, VTA) about dynamic calls
// (dynamic.go). Graph has all calls between functions with source, by kind.
package callgraph

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/normalize"
	"golang.org/x/tools/go/types/typeutil"
)

// Function is a declaration, a function literal, or the body of a loop that
// ranges over a function.
type Function struct {
	Pkg     *load.Package
	Node    ast.Node // *ast.FuncDecl, *ast.FuncLit or *ast.RangeStmt
	Body    *ast.BlockStmt
	Decl    *ast.FuncDecl // the declaration itself, or the one around it
	Sites   []*Site
	Callers []*Site // calls of it
}

// Site is a call.
type Site struct {
	Caller  *Function
	Call    *ast.CallExpr
	Loop    *ast.RangeStmt // ranges over a function; then Call is nil
	Kind    SiteKind
	Callees []*Function
	MayCall []*Function // of a dynamic call: what a coarser analysis adds
}

// At returns the position of the call.
func (t *Site) At() token.Pos {
	if t.Loop != nil {
		return t.Loop.X.Pos()
	}
	return t.Call.Pos()
}

// OfValue reports whether the site calls a value of function type, which may be
// a method value or a method expression.
func (t *Site) OfValue() bool {
	if t.Loop != nil {
		return true
	}
	info := t.Caller.Pkg.Info
	if sel, ok := ast.Unparen(t.Call.Fun).(*ast.SelectorExpr); ok && info.Selections[sel] != nil {
		return info.Selections[sel].Kind() == types.FieldVal
	}
	return typeutil.StaticCallee(info, t.Call) == nil
}

// SiteKind is how a site calls.
type SiteKind int

const (
	PlainCall     SiteKind = iota // f(x), or a loop over f
	DeferCall                     // by defer
	GoCall                        // by go
	SyncCallback                  // passed to a library, which calls it before it returns
	AsyncCallback                 // passed to a library, which may call it at any time
)

// Graph is the graph of calls between functions with source.
type Graph struct {
	dynamic *Dynamic
	All     []*Function
	byObj   map[*types.Func]*Function
	ByNode  map[ast.Node]*Function
	Main    *Function
	// Once has the literals that sync.OnceFunc, OnceValue or OnceValues are
	// given, with these calls: a library's function calls them.
	Once   map[*Function]*ast.CallExpr
	values map[string][]*Function // functions that are used as values, by their types; see funcValues
}

// New returns the graph of a program's calls.
func New(ld *load.Program, g *Dynamic) *Graph {
	c := &Graph{dynamic: g, byObj: map[*types.Func]*Function{}, ByNode: map[ast.Node]*Function{}, Once: map[*Function]*ast.CallExpr{}}
	for _, s := range ld.Sources {
		for _, f := range s.Files {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Body == nil {
						continue
					}
					fn := c.add(s, d, d.Body, d)
					c.byObj[s.Info.Defs[d.Name].(*types.Func)] = fn
					c.literals(s, d.Body, d)
					if s == ld.Main && d.Recv == nil && d.Name.Name == "main" {
						c.Main = fn
					}
				default:
					c.literals(s, d, nil)
				}
			}
		}
	}
	c.findOnce(ld)
	for _, fn := range c.All {
		c.sitesOf(fn)
	}
	for _, fn := range c.All {
		for _, t := range fn.Sites {
			for _, to := range t.Callees {
				to.Callers = append(to.Callers, t)
			}
		}
	}
	return c
}

func (c *Graph) add(s *load.Package, n ast.Node, body *ast.BlockStmt, decl *ast.FuncDecl) *Function {
	fn := &Function{Pkg: s, Node: n, Body: body, Decl: decl}
	c.All = append(c.All, fn)
	c.ByNode[n] = fn
	return fn
}

func (c *Graph) literals(s *load.Package, n ast.Node, decl *ast.FuncDecl) {
	ast.Inspect(n, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.FuncLit:
			c.add(s, m, m.Body, decl)
		case *ast.RangeStmt:
			if overFunc(s.Info, m) {
				c.add(s, m, m.Body, decl)
			}
		}
		return true
	})
}

// overFunc reports whether a loop ranges over a function, so that its body is a
// function of its own.
func overFunc(info *types.Info, s *ast.RangeStmt) bool {
	t := info.TypeOf(s.X)
	if t == nil {
		return false
	}
	_, ok := t.Underlying().(*types.Signature)
	if tp, is := types.Unalias(t).(*types.TypeParam); is {
		for e := range tp.Underlying().(*types.Interface).EmbeddedTypes() {
			if u, is := e.(*types.Union); is && u.Len() > 0 {
				e = u.Term(0).Type()
			}
			_, ok = e.Underlying().(*types.Signature)
		}
	}
	return ok && !normalize.PlainRange(info, s)
}

// Walk calls f for the nodes below root that belong to the function itself: not
// to literals in it, nor to bodies of loops over functions.
func (fn *Function) Walk(root ast.Node, f func(ast.Node) bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.RangeStmt:
			if n != root && n != fn.Node && overFunc(fn.Pkg.Info, n) {
				if f(n) {
					for _, e := range []ast.Expr{n.Key, n.Value, n.X} {
						if e != nil {
							fn.Walk(e, f)
						}
					}
				}
				return false
			}
		}
		return f(n)
	})
}

// sitesOf finds the calls of a function.
func (c *Graph) sitesOf(fn *Function) {
	kinds := map[*ast.CallExpr]SiteKind{}
	fn.Walk(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			if body := c.ByNode[n]; body != nil {
				c.rangeSite(fn, n, body)
			}
		case *ast.GoStmt:
			kinds[n.Call] = GoCall
			c.site(fn, n.Call, GoCall, n.Go)
		case *ast.DeferStmt:
			kinds[n.Call] = DeferCall
			c.site(fn, n.Call, DeferCall, n.Defer)
		case *ast.CallExpr:
			if _, ok := kinds[n]; !ok {
				c.site(fn, n, PlainCall, n.Lparen)
			}
		}
		return true
	})
}

// rangeSite adds what a loop over a function calls: the function, which calls
// the loop's body. A library's function does so before the loop ends.
func (c *Graph) rangeSite(fn *Function, s *ast.RangeStmt, body *Function) {
	fn.Sites = append(fn.Sites, &Site{Caller: fn, Loop: s, Kind: SyncCallback, Callees: []*Function{body}})
	t := &Site{Caller: fn, Loop: s, Kind: PlainCall}
	for _, q := range c.dynamic.ranges[s.Range] {
		t.Callees = append(t.Callees, c.functions(q)...)
	}
	if len(t.Callees) > 0 {
		fn.Sites = append(fn.Sites, t)
	}
}

// functions returns the functions with source that a callee may be.
func (c *Graph) functions(q Callee) []*Function {
	if to := cmp.Or(c.ByNode[q.Lit], c.byObj[q.Obj]); to != nil {
		return []*Function{to}
	}
	if q.Obj == nil {
		return nil
	}
	r := q.Obj.Signature().Recv()
	if r == nil {
		return nil
	}
	in, ok := r.Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	var list []*Function
	for _, fn := range c.All { // a method of an interface, used as a value
		if fn.Decl == nil || ast.Node(fn.Decl) != fn.Node || fn.Decl.Recv == nil || fn.Decl.Name.Name != q.Obj.Name() {
			continue
		}
		m, ok := fn.Pkg.Info.Defs[fn.Decl.Name].(*types.Func)
		if ok && (types.Implements(m.Signature().Recv().Type(), in) || types.Implements(types.NewPointer(m.Signature().Recv().Type()), in)) {
			list = append(list, fn)
		}
	}
	return list
}

func (c *Graph) site(fn *Function, call *ast.CallExpr, kind SiteKind, at token.Pos) {
	info := fn.Pkg.Info
	if tv := info.Types[call.Fun]; tv.IsType() || tv.IsBuiltin() {
		return
	}
	t := &Site{Caller: fn, Call: call, Kind: kind}
	library := ""
	if lit, ok := ast.Unparen(call.Fun).(*ast.FuncLit); ok {
		t.Callees = append(t.Callees, c.ByNode[lit])
	} else if f := typeutil.StaticCallee(info, call); f != nil {
		if to := c.byObj[f.Origin()]; to != nil {
			t.Callees = append(t.Callees, to)
		} else if f.Pkg() != nil {
			library = f.Pkg().Path()
		}
	} else {
		for _, q := range c.dynamic.Sites[at] {
			for _, to := range c.functions(q) {
				if c.Once[to] != nil {
					fn.Sites = append(fn.Sites, &Site{Caller: fn, Call: call, Kind: SyncCallback, Callees: []*Function{to}})
				} else {
					t.Callees = append(t.Callees, to)
				}
			}
		}
		for _, q := range c.dynamic.coarse[at] {
			t.MayCall = append(t.MayCall, c.functions(q)...)
		}
		for _, s := range c.dynamic.bodies[at] {
			if to := c.ByNode[s]; to != nil {
				t.Callees = append(t.Callees, to)
			}
		}
		if len(t.Callees) == 0 {
			library = "?"
		}
	}
	if len(t.Callees) > 0 {
		fn.Sites = append(fn.Sites, t)
		return
	}
	// A library may call the functions that it is given.
	given := &Site{Caller: fn, Call: call, Kind: AsyncCallback}
	switch library {
	case "sort", "slices", "maps", "strings", "bytes", "path/filepath", "io/fs", "unicode", "bufio", "sync", "flag":
		given.Kind = SyncCallback
	}
	switch {
	case rewrite.StartsGoroutine(info, call) != nil:
		given.Kind = GoCall
	case kind == PlainCall && fn.Pkg.Rewritable() && rewrite.CallbackFunction(info, call) != "": // a copy calls them
		given.Kind = PlainCall
	}
	rest := &Site{Caller: fn, Call: call, Kind: SyncCallback} // methods that are not resumed
	given.Callees, rest.Callees = c.given(fn, call, library, given.Kind == PlainCall)
	if len(rest.Callees) > 0 {
		fn.Sites = append(fn.Sites, rest)
	}
	if len(given.Callees) > 0 {
		fn.Sites = append(fn.Sites, given)
	}
}

// Reach returns all functions that calls of some kinds reach from some
// functions.
func Reach(from []*Function, kinds ...SiteKind) map[*Function]bool {
	seen := map[*Function]bool{}
	todo := slices.Clone(from)
	for len(todo) > 0 {
		fn := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[fn] {
			continue
		}
		seen[fn] = true
		for _, t := range fn.Sites {
			if slices.Contains(kinds, t.Kind) {
				todo = append(todo, t.Callees...)
			}
		}
	}
	return seen
}

// Concurrent returns the functions that may run on other goroutines than
// main's, each with a call that starts it.
func (c *Graph) Concurrent() map[*Function]*Site {
	out := map[*Function]*Site{}
	for _, fn := range c.All {
		for _, t := range fn.Sites {
			if t.Kind != GoCall && t.Kind != AsyncCallback {
				continue
			}
			for f := range Reach(t.Callees, PlainCall, DeferCall, SyncCallback) {
				if out[f] == nil {
					out[f] = t
				}
			}
		}
	}
	return out
}

// PathTo returns the functions on the paths from main to a function: those that
// plain calls reach through functions that can be rewritten.
func (c *Graph) PathTo(to *Function, from map[*Function]bool, can func(*Function) bool) map[*Function]bool {
	out := map[*Function]bool{}
	todo := []*Function{to}
	for len(todo) > 0 {
		fn := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if out[fn] || !from[fn] || !can(fn) {
			continue
		}
		out[fn] = true
		for _, t := range fn.Callers {
			if t.Kind == PlainCall {
				todo = append(todo, t.Caller)
			}
		}
	}
	return out
}

// Name returns the function's name for messages.
func (fn *Function) Name() string {
	if fn.Decl == nil {
		return "a function literal"
	}
	n := fn.Decl.Name.Name
	if fn.Decl.Recv != nil && len(fn.Decl.Recv.List) > 0 {
		t := types.ExprString(fn.Decl.Recv.List[0].Type)
		n = strings.TrimPrefix(t, "*") + "." + n
	}
	switch fn.Node.(type) {
	case *ast.FuncLit:
		return "a function literal in " + n
	case *ast.RangeStmt:
		return "the body of a loop over a function in " + n
	}
	return n
}

// Method returns the name of a method; empty: the function is none.
func (fn *Function) Method() string {
	if d, ok := fn.Node.(*ast.FuncDecl); ok && d.Recv != nil {
		return d.Name.Name
	}
	return ""
}

// Parameter reports whether a variable is a parameter of the function, or its
// receiver.
func (fn *Function) Parameter(o types.Object) bool { return fn.Position(o) >= 0 || fn.Receiver(o) }

// Receiver reports whether a variable is the method's receiver.
func (fn *Function) Receiver(o types.Object) bool {
	d, ok := fn.Node.(*ast.FuncDecl)
	return ok && d.Recv != nil && d.Recv.Pos() <= o.Pos() && o.Pos() < d.Recv.End()
}

// Position returns the index of a variable among the function's parameters, or
// -1.
func (fn *Function) Position(o types.Object) int {
	var t *ast.FuncType
	switch n := fn.Node.(type) {
	case *ast.FuncDecl:
		t = n.Type
	case *ast.FuncLit:
		t = n.Type
	default:
		return -1
	}
	i := 0
	for _, f := range t.Params.List {
		for _, id := range f.Names {
			if fn.Pkg.Info.Defs[id] == o {
				return i
			}
			i++
		}
		if len(f.Names) == 0 {
			i++
		}
	}
	return -1
}

// Generic reports whether the function, or the one around it, has type
// parameters.
func (fn *Function) Generic() bool {
	if fn.Decl == nil {
		return false
	}
	f, ok := fn.Pkg.Info.Defs[fn.Decl.Name].(*types.Func)
	return !ok || f.Signature().TypeParams().Len() > 0 || f.Signature().RecvTypeParams().Len() > 0
}
