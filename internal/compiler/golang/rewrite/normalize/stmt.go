package normalize

import (
	"go/ast"
	"go/token"
	"strings"
)

// block returns a block's new text.
func (w *funcNormalizer) block(b *ast.BlockStmt) string {
	return "{" + w.inner(b.Lbrace+1, b.List, b.Rbrace) + "}"
}

// clause returns a clause's new text.
func (w *funcNormalizer) clause(c ast.Node, colon token.Pos, body []ast.Stmt) string {
	head := w.p.Span(c.Pos(), colon+1, c, func(m ast.Node) (string, bool) {
		if m == c {
			return "", false
		}
		return w.put(m)
	})
	return head + w.inner(colon+1, body, c.End())
}

// inner returns the text from lo to hi, which holds a list of statements.
func (w *funcNormalizer) inner(lo token.Pos, list []ast.Stmt, hi token.Pos) string {
	var b strings.Builder
	for _, s := range list {
		gap := w.p.Text(lo, s.Pos())
		b.WriteString(gap)
		var o lines
		w.stmt(&o, s)
		if len(o.list) > 1 && w.jumps.crossed(s) { // nothing may be declared between a goto and its label
			o = lines{list: []string{"{", o.String(), "}"}}
		}
		text := o.String()
		line := gap[strings.LastIndexByte(gap, '\n')+1:]
		if len(o.list) > 1 && (strings.TrimSpace(line) != "" || !strings.Contains(gap, "\n")) {
			b.WriteByte('\n')
		}
		b.WriteString(text)
		lo = s.End()
	}
	b.WriteString(w.p.Text(lo, hi))
	return b.String()
}

// stmt writes a statement, and the point before it, if there is one.
func (w *funcNormalizer) stmt(o *lines, all ast.Stmt) {
	s := all
	for {
		switch s.(type) {
		case *ast.ForStmt, *ast.RangeStmt: // these have their point at the top of their bodies
		default:
			w.point(o, s)
		}
		l, ok := s.(*ast.LabeledStmt)
		if !ok {
			break
		}
		s = l.Stmt
	}
	w.labelled(o, all, "")
}

// labelled writes a statement with labels. Code that is inserted before the
// statement comes before the labels, too.
func (w *funcNormalizer) labelled(o *lines, s ast.Stmt, label string) {
	switch s := s.(type) {
	case *ast.LabeledStmt:
		w.labelled(o, s.Stmt, label+s.Label.Name+":\n")
	case *ast.IfStmt:
		w.ifStmt(o, s, label, false)
	case *ast.ForStmt:
		w.forStmt(o, s, label)
	case *ast.RangeStmt:
		w.rangeStmt(o, s, label)
	case *ast.SwitchStmt:
		if w.inCases(s.Body) {
			w.switchCases(o, s, label)
			return
		}
		w.switchStmt(o, s.Init, s.Tag, s, s.Body, label)
	case *ast.TypeSwitchStmt:
		var x ast.Expr
		switch a := s.Assign.(type) {
		case *ast.ExprStmt:
			x = a.X
		case *ast.AssignStmt:
			x = a.Rhs[0]
		}
		w.switchStmt(o, s.Init, x, s, s.Body, label)
	case *ast.SelectStmt:
		w.selectStmt(o, s, label)
	case *ast.DeferStmt:
		w.deferStmt(o, s)
	case *ast.DeclStmt:
		w.declStmt(o, s)
	default:
		if label != "" {
			o.add(label + w.text(s))
			return
		}
		w.simple(o, s)
	}
}

// simple writes a statement that contains no other statements.
func (w *funcNormalizer) simple(o *lines, s ast.Stmt) {
	if !w.has(s) {
		o.add(w.text(s))
		return
	}
	switch s := s.(type) {
	case *ast.ExprStmt:
		if c, ok := ast.Unparen(s.X).(*ast.CallExpr); ok && w.in.Calls[c] {
			w.prepare(o, c)
			w.done[c] = true
			o.add(markCall, w.p.LineComment(c.Pos())+w.text(c))
			return
		}
		w.visit(o, s.X, upTo)
	case *ast.AssignStmt:
		if w.assign(o, s) {
			return
		}
		if !w.mapAppend(o, s) {
			w.operandsOf(o, s)
		}
	case *ast.IncDecStmt:
		w.visit(o, s.X, upTo)
	case *ast.SendStmt:
		w.visitAll(o, upTo, s.Chan, s.Value)
	case *ast.ReturnStmt:
		w.visitAll(o, upTo, s.Results...)
	case *ast.GoStmt:
		if w.in.Calls[s.Call] {
			w.refuse(s.Pos(), "points can be on the main goroutine only", "a goroutine that leads to a point")
		}
		w.visitAll(o, upTo, w.operands(s.Call)...)
	}
	o.add(w.p.LineComment(s.Pos()) + w.text(s))
}

