package rewrite

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// Escaping reports whether a func literal or method value may become part of
// the state: it may outlive its statement, and not only in a local variable
// that always holds this literal. These do not escape:
//
//   - a literal that is called at once, also by go or defer,
//   - an argument of a function that is known to drop it before it returns, or
//     when its goroutine ends,
//   - a literal in a local variable that is assigned once, and that is only
//     called or passed to such functions, also by literals of this kind. A
//     deferred call keeps its func value, unless that is a literal. A deferred
//     literal keeps those of the variables of the block around it.
func (p *Package) Escaping(n ast.Expr) bool {
	for _, f := range p.Files {
		if n.Pos() < f.FileStart || n.Pos() >= f.FileEnd {
			continue
		}
		for _, d := range f.Decls {
			if d.Pos() <= n.Pos() && n.End() <= d.End() {
				return p.EscapesOf(d).escaping(n)
			}
		}
	}
	return true
}

// AddFields adds the variables of a list of parameters or results to vars.
func (p *Package) AddFields(vars Vars, l *ast.FieldList) {
	if l == nil {
		return
	}
	for _, f := range l.List {
		for _, id := range f.Names {
			if v, ok := p.Info.Defs[id].(*types.Var); ok {
				vars[v] = true
			}
		}
	}
}

// EscapesOf returns the analysis of the func values in a declaration.
func (p *Package) EscapesOf(d ast.Decl) *Escapes {
	if e := p.escapes[d]; e != nil {
		return e
	}
	e := &Escapes{Package: p, decl: d, Parents: parents(d), Uses: map[*types.Var][]*ast.Ident{}, params: Vars{}, known: map[ast.Expr]bool{}}
	params := func(l *ast.FieldList) { p.AddFields(e.params, l) }
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			params(n.Recv)
		case *ast.FuncType:
			params(n.Params)
			params(n.Results)
		case *ast.Ident:
			if v, ok := p.Info.ObjectOf(n).(*types.Var); ok {
				e.Uses[v] = append(e.Uses[v], n)
			}
		}
		return true
	})
	if p.escapes == nil {
		p.escapes = map[ast.Decl]*Escapes{}
	}
	p.escapes[d] = e
	return e
}

// parents returns the parent of every node; parentheses are skipped.
func parents(root ast.Node) map[ast.Node]ast.Node {
	up := map[ast.Node]ast.Node{}
	var stack []ast.Node
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		for i := len(stack) - 1; i >= 0; i-- {
			if _, ok := stack[i].(*ast.ParenExpr); !ok {
				up[n] = stack[i]
				break
			}
		}
		stack = append(stack, n)
		return true
	})
	return up
}

// Escapes finds the func values of a declaration that escape.
type Escapes struct {
	*Package
	decl    ast.Decl
	Parents map[ast.Node]ast.Node
	Uses    map[*types.Var][]*ast.Ident
	params  Vars // parameters and results
	known   map[ast.Expr]bool
}

// escaping reports whether a func value escapes by its own uses, or because an
// escaping literal uses the variable that holds it. Each literal is analysed
// once, however many others lead to it.
func (e *Escapes) escaping(n ast.Expr) bool {
	if is, ok := e.known[n]; ok {
		return is
	}
	users := map[ast.Expr][]ast.Expr{} // literal → func values whose variables it uses: they escape if it does
	var seen, out []ast.Expr
	asked := map[ast.Expr]bool{n: true}
	for todo := []ast.Expr{n}; len(todo) > 0; {
		x := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		seen = append(seen, x)
		escapes, within := e.alone(x)
		if escapes {
			out = append(out, x)
			continue
		}
		for _, lit := range within {
			users[lit] = append(users[lit], x)
			if is, ok := e.known[lit]; is {
				out = append(out, lit)
			} else if !ok && !asked[lit] {
				asked[lit] = true
				todo = append(todo, lit)
			}
		}
	}
	for _, x := range seen {
		e.known[x] = false
	}
	for len(out) > 0 {
		x := out[len(out)-1]
		out = out[:len(out)-1]
		e.known[x] = true
		for _, u := range users[x] {
			if !e.known[u] {
				out = append(out, u)
			}
		}
	}
	return e.known[n]
}

