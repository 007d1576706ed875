package emit

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/verify"
)

// insideFor writes a loop whose first iteration begins at the mark. The
// condition is not tested again for that iteration.
func (e *continuation) insideFor(s *ast.ForStmt, k int, label string) string {
	e.needPredeclared("true", s.Pos())
	var names, values []string
	if s.Init != nil {
		for _, v := range e.w.defined(s.Init) {
			names = append(names, e.unsaved(v)+v.Name())
			values = append(values, e.value(v))
		}
	}
	again := fmt.Sprintf("%sagain%d", rewrite.Prefix, k)
	if e.boxes(s.Init) {
		for i, v := range e.w.defined(s.Init) {
			if e.fn.boxed[v] && !e.saved[v] {
				values[i] = fmt.Sprintf("%s.New(%s)", rewrite.Prefix, values[i])
			}
		}
		head, begin := e.boxedFor(s, strings.Join(values, ", "), again, e.unsaved)
		return fmt.Sprintf("%s%s {\nif %s {\n%s = false\n%s} else {\n%s%s}\n}\n", label, head, again, again, e.from(k), begin, e.body(s.Body))
	}
	cond, post := "", ""
	if s.Cond != nil {
		cond = e.region(s.Cond.Pos(), s.Cond.End(), s.Cond)
	}
	if s.Post != nil {
		post = e.region(s.Post.Pos(), s.Post.End(), s.Post)
	}
	head := func() string {
		if len(names) == 0 {
			return fmt.Sprintf("%sfor ; %s; %s {\n", label, cond, post)
		}
		return fmt.Sprintf("%sfor %s := %s; %s; %s {\n", label, strings.Join(names, ", "), strings.Join(values, ", "), cond, post)
	}
	if e.rest && e.begins(k, s.Cond) {
		label += verify.EntersNow
		return head() + e.body(s.Body) + "}\n"
	}
	names = append(names, again)
	values = append(values, "true")
	if b, ok := s.Cond.(*ast.BinaryExpr); ok && b.Op == token.LAND {
		cond = "(" + cond + ")"
	}
	if s.Cond != nil {
		cond = again + " || " + cond
	}
	return head() + e.iterations(k, again, s.Body, s.Cond) + "}\n"
}

// unsaved returns the verifier's mark for a variable that is not in the frame,
// otherwise "".
func (e *continuation) unsaved(v *types.Var) string {
	if e.saved[v] {
		return ""
	}
	return verify.NoValue
}

// iterations writes the body of a loop whose first iteration begins at the
// mark.
func (e *continuation) iterations(k int, again string, body *ast.BlockStmt, cond ast.Expr) string {
	var rest string
	switch {
	case e.begins(k, cond):
		if e.fn.rests == nil {
			e.fn.rests = map[*mark]bool{}
		}
		e.fn.rests[e.m] = true
		rest = e.nextIterationCall()
	case !e.m.call && k+1 == len(e.m.path) && e.m.path[k].i == 0:
		e.first = again
		return e.from(k)
	default:
		rest = e.body(body)
	}
	return fmt.Sprintf("if %s {\n%s = false\n%s} else {\n%s}\n", again, again, e.from(k), rest)
}

// begins reports whether the point is at the beginning of a loop's iterations,
// and whether the loop can start there. Then a separate function runs the
// iterations after the first one: the code that only the first one needs would
// cost time in each.
func (e *continuation) begins(k int, cond ast.Expr) bool {
	return e.fn.fast && !e.m.call && k+1 == len(e.m.path) && e.m.path[k].i == 0 && (cond == nil || e.w.pure(cond))
}

// testedAgain returns the condition that is tested again before the iteration
// that a point begins, because the function that continues with that iteration
// begins the loop anew. The condition's variables must be saved, although the
// iteration itself may overwrite them before it reads them:
//
//	for swapped { //cairn:point
//		swapped = false
func (w *generator) testedAgain(fn *function, m *mark) ast.Expr {
	if !fn.fast || m.call || len(m.path) < 2 || m.last().i != 0 {
		return nil
	}
	st := &m.path[len(m.path)-2]
	loop, ok := unlabelled(st.list[st.i]).(*ast.ForStmt)
	if !ok || ast.Node(loop.Body) != m.last().owner {
		return nil
	}
	return loop.Cond
}

// nextIterationCall writes a call of the function that starts at the iteration
// that the mark begins.
func (e *continuation) nextIterationCall() string {
	frame := fmt.Sprintf("%sat: %d", rewrite.Prefix, e.m.n)
	at := e.savedAt(e.m)
	for _, f := range e.fn.fields {
		if slices.Contains(e.m.saved, f.v) {
			frame += fmt.Sprintf(", %s: %s", f.name, at[0])
			at = at[1:]
		}
	}
	call := fmt.Sprintf("%[1]srest_%[3]d_%[2]s%[6]s(%[1]sd, &%[4]s{%[5]s})\n", rewrite.Prefix, e.fn.name, e.m.n, e.fn.frame(), frame, e.fn.typeArgs())
	if e.fn.returns() {
		return e.w.lineAt(e.m) + "return " + call
	}
	return e.w.lineAt(e.m) + call + "return\n"
}

