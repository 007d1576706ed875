package lower

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Structs and small arrays of integers are objects of package ir: a variable of
// such a type, or a pointer to a struct, is a reference. A copy in Go is a New
// with From here.
//
// A named struct is tracked if its values are only in variables and behind
// pointers (not in slices, maps, other structs or package variables), and no
// library gets one. Of its fields, integers, bools, communicators, pointers to
// such structs and small arrays of integers are tracked, unless their address
// is taken.

// arrayType is the type of all arrays that are objects.
const arrayType = "array"

// smallArray is the largest number of elements of a tracked array.
const smallArray = 16

// structs holds what is known about the program's types.
type structs struct {
	keys      map[*types.TypeName]string // keys of tracked structs
	elsewhere map[*types.TypeName]bool   // types with values elsewhere than in variables
	sliced    map[types.Object]bool      // array fields that are sliced, or whose elements' addresses are taken
}

// collectStructs finds the types that are tracked.
func (l *lowerer) collectStructs() {
	t := &l.structs
	t.keys, t.elsewhere, t.sliced = make(map[*types.TypeName]string), make(map[*types.TypeName]bool), make(map[types.Object]bool)
	if l.dynamic.Failed {
		return
	}
	for _, s := range l.ld.Sources {
		for _, f := range s.Files {
			l.scanTypes(s, f)
		}
	}
	for _, s := range l.ld.Sources {
		for _, obj := range s.Info.Defs {
			name, ok := obj.(*types.TypeName)
			if !ok || name.IsAlias() || t.elsewhere[name] || l.dynamic.Boxed[name] {
				continue
			}
			named, ok := name.Type().(*types.Named)
			if !ok || named.TypeParams().Len() > 0 {
				continue
			}
			if _, ok := named.Underlying().(*types.Struct); ok {
				t.keys[name] = l.ld.Fset.Position(name.Pos()).String()
			}
		}
	}
	for _, p := range l.procs {
		l.setParamTypes(p)
	}
	for _, p := range l.lits {
		l.setParamTypes(p)
	}
}

func (l *lowerer) setParamTypes(p *ir.Proc) {
	for _, v := range p.Params {
		if obj := l.objs[v]; obj != nil {
			v.Type = l.refType(obj.Type())
		}
	}
}

// scanTypes finds types with values elsewhere than in variables, and array
// fields that are shared.
func (l *lowerer) scanTypes(s *load.Package, f *ast.File) {
	var stack []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		switch n := n.(type) {
		case *ast.Ident:
			if name, ok := s.Info.Uses[n].(*types.TypeName); ok && !inVariable(s, n, stack) {
				l.structs.elsewhere[name] = true
			}
		case *ast.SliceExpr:
			l.sharesArray(s, n.X)
		case *ast.UnaryExpr:
			if x, ok := ast.Unparen(n.X).(*ast.IndexExpr); ok && n.Op == token.AND {
				l.sharesArray(s, x.X)
			}
		}
		stack = append(stack, n)
		return true
	})
	// Type arguments may be inferred.
	for _, i := range s.Info.Instances {
		for t := range i.TypeArgs.Types() {
			if named, ok := types.Unalias(t).(*types.Named); ok {
				l.structs.elsewhere[named.Obj()] = true
			}
		}
	}
}

func (l *lowerer) sharesArray(s *load.Package, e ast.Expr) {
	if sel, ok := ast.Unparen(e).(*ast.SelectorExpr); ok {
		if v, ok := s.Info.Uses[sel.Sel].(*types.Var); ok {
			l.structs.sliced[v.Origin()] = true
		}
	}
}

// inVariable reports whether the name of a type stands for the type of a
// variable, a pointer or a composite literal. Package variables do not count.
func inVariable(s *load.Package, id *ast.Ident, stack []ast.Node) bool {
	i := len(stack) - 1
	var at ast.Node = id
	if sel, ok := stack[i].(*ast.SelectorExpr); ok && sel.Sel == id {
		at, i = sel, i-1
	}
	for i > 0 {
		p, ok := stack[i].(*ast.ParenExpr)
		if !ok {
			break
		}
		at, i = p, i-1
	}
	switch p := stack[i].(type) {
	case *ast.StarExpr:
		return true
	case *ast.CompositeLit:
		return p.Type == at
	case *ast.CallExpr:
		b, ok := load.Callee(s, p).(*types.Builtin)
		return ok && b.Name() == "new"
	case *ast.ValueSpec:
		for _, n := range stack {
			if _, ok := n.(*ast.FuncDecl); ok {
				return p.Type == at
			}
		}
	case *ast.Field: // of a parameter, a result or a receiver, not of a struct
		if i >= 2 {
			switch stack[i-2].(type) {
			case *ast.FuncType, *ast.FuncDecl:
				return true
			}
		}
	}
	return false
}

