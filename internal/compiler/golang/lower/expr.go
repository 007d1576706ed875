package lower

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

var operators = map[token.Token]ir.Op{
	token.ADD: ir.Add, token.SUB: ir.Sub, token.MUL: ir.Mul, token.QUO: ir.Div, token.REM: ir.Rem,
	token.AND: ir.And, token.OR: ir.Or, token.XOR: ir.Xor, token.SHL: ir.Shl, token.SHR: ir.Shr,
	token.EQL: ir.Eq, token.NEQ: ir.Ne, token.LSS: ir.Lt, token.LEQ: ir.Le, token.GTR: ir.Gt, token.GEQ: ir.Ge,
	token.LAND: ir.AndAlso, token.LOR: ir.OrElse,
}

var assignOps = map[token.Token]token.Token{
	token.ADD_ASSIGN: token.ADD, token.SUB_ASSIGN: token.SUB, token.MUL_ASSIGN: token.MUL, token.QUO_ASSIGN: token.QUO,
	token.REM_ASSIGN: token.REM, token.AND_ASSIGN: token.AND, token.OR_ASSIGN: token.OR, token.XOR_ASSIGN: token.XOR,
	token.SHL_ASSIGN: token.SHL, token.SHR_ASSIGN: token.SHR,
}

// vars returns the variables of an expression.
func vars(e ir.Expr) (list []*ir.Var) {
	ir.Vars(e, func(v *ir.Var) { list = append(list, v) })
	return list[:len(list):len(list)]
}

// join returns a value that depends on others in an unknown way.
func join(list ...ir.Expr) ir.Expr {
	var u ir.Unknown
	rank := false
	for _, e := range list {
		if e != nil {
			u.Vars = append(u.Vars, vars(e)...)
			rank = rank || ir.Ranked(e)
		}
	}
	if rank {
		return ir.Binary{Op: ir.Xor, X: u, Y: ir.Rank{}}
	}
	return u
}

// tracked reports whether values of a type are tracked: integers, bools,
// communicators, and errors (0 for nil).
func tracked(t types.Type) bool {
	if isComm(t) || load.IsError(t) {
		return true
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsInteger|types.IsBoolean) != 0
}

// exact reports whether arithmetic in a type is that of package ir, except for
// overflow of 64 bits.
func exact(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	if !ok {
		return false
	}
	switch b.Kind() {
	case types.Int, types.Int64, types.UntypedInt, types.UntypedRune, types.Bool, types.UntypedBool:
		return true
	}
	return false
}

func isComm(t types.Type) bool {
	p, ok := t.(*types.Pointer)
	if !ok {
		return false
	}
	n, ok := types.Unalias(p.Elem()).(*types.Named)
	return ok && n.Obj().Name() == "Comm" && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == load.MPIPath
}

