package golang

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// fn lowers the body of a function.
type fn struct {
	*lowerer
	s     *source
	proc  *ir.Proc
	sig   *types.Signature
	out   *[]ir.Stmt
	heavy int // statements emitted that stand for calls and communications
	loops int

	defers   []func()
	failing  bool // in a branch that hands on an error
	requests map[types.Object]*requests
	closed   map[types.Object]bool    // channels that goroutines close at their end
	rest     []ast.Stmt               // what follows the present statement in its list
	renamed  map[types.Object]*ir.Var // variables that have another name in the rest, and their own
	fall     int                      // number of the last fallthrough
	next     string                   // label that a fallthrough goes to
}

// program lowers everything that main reaches.
func (l *lowerer) program() *ir.Program {
	start := &ir.Proc{Name: "start", Known: true}
	f := &fn{lowerer: l, s: l.ld.main, proc: start, sig: types.NewSignatureType(nil, nil, nil, nil, nil, false), out: &start.Body}
	for _, i := range l.inits {
		f.s = i.s
		if i.decl != nil {
			if p := l.procs[i.s.info.Defs[i.decl.Name].(*types.Func)]; p != nil {
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
	main, _ := l.ld.main.types.Scope().Lookup("main").(*types.Func)
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
			for _, q := range callees(s) {
				if !seen[q] {
					seen[q] = true
					p.Procs = append(p.Procs, q)
				}
			}
		})
	}
	l.settle()
	return p
}

// initialise lowers the initialisation of package variables. It counts only the
// functions that it calls.
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
	f.quiet(&ir.Assign{Pos: f.pos(rhs.Pos()), Dst: []*ir.Var{f.variable(dst[0])}, Src: []ir.Expr{x}})
}

// body lowers a function.
func (l *lowerer) body(s *source, p *ir.Proc, sig *types.Signature, b *ast.BlockStmt, lit *ast.FuncLit) {
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
			f.quiet(&ir.Assign{Pos: p.Pos, Dst: []*ir.Var{f.variable(v)}, Src: []ir.Expr{f.zero(p.Pos, v.Type())}})
		}
	}
	f.list(b.List)
	if !leaves(f.s, b.List) {
		f.runDefers()
	}
}

func (f *fn) emit(s ir.Stmt) { *f.out = append(*f.out, s) }

// workOn emits a statement that counts for itself.
func (f *fn) workOn(s ir.Stmt) {
	f.heavy++
	f.emit(s)
}

// quiet emits something that does not count: half of one statement is none.
func (f *fn) quiet(s ir.Stmt) {
	if a, ok := s.(*ir.Assign); ok {
		a.Reads = nil
	}
	f.emit(&ir.If{Pos: s.At(), Cond: ir.Const{Value: 1}, Then: []ir.Stmt{s}})
}

// inside lowers something into a list of its own.
func (f *fn) inside(do func()) []ir.Stmt {
	var list []ir.Stmt
	old := f.out
	f.out = &list
	do()
	f.out = old
	return list
}

func (f *fn) list(list []ast.Stmt) {
	rest, renamed := f.rest, f.renamed
	f.renamed = nil
	for i, s := range list {
		f.rest = list[i+1:]
		f.stmt(s, "")
	}
	for obj, v := range f.renamed {
		f.vars[obj] = v
	}
	f.rest, f.renamed = rest, renamed
}

func (f *fn) block(b *ast.BlockStmt) []ir.Stmt {
	return f.inside(func() { f.list(b.List) })
}

// temp makes a variable of the compiler's own.
func (f *fn) temp(name string) *ir.Var {
	v := &ir.Var{Name: name}
	f.owners[v] = f.proc
	return v
}

// differs is a value that may be another on every rank.
func differs() ir.Expr {
	return ir.Binary{Op: ir.Xor, X: ir.Unknown{}, Y: ir.Rank{}}
}

