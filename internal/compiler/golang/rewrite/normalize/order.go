package normalize

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// The order in which operands are read is that of the Go compiler, not only
// that of the language: programs depend on it. The language orders calls,
// receives and logical operators. cmd/compile (walk/order.go) also copies some
// other operands in order, and reads the rest after the last call of the
// statement:
//
//	operand                                     read
//	variables, fields, elements, *p             last
//	arithmetic, conversions, x + y of strings   last, like their operands
//	string(bytes)                               last
//	&x, &T{…}, T{…}, []T{…}, func literals      last
//	method values                               last
//	unsafe.Add, Slice, String, …                last
//	calls, receives, &&, ||                     in order
//	len, cap, min, max, real, imag, complex     in order
//	append, copy, make, new                     in order
//	[]byte(s), []rune(s)                        in order
//	x[i:j]                                      in order; its bounds, unless
//	                                            they are variables, before the
//	                                            next bound
//	x.(T)                                       in order, unless T is a pointer,
//	                                            or depends on type parameters
//	map[K]V{…}                                  in order, entry by entry, the
//	                                            constant ones first; last if all
//	                                            are constant
//	m[k], the element                           last, but with string(bytes) in
//	                                            its key in order, where it is
//	                                            not assigned to
//	m[k], the key                               see keyEarly
//	operands that become part of an interface   see earlyCopies
//	x == y of structs and arrays                in order when both are known,
//	                                            unless they are addressable
//	m[k] = append(m[k], …)                      m and k in order, unless they
//	                                            are variables
//
// TestFunctions_EvaluationOrder compares all of this with the installed
// compiler.

// keyEarly reports whether the compiler copies the key of a map's element in
// order. The run time needs the key's address, so a key without an address is
// copied. A key that is as wide as a number or a string, but is neither, is
// copied, too.
func (w *funcNormalizer) keyEarly(e *ast.IndexExpr) bool {
	m, ok := rewrite.CoreType(w.p.Info.TypeOf(e.X)).(*types.Map)
	if !ok {
		return false
	}
	if unsized(m.Key()) || unsized(m.Elem()) && !w.addressable(e.Index, m.Key()) {
		w.unclear(e.Index)
		return false
	}
	if !unsized(m.Elem()) && w.sizes().Sizeof(m.Elem()) > 128 {
		return !w.addressable(e.Index, m.Key())
	}
	switch u := m.Key().Underlying().(type) {
	case *types.Basic:
		if u.Info()&types.IsString != 0 || u.Kind() == types.UnsafePointer {
			return false
		}
		if size := w.sizes().Sizeof(u); u.Info()&types.IsInteger != 0 && (size == 4 || size == 8) {
			return false
		}
	case *types.Pointer, *types.Chan:
		return false
	case *types.Struct, *types.Array:
		if w.wordLike(m.Key()) {
			return true
		}
	}
	return !w.addressable(e.Index, m.Key())
}

// unclear refuses an operand of unknown type that a call may change, if the
// compiler copies it for some types only.
func (w *funcNormalizer) unclear(e ast.Expr) {
	if !w.settled(e) {
		w.refuse(e.Pos(), "give it to a variable of its own first", "type parameters decide whether this is read before or after a call, in its statement, that leads to a point")
	}
}