// structOf returns the key of the tracked struct that t is or points to, or "".
func (l *lowerer) structOf(t types.Type) string {
	if t == nil {
		return ""
	}
	if p, ok := types.Unalias(t).Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	if named, ok := types.Unalias(t).(*types.Named); ok {
		return l.structs.keys[named.Obj()]
	}
	return ""
}

// isArray reports whether t is an array that is tracked.
func isArray(t types.Type) (n int64, ok bool) {
	a, ok := t.Underlying().(*types.Array)
	if !ok || a.Len() > smallArray {
		return 0, false
	}
	b, ok := a.Elem().Underlying().(*types.Basic)
	return a.Len(), ok && b.Info()&types.IsInteger != 0
}

// refType returns the type of the objects that values of type t refer to, or
// "".
func (l *lowerer) refType(t types.Type) string {
	if t == nil {
		return ""
	}
	if _, ok := isArray(t); ok {
		return arrayType
	}
	return l.structOf(t)
}

// isValue reports whether values of t are copied, and are objects.
func (l *lowerer) isValue(t types.Type) bool {
	return l.refType(t) != "" && !load.IsPointer(t)
}

// refers reports whether a variable is a reference all of whose changes are
// seen.
func (l *lowerer) refers(v *types.Var) bool {
	if l.refType(v.Type()) == "" {
		return false
	}
	if load.IsPointer(v.Type()) {
		return true
	}
	if v.IsField() || v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
		return false
	}
	u := l.use[v]
	if u == nil {
		return true
	}
	if _, ok := isArray(v.Type()); ok && u.address {
		return false
	}
	return len(u.captured) == 0 && !(u.address && u.writes > 1)
}

// fieldOf returns the variable of a field that is tracked, or nil.
func (l *lowerer) fieldOf(v *types.Var, key string) *ir.Var {
	if key == "" || l.structs.sliced[v.Origin()] {
		return nil
	}
	if u := l.use[v.Origin()]; u != nil && u.address {
		return nil
	}
	t := v.Type()
	b, ok := t.Underlying().(*types.Basic)
	_, array := isArray(t)
	if !isComm(t) && !array && !(ok && b.Info()&(types.IsInteger|types.IsBoolean) != 0) && !(load.IsPointer(t) && l.structOf(t) != "") {
		return nil
	}
	w := l.variable(v.Origin())
	w.Type = key
	return w
}

// elements stands for the elements of all arrays that are objects.
func (l *lowerer) elements() *ir.Var {
	v := (&fn{lowerer: l}).memoryVar("elements of small arrays")
	v.Type = arrayType
	return v
}

// smallArray returns the variable that stands for the elements of a tracked
// array, or nil.
func (f *fn) smallArray(e ast.Expr) *ir.Var {
	t := f.s.Info.TypeOf(e)
	if t == nil {
		return nil
	}
	if _, ok := isArray(t); !ok {
		return nil
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if v, ok := f.s.Info.ObjectOf(e).(*types.Var); ok && f.refers(v) {
			return f.elements()
		}
	case *ast.SelectorExpr:
		if sel := f.s.Info.Selections[e]; sel != nil && sel.Kind() == types.FieldVal {
			return f.fieldOf(sel.Obj().(*types.Var), f.owner(sel))
		}
	}
	return nil
}

// path returns the value of e behind the embedded fields of a selection, and
// the key of the struct that it ends in.
func (f *fn) path(e ast.Expr, sel *types.Selection) (ir.Expr, string) {
	x, t := f.value(e), f.s.Info.TypeOf(e)
	for _, i := range sel.Index()[:len(sel.Index())-1] {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		st, ok := t.Underlying().(*types.Struct)
		if !ok {
			return join(x), ""
		}
		v := st.Field(i)
		x, t = f.fieldValue(x, f.structOf(t), v), v.Type()
	}
	return x, f.structOf(t)
}