// value returns an expression's value. It emits the calls in it first.
func (f *fn) value(e ast.Expr) ir.Expr {
	e = ast.Unparen(e)
	tv := f.s.Info.Types[e]
	if tv.Value != nil {
		switch tv.Value.Kind() {
		case constant.Int:
			if n, ok := constant.Int64Val(tv.Value); ok {
				return ir.Const{Value: n}
			}
		case constant.Bool:
			if constant.BoolVal(tv.Value) {
				return ir.Const{Value: 1}
			}
			return ir.Const{}
		}
		return ir.Unknown{}
	}
	if tv.IsNil() && isComm(tv.Type) {
		return ir.Const{Value: -1} // no communicator
	}
	if tv.IsNil() && f.structOf(tv.Type) != "" {
		return ir.Const{}
	}
	if tv.IsType() || tv.IsNil() {
		return ir.Unknown{}
	}
	switch e := e.(type) {
	case *ast.Ident:
		v, ok := f.s.Info.ObjectOf(e).(*types.Var)
		if !ok {
			return ir.Unknown{}
		}
		return f.load(v)
	case *ast.UnaryExpr:
		return f.unary(e)
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			return f.logical(e, false)
		}
		if isComm(f.s.Info.TypeOf(e.X)) && f.s.Info.Types[e.Y].IsNil() {
			return f.nilComm(e)
		}
		if load.IsError(f.s.Info.TypeOf(e.X)) || load.IsError(f.s.Info.TypeOf(e.Y)) {
			if f.s.Info.Types[e.Y].IsNil() {
				return ir.Binary{Op: operators[e.Op], X: f.errorValue(e.X), Y: ir.Const{}}
			}
			return join(f.value(e.X), f.value(e.Y))
		}
		x, y := f.value(e.X), f.value(e.Y)
		if e.Op == token.AND_NOT {
			return f.binary(ir.And, x, ir.Unary{Op: ir.Inv, X: y}, tv.Type)
		}
		return f.binary(operators[e.Op], x, y, f.s.Info.TypeOf(e.X))
	case *ast.CallExpr:
		return f.callValue(e)
	case *ast.SelectorExpr:
		return f.selector(e)
	case *ast.StarExpr:
		if f.structOf(tv.Type) != "" {
			return f.value(e.X)
		}
		return join(f.value(e.X), f.at(f.pointee(tv.Type)))
	case *ast.IndexExpr:
		if f.s.Info.Types[e.Index].IsType() { // an instance
			return ir.Unknown{}
		}
		if x, ok := f.indexed(e); ok {
			return x
		}
		x, i := f.value(e.X), f.value(e.Index)
		if v := f.exclusive(e.X); v != nil {
			return join(x, i)
		}
		return join(x, i, f.at(f.element(e.X)))
	case *ast.SliceExpr:
		list := []ir.Expr{f.value(e.X)}
		for _, i := range []ast.Expr{e.Low, e.High, e.Max} {
			if i != nil {
				list = append(list, f.value(i))
			}
		}
		return join(list...)
	case *ast.TypeAssertExpr:
		return join(f.value(e.X))
	case *ast.CompositeLit:
		return f.composite(e)
	}
	return ir.Unknown{}
}

func (f *fn) unary(e *ast.UnaryExpr) ir.Expr {
	x := f.value(e.X)
	if e.Op == token.AND && f.structOf(f.s.Info.TypeOf(e.X)) != "" && !load.IsPointer(f.s.Info.TypeOf(e.X)) {
		return x // the address of a variable or literal refers to it
	}
	t := f.s.Info.TypeOf(e.X)
	switch e.Op {
	case token.ADD:
		return x
	case token.SUB:
		if exact(t) {
			return ir.Unary{Op: ir.Neg, X: x}
		}
	case token.XOR:
		if exact(t) {
			return ir.Unary{Op: ir.Inv, X: x}
		}
	case token.NOT:
		return ir.Unary{Op: ir.Not, X: x}
	case token.ARROW:
		f.joinReceive(e)
		return join(x, f.at(f.element(e.X)), rankDependent())
	}
	return join(x)
}

// binary returns x op y, for operands of type t.
func (f *fn) binary(op ir.Op, x, y ir.Expr, t types.Type) ir.Expr {
	switch op {
	case ir.Eq, ir.Ne, ir.Lt, ir.Le, ir.Gt, ir.Ge, ir.Rem, ir.And, ir.Or, ir.AndAlso, ir.OrElse:
		if tracked(t) || isComm(t) || (op == ir.Eq || op == ir.Ne) && load.IsPointer(t) && f.structOf(t) != "" {
			return ir.Binary{Op: op, X: x, Y: y}
		}
	case 0:
	default:
		if exact(t) {
			return ir.Binary{Op: op, X: x, Y: y}
		}
		if n := wrapSize(t); n != 0 {
			return ir.Binary{Op: ir.Wrap, X: ir.Binary{Op: op, X: x, Y: y}, Y: ir.Const{Value: n}}
		}
	}
	return join(x, y)
}

