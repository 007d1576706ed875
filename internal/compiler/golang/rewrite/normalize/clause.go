package normalize

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// switchCases writes a switch with resumable calls in expressions of its cases.
// The expressions are evaluated one after the other until one matches. Then the
// switch is on the number of its clause.
func (w *funcNormalizer) switchCases(o *lines, s *ast.SwitchStmt, label string) {
	in := o
	if s.Init != nil {
		in = &lines{}
		w.simple(in, s.Init)
	}
	tag := ""
	if s.Tag != nil {
		w.visit(in, s.Tag, upTo)
		tag = w.name("t")
		w.declare(in, tag, s.Tag, w.text(s.Tag))
	}
	c := w.name("c")
	in.add(c + " := 0")
	first := true
	for i, clause := range s.Body.List {
		for _, e := range clause.(*ast.CaseClause).List {
			var part lines
			w.visit(&part, e, upTo)
			cond := "(" + w.text(e) + ")"
			if tag != "" {
				cond = tag + " == " + cond
			}
			part.add(fmt.Sprintf("if %s {\n%s = %d\n}", cond, c, i+1))
			if first {
				in.add(part.list...)
			} else {
				in.add("if "+c+" == 0 {", part.String(), "}")
			}
			first = false
		}
	}
	in.add(label + "switch " + c + " " + w.clauses(s.Body, func(i int, clause ast.Stmt) string {
		cc := clause.(*ast.CaseClause)
		head := "default:"
		if cc.List != nil {
			head = fmt.Sprintf("case %d:", i+1)
		}
		return head + w.inner(cc.Colon+1, cc.Body, cc.End())
	}))
	if in != o {
		o.add("{", in.String(), "}")
	}
}

// inCases reports whether a resumable call is in an expression of a case.
func (w *funcNormalizer) inCases(b *ast.BlockStmt) bool {
	for _, c := range b.List {
		for _, e := range c.(*ast.CaseClause).List {
			if w.has(e) {
				return true
			}
		}
	}
	return false
}

// clauses writes the clauses of a statement.
func (w *funcNormalizer) clauses(body *ast.BlockStmt, text func(int, ast.Stmt) string) string {
	var b strings.Builder
	b.WriteString("{")
	lo := body.Lbrace + 1
	for i, c := range body.List {
		b.WriteString(w.p.Text(lo, c.Pos()))
		b.WriteString(text(i, c))
		lo = c.End()
	}
	b.WriteString(w.p.Text(lo, body.Rbrace) + "}")
	return b.String()
}

// selectStmt writes a select. The channels and values of its communications are
// evaluated before it, in order. The variables that they assign to are
// evaluated after it.
func (w *funcNormalizer) selectStmt(o *lines, s *ast.SelectStmt, label string) {
	var list []ast.Expr
	for _, c := range s.Body.List {
		switch comm := c.(*ast.CommClause).Comm.(type) {
		case *ast.SendStmt:
			list = append(list, comm.Chan, comm.Value)
		case *ast.ExprStmt:
			list = append(list, received(comm.X))
		case *ast.AssignStmt:
			list = append(list, received(comm.Rhs[0]))
		}
	}
	last := len(list) - 1
	for last >= 0 && !w.has(list[last]) {
		last--
	}
	for i, e := range list[:last+1] {
		if i == last {
			w.visit(o, e, upTo)
			break
		}
		w.visit(o, e, reads)
		tv := w.p.Info.Types[e]
		if _, done := w.repl[ast.Unparen(e)]; !done && tv.Value == nil && !tv.IsNil() && !rewrite.IsFuncLit(e) {
			w.hoist(o, e, "")
		}
	}
	o.add(label + "select " + w.clauses(s.Body, func(_ int, c ast.Stmt) string {
		cc := c.(*ast.CommClause)
		a, ok := cc.Comm.(*ast.AssignStmt)
		if ok && a.Tok == token.DEFINE && w.takenAny(a.Lhs) {
			return w.receivedAfter(cc, a)
		}
		if !ok || a.Tok != token.ASSIGN || !w.hasAny(a.Lhs) {
			return w.clause(cc, cc.Colon, cc.Body)
		}
		var names, to []string
		var in lines
		for range a.Lhs {
			names = append(names, w.name("t"))
		}
		w.visitAll(&in, upTo, a.Lhs...)
		for _, e := range a.Lhs {
			to = append(to, w.text(e))
		}
		in.add(strings.Join(to, ", ") + " = " + strings.Join(names, ", "))
		return "case " + strings.Join(names, ", ") + " := " + w.text(a.Rhs[0]) + ":\n" + in.String() + "\n" + w.inner(cc.Colon+1, cc.Body, cc.End())
	}))
}

