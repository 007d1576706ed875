package golang

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// function is a declaration or a literal, in the graph of calls.
type function struct {
	s     *source
	node  ast.Node // *ast.FuncDecl or *ast.FuncLit
	body  *ast.BlockStmt
	decl  *ast.FuncDecl // that it is, or is in
	sites []*site
	in    []*site // that lead to it
}

// site is a call.
type site struct {
	from *function
	call *ast.CallExpr
	kind siteKind
	to   []*function
}

type siteKind int

const (
	plainCall  siteKind = iota
	deferCall           // by defer
	goCall              // by go
	libraryNow          // given to a library, which calls it before it returns
	libraryOwn          // … or whenever it likes
)

// callGraph is the graph of calls between functions with source.
type callGraph struct {
	p      *Program
	all    []*function
	byObj  map[*types.Func]*function
	byNode map[ast.Node]*function
	main   *function
}

// newCallGraph makes the graph of a program's calls.
func newCallGraph(p *Program) *callGraph {
	c := &callGraph{p: p, byObj: map[*types.Func]*function{}, byNode: map[ast.Node]*function{}}
	for _, s := range p.ld.sources {
		for _, f := range s.files {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Body == nil {
						continue
					}
					fn := c.add(s, d, d.Body, d)
					c.byObj[s.info.Defs[d.Name].(*types.Func)] = fn
					c.literals(s, d.Body, d)
					if s == p.ld.main && d.Recv == nil && d.Name.Name == "main" {
						c.main = fn
					}
				default:
					c.literals(s, d, nil)
				}
			}
		}
	}
	for _, fn := range c.all {
		c.sitesOf(fn)
	}
	for _, fn := range c.all {
		for _, t := range fn.sites {
			for _, to := range t.to {
				to.in = append(to.in, t)
			}
		}
	}
	return c
}

func (c *callGraph) add(s *source, n ast.Node, body *ast.BlockStmt, decl *ast.FuncDecl) *function {
	fn := &function{s: s, node: n, body: body, decl: decl}
	c.all = append(c.all, fn)
	c.byNode[n] = fn
	return fn
}

func (c *callGraph) literals(s *source, n ast.Node, decl *ast.FuncDecl) {
	ast.Inspect(n, func(m ast.Node) bool {
		if lit, ok := m.(*ast.FuncLit); ok {
			c.add(s, lit, lit.Body, decl)
		}
		return true
	})
}

// sitesOf finds the calls of a function.
func (c *callGraph) sitesOf(fn *function) {
	kinds := map[*ast.CallExpr]siteKind{}
	ast.Inspect(fn.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.GoStmt:
			kinds[n.Call] = goCall
			c.site(fn, n.Call, goCall, n.Go)
		case *ast.DeferStmt:
			kinds[n.Call] = deferCall
			c.site(fn, n.Call, deferCall, n.Defer)
		case *ast.CallExpr:
			if _, ok := kinds[n]; !ok {
				c.site(fn, n, plainCall, n.Lparen)
			}
		}
		return true
	})
}

func (c *callGraph) site(fn *function, call *ast.CallExpr, kind siteKind, at token.Pos) {
	info := fn.s.info
	if tv := info.Types[call.Fun]; tv.IsType() || tv.IsBuiltin() {
		return
	}
	t := &site{from: fn, call: call, kind: kind}
	library := ""
	if lit, ok := ast.Unparen(call.Fun).(*ast.FuncLit); ok {
		t.to = append(t.to, c.byNode[lit])
	} else if f := typeutil.StaticCallee(info, call); f != nil {
		if to := c.byObj[f.Origin()]; to != nil {
			t.to = append(t.to, to)
		} else if f.Pkg() != nil {
			library = f.Pkg().Path()
		}
	} else {
		for _, q := range c.p.calls.sites[at] {
			var to *function
			if q.lit != nil {
				to = c.byNode[q.lit]
			} else {
				to = c.byObj[q.obj]
			}
			if to != nil {
				t.to = append(t.to, to)
			}
		}
		if len(t.to) == 0 {
			library = "?"
		}
	}
	if len(t.to) > 0 {
		fn.sites = append(fn.sites, t)
		return
	}
	// What a library is given it may call.
	given := &site{from: fn, call: call, kind: libraryOwn}
	switch library {
	case "sort", "slices", "maps", "strings", "bytes", "path/filepath", "io/fs", "unicode", "bufio", "sync", "flag":
		given.kind = libraryNow
	}
	for _, a := range call.Args {
		switch a := ast.Unparen(a).(type) {
		case *ast.FuncLit:
			given.to = append(given.to, c.byNode[a])
		case *ast.Ident:
			if f, ok := info.Uses[a].(*types.Func); ok {
				if to := c.byObj[f.Origin()]; to != nil {
					given.to = append(given.to, to)
				}
			}
		case *ast.SelectorExpr:
			if f, ok := info.Uses[a.Sel].(*types.Func); ok {
				if to := c.byObj[f.Origin()]; to != nil {
					given.to = append(given.to, to)
				}
			}
		}
	}
	if len(given.to) > 0 {
		fn.sites = append(fn.sites, given)
	}
}

// reach returns all functions that some functions lead to by calls of some kinds.
func reach(from []*function, kinds ...siteKind) map[*function]bool {
	seen := map[*function]bool{}
	todo := slices.Clone(from)
	for len(todo) > 0 {
		fn := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[fn] {
			continue
		}
		seen[fn] = true
		for _, t := range fn.sites {
			if slices.Contains(kinds, t.kind) {
				todo = append(todo, t.to...)
			}
		}
	}
	return seen
}

// concurrent returns the functions that may run on other goroutines than main's,
// and a call that starts each.
func (c *callGraph) concurrent() map[*function]*site {
	out := map[*function]*site{}
	for _, fn := range c.all {
		for _, t := range fn.sites {
			if t.kind != goCall && t.kind != libraryOwn {
				continue
			}
			for f := range reach(t.to, plainCall, deferCall, libraryNow) {
				if out[f] == nil {
					out[f] = t
				}
			}
		}
	}
	return out
}

// leading returns the functions on the ways from main to a function, by plain
// calls through what can be rewritten.
func (c *callGraph) leading(to *function, from map[*function]bool, can func(*function) bool) map[*function]bool {
	out := map[*function]bool{}
	todo := []*function{to}
	for len(todo) > 0 {
		fn := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if out[fn] || !from[fn] || !can(fn) {
			continue
		}
		out[fn] = true
		for _, t := range fn.in {
			if t.kind == plainCall {
				todo = append(todo, t.from)
			}
		}
	}
	return out
}

// name is how a function is called in messages.
func (fn *function) name() string {
	if fn.decl == nil {
		return "a function literal"
	}
	n := fn.decl.Name.Name
	if fn.decl.Recv != nil && len(fn.decl.Recv.List) > 0 {
		t := types.ExprString(fn.decl.Recv.List[0].Type)
		n = strings.TrimPrefix(t, "*") + "." + n
	}
	if _, ok := fn.node.(*ast.FuncLit); ok {
		return "a function literal in " + n
	}
	return n
}