// logical returns the value of && or ||, whose right side may not be evaluated.
func (f *fn) logical(e *ast.BinaryExpr, ends bool) ir.Expr {
	x, _ := f.condition(e.X, ends)
	var y ir.Expr
	right := f.nested(func() { y, _ = f.condition(e.Y, ends) })
	op := operators[e.Op]
	if len(right) == 0 {
		return ir.Binary{Op: op, X: x, Y: y}
	}
	at := f.pos(e.Pos())
	t := f.temp("both")
	f.emitUncounted(&ir.Assign{Pos: at, Dst: []*ir.Var{t}, Src: []ir.Expr{x}})
	test := ir.Expr(ir.Ref{Var: t})
	if e.Op == token.LOR {
		test = ir.Unary{Op: ir.Not, X: test}
	}
	f.emit(&ir.If{Pos: at, Cond: test, Then: append(right,
		&ir.If{Pos: at, Cond: ir.Const{Value: 1}, Then: []ir.Stmt{&ir.Assign{Pos: at, Dst: []*ir.Var{t}, Src: []ir.Expr{y}}}})})
	return ir.Ref{Var: t}
}

// condition returns the value of a condition. If the branch for an error leaves
// the function (ends), the error is assumed to be nil, and failing is true.
func (f *fn) condition(e ast.Expr, ends bool) (x ir.Expr, failing bool) {
	e = ast.Unparen(e)
	if b, ok := e.(*ast.BinaryExpr); ok {
		switch b.Op {
		case token.LAND, token.LOR:
			l, ok := ast.Unparen(b.X).(*ast.BinaryExpr)
			return f.logical(b, ends), ends && ok && f.errorTest(l) && l.Op == token.NEQ
		case token.EQL, token.NEQ:
			if f.errorTest(b) && (ends || b.Op == token.EQL) {
				f.value(b.X)
				f.assumed++
				if b.Op == token.EQL {
					return ir.Const{Value: 1}, false
				}
				return ir.Const{}, true
			}
		}
	}
	return f.value(e), false
}

// errorTest reports whether b compares an error with nil.
func (f *fn) errorTest(b *ast.BinaryExpr) bool {
	return load.IsError(f.s.Info.TypeOf(b.X)) && f.s.Info.Types[b.Y].IsNil()
}

func (f *fn) selector(e *ast.SelectorExpr) ir.Expr {
	sel := f.s.Info.Selections[e]
	if sel == nil { // of a package
		if v, ok := f.s.Info.Uses[e.Sel].(*types.Var); ok {
			return f.load(v)
		}
		return ir.Unknown{}
	}
	if v, ok := sel.Obj().(*types.Var); ok {
		x, key := f.path(e.X, sel)
		return f.fieldValue(x, key, v)
	}
	return join(f.value(e.X))
}

