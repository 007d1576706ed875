package lower

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

func (f *fn) forStmt(s *ast.ForStmt, label string) {
	l := &ir.Loop{Pos: f.pos(s.Pos()), Label: label, Trip: f.trip(s)}
	f.extents = append(f.extents, Extent{l.Pos, f.pos(s.End()).Line})
	l.Init = f.nested(func() {
		if s.Init != nil {
			f.stmt(s.Init, "")
		}
	})
	f.loops++
	var again []ir.Stmt
	if s.Cond != nil {
		if len(f.nested(func() { l.Cond, _ = f.condition(s.Cond, false) })) > 0 {
			// The condition's calls happen before every iteration.
			t := f.temp("continues")
			test := func() {
				x, _ := f.condition(s.Cond, false)
				f.emit(&ir.Assign{Pos: l.Pos, Dst: []*ir.Var{t}, Src: []ir.Expr{x}})
			}
			l.Init = append(l.Init, f.nested(test)...)
			again = f.nested(test)
			l.Cond = ir.Ref{Var: t}
		}
	}
	l.Body = f.block(s.Body)
	l.Post = f.nested(func() {
		if s.Post != nil {
			f.stmt(s.Post, "")
		}
	})
	l.Post = append(l.Post, again...)
	f.loops--
	if n := len(s.Body.List); n > 0 && s.Cond == nil && s.Post == nil && l.Trip < 0 {
		// There is one iteration, unless something is retried.
		switch last := s.Body.List[n-1].(type) {
		case *ast.BranchStmt:
			if last.Tok == token.BREAK && (last.Label == nil || last.Label.Name == label) {
				l.Trip = 1
			}
		case *ast.ReturnStmt:
			l.Trip = 1
		}
		for _, st := range s.Body.List {
			if f.exitsWithoutError(st, label) {
				l.Trip = 1
			}
		}
	}
	f.emit(l)
}

// exitsWithoutError reports whether a statement leaves the loop around it if
// there was no error. The loop then only retries.
func (f *fn) exitsWithoutError(s ast.Stmt, label string) bool {
	i, ok := s.(*ast.IfStmt)
	if !ok || len(i.Body.List) == 0 {
		return false
	}
	switch last := i.Body.List[len(i.Body.List)-1].(type) {
	case *ast.BranchStmt:
		if last.Tok != token.BREAK || last.Label != nil && last.Label.Name != label {
			return false
		}
	case *ast.ReturnStmt:
	default:
		return false
	}
	switch c := ast.Unparen(i.Cond).(type) {
	case *ast.BinaryExpr:
		return c.Op == token.EQL && f.errorTest(c)
	case *ast.UnaryExpr:
		if call, ok := ast.Unparen(c.X).(*ast.CallExpr); ok && c.Op == token.NOT {
			obj, ok := load.Callee(f.s, call).(*types.Func)
			return ok && (obj.FullName() == "errors.Is" || obj.FullName() == "errors.As")
		}
	}
	return false
}

// trip returns the number of iterations of a loop that counts from one constant
// to another and does not write its counter elsewhere, or -1.
func (f *fn) trip(s *ast.ForStmt) int {
	init, ok := s.Init.(*ast.AssignStmt)
	if !ok || len(init.Lhs) != 1 || len(init.Rhs) != 1 {
		return -1
	}
	id, ok := init.Lhs[0].(*ast.Ident)
	if !ok {
		return -1
	}
	counter := f.s.Info.ObjectOf(id)
	is := func(e ast.Expr) bool {
		x, ok := ast.Unparen(e).(*ast.Ident)
		return ok && counter != nil && f.s.Info.Uses[x] == counter
	}
	number := func(e ast.Expr) (int64, bool) {
		v := f.s.Info.Types[e].Value
		if v == nil || v.Kind() != constant.Int {
			return 0, false
		}
		return constant.Int64Val(v)
	}
	cond, ok := s.Cond.(*ast.BinaryExpr)
	if !ok || !is(cond.X) {
		return -1
	}
	from, ok1 := number(init.Rhs[0])
	to, ok2 := number(cond.Y)
	step := int64(0)
	switch post := s.Post.(type) {
	case *ast.IncDecStmt:
		if is(post.X) {
			step = 1
			if post.Tok == token.DEC {
				step = -1
			}
		}
	case *ast.AssignStmt:
		if n, ok := number(post.Rhs[0]); ok && is(post.Lhs[0]) {
			switch post.Tok {
			case token.ADD_ASSIGN:
				step = n
			case token.SUB_ASSIGN:
				step = -n
			}
		}
	}
	const most = 1 << 40
	if u := f.use[counter]; !ok1 || !ok2 || step == 0 || u == nil || u.address || len(u.captured) > 0 || f.writes(s.Body, counter) || max(from, to) > most || min(from, to) < -most {
		return -1
	}
	span := to - from
	if step < 0 {
		span, step = -span, -step
		switch cond.Op {
		case token.GTR:
		case token.GEQ:
			span++
		default:
			return -1
		}
	} else {
		switch cond.Op {
		case token.LSS:
		case token.LEQ:
			span++
		default:
			return -1
		}
	}
	return int(max(0, (span+step-1)/step))
}

