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

// deferStmt writes a deferred call. If it may be pending at a point, its
// operands are stored in variables, so that it can be deferred again.
func (w *funcNormalizer) deferStmt(o *lines, s *ast.DeferStmt) {
	c := s.Call
	if w.in.Calls[c] {
		w.refuse(s.Pos(), "call it before the function returns", "a deferred call that leads to a point")
	}
	w.visitAll(o, upTo, w.operands(c)...)
	loop, nested := w.around(s)
	if !w.pending(s, loop) {
		o.add(w.text(s))
		return
	}
	var g given
	kind, x := w.callee(c)
	switch kind {
	case dynamic:
		if !w.fixed(x, nested) {
			g.add(x, w.p.Info.TypeOf(x), w.text(x))
		}
	case ifaceMethod:
		dots, t := w.dots(c)
		g.add(x, w.p.Info.TypeOf(x), w.text(x)+dots)
		if t != nil {
			g.types[0] = t
		}
	case staticMethod:
		w.receiver(&g, c, x)
	}
	for _, e := range c.Args {
		if t, ok := w.p.Info.TypeOf(e).(*types.Tuple); ok {
			g.tuple(e, t, w.text(e))
			continue
		}
		tv := w.p.Info.Types[e]
		if tv.Value != nil || tv.IsNil() || tv.IsType() || rewrite.IsFuncLit(e) || w.fixed(e, nested) {
			continue
		}
		if s, ok := w.repl[ast.Unparen(e)]; ok && !nested && s != "" {
			continue
		}
		text := w.text(e)
		if w.depends(e) {
			text = w.typ(tv.Type, e.Pos(), e.Pos()) + "(" + text + ")"
		}
		g.add(e, tv.Type, text)
	}
	if nested {
		w.blockLocals(&g, c)
	}
	w.defers++
	for w.names[fmt.Sprintf("%sd%d", rewrite.Prefix, w.defers)] {
		w.defers++
	}
	n := w.defers
	names := w.keep(o, &g, nested && loop == nil, s.Pos())
	if loop != nil {
		w.record(o, loop, n, names, g.types, s.Pos())
	} else if nested {
		flag := fmt.Sprintf("%sd%d", rewrite.Prefix, n)
		w.predeclared("false", w.body.Lbrace+1)
		w.predeclared("true", s.Pos())
		w.head = append(w.head, flag+" := false", "_ = "+flag)
		o.add(flag + " = true")
	}
	o.add(fmt.Sprintf("//cairn:defer %d", n), w.p.LineComment(s.Pos())+w.text(s))
}

// given holds the operands of a deferred call.
type given struct {
	at    []ast.Expr
	count []int // number of variables for each operand
	types []types.Type
	texts []string

	captured map[ast.Expr][]*ast.Ident // for an operand that stands for a captured variable: all uses of the variable
}

func (g *given) add(e ast.Expr, t types.Type, text string) {
	g.at, g.count = append(g.at, e), append(g.count, 1)
	g.types, g.texts = append(g.types, t), append(g.texts, text)
}

func (g *given) tuple(e ast.Expr, t *types.Tuple, text string) {
	g.at, g.count = append(g.at, e), append(g.count, t.Len())
	g.texts = append(g.texts, text)
	for v := range t.Variables() {
		g.types = append(g.types, v.Type())
	}
}

// loopDefers describes the deferred calls in a loop. The program appends each
// of them with its operands to a list, so that all can be deferred again.
type loopDefers struct {
	name   string // name of the list
	fields []string
}

// text returns the element type of the list.
func (d *loopDefers) text() string {
	return "struct {\n" + strings.Join(d.fields, "\n") + "\n}"
}

// hole returns a placeholder for that type until it is known.
func (d *loopDefers) hole() string { return "\x01" + d.name + "\x01" }

// record writes code that appends a deferred call to the list of its loop.
func (w *funcNormalizer) record(o *lines, loop ast.Stmt, n int, names []string, list []types.Type, at token.Pos) {
	d := w.loops[loop]
	head := w.body.Lbrace + 1
	if d == nil {
		d = &loopDefers{name: w.name("l"), fields: []string{rewrite.Prefix + "n " + w.typ(types.Typ[types.Int], head, at)}}
		if w.loops == nil {
			w.loops = map[ast.Stmt]*loopDefers{}
		}
		w.loops[loop] = d
		w.head = append(w.head, "var "+d.name+" []"+d.hole())
	}
	w.predeclared("append", at)
	values := []string{fmt.Sprintf("%sn: %d", rewrite.Prefix, n)}
	for i, name := range names {
		d.fields = append(d.fields, name+" "+w.typ(types.Default(list[i]), head, at))
		values = append(values, name+": "+name)
	}
	o.add(d.name + " = append(" + d.name + ", " + d.hole() + "{" + strings.Join(values, ", ") + "})")
}

// fill replaces placeholders by their types.
func (w *funcNormalizer) fill(s string) string {
	for _, d := range w.loops {
		s = strings.ReplaceAll(s, d.hole(), d.text())
	}
	return s
}