// composite returns the value of a composite literal. It stores the elements
// into its fields.
func (f *fn) composite(e *ast.CompositeLit) ir.Expr {
	t := f.s.Info.TypeOf(e)
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	if _, ok := isArray(t); ok {
		return f.arrayLit(e, t)
	}
	st, _ := t.Underlying().(*types.Struct)
	key := ""
	if st != nil {
		key = f.structOf(t)
	}
	var puts []func(*ir.Var)
	given := make(map[*types.Var]bool)
	var all []ir.Expr
	for i, elt := range e.Elts {
		to := (*ir.Var)(nil)
		var field *types.Var
		if kv, ok := elt.(*ast.KeyValueExpr); ok {
			elt = kv.Value
			if id, ok := kv.Key.(*ast.Ident); ok && st != nil {
				if v, ok := f.s.Info.Uses[id].(*types.Var); ok {
					to, field = f.place(v.Origin()), v
				}
			} else if st == nil {
				f.value(kv.Key)
			}
		} else if st != nil && i < st.NumFields() {
			field = st.Field(i)
			to = f.place(field.Origin())
		}
		var as types.Type
		if field != nil {
			as = field.Type()
		}
		x := f.valueAs(elt, as)
		if w := (*ir.Var)(nil); field != nil {
			given[field] = true
			if w = f.fieldOf(field, key); w != nil {
				at, n := f.pos(elt.Pos()), int64(-1)
				if k, ok := isArray(field.Type()); ok {
					n = k
				}
				puts = append(puts, func(v *ir.Var) {
					if n >= 0 {
						f.storeArray(at, location{of: ir.Ref{Var: v}, field: w}, n, x)
						return
					}
					f.emitUncounted(&ir.Put{Pos: at, Of: ir.Ref{Var: v}, Field: w, Src: x})
				})
			}
		}
		if _, ok := x.(ir.Const); ok {
			continue
		}
		if to != nil {
			f.emitUncounted(&ir.Assign{Pos: f.pos(elt.Pos()), Dst: []*ir.Var{to}, Src: []ir.Expr{x}})
		} else {
			all = append(all, x)
		}
	}
	if key != "" {
		v := f.temp("new")
		f.emitUncounted(&ir.New{Pos: f.pos(e.Pos()), Dst: v, Type: key})
		f.initComms(f.pos(e.Pos()), v, t, given)
		for _, put := range puts {
			put(v)
		}
		return ir.Ref{Var: v}
	}
	return join(all...)
}

// load returns the value of a variable or field.
func (f *fn) load(v *types.Var) ir.Expr {
	if f.worldVars[v] {
		return ir.Const{} // the world communicator
	}
	w := f.place(v)
	switch {
	case isComm(v.Type()), (tracked(v.Type()) || f.refers(v)) && !w.Shared:
		return ir.Ref{Var: w}
	case w.Shared:
		return f.at(w)
	}
	return ir.Unknown{Vars: []*ir.Var{w}}
}

// at returns a value read from the memory that v stands for. Generic functions
// may have written to it.
func (f *fn) at(v *ir.Var) ir.Expr {
	return ir.Unknown{Vars: []*ir.Var{v, f.memoryVar("any type")}}
}

// place returns the variable that stands for a variable or field. All variables
// of a type share one if their addresses are taken (by others than libraries)
// and pointers of that type are dereferenced.
func (f *fn) place(v *types.Var) *ir.Var {
	if u := f.use[v]; u != nil && u.escapes && (f.derefs["any type"] || f.derefs[types.TypeString(v.Type(), nil)]) {
		switch v.Type().Underlying().(type) {
		case *types.Struct, *types.Array:
		default:
			return f.pointee(v.Type())
		}
	}
	return f.variable(v)
}

// exclusive returns the variable of a slice or array whose elements are reached
// through it alone, or nil.
func (f *fn) exclusive(e ast.Expr) *ir.Var {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return nil
	}
	v, ok := f.s.Info.ObjectOf(id).(*types.Var)
	if !ok || v.Parent() == f.s.Types.Scope() || f.smallArray(e) != nil {
		return nil
	}
	u := f.use[v]
	if u == nil || u.uses != u.plain || len(u.captured) > 0 || u.address || f.isParam(v) || u.writes != u.fresh {
		return nil
	}
	return f.variable(v)
}

func (f *fn) isParam(v *types.Var) bool {
	for p := range f.sig.Params().Variables() {
		if p == v {
			return true
		}
	}
	return false
}

// element returns the variable that stands for all elements of e.
func (f *fn) element(e ast.Expr) *ir.Var {
	if v := f.smallArray(e); v != nil {
		return v
	}
	t := f.s.Info.TypeOf(e)
	switch u := t.Underlying().(type) {
	case *types.Slice:
		t = u.Elem()
	case *types.Array:
		t = u.Elem()
	case *types.Pointer:
		if a, ok := u.Elem().Underlying().(*types.Array); ok {
			t = a.Elem()
		}
	case *types.Map:
		t = u.Elem()
	case *types.Chan:
		t = u.Elem()
	}
	key := types.TypeString(t, nil)
	switch _, ok := types.Unalias(t).(*types.TypeParam); {
	case ok:
		key = "any type"
	case !f.merged[key]:
		key = "elements of " + key
	}
	return f.memoryVar(key)
}

