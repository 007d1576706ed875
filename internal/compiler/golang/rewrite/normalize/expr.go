package normalize

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// text returns a node's text with its replacements.
func (w *funcNormalizer) text(m ast.Node) string { return w.p.NodeText(m, w.put) }

// span returns a part of the text of m, with its replacements.
func (w *funcNormalizer) span(lo, hi token.Pos, m ast.Node) string { return w.p.Span(lo, hi, m, w.put) }

// put replaces expressions that were computed before, and nested statements and
// literals.
func (w *funcNormalizer) put(m ast.Node) (string, bool) {
	switch m := m.(type) {
	case *ast.FuncLit:
		if w.in.Funcs[m] {
			return w.function(m, m.Type, m.Body), true
		}
		return w.literals(m), true
	case *ast.BlockStmt:
		return w.block(m), true
	case *ast.CaseClause:
		return w.clause(m, m.Colon, m.Body), true
	case *ast.CommClause:
		return w.clause(m, m.Colon, m.Body), true
	case ast.Expr:
		s, ok := w.repl[m]
		return s, ok
	}
	return "", false
}

// how says how much of an expression is evaluated before its statement. Reads
// of variables stay in place, because the compiler reads variables after the
// calls.
type how int

const (
	upTo  how = iota // calls up to the last resumable one
	calls            // all calls
	reads            // all calls, and everything that the compiler evaluates in order with them
)

// visit computes the calls in e before the current statement, in o.
func (w *funcNormalizer) visit(o *lines, e ast.Expr, h how) {
	if e == nil || h == upTo && !w.has(e) || h == calls && !w.calls(e) {
		return
	}
	tv := w.p.Info.Types[e]
	if tv.IsType() || tv.IsBuiltin() || tv.Value != nil {
		w.unevaluated(e)
		return
	}
	if h == reads && w.early[e] {
		defer func() {
			if _, ok := w.repl[ast.Unparen(e)]; !ok && !rewrite.IsFuncLit(e) {
				w.hoist(o, e, "")
			}
		}()
	}
	if h == reads && w.doubtful[e] {
		defer w.unclear(e)
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		w.visit(o, e.X, h)
	case *ast.SelectorExpr:
		if w.p.Info.Selections[e] != nil {
			w.visit(o, e.X, h)
		}
	case *ast.StarExpr:
		w.visit(o, e.X, h)
	case *ast.UnaryExpr:
		if e.Op == token.ARROW && h != upTo {
			w.visit(o, e.X, upTo)
			w.hoist(o, e, "")
			return
		}
		w.visit(o, e.X, h)
	case *ast.BinaryExpr:
		if e.Op == token.LAND || e.Op == token.LOR {
			w.logic(o, e, h)
			return
		}
		w.visitAll(o, h, e.X, e.Y)
		if h == reads {
			w.compare(o, e)
		}
	case *ast.IndexExpr:
		w.index(o, e, h)
	case *ast.SliceExpr:
		w.slice(o, e, h)
	case *ast.TypeAssertExpr:
		w.visit(o, e.X, h)
		if h == reads && w.asserts(e) {
			w.hoist(o, e, "")
		}
	case *ast.CompositeLit:
		var parts []ast.Expr
		t := w.p.Info.TypeOf(e)
		if q, ok := t.Underlying().(*types.Pointer); ok {
			t = q.Elem()
		}
		if m, ok := rewrite.CoreType(t).(*types.Map); ok {
			w.mapLitOf(o, e, m)
			return
		}
		for _, x := range e.Elts {
			if kv, ok := x.(*ast.KeyValueExpr); ok {
				x = kv.Value
			}
			parts = append(parts, x)
		}
		w.visitAll(o, h, parts...)
	case *ast.CallExpr:
		w.call(o, e, h)
	}
}

// visitAll visits expressions that are evaluated one after the other.
func (w *funcNormalizer) visitAll(o *lines, h how, list ...ast.Expr) {
	counts := w.calls
	if h == upTo {
		counts = w.has
	}
	last := len(list) - 1
	for last >= 0 && (list[last] == nil || !counts(list[last])) {
		last--
	}
	for i, e := range list {
		if i < last {
			w.visit(o, e, reads)
		} else if i == last || h != upTo {
			w.visit(o, e, h)
		}
	}
}

// calls reports whether a node contains a call or a receive at run time.
func (w *funcNormalizer) calls(m ast.Node) bool {
	found := false
	rewrite.InspectOwn(m, func(k ast.Node) bool {
		switch k := k.(type) {
		case *ast.CallExpr:
			tv := w.p.Info.Types[k]
			if tv.Value != nil {
				return false
			}
			found = found || w.isCall(k) && !w.values[k]
		case *ast.UnaryExpr:
			found = found || k.Op == token.ARROW
		}
		return !found
	})
	return found
}