// takenAny reports whether the address of one of several new variables is
// taken.
func (w *funcNormalizer) takenAny(list []ast.Expr) bool {
	for _, e := range list {
		if v, ok := w.p.Info.Defs[e.(*ast.Ident)].(*types.Var); ok && w.use(v).taken {
			return true
		}
	}
	return false
}

// receivedAfter writes a clause that declares its variables after it has
// received their values, so that the variables can be boxed.
func (w *funcNormalizer) receivedAfter(cc *ast.CommClause, a *ast.AssignStmt) string {
	var names, to []string
	for _, e := range a.Lhs {
		names = append(names, w.name("t"))
		to = append(to, e.(*ast.Ident).Name)
	}
	return "case " + strings.Join(names, ", ") + " := " + w.text(a.Rhs[0]) + ":\n" +
		strings.Join(to, ", ") + " := " + strings.Join(names, ", ") + "\n{\n" + w.inner(cc.Colon+1, cc.Body, cc.End()) + "\n}\n"
}

// received returns the channel that an expression receives from, or nil.
func received(e ast.Expr) ast.Expr {
	if u, ok := ast.Unparen(e).(*ast.UnaryExpr); ok {
		return u.X
	}
	return e
}

func (w *funcNormalizer) hasAny(list []ast.Expr) bool {
	return slices.ContainsFunc(list, func(e ast.Expr) bool { return w.has(e) })
}

// mapLit makes a map literal in the way the compiler does: first the map with
// its constant entries, then the others one by one.
func (w *funcNormalizer) mapLit(o *lines, e *ast.CompositeLit) {
	t := w.p.Info.TypeOf(e)
	address := ""
	if q, ok := t.Underlying().(*types.Pointer); ok && e.Type == nil {
		t, address = q.Elem(), "&"
	}
	m := rewrite.CoreType(t).(*types.Map)
	var first []string
	var rest []*ast.KeyValueExpr
	for _, x := range e.Elts {
		kv := x.(*ast.KeyValueExpr)
		if w.constantPart(kv.Key, m.Key()) && w.constantPart(kv.Value, m.Elem()) {
			first = append(first, w.text(kv))
		} else {
			rest = append(rest, kv)
		}
	}
	name := w.name("t")
	typ := ""
	if e.Type != nil {
		typ = w.text(e.Type)
	} else {
		typ = w.typ(t, e.Pos(), e.Pos())
	}
	o.add(name + " := " + typ + "{" + strings.Join(first, ", ") + "}")
	for _, kv := range rest {
		w.visitAll(o, upTo, kv.Key, kv.Value)
		o.add(name + "[" + w.element(kv.Key, m.Key()) + "] = " + w.element(kv.Value, m.Elem()))
	}
	w.repl[e] = address + name
}

// element writes an element of a composite literal as a separate expression.
// Its type may have been omitted in the literal.
func (w *funcNormalizer) element(e ast.Expr, t types.Type) string {
	l, ok := e.(*ast.CompositeLit)
	if _, done := w.repl[e]; done || !ok || l.Type != nil {
		return w.text(e)
	}
	if q, ok := t.Underlying().(*types.Pointer); ok {
		return "&" + w.typ(q.Elem(), e.Pos(), e.Pos()) + w.text(e)
	}
	return w.typ(t, e.Pos(), e.Pos()) + w.text(e)
}
