package golang

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// function is a declaration, a literal or the body of a loop over a function, in
// the graph of calls.
type function struct {
	s     *source
	node  ast.Node // *ast.FuncDecl, *ast.FuncLit or *ast.RangeStmt
	body  *ast.BlockStmt
	decl  *ast.FuncDecl // that it is, or is in
	sites []*site
	in    []*site // that lead to it
}

// site is a call.
type site struct {
	from *function
	call *ast.CallExpr
	loop *ast.RangeStmt // over a function, which it calls; then call is nil
	kind siteKind
	to   []*function
	may  []*function // … and, by a coarser look at the program, a dynamic one
}

// at is where a call is.
func (t *site) at() token.Pos {
	if t.loop != nil {
		return t.loop.X.Pos()
	}
	return t.call.Pos()
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
		switch m := m.(type) {
		case *ast.FuncLit:
			c.add(s, m, m.Body, decl)
		case *ast.RangeStmt:
			if overFunc(s.info, m) {
				c.add(s, m, m.Body, decl)
			}
		}
		return true
	})
}

// overFunc says that the body of a loop is a function of its own, which another
// one calls: the loop ranges over that.
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
	return ok && !rewrite.Ordinary(info, s)
}

// walk walks a part of a function, without what belongs to others in it.
func (fn *function) walk(root ast.Node, f func(ast.Node) bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.RangeStmt:
			if n != root && n != fn.node && overFunc(fn.s.info, n) {
				if f(n) {
					for _, e := range []ast.Expr{n.Key, n.Value, n.X} {
						if e != nil {
							fn.walk(e, f)
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
func (c *callGraph) sitesOf(fn *function) {
	kinds := map[*ast.CallExpr]siteKind{}
	fn.walk(fn.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			if body := c.byNode[n]; body != nil {
				c.rangeSite(fn, n, body)
			}
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

// rangeSite notes what a loop over a function calls: the function, which calls the
// loop's body. If it is a library's, that is done before the loop is over.
func (c *callGraph) rangeSite(fn *function, s *ast.RangeStmt, body *function) {
	fn.sites = append(fn.sites, &site{from: fn, loop: s, kind: libraryNow, to: []*function{body}})
	t := &site{from: fn, loop: s, kind: plainCall}
	for _, q := range c.p.calls.ranges[s.Range] {
		t.to = append(t.to, c.functions(q)...)
	}
	if len(t.to) > 0 {
		fn.sites = append(fn.sites, t)
	}
}

// functions are those with source that a callee may be.
func (c *callGraph) functions(q callee) []*function {
	if q.lit != nil {
		if to := c.byNode[q.lit]; to != nil {
			return []*function{to}
		}
		return nil
	}
	if to := c.byObj[q.obj]; to != nil {
		return []*function{to}
	}
	r := q.obj.Signature().Recv()
	if r == nil {
		return nil
	}
	in, ok := r.Type().Underlying().(*types.Interface)
	if !ok {
		return nil
	}
	var list []*function
	for _, fn := range c.all { // a method of an interface, as a value
		if fn.decl == nil || ast.Node(fn.decl) != fn.node || fn.decl.Recv == nil || fn.decl.Name.Name != q.obj.Name() {
			continue
		}
		m, ok := fn.s.info.Defs[fn.decl.Name].(*types.Func)
		if ok && (types.Implements(m.Signature().Recv().Type(), in) || types.Implements(types.NewPointer(m.Signature().Recv().Type()), in)) {
			list = append(list, fn)
		}
	}
	return list
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
		for _, q := range c.p.calls.coarse[at] {
			t.may = append(t.may, c.functions(q)...)
		}
		for _, s := range c.p.calls.bodies[at] {
			if to := c.byNode[s]; to != nil {
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
	switch fn.node.(type) {
	case *ast.FuncLit:
		return "a function literal in " + n
	case *ast.RangeStmt:
		return "the body of a loop over a function in " + n
	}
	return n
}