// isCall reports whether a call happens at run time: it is neither a conversion
// nor a call of a pure built-in function.
func (n *normalizer) isCall(c *ast.CallExpr) bool {
	_, isPure := pure[n.builtin(c)]
	return !n.p.Info.Types[c.Fun].IsType() && !isPure
}

// pure holds the built-in functions that only read their arguments. The value
// is true for those that the compiler evaluates in order.
var pure = map[string]bool{"len": true, "cap": true, "real": true, "imag": true, "complex": true, "min": true, "max": true,

	"Add": false, "Slice": false, "SliceData": false, "String": false, "StringData": false}

// unevaluated records the calls in expressions that are not evaluated at run
// time.
func (w *funcNormalizer) unevaluated(e ast.Expr) {
	rewrite.InspectOwn(e, func(m ast.Node) bool {
		if c, ok := m.(*ast.CallExpr); ok && w.in.Calls[c] {
			w.done[c] = true
		}
		return true
	})
}

// logic visits a && b or a || b.
func (w *funcNormalizer) logic(o *lines, e *ast.BinaryExpr, h how) {
	if !w.has(e.Y) {
		w.visit(o, e.X, upTo)
		if h != upTo {
			w.hoist(o, e, "")
		}
		return
	}
	w.visit(o, e.X, upTo)
	t := w.name("t")
	w.declare(o, t, e, w.text(e.X))
	var in lines
	if c, ok := ast.Unparen(e.Y).(*ast.CallExpr); ok && w.in.Calls[c] {
		w.resumableCall(&in, c, t+" = ")
	} else {
		w.visit(&in, e.Y, upTo)
		in.add(t + " = " + w.text(e.Y))
	}
	not := ""
	if e.Op == token.LOR {
		not = "!"
	}
	o.add("if "+not+t+" {", in.String(), "}")
	w.repl[e] = t
}

// declare declares a variable for the value of e, which is written as text.
func (w *funcNormalizer) declare(o *lines, name string, e ast.Expr, text string) {
	if t := w.p.Info.TypeOf(e); w.depends(e) {
		o.add(w.p.LineComment(e.Pos()) + "var " + name + " " + w.typ(t, e.Pos(), e.Pos()) + " = " + text)
	} else {
		o.add(w.p.LineComment(e.Pos()) + name + " := " + text)
	}
}

// depends reports whether an expression gets its type from its context: a
// comparison, or a shift of a constant.
func (w *funcNormalizer) depends(e ast.Expr) bool {
	t := w.p.Info.TypeOf(e)
	found := false
	var look func(e ast.Expr)
	look = func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.ParenExpr:
			look(e.X)
		case *ast.UnaryExpr:
			if e.Op != token.ARROW && e.Op != token.AND {
				look(e.X)
			}
		case *ast.BinaryExpr:
			switch e.Op {
			case token.SHL, token.SHR:
				if w.p.Info.Types[e].Value == nil && w.p.Info.Types[e.X].Value != nil {
					found = true
				}
				look(e.X)
			case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
				b, ok := types.Unalias(t).(*types.Basic)
				found = found || !ok || b.Kind() != types.Bool && b.Kind() != types.UntypedBool
			default:
				look(e.X)
				look(e.Y)
			}
		}
	}
	look(e)
	return found
}

// hoist evaluates e into variables before the statement. The variables replace
// it.
func (w *funcNormalizer) hoist(o *lines, e ast.Expr, mark string) {
	count := 1
	if t, ok := w.p.Info.TypeOf(e).(*types.Tuple); ok && !w.commaOK(e) {
		count = t.Len()
	}
	var names []string
	for range count {
		names = append(names, w.name("t"))
	}
	list := strings.Join(names, ", ")
	switch {
	case mark != "":
		o.add(mark, w.p.LineComment(e.Pos())+list+" := "+w.text(e))
	case count == 1:
		w.declare(o, list, e, w.text(e))
	default:
		o.add(w.p.LineComment(e.Pos()) + list + " := " + w.text(e))
	}
	w.repl[e] = list
}

// commaOK reports whether e is a comma-ok expression.
func (w *funcNormalizer) commaOK(e ast.Expr) bool {
	_, call := e.(*ast.CallExpr)
	return !call
}

// call visits a call.
func (w *funcNormalizer) call(o *lines, c *ast.CallExpr, h how) {
	if w.in.Calls[c] {
		w.prepare(o, c)
		w.done[c] = true
		w.hoist(o, c, markCall)
		return
	}
	if w.values[c] {
		w.visit(o, c.Args[0], h)
		return
	}
	if w.p.Info.Types[c.Fun].IsType() {
		w.visit(o, c.Args[0], h)
		if h == reads && w.copies(c) {
			w.hoist(o, c, "")
		}
		return
	}
	if early, ok := pure[w.builtin(c)]; ok {
		w.visitAll(o, h, c.Args...)
		if name := w.builtin(c); name == "len" || name == "cap" {
			w.evaluate(o, c.Args[0])
		}
		if h == reads && early {
			w.hoist(o, c, "")
		}
		return
	}
	if w.before[c] {
		w.visitAll(o, calls, w.operands(c)...)
		w.hoist(o, c, "")
		return
	}
	w.visitAll(o, upTo, w.operands(c)...)
	if h != upTo {
		w.hoist(o, c, "")
	}
}