// fieldValue returns a field of what x refers to: a struct with that key.
func (f *fn) fieldValue(x ir.Expr, key string, v *types.Var) ir.Expr {
	y := f.load(v.Origin())
	if !isComm(v.Type()) {
		y = join(x, y)
	}
	w := f.fieldOf(v, key)
	if w == nil {
		return y
	}
	if n, ok := isArray(v.Type()); ok {
		// The array is a copy of the field.
		t := f.temp(v.Name())
		at := f.pos(v.Pos())
		f.emitUncounted(&ir.New{Pos: at, Dst: t, Type: arrayType})
		for i := range n {
			f.emitUncounted(&ir.Put{Pos: at, Of: ir.Ref{Var: t}, Field: f.elements(), Index: ir.Const{Value: i},
				Src: ir.Field{Of: x, Var: w, Index: ir.Const{Value: i}, Else: y}})
		}
		return ir.Ref{Var: t}
	}
	return ir.Field{Of: x, Var: w, Else: y}
}

// nilComm compares a communicator with nil.
func (f *fn) nilComm(e *ast.BinaryExpr) ir.Expr {
	x := f.value(e.X)
	if y, ok := x.(ir.Field); ok {
		y.Else = rankDependent() // some ranks may have none
		if sel, ok := ast.Unparen(e.X).(*ast.SelectorExpr); ok && f.worldVars[f.s.Info.Uses[sel.Sel].(*types.Var).Origin()] {
			y.Else = join(y.Of, ir.Unknown{Vars: []*ir.Var{y.Var}}) // it is the world, or nil
		}
		return ir.Binary{Op: operators[e.Op], X: y, Y: ir.Const{Value: -1}}
	}
	return rankDependent()
}

// location is a tracked element or field.
type location struct {
	of    ir.Expr
	field *ir.Var
	index ir.Expr
}

// locate finds the location of e. It emits the calls in e first.
func (f *fn) locate(e ast.Expr) (location, bool) {
	switch e := ast.Unparen(e).(type) {
	case *ast.SelectorExpr:
		sel := f.s.Info.Selections[e]
		if sel == nil || sel.Kind() != types.FieldVal {
			return location{}, false
		}
		v := sel.Obj().(*types.Var)
		if f.fieldOf(v, f.owner(sel)) == nil {
			return location{}, false
		}
		x, key := f.path(e.X, sel)
		return location{of: x, field: f.fieldOf(v, key)}, true
	case *ast.IndexExpr:
		t := f.s.Info.TypeOf(e.X)
		if t == nil {
			return location{}, false
		}
		if _, ok := isArray(t); !ok {
			return location{}, false
		}
		if p, ok := f.locate(e.X); ok && p.index == nil {
			p.index = f.value(e.Index)
			return p, true
		}
		if id, ok := ast.Unparen(e.X).(*ast.Ident); ok {
			if v, ok := f.s.Info.ObjectOf(id).(*types.Var); ok && f.refers(v) {
				return location{ir.Ref{Var: f.variable(v)}, f.elements(), f.value(e.Index)}, true
			}
		}
	}
	return location{}, false
}

// owner returns the key of the struct that a selected field is in.
func (f *fn) owner(sel *types.Selection) string {
	t := sel.Recv()
	for _, i := range sel.Index()[:len(sel.Index())-1] {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		st, ok := t.Underlying().(*types.Struct)
		if !ok {
			return ""
		}
		t = st.Field(i).Type()
	}
	return f.structOf(t)
}

// indexed returns the value of an element of a tracked array.
func (f *fn) indexed(e *ast.IndexExpr) (ir.Expr, bool) {
	p, ok := f.locate(e)
	if !ok {
		return nil, false
	}
	return ir.Field{Of: p.of, Var: p.field, Index: p.index, Else: join(p.of, p.index, f.at(p.field))}, true
}

// locateTarget finds the location of e, which is written to. The calls in e are
// emitted already.
func (f *fn) locateTarget(e ast.Expr) (p location, ok bool) {
	if !callsAny(e) {
		return f.locate(e)
	}
	f.nested(func() { p, ok = f.locate(e) })
	p.of = ir.Unknown{}
	if p.index != nil {
		p.index = ir.Unknown{}
	}
	return p, ok
}

// callsAny reports whether an expression calls or receives.
func callsAny(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			found = true
		case *ast.UnaryExpr:
			found = found || n.Op == token.ARROW
		}
		return !found
	})
	return found
}

// store writes x to e, if that is tracked.
func (f *fn) store(e ast.Expr, x ir.Expr) {
	at := f.pos(e.Pos())
	if s, ok := ast.Unparen(e).(*ast.StarExpr); ok {
		f.storeThrough(s)
		return
	}
	p, ok := f.locateTarget(e)
	if !ok {
		return
	}
	if n, ok := isArray(f.s.Info.TypeOf(e)); ok && p.index == nil {
		f.storeArray(at, p, n, x)
		return
	}
	f.emitUncounted(&ir.Put{Pos: at, Of: p.of, Field: p.field, Index: p.index, Src: x})
}