// keep stores the operands of a deferred call in variables.
func (w *funcNormalizer) keep(o *lines, g *given, nested bool, at token.Pos) []string {
	var names []string
	for i, e := range g.at {
		var own []string
		for range g.count[i] {
			own = append(own, w.name("t"))
		}
		if v := g.captured[e]; v == nil {
			w.repl[e] = strings.Join(own, ", ")
		} else {
			for _, id := range v {
				w.within[id] = "(*" + own[0] + ")"
			}
		}
		names = append(names, own...)
	}
	if len(names) == 0 {
		return nil
	}
	op := " := "
	if nested {
		op = " = "
		for i, n := range names {
			w.head = append(w.head, "var "+n+" "+w.typ(types.Default(g.types[i]), w.body.Lbrace+1, at))
		}
	}
	if len(g.texts) == len(names) {
		o.add(strings.Join(names, ", ") + op + strings.Join(g.texts, ", "))
		return names
	}
	// One operand has several values: f(g()), after a receiver.
	k := 0
	for i, text := range g.texts {
		o.add(strings.Join(names[k:k+g.count[i]], ", ") + op + text)
		k += g.count[i]
	}
	return names
}

// receiver adds the receiver of a method to g, as the defer statement evaluates
// it.
func (w *funcNormalizer) receiver(g *given, c *ast.CallExpr, x ast.Expr) {
	sel := ast.Unparen(c.Fun).(*ast.SelectorExpr)
	s := w.p.Info.Selections[sel]
	dots, t := w.dots(c)
	text := w.text(x) + dots
	if t == nil {
		if t = s.Recv(); len(w.path(c)) > 0 { // the receiver is found when it is called
			g.add(x, t, text)
			return
		}
	}
	_, byPointer := types.Unalias(s.Obj().(*types.Func).Signature().Recv().Type()).(*types.Pointer)
	ptr, isPointer := t.Underlying().(*types.Pointer)
	switch {
	case byPointer && !isPointer:
		text, t = "&"+text, types.NewPointer(t)
	case !byPointer && isPointer:
		text, t = "*"+text, ptr.Elem()
	}
	g.add(x, t, text)
}

// fixed reports whether an operand of a deferred call has the same value
// whenever it is evaluated: a function, or a local variable that always holds
// the same function.
func (w *funcNormalizer) fixed(e ast.Expr, nested bool) bool {
	e = ast.Unparen(e)
	if s, ok := e.(*ast.SelectorExpr); ok && w.p.Info.Selections[s] == nil {
		e = s.Sel
	}
	id, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	switch v := w.p.Info.Uses[id].(type) {
	case *types.Func:
		return true
	case *types.Var:
		if _, ok := v.Type().Underlying().(*types.Signature); !ok {
			return false
		}
		u := w.use(v)
		if u.owner == nil || u.taken || u.assigned > 0 || !u.value {
			return false
		}
		if nested && !w.atTop(v) {
			if u.literal {
				w.refuse(e.Pos(), "declare it at the top of the function", "%s, a function literal declared in a block, is deferred and pending at a point", v.Name())
			}
			return false
		}
		return true
	}
	return false
}

// atTop reports whether a variable is declared directly in the function, or
// outside.
func (w *funcNormalizer) atTop(v *types.Var) bool {
	return v.Parent() == w.p.Info.Scopes[w.ftyp] || v.Pos() < w.node.Pos() || v.Pos() > w.node.End()
}

// blockLocals gives the literals in a deferred call the addresses of the
// variables of the surrounding block that they use.
func (w *funcNormalizer) blockLocals(g *given, c *ast.CallExpr) {
	uses := map[*types.Var][]*ast.Ident{}
	var order []*types.Var
	ast.Inspect(c, func(m ast.Node) bool {
		l, ok := m.(*ast.FuncLit)
		if !ok {
			return true
		}
		ast.Inspect(l, func(k ast.Node) bool {
			id, ok := k.(*ast.Ident)
			if !ok {
				return true
			}
			v, ok := w.p.Info.Uses[id].(*types.Var)
			if ok && !v.IsField() && !(l.Pos() <= v.Pos() && v.Pos() < l.End()) && !w.atTop(v) {
				if u := w.use(v); u.literal {
					w.refuse(id.Pos(), "declare it at the top of the function", "a deferred function literal, pending at a point, uses %s, a function literal declared in a block", v.Name())
				}
				if uses[v] == nil {
					order = append(order, v)
				}
				uses[v] = append(uses[v], id)
			}
			return true
		})
		return false
	})
	for _, v := range order {
		if w.within == nil {
			w.within = map[*ast.Ident]string{}
		}
		if g.captured == nil {
			g.captured = map[ast.Expr][]*ast.Ident{}
		}
		g.captured[uses[v][0]] = uses[v]
		g.add(uses[v][0], types.NewPointer(v.Type()), "&"+v.Name())
	}
}

// around returns the outermost loop around a statement, and whether the
// statement is in a nested block.
func (w *funcNormalizer) around(s ast.Stmt) (loop ast.Stmt, nested bool) {
	nested = true
	for _, t := range w.body.List {
		nested = nested && t != s
	}
	nested = nested || w.jumps.crossed(s)
	rewrite.InspectOwn(w.body, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			if m.Pos() <= s.Pos() && s.End() <= m.End() && loop == nil {
				loop = m.(ast.Stmt)
			}
		}
		return loop == nil
	})
	return loop, nested
}

// pending reports whether a point may come after a defer.
func (w *funcNormalizer) pending(s ast.Stmt, loop ast.Stmt) bool {
	from := s.End()
	if loop != nil {
		from = loop.Pos()
	}
	return slices.ContainsFunc(w.marks, func(m token.Pos) bool { return m >= from })
}
