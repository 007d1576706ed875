package kernel

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
)

// slice is what is known of a variable of a slice type.
type slice struct {
	space string // "__global" or "__local"
	elem  types.Type
	ptr   string // the pointer in C
	len   string // the number of elements in C; "" if it is not known
	root  int    // number of the kernel's argument, or -1 in other functions
	off   poly   // index of the first element in the argument; nil: unknown
}

// expr translates an expression. The result is safe as an operand.
func (f *function) expr(x ast.Expr) string {
	p := f.program
	if tv := p.Info.Types[x]; tv.Value != nil {
		f.constants(x)
		return p.literal(x, tv.Type, tv.Value)
	}
	switch x := x.(type) {
	case *ast.ParenExpr:
		return f.expr(x.X)
	case *ast.Ident:
		return f.ident(x)
	case *ast.BinaryExpr:
		return f.binaryExpr(x)
	case *ast.UnaryExpr:
		return f.unary(x)
	case *ast.CallExpr:
		return f.call(x)
	case *ast.IndexExpr:
		return f.index(x, false)
	case *ast.SelectorExpr:
		return f.selector(x, false)
	case *ast.CompositeLit:
		return f.composite(x)
	case *ast.FuncLit:
		p.refuse(x, "a kernel cannot use func literals: declare a function")
	case *ast.StarExpr:
		p.refuse(x, "a kernel cannot use pointers: pass values, or a slice and an index")
	case *ast.TypeAssertExpr:
		p.refuse(x, "a kernel cannot use interfaces")
	case *ast.SliceExpr:
		p.refuse(x, "a part of a slice can only be indexed, declare a variable, or be passed to a function")
	}
	p.refuse(x, "a kernel cannot use this expression")
	return ""
}

// constants notes the declarations of the constants in an expression.
func (f *function) constants(x ast.Expr) {
	ast.Inspect(x, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if c, ok := f.Info.Uses[id].(*types.Const); ok && c.Pkg() == f.Types && c.Parent() == f.Types.Scope() {
				f.declareObject(c)
			}
		}
		return true
	})
}

func (f *function) ident(x *ast.Ident) string {
	obj := f.Info.ObjectOf(x)
	if name, ok := f.names[obj]; ok {
		if isSlice(obj.Type()) {
			f.refuse(x, "a slice can only be indexed, cut, measured by len, or passed to a function")
		}
		return name
	}
	switch obj := obj.(type) {
	case *types.Var:
		if isWork(obj.Type()) {
			f.refuse(x, "the *device.Work can only be used for its methods Range, Items and Groups, and in device.Slice, LocalSlice and Value")
		}
		if obj.Parent() == f.Types.Scope() {
			f.refuse(x, "a kernel cannot use the package variable %s: make it a constant, or an argument of the kernel", x.Name)
		}
	case *types.Func:
		f.refuse(x, "a kernel cannot use func values: call the function by its name")
	case *types.Nil:
		f.refuse(x, "a kernel cannot use nil")
	}
	f.refuse(x, "a kernel cannot use %s here", x.Name)
	return ""
}

func (f *function) binaryExpr(x *ast.BinaryExpr) string {
	a, b := f.expr(x.X), f.expr(x.Y)
	t := f.Info.TypeOf(x.X)
	switch x.Op {
	case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
		if tv := f.Info.Types[x.X]; tv.Value != nil {
			t = f.Info.TypeOf(x.Y)
		}
		k, ok := number(t)
		if !ok {
			f.refuse(x, "a kernel cannot compare values of type %s: compare their fields", t)
		}
		if k.class == 'c' {
			f.refuse(x, "a kernel cannot compare complex numbers: compare real and imag")
		}
		return fmt.Sprintf("(%s %s %s)", a, x.Op, b)
	case token.SHL, token.SHR:
		if k, ok := number(f.Info.TypeOf(x.Y)); !ok || k.class != 'i' {
			f.refuse(x, "a kernel cannot shift by a %s", f.Info.TypeOf(x.Y))
		}
		return f.shift(x, x.Op, f.Info.TypeOf(x), a, b, f.Info.Types[x.Y].Value)
	}
	return f.binary(x, x.Op, f.Info.TypeOf(x), a, b, f.Info.Types[x.Y].Value)
}

func (f *function) unary(x *ast.UnaryExpr) string {
	if x.Op == token.AND {
		f.refuse(x, "a kernel cannot use pointers: pass values, or a slice and an index")
	}
	if x.Op == token.ARROW {
		f.refuse(x, "a kernel cannot use channels")
	}
	a := f.expr(x.X)
	k, ok := number(f.Info.TypeOf(x))
	if !ok {
		f.refuse(x, "a kernel cannot apply %s to a %s", x.Op, f.Info.TypeOf(x))
	}
	switch x.Op {
	case token.NOT:
		return "(!" + a + ")"
	case token.ADD:
		return a
	case token.SUB:
		if k.class == 'c' {
			f.refuse(x, "a kernel cannot negate complex numbers: use real, imag and complex")
		}
		return negate(k, a)
	}
	return fmt.Sprintf("(%s)(~%s)", k.name, a) // ^x
}

