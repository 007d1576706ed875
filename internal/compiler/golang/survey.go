package golang

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// lowerer makes ir of a program.
type lowerer struct {
	ld   *loader
	g    *graph
	dir  string
	root string // …, as the file system names it

	procs map[*types.Func]*ir.Proc
	lits  map[*ast.FuncLit]*ir.Proc
	names map[*ir.Proc]int // literals in it
	work  []func()         // bodies to lower
	inits []initialiser

	vars   map[types.Object]*ir.Var
	memory map[string]*ir.Var // what stands for elements and the like, by type
	groups map[string]*ir.Var // wait groups in fields, by their path
	taken  map[string][]*ir.Proc
	use    map[types.Object]*usage
	local  map[*ast.FuncLit]bool         // only called where it is
	named  map[*ast.FuncLit]types.Object // the variable that it is put into
	owners map[*ir.Var]*ir.Proc          // captured variables that are followed
	objs   map[*ir.Var]types.Object      // what variables stand for
	structs
	kernels map[types.Object][]*ir.Proc // functions of kernels, by the variable or field

	took    map[string]bool       // functions of Options.Take that were found
	derefs  map[string]bool       // types whose pointers are followed
	merged  map[string]bool       // types of which pointers to elements are taken
	gotos   map[types.Object]bool // labels
	library *ir.Proc              // stands for functions without source
	world   map[types.Object]bool // communicators that are the world
	splits  bool                  // there are communicators with other ranks than the world's
	assumed int
	extents []extent
}

type initialiser struct {
	s    *source
	init *types.Initializer
	decl *ast.FuncDecl
}

// usage is what is known of a variable from its uses.
type usage struct {
	writes   int
	address  bool
	escapes  bool // its address is taken, and not only for a library
	captured []*ast.FuncLit
	looped   bool // declared in a loop
	fresh    int  // writes of what nothing else has
	plain    int  // uses as x[i], range x, len(x) and as a buffer of a communication
	uses     int
	calls    int // uses as x(…)
}

func newLowerer(ld *loader, g *graph, world map[types.Object]bool) *lowerer {
	l := &lowerer{ld: ld, g: g, world: world, procs: make(map[*types.Func]*ir.Proc), lits: make(map[*ast.FuncLit]*ir.Proc),
		names: make(map[*ir.Proc]int), vars: make(map[types.Object]*ir.Var), memory: make(map[string]*ir.Var), groups: make(map[string]*ir.Var),
		taken: make(map[string][]*ir.Proc), use: make(map[types.Object]*usage), local: make(map[*ast.FuncLit]bool), named: make(map[*ast.FuncLit]types.Object), owners: make(map[*ir.Var]*ir.Proc), objs: make(map[*ir.Var]types.Object), gotos: make(map[types.Object]bool), merged: make(map[string]bool), derefs: make(map[string]bool), took: make(map[string]bool),
		library: &ir.Proc{Name: "a library's function", Known: true, Body: []ir.Stmt{&ir.Assign{}}}}
	l.dir, _ = filepath.Abs(ld.dir)
	l.root, _ = filepath.EvalSymlinks(l.dir)
	for _, s := range ld.sources {
		for _, f := range s.files {
			l.declare(s, f)
		}
	}
	for _, s := range ld.sources {
		for _, f := range s.files {
			l.survey(s, f)
		}
		for _, i := range s.info.InitOrder {
			l.inits = append(l.inits, initialiser{s: s, init: i})
		}
		for _, f := range s.files {
			for _, d := range f.Decls {
				if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" && d.Body != nil {
					l.inits = append(l.inits, initialiser{s: s, decl: d})
				}
			}
		}
	}
	l.collectStructs()
	l.collectKernels()
	return l
}

// pos is a position, relative to the folder that the program was named in.
func (l *lowerer) pos(p token.Pos) ir.Pos {
	at := l.ld.fset.Position(p)
	return ir.Pos{File: l.short(at.Filename), Line: at.Line, Col: at.Column}
}

// short is how a file is called in messages.
func (l *lowerer) short(name string) string {
	for _, dir := range []string{l.dir, l.root} {
		if rel, err := filepath.Rel(dir, name); err == nil && dir != "" && filepath.IsLocal(rel) {
			name = rel
			break
		}
	}
	return filepath.ToSlash(name)
}

func (l *lowerer) name(s *source, name string) string {
	if s == l.ld.main {
		return name
	}
	return s.Name + "." + name
}