// writes reports whether a body assigns to a variable.
func (f *fn) writes(body *ast.BlockStmt, obj types.Object) (found bool) {
	is := func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		return ok && f.s.Info.Uses[id] == obj
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				found = found || is(e)
			}
		case *ast.IncDecStmt:
			found = found || is(n.X)
		case *ast.RangeStmt:
			found = found || n.Key != nil && is(n.Key) || n.Value != nil && is(n.Value)
		}
		return !found
	})
	return found
}

func (f *fn) rangeStmt(s *ast.RangeStmt, label string) {
	at := f.pos(s.Pos())
	l := &ir.Loop{Pos: at, Label: label, Trip: -1}
	f.extents = append(f.extents, Extent{at, f.pos(s.End()).Line})
	t := f.s.Info.TypeOf(s.X)
	n, i := f.temp("trips"), f.temp("iteration")
	var x, value ir.Expr
	var produced []*ir.Proc
	l.Init = f.nested(func() { x = f.value(s.X) })
	under := t.Underlying()
	if p, ok := under.(*types.Pointer); ok {
		under = p.Elem().Underlying()
	}
	limit := ir.Expr(ir.Unknown{Vars: vars(x)})
	channel := false
	switch u := under.(type) {
	case *types.Basic:
		if u.Info()&types.IsInteger != 0 {
			limit = x
			value = nil
		} else {
			value = join(x)
		}
		if v := f.s.Info.Types[s.X].Value; v != nil {
			if v.Kind() == constant.Int {
				if c, ok := constant.Int64Val(v); ok && c < 1<<40 {
					l.Trip = int(max(0, c))
				}
			}
		}
	case *types.Array:
		l.Trip = int(u.Len())
		limit = ir.Const{Value: u.Len()}
		value = f.elementValue(s.X, x)
	case *types.Slice:
		limit, value = join(x), f.elementValue(s.X, x)
	case *types.Map:
		limit, value = join(x), f.elementValue(s.X, x)
	case *types.Chan:
		channel = true
		limit, value = join(x, rankDependent()), join(x, rankDependent(), f.at(f.element(s.X)))
	case *types.Signature:
		limit, value = join(x, rankDependent()), join(x, rankDependent())
		produced = f.functions(s.X)
	default: // a type parameter
		limit, value = join(x), join(x)
	}
	key := ir.Expr(ir.Ref{Var: i})
	if _, ok := under.(*types.Map); ok || channel || produced != nil {
		key = value
	}
	l.Init = append(l.Init, &ir.Assign{Pos: at, Dst: []*ir.Var{n, i}, Src: []ir.Expr{limit, ir.Const{}}})
	l.Cond = ir.Binary{Op: ir.Lt, X: ir.Ref{Var: i}, Y: ir.Ref{Var: n}}
	if channel || produced != nil {
		l.Cond = limit
	}
	f.loops++
	l.Body = f.nested(func() {
		if len(produced) > 0 {
			f.emit(&ir.Call{Pos: at, Name: f.text(s.X), Procs: append(produced[:len(produced):len(produced)], f.library)})
		}
		a := &ir.Assign{Pos: at}
		if s.Key != nil {
			f.storeUnknown(s.Key)
			if v := f.dst(s.Key); v != nil {
				a.Dst, a.Src = append(a.Dst, v), append(a.Src, key)
			}
		}
		if s.Value != nil {
			f.storeUnknown(s.Value)
			if v := f.dst(s.Value); v != nil {
				a.Dst, a.Src = append(a.Dst, v), append(a.Src, value)
			}
		}
		if len(a.Dst) > 0 {
			f.emitUncounted(a)
		}
		f.stmts(s.Body.List)
	})
	f.loops--
	l.Post = []ir.Stmt{&ir.Assign{Pos: at, Dst: []*ir.Var{i}, Src: []ir.Expr{ir.Binary{Op: ir.Add, X: ir.Ref{Var: i}, Y: ir.Const{Value: 1}}}}}
	f.emit(l)
	if id, ok := ast.Unparen(s.X).(*ast.Ident); ok && channel {
		if v := f.s.Info.Uses[id]; f.closed[v] {
			f.emit(&ir.If{Pos: at, Cond: ir.Const{Value: 1}, Then: []ir.Stmt{&ir.Join{Pos: at, Group: f.variable(v)}}})
		}
	}
}

// elementValue returns the value of an element of e, whose value is x.
func (f *fn) elementValue(e ast.Expr, x ir.Expr) ir.Expr {
	if f.exclusive(e) != nil {
		return join(x)
	}
	return join(x, f.at(f.element(e)))
}
