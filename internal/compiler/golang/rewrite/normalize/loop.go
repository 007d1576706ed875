package normalize

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// loopBody returns the text of a loop's body, with lines at its top. The body
// is nested in a block if it declares names that the lines declare, too.
func (w *funcNormalizer) loopBody(b *ast.BlockStmt, top *lines, nested bool) string {
	if len(top.list) == 0 {
		return w.block(b)
	}
	if nested {
		return under(top.list, w.block(b)+"\n")
	}
	return under(top.list, w.inner(b.Lbrace+1, b.List, b.Rbrace))
}

// forStmt writes a for loop.
func (w *funcNormalizer) forStmt(o *lines, s *ast.ForStmt, label string) {
	var top lines
	again := s.Post != nil && w.has(s.Post)
	if !w.inHeader(s.Init, s.Cond) && !again {
		w.point(&top, s)
		head := w.span(s.Pos(), s.Body.Pos(), s)
		o.add(label + head + w.loopBody(s.Body, &top, false))
		return
	}
	init, cond, post := "", "", ""
	if s.Init != nil {
		if w.has(s.Init) {
			init = w.forInit(o, s.Init)
		} else {
			init = w.text(s.Init)
		}
	}
	if again { // the post statement runs at the beginning of the next iteration, with its variables
		w.predeclared("true", s.Pos())
		w.predeclared("false", s.Pos())
		turned := w.name("p")
		o.add(turned + " := false")
		var in lines
		w.simple(&in, s.Post)
		top.add("if "+turned+" {", in.String(), "}", turned+" = true")
	}
	if s.Cond != nil {
		if again || w.has(s.Cond) {
			w.visit(&top, s.Cond, upTo)
			c, ok := w.repl[s.Cond]
			if !ok {
				c = "(" + w.text(s.Cond) + ")"
			}
			top.add("if !" + c + " {\nbreak\n}")
		} else {
			cond = w.text(s.Cond)
		}
	}
	if s.Post != nil && !again {
		post = w.text(s.Post)
	}
	w.point(&top, s)
	head := "for " + init + "; " + cond + "; " + post + " "
	if init == "" && post == "" {
		head = "for " + cond + " "
	}
	o.add(label + head + w.loopBody(s.Body, &top, false))
}

// forInit evaluates the calls in the init statement of a for loop, and returns
// the rest.
func (w *funcNormalizer) forInit(o *lines, s ast.Stmt) string {
	switch s := s.(type) {
	case *ast.AssignStmt:
		w.operandsOf(o, s)
		return w.text(s)
	case *ast.IncDecStmt:
		w.visit(o, s.X, upTo)
		return w.text(s)
	case *ast.SendStmt:
		w.visitAll(o, upTo, s.Chan, s.Value)
		return w.text(s)
	default:
		w.simple(o, s)
		return ""
	}
}

// ranged describes a range loop that is rewritten.
type ranged struct {
	s        *ast.RangeStmt
	key, val ast.Expr // nil if not used
	def      bool     // the variables are new in each iteration
	r, i     string   // names of what is ranged over, and of the index
	v, k, ok string
	w, x     string
	top      lines // lines at the top of its body
}