// declare makes the procedures of a file.
func (l *lowerer) declare(s *source, f *ast.File) {
	for _, d := range f.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		obj, _ := s.info.Defs[d.Name].(*types.Func)
		if obj == nil {
			continue
		}
		name := d.Name.Name
		sig := obj.Signature()
		if r := sig.Recv(); r != nil {
			of := types.TypeString(r.Type(), func(*types.Package) string { return "" })
			if i := strings.IndexByte(of, '['); i >= 0 {
				of = of[:i]
			}
			if strings.HasPrefix(of, "*") {
				of = "(" + of + ")"
			}
			name = of + "." + name
		}
		p := l.proc(l.name(s, name), d.Name.Pos(), sig)
		l.procs[obj] = p
		if i := strings.LastIndexByte(p.Name, '.'); sig.Recv() != nil && i > 0 {
			p.Recv = p.Name[:i]
		}
		l.work = append(l.work, func() { l.body(s, p, sig, d.Body, nil) })
		l.literals(s, p, d.Body)
	}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.VAR {
			l.literals(s, &ir.Proc{Name: l.name(s, "init")}, d)
		}
	}
}

// literals makes the procedures of the function literals in n.
func (l *lowerer) literals(s *source, in *ir.Proc, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.FuncLit)
		if !ok {
			return true
		}
		sig, _ := s.info.TypeOf(lit).Underlying().(*types.Signature)
		l.names[in]++
		p := l.proc(fmt.Sprintf("%s.func%d", in.Name, l.names[in]), lit.Pos(), sig)
		l.lits[lit] = p
		l.work = append(l.work, func() { l.body(s, p, sig, lit.Body, lit) })
		l.literals(s, p, lit.Body)
		return false
	})
}

func (l *lowerer) proc(name string, at token.Pos, sig *types.Signature) *ir.Proc {
	p := &ir.Proc{Name: name, Pos: l.pos(at), Known: true}
	if r := sig.Recv(); r != nil {
		p.Params = append(p.Params, l.variable(r))
	}
	for v := range sig.Params().Variables() {
		p.Params = append(p.Params, l.variable(v))
	}
	for v := range sig.Results().Variables() {
		p.Results = append(p.Results, l.variable(v))
	}
	return p
}

// survey finds out how variables and functions are used in a file.
func (l *lowerer) survey(s *source, f *ast.File) {
	var stack []ast.Node
	parent := func(i int) ast.Node {
		if i < len(stack) {
			return stack[len(stack)-1-i]
		}
		return nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		switch n := n.(type) {
		case *ast.Ident:
			l.ident(s, n, parent, stack)
		case *ast.StarExpr:
			if tv := s.info.Types[n]; !tv.IsType() && tv.Type != nil {
				if _, ok := types.Unalias(tv.Type).(*types.TypeParam); ok {
					l.derefs["any type"] = true
				}
				l.derefs[types.TypeString(tv.Type, nil)] = true
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				l.address(s, n, parent(0))
			}
		case *ast.BranchStmt:
			if n.Tok == token.GOTO {
				l.gotos[s.info.Uses[n.Label]] = true
			}
		case *ast.FuncLit:
			p := l.lits[n]
			if call, ok := parent(0).(*ast.CallExpr); ok && call.Fun == n {
				l.local[n] = true
			} else {
				l.take(s.info.TypeOf(n), p)
			}
			if a, ok := parent(0).(*ast.AssignStmt); ok && len(a.Lhs) == 1 && a.Tok == token.DEFINE {
				if id, ok := a.Lhs[0].(*ast.Ident); ok {
					l.named[n] = s.info.Defs[id]
				}
			}
		}
		stack = append(stack, n)
		return true
	})
}

// address notes that the address of a field or an element is taken.
func (l *lowerer) address(s *source, n *ast.UnaryExpr, parent ast.Node) {
	switch x := ast.Unparen(n.X).(type) {
	case *ast.SelectorExpr:
		if v, ok := s.info.Uses[x.Sel].(*types.Var); ok {
			u := l.usage(v.Origin())
			u.address = true
			u.escapes = u.escapes || !l.forLibrary(s, parent)
		}
	case *ast.IndexExpr:
		if t := s.info.TypeOf(x); !l.forLibrary(s, parent) {
			l.merged[types.TypeString(t, nil)] = true
		}
	}
}

// forLibrary says whether a node is a call of a library's function.
func (l *lowerer) forLibrary(s *source, n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	return ok && l.ld.library[recognised(s, call)]
}