// alone reports whether a func value escapes by its own uses. It also returns
// the literals that use the variable that holds it: if one of them escapes, the
// value does, too.
func (e *Escapes) alone(n ast.Expr) (escapes bool, within []ast.Expr) {
	if e.dropped(n) {
		return false, nil
	}
	if _, ok := n.(*ast.FuncLit); !ok {
		return true, nil // a restart would evaluate the operand of a method value again
	}
	v := e.Holder(n)
	if v == nil {
		return true, nil
	}
	for _, id := range e.Uses[v] {
		harmless, lits := e.harmless(id, n)
		if !harmless {
			return true, nil
		}
		within = append(within, lits...)
	}
	return false, within
}

// dropped reports whether the parent of a func value uses the value without
// keeping it.
func (e *Escapes) dropped(n ast.Expr) bool {
	switch up := e.Parents[n].(type) {
	case *ast.CallExpr:
		_, deferred := e.Parents[up].(*ast.DeferStmt)
		if ast.Unparen(up.Fun) == n {
			_, lit := n.(*ast.FuncLit)
			return lit || !deferred // a defer keeps the value of a variable
		}
		if e.Info.Types[up.Fun].IsType() {
			return e.dropped(up)
		}
		return !deferred && e.drops(up)
	case *ast.RangeStmt:
		return ast.Unparen(up.X) == n
	}
	return false
}

// Holder returns the local variable of a statement that only assigns a literal
// to it, so that the statement can run again.
func (e *Escapes) Holder(n ast.Expr) *types.Var {
	var id ast.Expr
	switch up := e.Parents[n].(type) {
	case *ast.AssignStmt:
		if len(up.Lhs) == 1 && len(up.Rhs) == 1 && up.Rhs[0] == n {
			id = up.Lhs[0]
		}
	case *ast.ValueSpec:
		d, ok := e.Parents[up].(*ast.GenDecl)
		if ok && len(d.Specs) == 1 && len(up.Names) == 1 && len(up.Values) == 1 && up.Values[0] == n {
			id = up.Names[0]
		}
	}
	name, ok := id.(*ast.Ident)
	if !ok {
		return nil
	}
	v, ok := e.Info.ObjectOf(name).(*types.Var)
	if !ok || v.IsField() || v.Parent() == e.Types.Scope() || v.Pos() < e.decl.Pos() || v.Pos() >= e.decl.End() {
		return nil
	}
	if e.params[v] {
		return nil
	}
	return v
}

// harmless reports whether one use of a variable that holds n is a call, an
// argument of a function that drops it, or the assignment of n. It also returns
// the literals around that use, which may run at other times.
func (e *Escapes) harmless(id *ast.Ident, n ast.Expr) (bool, []ast.Expr) {
	switch up := e.Parents[id].(type) {
	case *ast.AssignStmt:
		for i, x := range up.Lhs {
			if ast.Unparen(x) == id {
				return len(up.Lhs) == len(up.Rhs) && ast.Unparen(up.Rhs[i]) == n, nil
			}
		}
		if i := slices.IndexFunc(up.Rhs, func(x ast.Expr) bool { return ast.Unparen(x) == id }); i >= 0 && len(up.Lhs) == len(up.Rhs) {
			to, ok := up.Lhs[i].(*ast.Ident)
			return ok && to.Name == "_", nil
		}
		return false, nil
	case *ast.ValueSpec:
		if i := slices.Index(up.Names, id); i >= 0 {
			return len(up.Values) == 0 || len(up.Values) == len(up.Names) && ast.Unparen(up.Values[i]) == n, nil
		}
		return false, nil
	}
	if !e.dropped(id) {
		return false, nil
	}
	var within []ast.Expr
	for up := e.Parents[id]; up != nil; up = e.Parents[up] {
		lit, ok := up.(*ast.FuncLit)
		if !ok {
			continue
		}
		if e.Info.ObjectOf(id).Pos() >= lit.Pos() {
			break // it is the literal's own variable
		}
		if e.deferredInBlock(lit, e.Info.ObjectOf(id)) {
			return false, nil
		}
		within = append(within, lit)
	}
	return true, within
}