// assign writes a statement of the form a, b := f(x), and reports whether s is
// one.
func (w *funcNormalizer) assign(o *lines, s *ast.AssignStmt) bool {
	if len(s.Rhs) != 1 || s.Tok != token.DEFINE && s.Tok != token.ASSIGN {
		return false
	}
	c, ok := ast.Unparen(s.Rhs[0]).(*ast.CallExpr)
	if !ok || !w.in.Calls[c] {
		return false
	}
	var names []string
	for _, e := range s.Lhs {
		id, ok := e.(*ast.Ident)
		if !ok {
			return false
		}
		names = append(names, id.Name)
	}
	w.resumableCall(o, c, strings.Join(names, ", ")+" "+s.Tok.String()+" ")
	return true
}

// operandsOf computes the operands of an assignment.
func (w *funcNormalizer) operandsOf(o *lines, s *ast.AssignStmt) {
	var list []ast.Expr
	for _, e := range s.Lhs {
		if _, ok := ast.Unparen(e).(*ast.Ident); !ok {
			list = append(list, e)
			w.assigned[ast.Unparen(e)] = true
		}
	}
	w.visitAll(o, upTo, append(list, s.Rhs...)...)
}

// declStmt writes declarations.
func (w *funcNormalizer) declStmt(o *lines, s *ast.DeclStmt) {
	d := s.Decl.(*ast.GenDecl)
	if d.Tok == token.TYPE {
		w.moveTypes(o, d)
		return
	}
	if d.Tok != token.VAR || !w.has(s) {
		o.add(w.text(s))
		return
	}
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		if v.Doc != nil {
			o.add(w.p.Text(v.Doc.Pos(), v.Doc.End()))
		}
		w.valueSpec(o, v)
	}
}

// valueSpec writes one declaration of variables.
func (w *funcNormalizer) valueSpec(o *lines, v *ast.ValueSpec) {
	if v.Type == nil && len(v.Values) == 1 {
		if c, ok := ast.Unparen(v.Values[0]).(*ast.CallExpr); ok && w.in.Calls[c] {
			var names []string
			op := " = "
			for _, id := range v.Names {
				names = append(names, id.Name)
				if id.Name != "_" {
					op = " := "
				}
			}
			w.resumableCall(o, c, strings.Join(names, ", ")+op)
			return
		}
	}
	w.visitAll(o, upTo, v.Values...)
	o.add(w.p.LineComment(v.Pos()) + "var " + w.text(v))
}

// ifStmt writes an if. alone says that it is in a block of its own.
func (w *funcNormalizer) ifStmt(o *lines, s *ast.IfStmt, label string, alone bool) {
	rest := func() string {
		t := " " + w.block(s.Body)
		if s.Else == nil {
			return t
		}
		t += w.p.Text(s.Body.End(), s.Else.Pos())
		e, ok := s.Else.(*ast.IfStmt)
		if !ok {
			return t + w.block(s.Else.(*ast.BlockStmt))
		}
		var in lines
		if w.in.Points[e] || w.inHeader(e.Init, e.Cond) {
			w.point(&in, e)
			w.ifStmt(&in, e, "", true)
			return t + "{\n" + in.String() + "\n}"
		}
		w.ifStmt(&in, e, "", false)
		return t + in.String()
	}
	if !w.inHeader(s.Init, s.Cond) {
		o.add(label + strings.TrimRight(w.span(s.Pos(), s.Body.Pos(), s), " \t") + rest())
		return
	}
	in := o
	if s.Init != nil {
		if !alone {
			in = &lines{}
		}
		w.simple(in, s.Init)
	}
	w.visit(in, s.Cond, upTo)
	in.add(label + w.p.LineComment(s.Pos()) + "if " + w.text(s.Cond) + rest())
	if in != o {
		o.add("{", in.String(), "}")
	}
}

// inHeader reports whether a resumable call is in the head of a statement.
func (w *funcNormalizer) inHeader(init ast.Stmt, e ast.Expr) bool {
	return init != nil && w.has(init) || e != nil && w.has(e)
}

// switchStmt writes a switch on x.
func (w *funcNormalizer) switchStmt(o *lines, init ast.Stmt, x ast.Expr, s ast.Stmt, body *ast.BlockStmt, label string) {
	if !w.inHeader(init, x) {
		o.add(label + w.text(s))
		return
	}
	in := o
	if init != nil {
		in = &lines{}
		w.simple(in, init)
	}
	if x != nil {
		w.visit(in, x, upTo)
	}
	head := "switch "
	if ts, ok := s.(*ast.TypeSwitchStmt); ok {
		head += w.text(ts.Assign) + " "
	} else if x != nil {
		head += w.text(x) + " "
	}
	in.add(label + w.p.LineComment(s.Pos()) + head + w.block(body))
	if in != o {
		o.add("{", in.String(), "}")
	}
}
