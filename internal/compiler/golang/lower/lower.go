// Package lower turns a Go program into the IR of package ir, statement by
// statement. Package hotloops counts in the result, and package commcheck
// follows messages in it.
//
// # Counting
//
// Package hotloops says how statements are counted. For Go this means:
//
//   - Only variables are read; not constants, functions, packages, types,
//     fields and labels. Indices, keys and left sides do not count. x++ and
//     x += y read x.
//   - A statement that calls functions with source counts these calls, and
//     nothing else; a return counts one more. Calls in a condition count, its
//     reads do not. Calls in a loop's header do not count.
//   - A function literal is a procedure of its own. A function that is passed
//     to a library counts as called there.
//   - Deferred calls count at every return, except those that return an error.
//   - A generic function is one procedure.
//   - A library's function counts one statement. The functions of mpi, device,
//     sync and errgroup that communicate, compute, start or wait have IR of
//     their own.
//
// # Values
//
// Values are tracked where package commcheck needs them: integers, bools,
// communicators, small arrays and fields of named structs, object by object,
// as long as it is known where a pointer leads (structs.go). For other fields,
// one variable stands for a field of all structs; for other elements, one
// variable stands for all elements of a type.
//
// A comparison of an error with nil is assumed to find nil if the branch for
// the error leaves the function: runs that end with an error are not analysed.
package lower

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// lowerer turns a program into IR.
type lowerer struct {
	ld      *load.Program
	dynamic *callgraph.Dynamic
	dir     string
	root    string // dir, with symbolic links resolved
	shortMu sync.Mutex
	shorts  map[string]string // see short

	procs map[*types.Func]*ir.Proc
	lits  map[*ast.FuncLit]*ir.Proc
	names map[*ir.Proc]int // number of literals in a procedure
	work  []func()         // bodies to lower
	inits []initialiser

	vars       map[types.Object]*ir.Var
	memory     map[string]*ir.Var // stand-ins for elements and the like, by type
	groups     map[string]*ir.Var // wait groups in fields, by their path
	funcValues map[string][]*ir.Proc
	use        map[types.Object]*usage
	local      map[*ast.FuncLit]bool         // literals that are called only where they stand
	named      map[*ast.FuncLit]types.Object // the variable that a literal is assigned to
	owners     map[*ir.Var]*ir.Proc          // captured variables that are tracked
	objs       map[*ir.Var]types.Object      // what variables stand for
	structs
	kernels map[types.Object][]*ir.Proc // functions of kernels, by the variable or field

	takeFound map[string]bool       // functions of Options.Take that were found
	derefs    map[string]bool       // types whose pointers are dereferenced
	merged    map[string]bool       // types with pointers to elements
	gotos     map[types.Object]bool // labels
	library   *ir.Proc              // stands for functions without source
	worldVars map[types.Object]bool // variables that hold the world communicator only
	splits    bool                  // there are communicators with fewer ranks than the world
	assumed   int
	extents   []Extent
}

type initialiser struct {
	s    *load.Package
	init *types.Initializer
	decl *ast.FuncDecl
}