// rangeStmt writes a range loop.
func (w *funcNormalizer) rangeStmt(o *lines, s *ast.RangeStmt, label string) {
	lhs := func(e ast.Expr) bool { return e != nil && w.has(e) }
	if !w.busy(s.Body) && !w.in.Points[s] && !lhs(s.Key) && !lhs(s.Value) {
		w.visit(o, s.X, upTo)
		w.evaluate(o, s.X)
		o.add(label + w.span(s.Pos(), s.Body.Pos(), s) + w.block(s.Body))
		return
	}
	t := rewrite.CoreType(w.p.Info.TypeOf(s.X))
	if _, ok := t.(*types.Signature); ok {
		w.refuse(s.Pos(), "collect the values first, with slices.Collect, and range over these", "a range over a function, with a point or a call that leads to one in its body")
	}
	names := w.loopNames("r", "i", "v", "k", "ok", "w", "x")
	l := &ranged{s: s, r: names[0], i: names[1], v: names[2], k: names[3], ok: names[4], w: names[5], x: names[6]}
	used := func(e ast.Expr) ast.Expr {
		if id, ok := e.(*ast.Ident); e == nil || ok && id.Name == "_" {
			return nil
		}
		return e
	}
	l.key, l.val = used(s.Key), used(s.Value)
	l.def = s.Tok == token.DEFINE
	shared := l.def && !w.perIteration() && (w.seen(l.key) || w.seen(l.val))
	if _, ok := t.(*types.Chan); ok {
		shared = false
	}
	out := o
	if shared {
		out = &lines{}
	}
	w.visit(out, s.X, upTo)
	source := l.r
	switch t := t.(type) {
	case *types.Array, *types.Pointer:
		if l.val == nil && !w.calls(s.X) {
			source = w.text(s.X) // only its length matters
		} else {
			out.add(l.r + " := " + w.text(s.X))
		}
	case *types.Basic:
		if t.Info()&types.IsInteger != 0 && s.Tok == token.ASSIGN && l.key != nil && w.p.Info.Types[s.X].Value != nil {
			kt := w.p.Info.TypeOf(s.X)
			out.add("var " + l.r + " " + w.typ(kt, s.Pos(), s.Pos()) + " = " + w.text(s.X))
		} else {
			out.add(l.r + " := " + w.text(s.X))
		}
	case *types.Slice, *types.Map, *types.Chan:
		out.add(l.r + " := " + w.text(s.X))
	default:
		w.refuse(s.X.Pos(), "range over a slice", "a range over %s with a point or a call that leads to one in its body", w.p.Info.TypeOf(s.X))
	}
	if shared {
		for _, e := range []ast.Expr{l.key, l.val} {
			if e != nil {
				v := w.p.Info.Defs[e.(*ast.Ident)]
				out.add("var " + v.Name() + " " + w.typ(v.Type(), s.Pos(), s.Pos()))
			}
		}
		l.def = false
	}
	var head string
	switch t := t.(type) {
	case *types.Map:
		head = w.rangeMap(out, l, t)
	case *types.Chan:
		head = w.rangeChan(l)
	case *types.Basic:
		if t.Info()&types.IsString != 0 {
			head = w.rangeString(l)
			break
		}
		w.give(l, l.i, "")
		head = "for " + l.i + " := range " + source + " "
	default:
		w.give(l, l.i, l.r+"["+l.i+"]")
		head = "for " + l.i + " := range " + source + " "
	}
	w.point(&l.top, s)
	out.add(label + head + w.loopBody(s.Body, &l.top, l.def && w.again(l)))
	if shared {
		o.add("{", out.String(), "}")
	}
}

// give writes the assignments to a loop's variables at the top of its body.
func (w *funcNormalizer) give(l *ranged, key, val string) {
	var lhs, rhs []string
	for _, g := range []struct {
		e ast.Expr
		s string
	}{{l.key, key}, {l.val, val}} {
		if g.e != nil && g.s != "" {
			w.visit(&l.top, g.e, upTo)
			lhs, rhs = append(lhs, w.text(g.e)), append(rhs, g.s)
		}
	}
	op := " = "
	if l.def {
		op = " := "
	}
	if key == l.i && !strings.Contains(strings.Join(rhs, " "), l.i) {
		l.top.add("_ = " + l.i)
	}
	if len(lhs) > 0 {
		l.top.add(strings.Join(lhs, ", ") + op + strings.Join(rhs, ", "))
	}
}

// again reports whether a loop's body redeclares one of the loop's variables.
func (w *funcNormalizer) again(l *ranged) bool {
	scope := w.p.Info.Scopes[l.s.Body]
	if scope == nil {
		return false
	}
	for _, e := range []ast.Expr{l.key, l.val} {
		if id, ok := e.(*ast.Ident); ok && scope.Lookup(id.Name) != nil {
			return true
		}
	}
	return false
}

// seen reports whether code outside the loop may see a loop's variable.
func (w *funcNormalizer) seen(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	if !ok {
		return false
	}
	v, ok := w.p.Info.Defs[id].(*types.Var)
	if !ok {
		return false
	}
	if w.use(v).taken {
		return true
	}
	found := false
	ast.Inspect(w.body, func(m ast.Node) bool {
		l, ok := m.(*ast.FuncLit)
		if !ok {
			return !found
		}
		ast.Inspect(l, func(k ast.Node) bool {
			if id, ok := k.(*ast.Ident); ok && w.p.Info.Uses[id] == v {
				found = true
			}
			return !found
		})
		return false
	})
	return found
}