// pure reports whether an expression can be evaluated twice without an effect.
func (w *generator) pure(x ast.Expr) bool {
	ok := true
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			t := w.p.Info.Types[n.Fun]
			id, is := ast.Unparen(n.Fun).(*ast.Ident)
			ok = ok && (t.IsType() || t.IsBuiltin() && is && (id.Name == "len" || id.Name == "cap"))
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.ARROW
		case *ast.FuncLit:
			ok = false
		}
		return ok
	})
	return ok
}

// body writes a whole body.
func (e *continuation) body(b *ast.BlockStmt) string {
	return e.region(b.Lbrace+1, b.Rbrace, stmts(b.List)...) + "\n"
}

// insideRange writes a range loop from the mark on.
func (e *continuation) insideRange(s *ast.RangeStmt, k int, label string) string {
	e.needPredeclared("true", s.Pos())
	again := fmt.Sprintf("%sagain%d", rewrite.Prefix, k)
	var x *ast.Ident
	if x, _ = s.X.(*ast.Ident); x == nil {
		// If its elements are not used, only the length of an array matters.
		if _, ok := arrayOf(e.w.p.Info.TypeOf(s.X)); !ok {
			e.fail(s.Pos(), "", "internal: a range over an expression")
			return ""
		}
	}
	key, _ := s.Key.(*ast.Ident)
	own := func(id *ast.Ident) *types.Var {
		if id == nil || id.Name == "_" {
			return nil
		}
		v, _ := e.w.p.Info.Defs[id].(*types.Var)
		return v
	}
	t := rewrite.CoreType(e.w.p.Info.TypeOf(s.X))
	if c, ok := t.(*types.Chan); ok {
		val := own(key)
		first, rest := "", "_"
		if val != nil {
			if e.m.needed[val] {
				first = e.restore(val)
			}
			rest = val.Name()
		}
		_ = c
		op := ":="
		return fmt.Sprintf("%sfor %s := true; ; {\nif %s {\n%s = false\n%s%s} else {\n%s, %sok %s <-%s\nif !%sok {\nbreak\n}\n%s%s}\n}\n",
			label, again, again, again, first, e.block(first, k), rest, rewrite.Prefix, op, x.Name, rewrite.Prefix, blank(val), "{\n"+e.body(s.Body)+"}\n")
	}
	if key == nil || own(key) == nil {
		e.fail(s.Pos(), "", "internal: a range loop without an index")
		return ""
	}
	i := own(key)
	if b, ok := t.(*types.Basic); ok && b.Info()&types.IsString != 0 {
		from := fmt.Sprintf("%so%d", rewrite.Prefix, k)
		val, _ := s.Value.(*ast.Ident)
		first, name := "", "_"
		if v := own(val); v != nil {
			name = v.Name()
			if e.m.needed[v] {
				first = e.restore(v)
			}
		}
		return fmt.Sprintf("%s%s := %s\n%sfor %sj%d, %s := range %s[%s:] {\n%s := %s + %sj%d\n_ = %s\nif %sj%d == 0 {\n%s%s} else {\n%s}\n}\n",
			e.unsaved(i), from, e.value(i), label, rewrite.Prefix, k, name, x.Name, from, i.Name(), from, rewrite.Prefix, k, i.Name(), rewrite.Prefix, k, first, e.block(first, k), e.body(s.Body))
	}
	var end string
	if n, ok := arrayOf(t); ok {
		end = fmt.Sprint(n)
	} else if _, ok := t.(*types.Basic); ok {
		end = x.Name
	} else {
		e.needPredeclared("len", s.Pos())
		end = "len(" + x.Name + ")"
	}
	if v := e.boxedIn(x); x != nil && v != nil {
		end = strings.Replace(end, x.Name, "(*"+box(v)+")", 1)
	}
	if e.rest && e.begins(k, nil) {
		return fmt.Sprintf("%s%sfor %s%s := %s; %s < %s; %s++ {\n%s}\n", label, verify.EntersNow, e.unsaved(i), i.Name(), e.value(i), i.Name(), end, i.Name(), e.body(s.Body))
	}
	return fmt.Sprintf("%sfor %s%s, %s := %s, true; %s < %s; %s++ {\n%s}\n",
		label, e.unsaved(i), i.Name(), again, e.value(i), i.Name(), end, i.Name(), e.iterations(k, again, s.Body, nil))
}

func blank(v *types.Var) string {
	if v == nil {
		return ""
	}
	return "_ = " + v.Name() + "\n"
}

// arrayOf returns the length of an array type, or of one that t points to.
func arrayOf(t types.Type) (int64, bool) {
	t = t.Underlying()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem().Underlying()
	}
	a, ok := t.(*types.Array)
	if !ok {
		return 0, false
	}
	return a.Len(), true
}

// needPredeclared refuses a function in which a needed predeclared name has
// another meaning.
func (e *continuation) needPredeclared(name string, at token.Pos) {
	if e.w.shadowed(name, at) {
		e.fail(at, "rename it", "the program has its own "+name)
	}
}

// shadowed reports whether a predeclared name has another meaning at a place.
func (w *generator) shadowed(name string, at token.Pos) bool {
	s := w.p.Types.Scope().Innermost(at)
	if s == nil {
		return false
	}
	_, o := s.LookupParent(name, at)
	return o != nil && o.Parent() != types.Universe
}