// evaluate evaluates an expression of which only the length matters, if it is
// an array or a pointer to one. Go evaluates it if it contains a call or a
// receive, and these may all be before the statement now.
func (w *funcNormalizer) evaluate(o *lines, e ast.Expr) {
	t := rewrite.CoreType(w.p.Info.TypeOf(e))
	if p, ok := t.(*types.Pointer); ok {
		t = rewrite.CoreType(p.Elem())
	}
	if _, ok := t.(*types.Array); !ok || !w.calls(e) || w.repl[ast.Unparen(e)] != "" {
		return
	}
	left := false
	rewrite.InspectOwn(e, func(m ast.Node) bool {
		x, ok := m.(ast.Expr)
		if ok && w.repl[x] != "" {
			return false
		}
		switch x := x.(type) {
		case *ast.CallExpr:
			left = left || w.isCall(x) && !w.values[x]
		case *ast.UnaryExpr:
			left = left || x.Op == token.ARROW
		}
		return !left
	})
	if !left {
		o.add(w.p.LineComment(e.Pos()) + "_ = " + w.text(e))
	}
}

// copies reports whether a conversion makes a slice of a string.
func (w *funcNormalizer) copies(c *ast.CallExpr) bool {
	_, slice := rewrite.CoreType(w.p.Info.TypeOf(c)).(*types.Slice)
	b, ok := rewrite.CoreType(w.p.Info.TypeOf(c.Args[0])).(*types.Basic)
	return slice && ok && b.Info()&types.IsString != 0
}

// builtin returns the name of the built-in function that is called.
func (n *normalizer) builtin(c *ast.CallExpr) string {
	switch f := ast.Unparen(c.Fun).(type) {
	case *ast.Ident:
		if b, ok := n.p.Info.Uses[f].(*types.Builtin); ok {
			return b.Name()
		}
	case *ast.SelectorExpr:
		if b, ok := n.p.Info.Uses[f.Sel].(*types.Builtin); ok {
			return b.Name()
		}
	}
	return ""
}

// callee says how a call finds its function.
type callee int

const (
	static       callee = iota // a function or a literal
	staticMethod               // a method of a type
	dynamic                    // a func value
	ifaceMethod                // a method of an interface or a type parameter
	ifaceExpr                  // I.M(x)
)

// callee returns how a call finds its function, and the operand that determines
// it: the receiver or the func value.
func (w *funcNormalizer) callee(c *ast.CallExpr) (callee, ast.Expr) {
	f := ast.Unparen(c.Fun)
	for {
		switch x := f.(type) {
		case *ast.IndexExpr:
			if w.p.Info.Types[x.Index].IsType() {
				f = ast.Unparen(x.X)
				continue
			}
		case *ast.IndexListExpr:
			f = ast.Unparen(x.X)
			continue
		}
		break
	}
	switch x := f.(type) {
	case *ast.FuncLit:
		return static, nil
	case *ast.Ident:
		switch w.p.Info.Uses[x].(type) {
		case *types.Func, *types.Builtin:
			return static, nil
		}
	case *ast.SelectorExpr:
		s := w.p.Info.Selections[x]
		if s == nil {
			if _, ok := w.p.Info.Uses[x.Sel].(*types.Var); !ok {
				return static, nil
			}
			break
		}
		iface := false
		if m, ok := s.Obj().(*types.Func); ok {
			recv := m.Signature().Recv().Type()
			_, tp := types.Unalias(recv).(*types.TypeParam)
			iface = tp || types.IsInterface(recv)
		}
		switch {
		case s.Kind() == types.MethodExpr && iface:
			return ifaceExpr, nil
		case s.Kind() == types.MethodExpr:
			return static, nil
		case s.Kind() == types.MethodVal && iface:
			return ifaceMethod, x.X
		case s.Kind() == types.MethodVal:
			return staticMethod, x.X
		}
	}
	return dynamic, c.Fun
}

// operands returns the expressions that a call evaluates, in order.
func (w *funcNormalizer) operands(c *ast.CallExpr) []ast.Expr {
	var list []ast.Expr
	if _, x := w.callee(c); x != nil {
		list = append(list, x)
	}
	return append(list, c.Args...)
}