// settled reports whether calls cannot change what an expression reads.
func (w *funcNormalizer) settled(e ast.Expr) bool {
	if tv := w.p.Info.Types[e]; tv.Value != nil || tv.IsNil() || tv.IsType() {
		return true
	}
	if _, done := w.repl[e]; done {
		return true
	}
	switch e := e.(type) {
	case *ast.Ident:
		v, ok := w.p.Info.Uses[e].(*types.Var)
		return !ok || w.steady(e) && v != nil
	case *ast.ParenExpr:
		return w.settled(e.X)
	case *ast.SelectorExpr:
		s := w.p.Info.Selections[e]
		return s != nil && s.Kind() == types.FieldVal && !s.Indirect() && !pointerTo(w.p.Info.TypeOf(e.X)) && w.settled(e.X)
	case *ast.UnaryExpr:
		return e.Op == token.AND || w.settled(e.X)
	case *ast.BinaryExpr:
		return w.settled(e.X) && w.settled(e.Y)
	case *ast.FuncLit:
		return true
	case *ast.CallExpr: // a conversion
		return w.p.Info.Types[e.Fun].IsType() && w.settled(e.Args[0])
	case *ast.CompositeLit:
		for _, x := range e.Elts {
			if kv, ok := x.(*ast.KeyValueExpr); ok {
				x = kv.Value
			}
			if !w.settled(x) {
				return false
			}
		}
		return true
	}
	return false
}

// wordLike reports whether a struct or array is hashed like a number of 4 or 8
// bytes, a pointer or a string.
func (w *funcNormalizer) wordLike(t types.Type) bool {
	var sole func(t types.Type) types.Type
	sole = func(t types.Type) types.Type {
		switch u := t.Underlying().(type) {
		case *types.Struct:
			if u.NumFields() == 1 {
				return sole(u.Field(0).Type())
			}
		case *types.Array:
			if u.Len() == 1 {
				return sole(u.Elem())
			}
		}
		return t
	}
	if b, ok := sole(t).Underlying().(*types.Basic); ok && b.Info()&types.IsString != 0 {
		return true
	}
	size := w.sizes().Sizeof(t)
	return (size == 4 || size == 8) && w.plainMemory(t)
}

// plainMemory reports whether values of a type are equal if and only if their
// bytes are.
func (w *funcNormalizer) plainMemory(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return u.Info()&(types.IsInteger|types.IsBoolean) != 0 || u.Kind() == types.UnsafePointer
	case *types.Pointer, *types.Chan:
		return true
	case *types.Array:
		return w.plainMemory(u.Elem())
	case *types.Struct:
		var fields []*types.Var
		var end int64
		for f := range u.Fields() {
			if f.Name() == "_" || !w.plainMemory(f.Type()) {
				return false
			}
			fields = append(fields, f)
		}
		for i, at := range w.sizes().Offsetsof(fields) {
			if at != end {
				return false
			}
			end = at + w.sizes().Sizeof(fields[i].Type())
		}
		return end == w.sizes().Sizeof(t)
	}
	return false
}

func (w *funcNormalizer) sizes() types.Sizes {
	if w.p.Sizes != nil {
		return w.p.Sizes
	}
	return types.SizesFor("gc", "amd64")
}

// addressable reports whether the compiler can use an expression in place, in
// memory, as a value of a type. Constants are in memory, too.
func (w *funcNormalizer) addressable(e ast.Expr, t types.Type) bool {
	tv := w.p.Info.Types[ast.Unparen(e)]
	if tv.Value != nil || tv.IsNil() {
		return true
	}
	return tv.Addressable() && types.Identical(tv.Type, t)
}

// bytesKey reports whether a key is string(bytes), or consists of such. Then
// the compiler looks the element up at once, so that the bytes need not be
// copied.
func (w *funcNormalizer) bytesKey(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		if !w.p.Info.Types[e.Fun].IsType() || w.p.Info.Types[e].Value != nil {
			return false
		}
		to, ok := rewrite.CoreType(w.p.Info.TypeOf(e)).(*types.Basic)
		from, slice := rewrite.CoreType(w.p.Info.TypeOf(e.Args[0])).(*types.Slice)
		if !ok || !slice || to.Info()&types.IsString == 0 {
			return false
		}
		elem, ok := from.Elem().Underlying().(*types.Basic)
		return ok && elem.Kind() == types.Byte
	case *ast.CompositeLit:
		switch rewrite.CoreType(w.p.Info.TypeOf(e)).(type) {
		case *types.Struct, *types.Array:
		default:
			return false
		}
		for _, x := range e.Elts {
			if kv, ok := x.(*ast.KeyValueExpr); ok {
				x = kv.Value
			}
			if w.bytesKey(x) {
				return true
			}
		}
	}
	return false
}