// pointee returns the variable that stands for all that pointers to a type lead
// to.
func (f *fn) pointee(t types.Type) *ir.Var {
	key := types.TypeString(t, nil)
	if _, ok := types.Unalias(t).(*types.TypeParam); ok {
		key = "any type"
	}
	return f.memoryVar(key)
}

// memoryVar returns the variable that stands for a kind of memory.
func (f *fn) memoryVar(key string) *ir.Var {
	v := f.memory[key]
	if v == nil {
		v = &ir.Var{Name: key, Global: true, Shared: true}
		f.memory[key] = v
	}
	return v
}

// dst returns the variable that an assignment to e writes, nil for the blank
// identifier.
func (f *fn) dst(e ast.Expr) *ir.Var {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, ok := f.s.Info.ObjectOf(e).(*types.Var)
		if !ok || e.Name == "_" {
			return nil
		}
		w := f.place(v)
		if f.s.Info.Defs[e] != nil && f.owners[w] == nil {
			f.owners[w] = f.proc
		}
		return w
	case *ast.SelectorExpr:
		if v, ok := f.s.Info.Uses[e.Sel].(*types.Var); ok {
			return f.place(v.Origin())
		}
	case *ast.IndexExpr:
		if v := f.exclusive(e.X); v != nil {
			return v
		}
		return f.element(e.X)
	case *ast.StarExpr:
		return f.pointee(f.s.Info.TypeOf(e))
	}
	return nil
}

// evalLeft emits the calls in the left side of an assignment.
func (f *fn) evalLeft(e ast.Expr) {
	switch e := ast.Unparen(e).(type) {
	case *ast.SelectorExpr:
		if f.s.Info.Selections[e] != nil {
			f.value(e.X)
		}
	case *ast.IndexExpr:
		f.value(e.X)
		f.value(e.Index)
	case *ast.StarExpr:
		f.value(e.X)
	}
}

// opaque returns a value of which only the variables are known.
func (f *fn) opaque(list ...ast.Expr) ir.Expr {
	var u ir.Unknown
	for _, e := range list {
		ast.Inspect(e, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if v, ok := f.s.Info.Uses[id].(*types.Var); ok {
					u.Vars = append(u.Vars, f.variable(v.Origin()))
				}
			}
			return true
		})
	}
	return u
}

// reads returns the variables that expressions read, as package hotloops counts
// them.
func (f *fn) reads(list ...ast.Expr) (out []*ir.Var) {
	for _, e := range list {
		ast.Inspect(e, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.IndexExpr:
				out = append(out, f.reads(n.X)...)
				return false
			case *ast.IndexListExpr:
				return false
			case *ast.SliceExpr:
				out = append(out, f.reads(n.X)...)
				return false
			case *ast.KeyValueExpr:
				out = append(out, f.reads(n.Value)...)
				return false
			case *ast.SelectorExpr:
				if f.s.Info.Selections[n] != nil {
					out = append(out, f.reads(n.X)...)
					return false
				}
			case *ast.Ident:
				if v, ok := f.s.Info.ObjectOf(n).(*types.Var); ok && n.Name != "_" {
					out = append(out, f.variable(v))
				}
			}
			return true
		})
	}
	return out
}

// text returns the name that the source gives to something.
func (f *fn) text(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return f.text(e.X) + "." + e.Sel.Name
	case *ast.IndexExpr:
		return f.text(e.X)
	case *ast.IndexListExpr:
		return f.text(e.X)
	case *ast.CallExpr:
		return f.text(e.Fun) + "()"
	case *ast.StarExpr:
		return f.text(e.X)
	case *ast.UnaryExpr:
		return f.text(e.X)
	}
	return "function"
}