// prepare computes what a resumable call needs, but not the call itself.
func (w *funcNormalizer) prepare(o *lines, c *ast.CallExpr) {
	kind, x := w.callee(c)
	if kind == ifaceExpr && len(c.Args) == 1 {
		if _, ok := w.p.Info.TypeOf(c.Args[0]).(*types.Tuple); ok {
			w.refuse(c.Pos(), "call the method by a value: x.M()", "a call of a method expression of an interface with the results of another call, on the way to a point")
		}
	}
	w.visitAll(o, calls, w.operands(c)...)
	for _, e := range c.Args {
		rewrite.InspectOwn(e, func(m ast.Node) bool {
			v, ok := m.(*ast.CallExpr)
			if ok && w.values[v] {
				w.copy(o, v)
			}
			return !ok || !w.values[v]
		})
	}
	if kind == ifaceExpr {
		w.callByValue(o, c)
		return
	}
	if kind != dynamic && kind != ifaceMethod {
		return
	}
	// The operand that determines the callee must be the same when the call is
	// made again.
	text, ok := w.repl[ast.Unparen(x)]
	if dots, _ := w.dots(c); !ok && !w.steady(x) || kind == ifaceMethod && dots != "" {
		text = w.name("t")
		o.add(w.p.LineComment(x.Pos()) + text + " := " + w.text(x) + dots)
	} else if !ok {
		return
	}
	w.repl[x] = text
}

// callByValue replaces I.M(x, y), where I is an interface, by a call of method
// M of a variable, which determines the callee when the call is made again.
func (w *funcNormalizer) callByValue(o *lines, c *ast.CallExpr) {
	f := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	t := w.name("t")
	o.add(w.p.LineComment(c.Pos()) + t + " := (" + w.text(f.X) + ")(" + w.text(c.Args[0]) + ")")
	lo := c.Rparen
	if len(c.Args) > 1 {
		lo = c.Args[1].Pos()
	}
	w.repl[c] = t + "." + f.Sel.Name + "(" + w.span(lo, c.End(), c)
}

// path returns the fields between a receiver and the one that has the method.
func (w *funcNormalizer) path(c *ast.CallExpr) []*types.Var {
	sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	s := w.p.Info.Selections[sel]
	if s == nil || s.Kind() != types.MethodVal {
		return nil
	}
	var out []*types.Var
	t := s.Recv()
	for _, i := range s.Index()[:len(s.Index())-1] {
		if q, ok := t.Underlying().(*types.Pointer); ok {
			t = q.Elem()
		}
		st, ok := t.Underlying().(*types.Struct)
		if !ok {
			return out
		}
		f := st.Field(i)
		out = append(out, f)
		t = f.Type()
	}
	return out
}

// dots writes the fields of path, and returns the type of the last. If a field
// cannot be named here, it returns nothing for a receiver that leads to the
// same value at any time, and else refuses.
func (w *funcNormalizer) dots(c *ast.CallExpr) (text string, last types.Type) {
	path := w.path(c)
	for _, f := range path {
		if !f.Exported() && f.Pkg() != w.p.Types {
			if !w.fixedPath(c, path) {
				w.refuse(c.Pos(), "call the method by a variable of the interface itself", "the receiver of this call is a field that cannot be named here: %s", f.Name())
			}
			return "", nil
		}
		text, last = text+"."+f.Name(), f.Type()
	}
	return text, last
}

// fixedPath reports whether the fields of a path lead from a receiver, which is
// a pointer, always to the same value.
func (w *funcNormalizer) fixedPath(c *ast.CallExpr, path []*types.Var) bool {
	s := w.p.Info.Selections[ast.Unparen(c.Fun).(*ast.SelectorExpr)]
	if _, ok := s.Recv().Underlying().(*types.Pointer); !ok || w.p.Reassigned == nil {
		return false
	}
	of := types.Unalias(s.Obj().(*types.Func).Signature().Recv().Type())
	if _, ok := of.(*types.Pointer); !ok && !types.IsInterface(of) {
		return false // a copy of the value is the receiver
	}
	return !slices.ContainsFunc(path, func(f *types.Var) bool {
		_, inside := f.Type().Underlying().(*types.Struct)
		return !inside && w.p.Reassigned(f)
	})
}

// steady reports whether an expression is a local variable that does not change
// during a call.
func (w *funcNormalizer) steady(e ast.Expr) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return false
	}
	v, ok := w.p.Info.Uses[id].(*types.Var)
	if !ok || v.Parent() == w.p.Types.Scope() || v.Pkg() != w.p.Types {
		return false
	}
	u := w.use(v)
	return !u.inside && !u.taken && u.owner != nil
}

// resumableCall writes a resumable call, with the variables that it is assigned
// to.
func (w *funcNormalizer) resumableCall(o *lines, c *ast.CallExpr, to string) {
	w.prepare(o, c)
	w.done[c] = true
	o.add(markCall, w.p.LineComment(c.Pos())+to+w.text(c))
}