// index translates an element of a slice or an array.
func (f *function) index(x *ast.IndexExpr, write bool) string {
	t := f.Info.TypeOf(x.X)
	switch t.Underlying().(type) {
	case *types.Slice:
		s := f.slice(x.X)
		return f.element(x, s, f.subscript(s, x.Index), f.poly(x.Index), write)
	case *types.Array:
		if sel, ok := ast.Unparen(x.X).(*ast.SelectorExpr); ok && f.isWorkField(sel) {
			return f.workField(x, sel)
		}
		if !addressable(f.Info, x.X) {
			f.refuse(x, "a kernel cannot index the array that a call returns: assign it to a variable")
		}
		base := f.lvalue(x.X, write)
		return fmt.Sprintf("%s[%s]", base, f.expr(x.Index))
	}
	f.refuse(x, "a kernel cannot index a %s", t)
	return ""
}

// addressable reports whether x names a variable, or a part of one.
func addressable(info *types.Info, x ast.Expr) bool {
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		_, ok := info.Uses[x].(*types.Var)
		return ok
	case *ast.SelectorExpr:
		return addressable(info, x.X)
	case *ast.IndexExpr:
		return isSlice(info.TypeOf(x.X)) || addressable(info, x.X)
	}
	return false
}

func (f *function) selector(x *ast.SelectorExpr, write bool) string {
	if sel := f.Info.Selections[x]; sel != nil && sel.Kind() == types.FieldVal {
		if len(sel.Index()) != 1 {
			f.refuse(x, "a kernel cannot use the field %s of an embedded struct: give the struct a name", x.Sel.Name)
		}
		s, ok := sel.Recv().Underlying().(*types.Struct)
		if !ok {
			f.refuse(x, "a kernel cannot use pointers to structs: pass the struct itself")
		}
		f.typ(x, sel.Recv())
		return f.lvalue(x.X, write) + "." + fieldName(s, sel.Index()[0])
	}
	if v, ok := f.Info.Uses[x.Sel].(*types.Var); ok {
		f.refuse(x, "a kernel cannot use the package variable %s: make it a constant, or an argument of the kernel", v.Name())
	}
	f.refuse(x, "a kernel cannot use %s as a value", x.Sel.Name)
	return ""
}

// lvalue translates something that may be assigned to if write is set.
func (f *function) lvalue(x ast.Expr, write bool) string {
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		if write {
			f.mayAssign(x)
		}
		if _, ok := f.Info.TypeOf(x).Underlying().(*types.Array); ok {
			obj := f.Info.ObjectOf(x)
			if name, ok := f.names[obj]; ok {
				return name
			}
		}
		return f.ident(x)
	case *ast.IndexExpr:
		return f.index(x, write)
	case *ast.SelectorExpr:
		return f.selector(x, write)
	}
	if write {
		f.refuse(x, "a kernel cannot assign to this")
	}
	return f.expr(x)
}

func (f *function) composite(x *ast.CompositeLit) string {
	t := f.Info.TypeOf(x)
	s, ok := t.Underlying().(*types.Struct)
	if !ok {
		f.refuse(x, "a kernel cannot use a literal of type %s here: declare a variable with it", t)
	}
	name := f.typ(x, t)
	if len(x.Elts) == 0 {
		return "cairn_zero_" + name + "()"
	}
	values := make([]string, s.NumFields())
	for i, e := range x.Elts {
		at := i
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			for j := range s.NumFields() {
				if s.Field(j).Name() == kv.Key.(*ast.Ident).Name {
					at = j
				}
			}
			e = kv.Value
		}
		values[at] = f.expr(e)
	}
	text := "cairn_make_" + name + "("
	for i, v := range values {
		if _, ok := s.Field(i).Type().Underlying().(*types.Array); ok {
			f.refuse(x, "a kernel cannot use a literal of a struct with arrays: declare a variable and set its fields")
		}
		if i > 0 {
			text += ", "
		}
		if v == "" {
			v = f.zero(x, s.Field(i).Type())
		}
		text += v
	}
	return text + ")"
}

// slice returns what is known of an expression of a slice type.
func (f *function) slice(x ast.Expr) *slice {
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		if s := f.slices[f.Info.ObjectOf(x)]; s != nil {
			return s
		}
		if v, ok := f.Info.ObjectOf(x).(*types.Var); ok && v.Parent() == f.Types.Scope() {
			f.ident(x)
		}
	case *ast.SliceExpr:
		if x.Slice3 {
			f.refuse(x, "a kernel cannot set the capacity of a slice: leave out the third index")
		}
		if !isSlice(f.Info.TypeOf(x.X)) {
			f.refuse(x, "a kernel cannot cut an array: pass the array's elements, or use local memory (device.LocalSlice)")
		}
		of := *f.slice(x.X)
		low := "0L"
		if x.Low != nil {
			low = f.convert(x, types.Typ[types.Int], f.Info.TypeOf(x.Low), f.expr(x.Low))
			from := f.poly(x.Low)
			of.ptr = fmt.Sprintf("(%s + %s)", of.ptr, f.subscript(&of, x.Low))
			of.off = of.off.add(from, 1)
		}
		switch {
		case x.High != nil:
			of.len = fmt.Sprintf("(%s - %s)", f.convert(x, types.Typ[types.Int], f.Info.TypeOf(x.High), f.expr(x.High)), low)
		case of.len != "" && x.Low != nil:
			of.len = fmt.Sprintf("(%s - %s)", of.len, low)
		}
		return &of
	}
	f.refuse(x, "a slice in a kernel is an argument of it, or a part of one")
	return nil
}