// variable reports whether an expression is a variable, including one that is
// now accessed through a closure's environment.
func (w *funcNormalizer) variable(e ast.Expr) bool {
	e = ast.Unparen(e)
	if s, ok := e.(*ast.StarExpr); ok {
		e = ast.Unparen(s.X)
		if id, ok := e.(*ast.Ident); ok {
			return strings.HasPrefix(id.Name, rewrite.SharedVar)
		}
	}
	switch e := e.(type) {
	case *ast.Ident:
		_, ok := w.p.Info.Uses[e].(*types.Var)
		return ok
	case *ast.SelectorExpr:
		if w.p.Info.Selections[e] == nil { // a variable of another package
			return true
		}
		id, ok := ast.Unparen(e.X).(*ast.Ident)
		return ok && strings.HasPrefix(id.Name, rewrite.EnvName)
	}
	return false
}

// cheap copies an operand, unless it is a variable or a constant.
func (w *funcNormalizer) cheap(o *lines, e ast.Expr) {
	if e == nil || w.variable(e) || rewrite.IsFuncLit(e) {
		return
	}
	w.copy(o, e)
}

// copy evaluates an operand now, unless it was evaluated already.
func (w *funcNormalizer) copy(o *lines, e ast.Expr) {
	e = ast.Unparen(e)
	if tv := w.p.Info.Types[e]; tv.Value != nil || tv.IsNil() || tv.IsType() {
		return
	}
	if _, ok := w.repl[e]; !ok {
		w.hoist(o, e, "")
	}
}

// index visits x[i].
func (w *funcNormalizer) index(o *lines, e *ast.IndexExpr, h how) {
	if w.p.Info.Types[e.Index].IsType() { // an instance of a generic function
		return
	}
	w.visitAll(o, h, e.X, e.Index)
	if h != reads {
		return
	}
	if _, ok := rewrite.CoreType(w.p.Info.TypeOf(e.X)).(*types.Map); !ok {
		return
	}
	switch {
	case !w.assigned[e] && w.bytesKey(e.Index):
		w.hoist(o, e, "")
	case w.keyEarly(e):
		w.copy(o, e.Index)
	}
}

// slice visits x[i:j:k].
func (w *funcNormalizer) slice(o *lines, e *ast.SliceExpr, h how) {
	counts := w.calls
	if h == upTo {
		counts = w.has
	}
	list := []ast.Expr{e.X, e.Low, e.High, e.Max}
	last := len(list) - 1
	for last >= 0 && (list[last] == nil || !counts(list[last])) {
		last--
	}
	for i, x := range list {
		switch {
		case x == nil:
		case i < last || h == reads:
			w.visit(o, x, reads)
			if i > 0 {
				w.cheap(o, x)
			}
		case i == last || h != upTo:
			w.visit(o, x, h)
		}
	}
	if h == reads {
		w.hoist(o, e, "")
	}
}

// compare copies the operands of a comparison that the compiler copies.
func (w *funcNormalizer) compare(o *lines, e *ast.BinaryExpr) {
	if e.Op != token.EQL && e.Op != token.NEQ {
		return
	}
	x, y := w.p.Info.TypeOf(e.X), w.p.Info.TypeOf(e.Y)
	t := y
	if !types.AssignableTo(x, y) {
		t = x
	}
	if unsized(t) && !(w.addressable(e.X, t) && w.addressable(e.Y, t)) {
		w.unclear(e.X)
		w.unclear(e.Y)
		return
	}
	switch t.Underlying().(type) {
	case *types.Struct, *types.Array:
		for _, x := range []ast.Expr{e.X, e.Y} {
			if !w.addressable(x, t) {
				w.copy(o, x)
			}
		}
	}
}