func newLowerer(ld *load.Program, g *callgraph.Dynamic, world map[types.Object]bool) *lowerer {
	l := &lowerer{ld: ld, dynamic: g, shorts: make(map[string]string), worldVars: world, procs: make(map[*types.Func]*ir.Proc), lits: make(map[*ast.FuncLit]*ir.Proc),
		names: make(map[*ir.Proc]int), vars: make(map[types.Object]*ir.Var), memory: make(map[string]*ir.Var), groups: make(map[string]*ir.Var),
		funcValues: make(map[string][]*ir.Proc), use: make(map[types.Object]*usage), local: make(map[*ast.FuncLit]bool), named: make(map[*ast.FuncLit]types.Object), owners: make(map[*ir.Var]*ir.Proc), objs: make(map[*ir.Var]types.Object), gotos: make(map[types.Object]bool), merged: make(map[string]bool), derefs: make(map[string]bool), takeFound: make(map[string]bool),
		library: &ir.Proc{Name: "a library's function", Known: true, Body: []ir.Stmt{&ir.Assign{}}}}
	l.dir, _ = filepath.Abs(ld.Dir)
	l.root, _ = filepath.EvalSymlinks(l.dir)
	for _, s := range ld.Sources {
		for _, f := range s.Files {
			l.declare(s, f)
		}
	}
	for _, s := range ld.Sources {
		for _, f := range s.Files {
			l.scan(s, f)
		}
		for _, i := range s.Info.InitOrder {
			l.inits = append(l.inits, initialiser{s: s, init: i})
		}
		for _, f := range s.Files {
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

// pos returns a position, relative to the directory that the program was loaded
// from.
func (l *lowerer) pos(p token.Pos) ir.Pos {
	at := l.ld.Fset.Position(p)
	return ir.Pos{File: l.short(at.Filename), Line: at.Line, Col: at.Column}
}

// short returns a file's name for messages.
func (l *lowerer) short(name string) string {
	l.shortMu.Lock()
	defer l.shortMu.Unlock()
	s, ok := l.shorts[name]
	if !ok {
		s = l.shorten(name)
		l.shorts[name] = s
	}
	return s
}

func (l *lowerer) shorten(name string) string {
	for _, dir := range []string{l.dir, l.root} {
		if rel, err := filepath.Rel(dir, name); err == nil && dir != "" && filepath.IsLocal(rel) {
			name = rel
			break
		}
	}
	return filepath.ToSlash(name)
}

func (l *lowerer) name(s *load.Package, name string) string {
	if s == l.ld.Main {
		return name
	}
	return s.Name + "." + name
}

// declare makes the procedures of a file.
func (l *lowerer) declare(s *load.Package, f *ast.File) {
	for _, d := range f.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		obj, _ := s.Info.Defs[d.Name].(*types.Func)
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
func (l *lowerer) literals(s *load.Package, in *ir.Proc, n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.FuncLit)
		if !ok {
			return true
		}
		sig, _ := s.Info.TypeOf(lit).Underlying().(*types.Signature)
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

// program lowers everything that main reaches.
func (l *lowerer) program() *ir.Program {
	start := &ir.Proc{Name: "start", Known: true}
	f := &fn{lowerer: l, s: l.ld.Main, proc: start, sig: types.NewSignatureType(nil, nil, nil, nil, nil, false), out: &start.Body}
	for _, i := range l.inits {
		f.s = i.s
		if i.decl != nil {
			if p := l.procs[i.s.Info.Defs[i.decl.Name].(*types.Func)]; p != nil {
				f.emit(&ir.Call{Pos: p.Pos, Name: p.Name, Procs: []*ir.Proc{p}})
			}
			continue
		}
		var dst []types.Object
		for _, v := range i.init.Lhs {
			dst = append(dst, v)
		}
		f.initialise(i.init.Rhs, dst)
	}
	for i := 0; i < len(l.work); i++ {
		l.work[i]()
	}
	main, _ := l.ld.Main.Types.Scope().Lookup("main").(*types.Func)
	p := &ir.Program{Main: l.procs[main]}
	if p.Main != nil && len(start.Body) > 0 {
		f.emit(&ir.Call{Pos: p.Main.Pos, Name: "main", Procs: []*ir.Proc{p.Main}})
		start.Pos = p.Main.Pos
		p.Main = start
	}
	if p.Main == nil {
		return p
	}
	seen := map[*ir.Proc]bool{p.Main: true}
	p.Procs = []*ir.Proc{p.Main}
	for i := 0; i < len(p.Procs); i++ {
		ir.Each(p.Procs[i].Body, func(s ir.Stmt) {
			for _, q := range Callees(s) {
				if !seen[q] {
					seen[q] = true
					p.Procs = append(p.Procs, q)
				}
			}
		})
	}
	l.classifyVars()
	return p
}

// fn lowers the body of a function.
type fn struct {
	*lowerer
	s         *load.Package
	proc      *ir.Proc
	sig       *types.Signature
	out       *[]ir.Stmt
	callCount int // calls and communications emitted so far
	loops     int

	defers   []func()
	failing  bool // in a branch that returns an error
	requests map[types.Object]*requests
	closed   map[types.Object]bool    // channels that goroutines close at their end
	rest     []ast.Stmt               // what follows the current statement in its list
	renamed  map[types.Object]*ir.Var // variables with a new stand-in in the rest, and the old one
	fall     int                      // number of the last fallthrough
	next     string                   // label that a fallthrough jumps to
}

// initialise lowers the initialisation of package variables. Only the functions
// that it calls count.
func (f *fn) initialise(rhs ast.Expr, dst []types.Object) {
	if call, ok := ast.Unparen(rhs).(*ast.CallExpr); ok && len(dst) > 1 {
		var vars []*ir.Var
		for _, v := range dst {
			vars = append(vars, f.variable(v))
		}
		f.call(call, vars)
		return
	}
	x := f.value(rhs)
	f.emitUncounted(&ir.Assign{Pos: f.pos(rhs.Pos()), Dst: []*ir.Var{f.variable(dst[0])}, Src: []ir.Expr{x}})
}

// body lowers a function.
func (l *lowerer) body(s *load.Package, p *ir.Proc, sig *types.Signature, b *ast.BlockStmt, lit *ast.FuncLit) {
	f := &fn{lowerer: l, s: s, proc: p, sig: sig, out: &p.Body, requests: make(map[types.Object]*requests)}
	f.collectRequests(b)
	for _, v := range p.Params {
		l.owners[v] = p
	}
	for _, v := range p.Results {
		l.owners[v] = p
	}
	for v := range sig.Results().Variables() {
		if v.Name() != "" && f.isValue(v.Type()) {
			f.emitUncounted(&ir.Assign{Pos: p.Pos, Dst: []*ir.Var{f.variable(v)}, Src: []ir.Expr{f.zero(p.Pos, v.Type())}})
		}
	}
	f.stmts(b.List)
	if !terminates(f.s, b.List) {
		f.runDefers()
	}
}

func (f *fn) emit(s ir.Stmt) { *f.out = append(*f.out, s) }

// emitCall emits a call, a communication or a launch.
func (f *fn) emitCall(s ir.Stmt) {
	f.callCount++
	f.emit(s)
}

// emitUncounted emits a statement that does not count. It puts it into an if:
// half of one statement, rounded down, is none.
func (f *fn) emitUncounted(s ir.Stmt) {
	if a, ok := s.(*ir.Assign); ok {
		a.Reads = nil
	}
	f.emit(&ir.If{Pos: s.At(), Cond: ir.Const{Value: 1}, Then: []ir.Stmt{s}})
}

// nested lowers something into a list of its own.
func (f *fn) nested(do func()) []ir.Stmt {
	var list []ir.Stmt
	old := f.out
	f.out = &list
	do()
	f.out = old
	return list
}

// temp returns a new variable of the compiler's own.
func (f *fn) temp(name string) *ir.Var {
	v := &ir.Var{Name: name}
	f.owners[v] = f.proc
	return v
}

// rankDependent returns a value that may differ between ranks.
func rankDependent() ir.Expr {
	return ir.Binary{Op: ir.Xor, X: ir.Unknown{}, Y: ir.Rank{}}
}

// variable returns the IR variable of a variable or field.
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

// Callees returns the procedures that a statement calls or starts.
func Callees(s ir.Stmt) []*ir.Proc {
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

// recursive reports whether p reaches itself.
func recursive(p *ir.Proc) bool {
	seen := make(map[*ir.Proc]bool)
	var visit func(q *ir.Proc) bool
	visit = func(q *ir.Proc) (found bool) {
		ir.Each(q.Body, func(s ir.Stmt) {
			for _, r := range Callees(s) {
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
