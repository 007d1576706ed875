package lower

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

func (f *fn) stmts(list []ast.Stmt) {
	rest, renamed := f.rest, f.renamed
	f.renamed = nil
	for i, s := range list {
		f.rest = list[i+1:]
		f.stmt(s, "")
	}
	maps.Copy(f.vars, f.renamed)
	f.rest, f.renamed = rest, renamed
}

func (f *fn) block(b *ast.BlockStmt) []ir.Stmt {
	return f.nested(func() { f.stmts(b.List) })
}

func (f *fn) stmt(s ast.Stmt, label string) {
	at := f.pos(s.Pos())
	switch s := s.(type) {
	case *ast.AssignStmt:
		f.assign(s)
	case *ast.BlockStmt:
		f.stmts(s.List)
	case *ast.BranchStmt:
		f.branch(s)
	case *ast.DeclStmt:
		f.declStmt(s)
	case *ast.DeferStmt:
		f.deferStmt(s)
	case *ast.ExprStmt:
		f.exprStmt(s)
	case *ast.ForStmt:
		f.forStmt(s, label)
	case *ast.RangeStmt:
		f.rangeStmt(s, label)
	case *ast.GoStmt:
		f.goStmt(s)
	case *ast.IfStmt:
		f.ifStmt(s)
	case *ast.IncDecStmt:
		op := ir.Add
		if s.Tok == token.DEC {
			op = ir.Sub
		}
		f.update(at, s.X, op, ir.Const{Value: 1}, nil, f.callCount)
	case *ast.LabeledStmt:
		switch s.Stmt.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			if f.gotos[f.s.Info.Defs[s.Label]] {
				f.emit(&ir.Label{Pos: at, Name: s.Label.Name})
			}
			f.stmt(s.Stmt, s.Label.Name)
		default:
			f.emit(&ir.Label{Pos: at, Name: s.Label.Name})
			f.stmt(s.Stmt, s.Label.Name)
		}
	case *ast.ReturnStmt:
		f.returnStmt(s)
	case *ast.SelectStmt:
		f.selectStmt(s)
	case *ast.SendStmt:
		n := f.callCount
		x, y := f.value(s.Chan), f.value(s.Value)
		if f.callCount == n {
			f.emit(&ir.Assign{Pos: at, Dst: []*ir.Var{f.element(s.Chan)}, Src: []ir.Expr{join(x, y)}, Reads: f.reads(s.Chan, s.Value)})
		} else {
			f.emitUncounted(&ir.Assign{Pos: at, Dst: []*ir.Var{f.element(s.Chan)}, Src: []ir.Expr{join(x, y)}})
		}
	case *ast.SwitchStmt:
		f.switchStmt(s)
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
		t := f.s.Info.TypeOf(spec.Type)
		for _, v := range decl.Vars {
			x := ir.Expr(ir.Const{})
			if isComm(t) {
				x = ir.Const{Value: -1}
			} else if f.isValue(t) {
				x = f.zero(decl.Pos, t)
			}
			f.emitUncounted(&ir.Assign{Pos: decl.Pos, Dst: []*ir.Var{v}, Src: []ir.Expr{x}})
		}
	}
}

func (f *fn) assign(s *ast.AssignStmt) {
	at := f.pos(s.Pos())
	if s.Tok == token.ASSIGN || s.Tok == token.DEFINE {
		f.assignAll(at, s.Lhs, s.Rhs)
		return
	}
	n := f.callCount
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
	src := f.binary(op, x, y, f.s.Info.TypeOf(lhs))
	a := &ir.Assign{Pos: at, Dst: []*ir.Var{f.dst(lhs)}, Src: []ir.Expr{src}}
	if f.callCount > heavy {
		f.emitUncounted(a)
	} else {
		a.Reads = append(f.reads(lhs), f.reads(rhs...)...)
		f.emit(a)
	}
	if _, ok := ast.Unparen(lhs).(*ast.Ident); !ok {
		f.store(lhs, src)
	}
}

// assignAll lowers lhs = rhs.
func (f *fn) assignAll(at ir.Pos, lhs, rhs []ast.Expr) {
	n := f.callCount
	for _, e := range lhs {
		f.evalLeft(e)
	}
	var dst []*ir.Var
	for _, e := range lhs {
		dst = append(dst, f.dst(e))
	}
	var far []int // indices of those in lhs that are no variables
	for i, e := range lhs {
		if _, ok := ast.Unparen(e).(*ast.Ident); !ok {
			far = append(far, i)
		}
	}
	if len(rhs) == 1 {
		if call, ok := ast.Unparen(rhs[0]).(*ast.CallExpr); ok {
			got := slices.Clone(dst)
			for _, i := range far {
				if dst[i] != nil && !startsRequest(f.s, call) {
					got[i] = f.temp("result")
				}
			}
			if f.call(call, got) {
				for _, i := range far {
					if got[i] == dst[i] {
						continue
					}
					x := ir.Expr(ir.Ref{Var: got[i]})
					f.emitUncounted(&ir.Assign{Pos: at, Dst: []*ir.Var{dst[i]}, Src: []ir.Expr{x}})
					f.store(lhs[i], x)
				}
				return
			}
		}
	}
	a := &ir.Assign{Pos: at, Dst: dst}
	if len(rhs) == len(lhs) {
		for i, e := range rhs {
			if f.startRequest(e, lhs[i]) {
				a.Src = append(a.Src, ir.Unknown{})
				a.Dst[i] = nil
				continue
			}
			a.Src = append(a.Src, f.copied(e, f.valueAs(e, f.s.Info.TypeOf(lhs[i]))))
		}
	} else { // x, ok := m[k], and the like
		x := f.value(rhs[0])
		for range lhs {
			a.Src = append(a.Src, ir.Unknown{Vars: vars(x)})
		}
	}
	src := slices.Clone(a.Src)
	if len(lhs) > 1 && len(far) > 0 {
		// All values are computed before the first is written.
		for i, x := range src {
			t := f.temp("value")
			f.emitUncounted(&ir.Assign{Pos: at, Dst: []*ir.Var{t}, Src: []ir.Expr{x}})
			src[i] = ir.Ref{Var: t}
		}
	}
	for _, i := range far {
		f.store(lhs[i], src[i])
	}
	if f.callCount > n {
		f.emitUncounted(a)
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
		n := f.callCount
		f.callValue(call)
		if f.callCount == n {
			f.emit(&ir.Call{Pos: at, Name: f.text(call.Fun), Reads: f.reads(call)})
		}
		return
	}
	n := f.callCount
	x := f.value(s.X) // a receive
	if f.callCount == n {
		f.emit(&ir.Assign{Pos: at, Src: []ir.Expr{x}, Dst: []*ir.Var{nil}, Reads: f.reads(s.X)})
	}
}

func (f *fn) ifStmt(s *ast.IfStmt) {
	if s.Init != nil {
		f.stmt(s.Init, "")
	}
	i := &ir.If{Pos: f.pos(s.Pos())}
	failing := false
	ends := terminates(f.s, s.Body.List)
	if b, ok := ast.Unparen(s.Cond).(*ast.BinaryExpr); ok && f.errorTest(b) && (ends || b.Op == token.EQL) {
		// There is an error only if it is certainly one.
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
		i.Else = f.nested(func() { f.stmt(s.Else, "") })
	}
	f.emit(i)
}