// deferredInBlock reports whether a literal is deferred and v is a variable of
// the block around it. A restart defers the literal again outside of the block,
// where the literal that v holds cannot be made again.
func (e *Escapes) deferredInBlock(lit *ast.FuncLit, v types.Object) bool {
	call, ok := e.Parents[lit].(*ast.CallExpr)
	if !ok {
		return false
	}
	d, ok := e.Parents[call].(*ast.DeferStmt)
	if !ok {
		return false
	}
	for up := e.Parents[d]; up != nil; up = e.Parents[up] {
		var around *ast.FuncType
		switch up := up.(type) {
		case *ast.FuncLit:
			around = up.Type
		case *ast.FuncDecl:
			around = up.Type
		default:
			continue
		}
		return v.Pos() >= up.Pos() && v.Parent() != e.Info.Scopes[around]
	}
	return false
}

// Uninstantiated returns an expression for a function without parentheses and
// type arguments.
func Uninstantiated(e ast.Expr) ast.Expr {
	e = ast.Unparen(e)
	switch x := e.(type) {
	case *ast.IndexExpr:
		return ast.Unparen(x.X)
	case *ast.IndexListExpr:
		return ast.Unparen(x.X)
	}
	return e
}

// drops reports whether the callee keeps none of its arguments.
func (e *Escapes) drops(call *ast.CallExpr) bool {
	var id *ast.Ident
	switch x := Uninstantiated(call.Fun).(type) {
	case *ast.Ident:
		id = x
	case *ast.SelectorExpr:
		id = x.Sel
	default:
		return false
	}
	fn, ok := e.Info.Uses[id].(*types.Func)
	if !ok || fn.Pkg() == nil {
		return false
	}
	name := fn.Name()
	if r := fn.Signature().Recv(); r != nil {
		t := types.Unalias(r.Type())
		if ptr, ok := t.(*types.Pointer); ok {
			t = types.Unalias(ptr.Elem())
		}
		n, ok := t.(*types.Named)
		if !ok {
			return false
		}
		name = n.Obj().Name() + "." + name
	}
	path := fn.Pkg().Path()
	return slices.Contains(strings.Fields(dropping[path]), name) || path == "slices" && strings.HasSuffix(name, "Func")
}

// dropping lists functions that take functions and keep none of them. Those of
// package slices that end in Func do the same.
var dropping = map[string]string{
	"bytes":          "ContainsFunc FieldsFunc IndexFunc LastIndexFunc Map TrimFunc TrimLeftFunc TrimRightFunc",
	"strings":        "ContainsFunc FieldsFunc IndexFunc LastIndexFunc Map TrimFunc TrimLeftFunc TrimRightFunc",
	"sort":           "Find Search Slice SliceIsSorted SliceStable",
	"slices":         "AppendSeq Collect Sorted",
	"maps":           "Collect DeleteFunc EqualFunc Insert",
	"sync":           "Once.Do Map.Range WaitGroup.Go",
	"os":             "Expand",
	"io/fs":          "WalkDir",
	"path/filepath":  "Walk WalkDir",
	"regexp":         "Regexp.ReplaceAllFunc Regexp.ReplaceAllStringFunc",
	"container/ring": "Ring.Do",
	"flag":           "Visit VisitAll FlagSet.Visit FlagSet.VisitAll",
	"expvar":         "Do",
	"go/ast":         "Inspect",
	"math/rand":      "Shuffle Rand.Shuffle",
	"math/rand/v2":   "Shuffle Rand.Shuffle",
	"runtime/pprof":  "Do",
	"runtime/trace":  "WithRegion",
	"testing":        "AllocsPerRun Benchmark",
}