func (f *fn) stmt(s ast.Stmt, label string) {
	at := f.pos(s.Pos())
	switch s := s.(type) {
	case *ast.AssignStmt:
		f.assign(s)
	case *ast.BlockStmt:
		f.list(s.List)
	case *ast.BranchStmt:
		f.branch(s)
	case *ast.DeclStmt:
		f.declStmt(s)
	case *ast.DeferStmt:
		f.deferred(s)
	case *ast.ExprStmt:
		f.exprStmt(s)
	case *ast.ForStmt:
		f.forLoop(s, label)
	case *ast.RangeStmt:
		f.rangeLoop(s, label)
	case *ast.GoStmt:
		f.launch(s)
	case *ast.IfStmt:
		f.ifStmt(s)
	case *ast.IncDecStmt:
		op := ir.Add
		if s.Tok == token.DEC {
			op = ir.Sub
		}
		f.update(at, s.X, op, ir.Const{Value: 1}, nil, f.heavy)
	case *ast.LabeledStmt:
		switch s.Stmt.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			if f.gotos[f.s.info.Defs[s.Label]] {
				f.emit(&ir.Label{Pos: at, Name: s.Label.Name})
			}
			f.stmt(s.Stmt, s.Label.Name)
		default:
			f.emit(&ir.Label{Pos: at, Name: s.Label.Name})
			f.stmt(s.Stmt, s.Label.Name)
		}
	case *ast.ReturnStmt:
		f.returns(s)
	case *ast.SelectStmt:
		f.selects(s)
	case *ast.SendStmt:
		n := f.heavy
		x, y := f.value(s.Chan), f.value(s.Value)
		if f.heavy == n {
			f.emit(&ir.Assign{Pos: at, Dst: []*ir.Var{f.element(s.Chan)}, Src: []ir.Expr{join(x, y)}, Reads: f.reads(s.Chan, s.Value)})
		} else {
			f.quiet(&ir.Assign{Pos: at, Dst: []*ir.Var{f.element(s.Chan)}, Src: []ir.Expr{join(x, y)}})
		}
	case *ast.SwitchStmt:
		f.switches(s)
	case *ast.TypeSwitchStmt:
		f.typeSwitch(s)
	}
}

func (f *fn) branch(s *ast.BranchStmt) {
	j := &ir.Jump{Pos: f.pos(s.Pos())}
	if s.Label != nil {
		j.Label = s.Label.Name
	}
	switch s.Tok {
	case token.BREAK:
		j.Kind = ir.Break
	case token.CONTINUE:
		j.Kind = ir.Continue
	case token.GOTO:
		j.Kind = ir.Goto
	case token.FALLTHROUGH:
		j.Kind, j.Label = ir.Goto, f.next
	}
	f.emit(j)
}

func (f *fn) declStmt(s *ast.DeclStmt) {
	d, ok := s.Decl.(*ast.GenDecl)
	if !ok || d.Tok != token.VAR {
		return
	}
	for _, spec := range d.Specs {
		spec := spec.(*ast.ValueSpec)
		var lhs []ast.Expr
		decl := &ir.Decl{Pos: f.pos(spec.Pos())}
		for _, id := range spec.Names {
			lhs = append(lhs, id)
			if v := f.dst(id); v != nil {
				decl.Vars = append(decl.Vars, v)
			}
		}
		f.emit(decl)
		if len(spec.Values) > 0 {
			f.assignAll(decl.Pos, lhs, spec.Values)
			continue
		}
		t := f.s.info.TypeOf(spec.Type)
		for _, v := range decl.Vars {
			x := ir.Expr(ir.Const{})
			if isComm(t) {
				x = ir.Const{Value: -1}
			} else if f.isValue(t) {
				x = f.zero(decl.Pos, t)
			}
			f.quiet(&ir.Assign{Pos: decl.Pos, Dst: []*ir.Var{v}, Src: []ir.Expr{x}})
		}
	}
}

func (f *fn) assign(s *ast.AssignStmt) {
	at := f.pos(s.Pos())
	if s.Tok == token.ASSIGN || s.Tok == token.DEFINE {
		f.assignAll(at, s.Lhs, s.Rhs)
		return
	}
	n := f.heavy
	y := f.value(s.Rhs[0])
	op, ok := operators[assignOps[s.Tok]]
	if !ok {
		op, y = ir.Xor, ir.Unknown{Vars: vars(y)}
	}
	f.update(at, s.Lhs[0], op, y, s.Rhs, n)
}

// update lowers x op= y.
func (f *fn) update(at ir.Pos, lhs ast.Expr, op ir.Op, y ir.Expr, rhs []ast.Expr, heavy int) {
	x := f.value(lhs)
	src := f.binary(op, x, y, f.s.info.TypeOf(lhs))
	a := &ir.Assign{Pos: at, Dst: []*ir.Var{f.dst(lhs)}, Src: []ir.Expr{src}}
	if f.heavy > heavy {
		f.quiet(a)
	} else {
		a.Reads = append(f.reads(lhs), f.reads(rhs...)...)
		f.emit(a)
	}
	if _, ok := ast.Unparen(lhs).(*ast.Ident); !ok {
		f.put(lhs, src)
	}
}