// take notes that a function is a value.
func (l *lowerer) take(t types.Type, p *ir.Proc) {
	if sig, ok := t.Underlying().(*types.Signature); ok && p != nil {
		key := signature(sig)
		if !slices.Contains(l.taken[key], p) {
			l.taken[key] = append(l.taken[key], p)
		}
	}
}

func signature(sig *types.Signature) string {
	return types.TypeString(types.NewSignatureType(nil, nil, nil, sig.Params(), sig.Results(), sig.Variadic()), nil)
}

// enclosing returns the innermost literal of a stack of nodes.
func enclosing(stack []ast.Node) *ast.FuncLit {
	for i := len(stack) - 1; i >= 0; i-- {
		if lit, ok := stack[i].(*ast.FuncLit); ok {
			return lit
		}
	}
	return nil
}

func (l *lowerer) usage(obj types.Object) *usage {
	u := l.use[obj]
	if u == nil {
		u = new(usage)
		l.use[obj] = u
	}
	return u
}

func (l *lowerer) ident(s *source, id *ast.Ident, parent func(int) ast.Node, stack []ast.Node) {
	if obj, ok := s.info.Uses[id].(*types.Func); ok {
		if obj.Name() == "Split" && obj.Pkg() != nil && obj.Pkg().Path() == mpiPath {
			l.splits = true
		}
		// A function that is not called here is a value.
		i := 0
		var at ast.Expr = id
		if sel, ok := parent(0).(*ast.SelectorExpr); ok && sel.Sel == id {
			at, i = sel, 1
		}
		switch p := parent(i).(type) {
		case *ast.IndexExpr, *ast.IndexListExpr:
			at, i = p.(ast.Expr), i+1
		}
		if call, ok := parent(i).(*ast.CallExpr); !ok || call.Fun != at {
			l.take(s.info.TypeOf(at), l.procs[obj.Origin()])
		}
		return
	}
	obj := s.info.Defs[id]
	if v, ok := obj.(*types.Var); ok && !v.IsField() {
		u := l.usage(v)
		for i := len(stack) - 1; i >= 0; i-- {
			switch stack[i].(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				u.looped = true
			case *ast.FuncLit, *ast.FuncDecl:
				i = 0
			}
		}
		u.writes++
		if fresh(s, id, parent(0), v.Type()) {
			u.fresh++
		}
		return
	}
	v, ok := s.info.Uses[id].(*types.Var)
	if !ok || v.IsField() {
		return
	}
	u := l.usage(v)
	u.uses++
	if lit := enclosing(stack); lit != nil && v.Parent() != s.types.Scope() && (v.Pos() < lit.Pos() || v.Pos() >= lit.End()) && !slices.Contains(u.captured, lit) {
		u.captured = append(u.captured, lit)
	}
	// What is done with it, through parentheses, fields and array elements.
	var at ast.Expr = id
	i := 0
	direct := true
	for {
		switch p := parent(i).(type) {
		case *ast.ParenExpr:
			at, i = p, i+1
			continue
		case *ast.SelectorExpr:
			if p.X == at && !pointer(s.info.TypeOf(at)) {
				if sel := s.info.Selections[p]; sel != nil && sel.Kind() == types.MethodVal {
					if pointer(sel.Obj().(*types.Func).Signature().Recv().Type()) {
						u.address = true
					}
					return
				}
				at, i, direct = p, i+1, false
				continue
			}
		case *ast.IndexExpr:
			if p.X == at {
				u.plain++
				if _, ok := s.info.TypeOf(at).Underlying().(*types.Array); ok {
					at, i, direct = p, i+1, false
					continue
				}
			}
		}
		break
	}
	switch p := parent(i).(type) {
	case *ast.UnaryExpr:
		if p.Op == token.AND {
			u.address = true
			u.escapes = u.escapes || direct && !l.forLibrary(s, parent(i+1))
		}
	case *ast.SliceExpr:
		if p.X == at {
			if _, ok := s.info.TypeOf(at).Underlying().(*types.Array); ok {
				u.address = true
			}
			if call, ok := parent(i + 1).(*ast.CallExpr); ok && direct && recognised(s, call) == mpiPath {
				u.plain++
			}
		}
	case *ast.IncDecStmt:
		if direct {
			u.writes++
		}
	case *ast.AssignStmt:
		if direct && slices.Contains(p.Lhs, at) {
			u.writes++
			if fresh(s, at, p, v.Type()) {
				u.fresh++
			}
		}
	case *ast.RangeStmt:
		if direct && (p.Key == at || p.Value == at) {
			u.writes++
		} else if p.X == at && direct {
			u.plain++
		}
	case *ast.CallExpr:
		if p.Fun == at {
			u.calls++
		} else if direct {
			if path := recognised(s, p); path == mpiPath || path == "len" {
				u.plain++
			}
		}
	}
}