// concrete returns the type that an interface is known to hold. The compiler
// turns calls of its methods into calls of that type's methods, and asserts the
// type when it evaluates the receiver.
func (w *funcNormalizer) concrete(e ast.Expr) types.Type {
	t := w.p.Info.TypeOf(e)
	if t == nil || !types.IsInterface(t) || isTypeParam(t) {
		return t
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		if w.p.Info.Types[e.Fun].IsType() {
			return w.concrete(e.Args[0])
		}
	case *ast.TypeAssertExpr:
		return w.concrete(e.X)
	}
	return nil
}

// direct reports whether an interface holds values of a type directly in its
// data word.
func (w *funcNormalizer) direct(t types.Type) bool {
	word := w.sizes().Sizeof(types.Typ[types.Uintptr])
	return w.sizes().Sizeof(t) == word && holdsPointers(t)
}

// asserts reports whether the compiler evaluates x.(T) in order.
func (w *funcNormalizer) asserts(e *ast.TypeAssertExpr) bool {
	t := w.p.Info.TypeOf(e.Type)
	return !mentionsParam(t, map[types.Type]bool{}) && (types.IsInterface(t) || !w.direct(t))
}

// mentionsParam reports whether a type depends on type parameters.
func mentionsParam(t types.Type, seen map[types.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t = types.Unalias(t); t.(type) {
	case *types.TypeParam:
		return true
	case *types.Interface, *types.Union:
		return false
	}
	for part := range rewrite.TypeParts(t) {
		if mentionsParam(part, seen) {
			return true
		}
	}
	return false
}

// constantPart reports whether the compiler knows the value of an entry of a
// map literal, as a value of a type. Interfaces are made at run time.
func (w *funcNormalizer) constantPart(e ast.Expr, t types.Type) bool {
	tv := w.p.Info.Types[e]
	if tv.IsNil() {
		return true
	}
	if tv.Value != nil {
		return !types.IsInterface(t)
	}
	l, ok := ast.Unparen(e).(*ast.CompositeLit)
	if !ok || types.IsInterface(t) {
		return false
	}
	var field func(int, ast.Expr) types.Type
	switch u := rewrite.CoreType(tv.Type).(type) {
	case *types.Array:
		field = func(int, ast.Expr) types.Type { return u.Elem() }
	case *types.Struct:
		field = func(i int, key ast.Expr) types.Type {
			if key != nil {
				return w.p.Info.TypeOf(key)
			}
			return u.Field(i).Type()
		}
	default:
		return false
	}
	for i, x := range l.Elts {
		var key ast.Expr
		if kv, ok := x.(*ast.KeyValueExpr); ok {
			key, x = kv.Key, kv.Value
		}
		if !w.constantPart(x, field(i, key)) {
			return false
		}
	}
	return true
}

// mapLitOf visits a map literal.
func (w *funcNormalizer) mapLitOf(o *lines, e *ast.CompositeLit, m *types.Map) {
	if w.has(e) {
		w.mapLit(o, e)
		return
	}
	for _, x := range e.Elts {
		kv := x.(*ast.KeyValueExpr)
		if !w.constantPart(kv.Key, m.Key()) || !w.constantPart(kv.Value, m.Elem()) {
			w.mapLit(o, e)
			return
		}
	}
}

// sameSafe reports whether two expressions are the same variable or element, by
// the compiler's rules for m[k] = append(m[k], …).
func (w *funcNormalizer) sameSafe(a, b ast.Expr) bool {
	a, b = w.unconverted(a), w.unconverted(b)
	ta, tb := w.p.Info.Types[a], w.p.Info.Types[b]
	if !types.Identical(ta.Type, tb.Type) {
		return false
	}
	if ta.Value != nil || tb.Value != nil {
		return ta.Value != nil && tb.Value != nil && constant.Compare(ta.Value, token.EQL, tb.Value)
	}
	switch a := a.(type) {
	case *ast.Ident:
		b, ok := b.(*ast.Ident)
		return ok && w.p.Info.Uses[a] == w.p.Info.Uses[b]
	case *ast.SelectorExpr:
		b, ok := b.(*ast.SelectorExpr)
		if !ok || w.p.Info.Uses[a.Sel] != w.p.Info.Uses[b.Sel] {
			return false
		}
		if w.p.Info.Selections[a] == nil {
			return true
		}
		return w.sameSafe(a.X, b.X)
	case *ast.StarExpr:
		b, ok := b.(*ast.StarExpr)
		return ok && w.sameSafe(a.X, b.X)
	case *ast.UnaryExpr:
		b, ok := b.(*ast.UnaryExpr)
		return ok && a.Op == b.Op && a.Op != token.AND && a.Op != token.ARROW && w.sameSafe(a.X, b.X)
	case *ast.IndexExpr:
		b, ok := b.(*ast.IndexExpr)
		return ok && w.sameSafe(a.X, b.X) && w.sameSafe(a.Index, b.Index)
	case *ast.BinaryExpr:
		b, ok := b.(*ast.BinaryExpr)
		if !ok || a.Op != b.Op {
			return false
		}
		if u, ok := ta.Type.Underlying().(*types.Basic); !ok || u.Info()&types.IsNumeric == 0 { // strings are concatenated by a call
			return false
		}
		return w.sameSafe(a.X, b.X) && w.sameSafe(a.Y, b.Y)
	case *ast.CallExpr: // a conversion
		b, ok := b.(*ast.CallExpr)
		u, basic := ta.Type.Underlying().(*types.Basic)
		return ok && basic && u.Info()&(types.IsNumeric|types.IsBoolean) != 0 && w.p.Info.Types[a.Fun].IsType() && w.p.Info.Types[b.Fun].IsType() && w.sameSafe(a.Args[0], b.Args[0])
	}
	return false
}

// unconverted returns an expression without conversions that have no effect.
func (w *funcNormalizer) unconverted(e ast.Expr) ast.Expr {
	for {
		e = ast.Unparen(e)
		c, ok := e.(*ast.CallExpr)
		if !ok || !w.p.Info.Types[c.Fun].IsType() || types.IsInterface(w.p.Info.TypeOf(c)) ||
			!types.Identical(w.p.Info.TypeOf(c).Underlying(), w.p.Info.TypeOf(c.Args[0]).Underlying()) {
			return e
		}
		e = c.Args[0]
	}
}

// appended returns the parts of m[k] = append(m[k], …), or nil if s has another
// form.
func (w *funcNormalizer) appended(s *ast.AssignStmt) (*ast.IndexExpr, *ast.CallExpr) {
	if s.Tok != token.ASSIGN || len(s.Lhs) != 1 || len(s.Rhs) != 1 {
		return nil, nil
	}
	to, ok := ast.Unparen(s.Lhs[0]).(*ast.IndexExpr)
	c, call := ast.Unparen(s.Rhs[0]).(*ast.CallExpr)
	if !ok || !call || w.builtin(c) != "append" || !w.sameSafe(to, c.Args[0]) {
		return nil, nil
	}
	if _, ok := rewrite.CoreType(w.p.Info.TypeOf(to.X)).(*types.Map); !ok {
		return nil, nil
	}
	return to, c
}

// mapAppend computes the operands of m[k] = append(m[k], …). The compiler
// executes it with one lookup in the map.
func (w *funcNormalizer) mapAppend(o *lines, s *ast.AssignStmt) bool {
	to, c := w.appended(s)
	if to == nil {
		return false
	}
	w.visit(o, to, reads)
	w.cheap(o, to.X)
	w.cheap(o, to.Index)
	from := w.unconverted(c.Args[0]).(*ast.IndexExpr)
	for _, x := range [][2]ast.Expr{{to.X, from.X}, {to.Index, from.Index}} {
		if s, ok := w.repl[ast.Unparen(x[0])]; ok {
			w.repl[ast.Unparen(x[1])] = s
		}
	}
	w.visitAll(o, upTo, c.Args[1:]...)
	return true
}