// assignAll lowers lhs = rhs.
func (f *fn) assignAll(at ir.Pos, lhs, rhs []ast.Expr) {
	n := f.heavy
	for _, e := range lhs {
		f.left(e)
	}
	var dst []*ir.Var
	for _, e := range lhs {
		dst = append(dst, f.dst(e))
	}
	var far []int // of lhs, those that are no variables
	for i, e := range lhs {
		if _, ok := ast.Unparen(e).(*ast.Ident); !ok {
			far = append(far, i)
		}
	}
	if len(rhs) == 1 {
		if call, ok := ast.Unparen(rhs[0]).(*ast.CallExpr); ok {
			got := slices.Clone(dst)
			for _, i := range far {
				if dst[i] != nil && !started(f.s, call) {
					got[i] = f.temp("result")
				}
			}
			if f.call(call, got) {
				for _, i := range far {
					if got[i] == dst[i] {
						continue
					}
					x := ir.Expr(ir.Ref{Var: got[i]})
					f.quiet(&ir.Assign{Pos: at, Dst: []*ir.Var{dst[i]}, Src: []ir.Expr{x}})
					f.put(lhs[i], x)
				}
				return
			}
		}
	}
	a := &ir.Assign{Pos: at, Dst: dst}
	if len(rhs) == len(lhs) {
		for i, e := range rhs {
			if f.request(e, lhs[i]) {
				a.Src = append(a.Src, ir.Unknown{})
				a.Dst[i] = nil
				continue
			}
			a.Src = append(a.Src, f.copied(e, f.valueAs(e, f.s.info.TypeOf(lhs[i]))))
		}
	} else { // x, ok := m[k], and the like
		x := f.value(rhs[0])
		for range lhs {
			a.Src = append(a.Src, ir.Unknown{Vars: vars(x)})
		}
	}
	src := slices.Clone(a.Src)
	if len(lhs) > 1 && len(far) > 0 {
		// All values are there before the first is written.
		for i, x := range src {
			t := f.temp("value")
			f.quiet(&ir.Assign{Pos: at, Dst: []*ir.Var{t}, Src: []ir.Expr{x}})
			src[i] = ir.Ref{Var: t}
		}
	}
	for _, i := range far {
		f.put(lhs[i], src[i])
	}
	if f.heavy > n {
		f.quiet(a)
		return
	}
	a.Reads = f.reads(rhs...)
	f.emit(a)
}

func (f *fn) exprStmt(s *ast.ExprStmt) {
	at := f.pos(s.Pos())
	if call, ok := ast.Unparen(s.X).(*ast.CallExpr); ok {
		if f.call(call, nil) {
			return
		}
		n := f.heavy
		f.callValue(call)
		if f.heavy == n {
			f.emit(&ir.Call{Pos: at, Name: f.text(call.Fun), Reads: f.reads(call)})
		}
		return
	}
	n := f.heavy
	x := f.value(s.X) // a receive
	if f.heavy == n {
		f.emit(&ir.Assign{Pos: at, Src: []ir.Expr{x}, Dst: []*ir.Var{nil}, Reads: f.reads(s.X)})
	}
}

func (f *fn) ifStmt(s *ast.IfStmt) {
	if s.Init != nil {
		f.stmt(s.Init, "")
	}
	i := &ir.If{Pos: f.pos(s.Pos())}
	failing := false
	ends := leaves(f.s, s.Body.List)
	if b, ok := ast.Unparen(s.Cond).(*ast.BinaryExpr); ok && f.errorTest(b) && (ends || b.Op == token.EQL) {
		// An error is there if it is known to be, else not.
		i.Cond = ir.Binary{Op: operators[b.Op], X: f.errorValue(b.X), Y: ir.Const{}}
		i.Assume = 1
		if b.Op == token.NEQ {
			i.Assume, failing = -1, true
		}
		f.assumed++
	} else {
		i.Cond, failing = f.condition(s.Cond, ends)
	}
	if !failing && f.fails(s.Body.List) {
		i.Assume, failing = -1, true
		f.assumed++
	}
	old := f.failing
	f.failing = old || failing
	i.Then = f.block(s.Body)
	f.failing = old
	if s.Else != nil {
		i.Else = f.inside(func() { f.stmt(s.Else, "") })
	}
	f.emit(i)
}