// storeUnknown records a write to e, unless e is a variable.
func (f *fn) storeUnknown(e ast.Expr) {
	if _, ok := ast.Unparen(e).(*ast.Ident); ok {
		return
	}
	if p, ok := f.locateTarget(e); ok {
		f.emitUncounted(&ir.Put{Pos: f.pos(e.Pos()), Of: p.of, Field: p.field})
	}
}

// storeArray writes the array that x refers to.
func (f *fn) storeArray(at ir.Pos, p location, n int64, x ir.Expr) {
	for i := range n {
		f.emitUncounted(&ir.Put{Pos: at, Of: p.of, Field: p.field, Index: ir.Const{Value: i},
			Src: ir.Field{Of: x, Var: f.elements(), Index: ir.Const{Value: i}, Else: join(x, f.at(f.elements()))}})
	}
}

// storeThrough records a write to a struct through a pointer.
func (f *fn) storeThrough(e *ast.StarExpr) {
	t := f.s.Info.TypeOf(e)
	key := f.structOf(t)
	st, ok := t.Underlying().(*types.Struct)
	if !ok || key == "" {
		return
	}
	x := ir.Expr(ir.Unknown{})
	if !callsAny(e.X) {
		x = f.value(e.X)
	}
	for v := range st.Fields() {
		if w := f.fieldOf(v, key); w != nil {
			f.emitUncounted(&ir.Put{Pos: f.pos(e.Pos()), Of: x, Field: w})
		}
	}
}

// valueAs returns the value of e, converted to type t.
func (f *fn) valueAs(e ast.Expr, t types.Type) ir.Expr {
	if t != nil && f.s.Info.Types[ast.Unparen(e)].IsNil() {
		switch {
		case isComm(t):
			return ir.Const{Value: -1} // no communicator
		case f.structOf(t) != "":
			return ir.Const{}
		}
	}
	return f.value(e)
}

// copied returns x, the value of e, or a copy of it if it is a struct or an
// array that something else holds too.
func (f *fn) copied(e ast.Expr, x ir.Expr) ir.Expr {
	t := f.s.Info.TypeOf(e)
	if t == nil || !f.isValue(t) {
		return x
	}
	switch y := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		return x
	case *ast.CallExpr:
		if !f.s.Info.Types[y.Fun].IsType() {
			return x
		}
	}
	v := f.temp("copy")
	f.emitUncounted(&ir.New{Pos: f.pos(e.Pos()), Dst: v, Type: f.refType(t), From: x})
	return ir.Ref{Var: v}
}

// zero returns a new value of a tracked type.
func (f *fn) zero(at ir.Pos, t types.Type) ir.Expr {
	v := f.temp("new")
	f.emitUncounted(&ir.New{Pos: at, Dst: v, Type: f.refType(t)})
	f.initComms(at, v, t, nil)
	return ir.Ref{Var: v}
}

// initComms sets the communicators of a new struct to nil, except those in
// given.
func (f *fn) initComms(at ir.Pos, v *ir.Var, t types.Type, given map[*types.Var]bool) {
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for field := range st.Fields() {
		if w := f.fieldOf(field, f.structOf(t)); w != nil && isComm(field.Type()) && !given[field] {
			f.emitUncounted(&ir.Put{Pos: at, Of: ir.Ref{Var: v}, Field: w, Src: ir.Const{Value: -1}})
		}
	}
}

// arrayLit returns the value of a composite literal of a tracked array.
func (f *fn) arrayLit(e *ast.CompositeLit, t types.Type) ir.Expr {
	at := f.pos(e.Pos())
	var values []ir.Expr
	var places []int64
	next := int64(0)
	for _, elt := range e.Elts {
		if kv, ok := elt.(*ast.KeyValueExpr); ok {
			elt = kv.Value
			if c := f.s.Info.Types[kv.Key].Value; c != nil {
				next, _ = constant.Int64Val(c)
			}
		}
		values, places = append(values, f.value(elt)), append(places, next)
		next++
	}
	v := f.temp("array")
	f.emitUncounted(&ir.New{Pos: at, Dst: v, Type: arrayType})
	for i, x := range values {
		f.emitUncounted(&ir.Put{Pos: at, Of: ir.Ref{Var: v}, Field: f.elements(), Index: ir.Const{Value: places[i]}, Src: x})
	}
	return ir.Ref{Var: v}
}