// fresh says whether what a statement or declaration gives to the variable at is
// reached through it alone: new memory, or a copy.
func fresh(s *source, at ast.Expr, parent ast.Node, t types.Type) bool {
	if _, ok := t.Underlying().(*types.Array); ok {
		return true
	}
	var lhs, rhs []ast.Expr
	switch p := parent.(type) {
	case *ast.AssignStmt:
		lhs, rhs = p.Lhs, p.Rhs
	case *ast.ValueSpec:
		for _, id := range p.Names {
			lhs = append(lhs, id)
		}
		if rhs = p.Values; len(rhs) == 0 {
			return true
		}
	}
	i := slices.Index(lhs, at)
	if i < 0 || len(lhs) != len(rhs) {
		return false
	}
	switch x := ast.Unparen(rhs[i]).(type) {
	case *ast.CompositeLit:
		return true
	case *ast.CallExpr:
		b, ok := target(s, x).(*types.Builtin)
		return ok && b.Name() == "make"
	}
	return s.info.Types[rhs[i]].IsNil()
}

// recognised says what a call is of: a package's path, or "len" for len and cap.
func recognised(s *source, call *ast.CallExpr) string {
	switch obj := target(s, call).(type) {
	case *types.Builtin:
		if obj.Name() == "len" || obj.Name() == "cap" {
			return "len"
		}
	case *types.Func:
		if obj.Pkg() != nil {
			return obj.Pkg().Path()
		}
	}
	return ""
}

// target returns the object that a call names; nil if it calls something else.
func target(s *source, call *ast.CallExpr) types.Object {
	fun := ast.Unparen(call.Fun)
	switch x := fun.(type) {
	case *ast.IndexExpr:
		if tv := s.info.Types[x.Index]; tv.IsType() {
			fun = x.X
		}
	case *ast.IndexListExpr:
		fun = x.X
	}
	switch x := ast.Unparen(fun).(type) {
	case *ast.Ident:
		return s.info.Uses[x]
	case *ast.SelectorExpr:
		return s.info.Uses[x.Sel]
	}
	return nil
}

func pointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

// variable returns what stands for a variable.
func (l *lowerer) variable(obj types.Object) *ir.Var {
	v := l.vars[obj]
	if v == nil {
		v = &ir.Var{Name: obj.Name()}
		l.vars[obj], l.objs[v] = v, obj
		if w, ok := obj.(*types.Var); ok && w.IsField() {
			v.Global, v.Shared = true, true
		} else if obj.Pkg() != nil && obj.Parent() == obj.Pkg().Scope() {
			v.Global = true
		}
	}
	return v
}

// settle says of all variables whether they are followed. It is called when all
// uses and all owners are known.
func (l *lowerer) settle() {
	for lit, obj := range l.named {
		if u := l.use[obj]; u != nil && u.writes == 1 && u.uses == u.calls {
			l.local[lit] = true
		}
	}
	for obj, u := range l.use {
		v := l.vars[obj]
		if v == nil {
			continue
		}
		if w, ok := obj.(*types.Var); u.address && !(ok && l.isValue(w.Type()) && l.refers(w)) {
			v.Shared = true
		}
		if len(u.captured) == 0 {
			continue
		}
		// It can be followed if its value does not change and the literals are
		// called only while it is there.
		quiet := u.writes == 1 && !u.looped && !u.address
		for _, lit := range u.captured {
			quiet = quiet && l.local[lit]
		}
		if owner := l.owners[v]; !quiet || owner == nil || recursive(owner) {
			v.Shared = true
		} else {
			v.Global = true
		}
	}
}

// recursive says whether p is reached from itself.
func recursive(p *ir.Proc) bool {
	seen := make(map[*ir.Proc]bool)
	var visit func(q *ir.Proc) bool
	visit = func(q *ir.Proc) (found bool) {
		ir.Each(q.Body, func(s ir.Stmt) {
			for _, r := range callees(s) {
				if r == p {
					found = true
				} else if !seen[r] && !found {
					seen[r] = true
					found = visit(r)
				}
			}
		})
		return found
	}
	return visit(p)
}

func callees(s ir.Stmt) []*ir.Proc {
	switch s := s.(type) {
	case *ir.Call:
		return s.Procs
	case *ir.Launch:
		if s.Proc != nil {
			return []*ir.Proc{s.Proc}
		}
	}
	return nil
}