// leaves says whether a list ends by leaving the function or the program.
func leaves(s *source, list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch last := list[len(list)-1].(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.ExprStmt:
		call, ok := last.X.(*ast.CallExpr)
		return ok && exits(s, call)
	case *ast.BlockStmt:
		return leaves(s, last.List)
	case *ast.IfStmt:
		return last.Else != nil && leaves(s, last.Body.List) && leaves(s, []ast.Stmt{last.Else})
	}
	return false
}

// fails says whether a list ends by returning an error that is not nil, or ends
// the program with a failure.
func (f *fn) fails(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch last := list[len(list)-1].(type) {
	case *ast.ReturnStmt:
		if len(last.Results) == 0 || len(last.Results) != f.sig.Results().Len() {
			return false
		}
		e := last.Results[len(last.Results)-1]
		return isError(f.sig.Results().At(f.sig.Results().Len()-1).Type()) && f.isFailure(e)
	case *ast.ExprStmt:
		call, ok := last.X.(*ast.CallExpr)
		if !ok || !exits(f.s, call) {
			return false
		}
		if obj, ok := target(f.s, call).(*types.Func); ok && obj.Name() == "Exit" {
			v := f.s.info.Types[call.Args[0]].Value
			return v != nil && v.String() != "0"
		}
		return true
	}
	return false
}

// isFailure says whether an expression is an error that is not nil: a new one, or a
// variable of a package.
func (f *fn) isFailure(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		obj, ok := target(f.s, e).(*types.Func)
		return ok && obj.Pkg() != nil && (obj.FullName() == "fmt.Errorf" || obj.FullName() == "errors.New")
	case *ast.Ident:
		v, ok := f.s.info.Uses[e].(*types.Var)
		return ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
	case *ast.SelectorExpr:
		v, ok := f.s.info.Uses[e.Sel].(*types.Var)
		return ok && !v.IsField()
	}
	return false
}

// exits says whether a call ends the program.
func exits(s *source, call *ast.CallExpr) bool {
	switch obj := target(s, call).(type) {
	case *types.Builtin:
		return obj.Name() == "panic"
	case *types.Func:
		if obj.Pkg() == nil {
			return false
		}
		switch obj.Pkg().Path() {
		case "os":
			return obj.Name() == "Exit"
		case "log":
			return slices.Contains([]string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"}, obj.Name())
		case "runtime":
			return obj.Name() == "Goexit"
		}
	}
	return false
}

func (f *fn) returns(s *ast.ReturnStmt) {
	n := f.heavy
	j := &ir.Jump{Pos: f.pos(s.Pos()), Kind: ir.Return}
	if len(s.Results) == 1 && f.sig.Results().Len() > 1 {
		if call, ok := ast.Unparen(s.Results[0]).(*ast.CallExpr); ok {
			var vars []*ir.Var
			for range f.sig.Results().Len() {
				v := f.temp("result")
				vars = append(vars, v)
				j.Results = append(j.Results, ir.Ref{Var: v})
			}
			if !f.call(call, vars) {
				for i := range j.Results {
					j.Results[i] = f.opaque(call)
				}
			}
		}
	} else {
		for i, e := range s.Results {
			if i < f.sig.Results().Len() && isError(f.sig.Results().At(i).Type()) {
				j.Results = append(j.Results, f.errorValue(e))
			} else {
				var as types.Type
				if i < f.sig.Results().Len() {
					as = f.sig.Results().At(i).Type()
				}
				j.Results = append(j.Results, f.copied(e, f.valueAs(e, as)))
			}
		}
	}
	if f.heavy == n {
		j.Reads = f.reads(s.Results...)
	}
	if len(f.defers) > 0 && !f.failing {
		// The results are there before what is deferred runs.
		for i, x := range j.Results {
			if i < len(f.proc.Results) {
				f.quiet(&ir.Assign{Pos: j.Pos, Dst: []*ir.Var{f.proc.Results[i]}, Src: []ir.Expr{x}})
			}
		}
		j.Results = nil
		f.runDefers()
	}
	f.emit(j)
}

func (f *fn) runDefers() {
	for i := len(f.defers) - 1; i >= 0; i-- {
		f.defers[i]()
	}
}

func (f *fn) deferred(s *ast.DeferStmt) {
	// Arguments are evaluated here.
	for _, e := range s.Call.Args {
		f.value(e)
	}
	f.defers = append(f.defers, func() {
		if !f.callAt(s.Call, s.Defer, nil) {
			f.emit(&ir.Call{Pos: f.pos(s.Call.Pos()), Name: f.text(s.Call.Fun), Reads: f.reads(s.Call)})
		}
	})
}