// rangeString writes the head of a loop over a string.
func (w *funcNormalizer) rangeString(l *ranged) string {
	switch {
	case l.val == nil:
		w.give(l, l.i, "")
		return "for " + l.i + " := range " + l.r + " "
	case l.def:
		// The index is saved; the value follows from it.
		val := w.text(l.val)
		l.val = nil
		w.give(l, l.i, "")
		return "for " + l.i + ", " + val + " := range " + l.r + " "
	default:
		w.give(l, l.i, l.v)
		return "for " + l.i + ", " + l.v + " := range " + l.r + " "
	}
}

// rangeChan writes the head of a loop over a channel.
func (w *funcNormalizer) rangeChan(l *ranged) string {
	switch {
	case l.s.Key == nil:
		return "for range " + l.r + " "
	case l.key != nil && w.has(l.key):
		w.visit(&l.top, l.key, upTo)
		l.top.add(w.text(l.key) + " = " + l.v)
		return "for " + l.v + " := range " + l.r + " "
	default:
		op := " = "
		if l.s.Tok == token.DEFINE && l.key != nil {
			op = " := "
		}
		key := w.text(l.s.Key)
		l.key = nil // the head assigns it
		return "for " + key + op + "range " + l.r + " "
	}
}

// rangeMap writes a loop over a map as a loop over the keys that exist at the
// start. An entry whose key is NaN cannot be looked up. It cannot be changed or
// deleted either, only cleared with all others. So its value is kept beside the
// key.
func (w *funcNormalizer) rangeMap(o *lines, l *ranged, t *types.Map) string {
	at := l.s.Pos()
	w.predeclared("append", at)
	nan := hasNaN(t.Key(), map[types.Type]bool{}) != nil
	o.add("var " + l.k + " []" + w.typ(t.Key(), at, at))
	if nan && l.val != nil {
		o.add("var "+l.w+" []"+w.typ(t.Elem(), at, at),
			"for "+l.i+", "+l.x+" := range "+l.r+" {\n"+l.k+" = append("+l.k+", "+l.i+")\n"+l.w+" = append("+l.w+", "+l.x+")\n}")
	} else {
		o.add("for " + l.i + " := range " + l.r + " {\n" + l.k + " = append(" + l.k + ", " + l.i + ")\n}")
	}
	key := l.k + "[" + l.i + "]"
	k, v := key, "_"
	if l.def && l.key != nil {
		k = w.text(l.key)
		l.top.add(k + " := " + key)
	}
	if l.val != nil {
		v = l.v
		if l.def {
			v = w.text(l.val)
		}
	}
	l.top.add(v + ", " + l.ok + " := " + l.r + "[" + k + "]")
	gone := "continue\n"
	if nan {
		gone = "if " + k + " == " + k + " {\ncontinue\n}\n" +
			"for " + l.x + " := range " + l.r + " {\nif " + l.ok + " = " + l.x + " != " + l.x + "; " + l.ok + " {\nbreak\n}\n}\n" +
			"if !" + l.ok + " {\ncontinue\n}\n"
		if l.val != nil {
			gone += v + " = " + l.w + "[" + l.i + "]\n"
		}
	}
	l.top.add("if !" + l.ok + " {\n" + gone + "}")
	if !l.def && (l.key != nil || l.val != nil) {
		w.give(l, key, l.v)
	}
	return "for " + l.i + " := range " + l.k + " "
}

// hasNaN returns a part of a type that may be unequal to itself.
func hasNaN(t types.Type, seen map[types.Type]bool) types.Type {
	if seen[t] {
		return nil
	}
	seen[t] = true
	if _, ok := types.Unalias(t).(*types.TypeParam); ok {
		return t
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		if u.Info()&(types.IsFloat|types.IsComplex) != 0 {
			return t
		}
	case *types.Interface:
		return t
	case *types.Array:
		return hasNaN(u.Elem(), seen)
	case *types.Struct:
		for f := range u.Fields() {
			if x := hasNaN(f.Type(), seen); x != nil {
				return x
			}
		}
	}
	return nil
}
