package normalize

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// LowerRanges returns the package with marked loops over functions written as
// calls of the function, with the loop's body as a literal. A variable records
// how the body ends, and the code after the call acts on it. Loops over the
// results of some functions of the standard library become ordinary loops.
func LowerRanges(p *rewrite.Package) (out *rewrite.Package, err error) {
	defer catch(&out, &err)
	for {
		r := &ranges{normalizer: &normalizer{p: p, names: map[string]bool{}, count: map[string]int{}}, marks: p.MarksAt()}
		text, err := r.files()
		if err != nil || len(text) == 0 {
			return p, err
		}
		if p, err = p.With(text); err != nil {
			return nil, err
		}
	}
}

// ranges rewrites the outermost loops over functions.
type ranges struct {
	*normalizer
	marks map[token.Pos]string

	// The following fields are for the function around the loop.
	node ast.Node
	body *ast.BlockStmt
}

// marked reports whether a loop over a function must be rewritten.
func (r *ranges) marked(s *ast.RangeStmt) bool {
	return r.marks[s.Range+token.Pos(len("range"))] == rewrite.RangeMark
}

// busy reports whether a node contains marks.
func (r *ranges) busy(n ast.Node) bool {
	for at := range r.marks {
		if n.Pos() <= at && at < n.End() {
			return true
		}
	}
	return false
}

// files returns the new texts of the files that change.
func (r *ranges) files() (map[string][]byte, error) {
	r.noteNames()
	text := map[string][]byte{}
	for _, f := range r.p.Files {
		r.file, r.imports, r.decls = f, map[string]string{}, nil
		changed := false
		s := r.p.Span(f.Name.End(), f.FileEnd, f, func(m ast.Node) (string, bool) {
			t, ok := r.put(m)
			changed = changed || ok
			return t, ok
		})
		if !changed {
			continue
		}
		head := r.p.Text(f.FileStart, f.Name.End())
		for _, path := range slices.Sorted(maps.Keys(r.imports)) {
			head += fmt.Sprintf("\n\nimport %s %q\n", r.imports[path], path)
		}
		b, err := rewrite.Format(r.p.FileName(f), []byte(head+s+strings.Join(r.decls, "")))
		if err != nil {
			return nil, err
		}
		text[r.p.FileName(f)] = b
	}
	return text, nil
}

// put replaces outermost loops.
func (r *ranges) put(m ast.Node) (string, bool) {
	switch m := m.(type) {
	case *ast.FuncDecl:
		r.node, r.body = m, m.Body
	case *ast.FuncLit:
		was := *r
		defer func() { r.node, r.body = was.node, was.body }()
		r.node, r.body = m, m.Body
		changed := false
		s := r.p.Span(m.Pos(), m.End(), m, func(k ast.Node) (string, bool) {
			if k == m {
				return "", false
			}
			t, ok := r.put(k)
			changed = changed || ok
			return t, ok
		})
		return s, changed
	case *ast.LabeledStmt:
		if s, ok := m.Stmt.(*ast.RangeStmt); ok {
			return r.loop(s, m.Label.Name)
		}
	case *ast.RangeStmt:
		return r.loop(m, "")
	}
	return "", false
}

// loop returns the new text of a loop, if it has one.
func (r *ranges) loop(s *ast.RangeStmt, label string) (string, bool) {
	if _, ok := rewrite.CoreType(r.p.Info.TypeOf(s.X)).(*types.Signature); !ok {
		return "", false
	}
	if r.marked(s) {
		return r.call(s, label), true
	}
	if r.busy(s.Body) && PlainRange(r.p.Info, s) && !r.jumpedTo(label) {
		return r.ordinary(s, label), true
	}
	return "", false
}

// jumpedTo reports whether a goto names a label.
func (r *ranges) jumpedTo(label string) bool {
	found := false
	rewrite.InspectOwn(r.body, func(m ast.Node) bool {
		if b, ok := m.(*ast.BranchStmt); ok && b.Tok == token.GOTO && b.Label.Name == label {
			found = true
		}
		return true
	})
	return found && label != ""
}

// The states of a loop over a function, as Go numbers them.
const (
	loopDone = iota
	loopReady
	loopRuns // it is running, or its body has panicked
	loopOver
	loopHides // a panic of its body was lost
)

// loopBody is the body of a loop that becomes a literal.
type loopBody struct {
	*ranges
	s        *ast.RangeStmt
	label    string
	state    string
	to       string                   // variable that records how the body ends
	deferred string                   // name of the list of deferred calls, or ""
	ways     []string                 // statements that end the loop, numbered from 1
	number   map[string]int           // number of each of these
	results  []string                 // expressions for the function's results
	unnamed  bool                     // some of results are not just names
	decls    []string                 // declarations before the loop
	inner    map[*ast.BranchStmt]bool // jumps that stay inside the body
	deep     map[ast.Stmt]bool        // jumps out of the body from nested loops over functions
	goes     map[string]bool          // labels at the end of the literal that are used
}

// call returns a loop as a call.
func (r *ranges) call(s *ast.RangeStmt, label string) string {
	at := s.Pos()
	r.goOwn(at, "bool", "true", "false")
	names := r.loopNames("q", "state", "to")
	b := &loopBody{ranges: r, s: s, label: label, state: names[1], to: names[2], number: map[string]int{}, inner: map[*ast.BranchStmt]bool{}, deep: map[ast.Stmt]bool{}, goes: map[string]bool{}}
	b.scan()
	sig := rewrite.CoreType(r.p.Info.TypeOf(s.X)).(*types.Signature)
	yield := rewrite.CoreType(sig.Params().At(0).Type()).(*types.Signature)
	text := b.text()

	var o lines
	if r.jumpedTo(label) {
		o.add(label + ": {")
	} else {
		o.add("{")
	}
	fun := r.p.NodeText(s.X, nil)
	if !r.static(s.X) {
		o.add(names[0] + " := " + fun)
		fun = names[0]
	}
	o.add(fmt.Sprintf("%s, %s := %d, 0", b.state, b.to, loopReady))
	o.add(b.decls...)
	var params []string
	var first string // beginning of the body
	var lhs, rhs []string
	for i, e := range []ast.Expr{s.Key, s.Value} {
		if i >= yield.Params().Len() {
			break
		}
		name := "_"
		if id, ok := e.(*ast.Ident); e != nil && !(ok && id.Name == "_") {
			if s.Tok == token.DEFINE {
				name = id.Name
			} else {
				name = fmt.Sprintf("%sv%d_%d", rewrite.Prefix, i, r.count["loop"])
				lhs, rhs = append(lhs, r.p.NodeText(e, nil)), append(rhs, name)
			}
		}
		params = append(params, name+" "+r.typ(yield.Params().At(i).Type(), at, s.X.Pos()))
	}
	if len(lhs) > 0 {
		first = "\n" + strings.Join(lhs, ", ") + " = " + strings.Join(rhs, ", ")
	}
	brace := s.Body.Lbrace + 1
	point := ""
	if r.marks[brace] == rewrite.PointMark {
		point = "\n" + r.p.LineComment(s.Body.Lbrace) + "{" + rewrite.PointMark + "}"
	}
	o.add(fmt.Sprintf("%s%s(%sfunc(%s) bool {", r.p.LineComment(at), fun, rewrite.CallMark, strings.Join(params, ", ")))
	o.add(fmt.Sprintf("if %s != %d {\n%sbadRange(%s)\n}\n%s = %d%s%s\n{%s}", b.state, loopReady, rewrite.Prefix, b.state, b.state, loopRuns, first, point, text))
	if b.goes["next"] {
		o.add(b.end("next") + ":")
	}
	o.add(fmt.Sprintf("%s = %d\nreturn true", b.state, loopReady))
	if b.goes["exit"] {
		o.add(b.end("exit")+":", fmt.Sprintf("%s = %d\nreturn false", b.state, loopDone))
	}
	o.add("})")
	o.add(fmt.Sprintf("if %s == %d {\n%sbadRange(%d)\n}\n%s = %d", b.state, loopRuns, rewrite.Prefix, loopHides, b.state, loopOver))
	for i, way := range b.ways {
		o.add(fmt.Sprintf("if %s == %d {\n%s\n}", b.to, i+1, way))
	}
	if len(b.ways) == 0 {
		o.add("_ = " + b.to)
	}
	o.add("}")
	r.declareHelper()
	return o.String()
}

// goOwn refuses if predeclared names have another meaning at a place, or in the
// package.
func (r *ranges) goOwn(at token.Pos, names ...string) {
	for _, name := range names {
		r.predeclared(name, at)
	}
	for _, name := range []string{"bool", "int", "panic", "recover", "append"} {
		if o := r.p.Types.Scope().Lookup(name); o != nil {
			r.refuse(at, "give it another name", "%s is declared by the package, and needed for this loop as Go's own", name)
		}
	}
}

// static reports whether an expression names a function, which need not be
// saved.
func (r *ranges) static(x ast.Expr) bool {
	w := &funcNormalizer{normalizer: r.normalizer}
	kind, _ := w.callee(&ast.CallExpr{Fun: x})
	if _, lit := ast.Unparen(x).(*ast.FuncLit); lit {
		return false
	}
	return kind != dynamic
}

// scan finds the targets of jumps in the body.
func (b *loopBody) scan() {
	labels := map[string]bool{}
	rewrite.InspectOwn(b.s.Body, func(m ast.Node) bool {
		if l, ok := m.(*ast.LabeledStmt); ok {
			labels[l.Label.Name] = true
		}
		return true
	})
	var walk func(n ast.Node, brk, cont, deep bool)
	walk = func(n ast.Node, brk, cont, deep bool) {
		ast.Inspect(n, func(m ast.Node) bool {
			if m == n {
				return true
			}
			switch m := m.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ForStmt:
				walk(m, true, true, deep)
				return false
			case *ast.RangeStmt:
				_, fn := rewrite.CoreType(b.p.Info.TypeOf(m.X)).(*types.Signature)
				walk(m, true, true, deep || fn)
				return false
			case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
				walk(m, true, cont, deep)
				return false
			case *ast.ReturnStmt:
				b.deep[m] = deep
			case *ast.BranchStmt:
				b.deep[m] = deep
				switch {
				case m.Tok == token.FALLTHROUGH, m.Label != nil && labels[m.Label.Name]:
					b.inner[m] = true
				case m.Label == nil:
					b.inner[m] = m.Tok == token.BREAK && brk || m.Tok == token.CONTINUE && cont
				}
			case *ast.CallExpr:
				if id, ok := ast.Unparen(m.Fun).(*ast.Ident); ok {
					if f, ok := b.p.Info.Uses[id].(*types.Builtin); ok && f.Name() == "recover" {
						b.refuse(m.Pos(), "call it before the loop", "recover is called in the body of a loop over a function, on the way to a point")
					}
				}
			}
			return true
		})
	}
	walk(b.s.Body, false, false, false)
}

// text returns the body's text, in which jumps out of it are returns.
func (b *loopBody) text() string {
	lo := b.s.Body.Lbrace + 1
	if b.marks[lo] == rewrite.PointMark {
		s := b.p.Text(lo, b.s.Body.Rbrace)
		lo += token.Pos(strings.Index(s, rewrite.PointMark) + len(rewrite.PointMark))
	}
	return b.p.Span(lo, b.s.Body.Rbrace, b.s.Body, func(m ast.Node) (string, bool) {
		switch m := m.(type) {
		case *ast.FuncLit:
			return b.p.NodeText(m, nil), true
		case *ast.BranchStmt:
			if b.inner[m] {
				return "", false
			}
			return b.jump(m), true
		case *ast.ReturnStmt:
			return b.ret(m), true
		case *ast.DeferStmt:
			return b.deferStmt(m), true
		}
		return "", false
	})
}

// end returns a label at the end of the literal. Jumps out of inner loops go
// there, because the function of such a loop must return first.
func (b *loopBody) end(what string) string {
	return fmt.Sprintf("%s%s%d", rewrite.Prefix, what, b.count["loop"])
}

// exit returns the code that ends the loop at a statement.
func (b *loopBody) exit(at ast.Stmt, way string) string {
	to := ""
	if way != "" {
		n := b.number[way]
		if n == 0 {
			b.ways = append(b.ways, way)
			n = len(b.ways)
			b.number[way] = n
		}
		to = fmt.Sprintf("%s = %d\n", b.to, n)
	}
	if b.deep[at] {
		b.goes["exit"] = true
		return to + "goto " + b.end("exit")
	}
	return to + fmt.Sprintf("%s = %d\nreturn false", b.state, loopDone)
}

// jump returns the code for a break, continue or goto out of the body.
func (b *loopBody) jump(m *ast.BranchStmt) string {
	switch {
	case m.Label != nil && (m.Label.Name != b.label || m.Tok == token.GOTO):
		return "{\n" + b.exit(m, m.Tok.String()+" "+m.Label.Name) + "\n}"
	case m.Tok == token.BREAK:
		return "{\n" + b.exit(m, "") + "\n}"
	case b.deep[m]:
		b.goes["next"] = true
		return "goto " + b.end("next")
	}
	return fmt.Sprintf("{\n%s = %d\nreturn true\n}", b.state, loopReady)
}

// ret returns the code for a return of the function around the loop.
func (b *loopBody) ret(m *ast.ReturnStmt) string {
	if len(m.Results) == 0 {
		return "{\n" + b.exit(m, "return") + "\n}"
	}
	if b.results == nil {
		b.declareResults()
	}
	var values []string
	for _, e := range m.Results {
		values = append(values, b.p.NodeText(e, nil))
	}
	to := strings.Join(b.results, ", ")
	way := "return " + to
	if !b.unnamed {
		way = "return"
	}
	return "{\n" + to + " = " + strings.Join(values, ", ") + "\n" + b.exit(m, way) + "\n}"
}

// declareResults finds what a return in the body assigns to: the function's own
// results, by their names or, if a name may have another meaning, by their
// addresses; and new variables for results without names.
func (b *loopBody) declareResults() {
	var sig *types.Signature
	switch n := b.node.(type) {
	case *ast.FuncDecl:
		sig = b.p.Info.Defs[n.Name].(*types.Func).Signature()
	case *ast.FuncLit:
		sig = b.p.Info.TypeOf(n).(*types.Signature)
	}
	for i := range sig.Results().Len() {
		v := sig.Results().At(i)
		name := fmt.Sprintf("%sret%d_%d", rewrite.Prefix, b.count["loop"], i+1)
		switch {
		case v.Name() == "" || v.Name() == "_":
			b.decls = append(b.decls, "var "+name+" "+b.typ(v.Type(), b.s.Pos(), b.s.Pos()))
		case b.hides(v):
			if s := b.p.Types.Scope().Innermost(b.s.Pos()); s != nil {
				if _, o := s.LookupParent(v.Name(), b.s.Pos()); o != types.Object(v) {
					b.refuse(b.s.Pos(), "give one of them another name", "a loop over a function, on the way to a point, returns a value for result %s, of which another variable has the name here", v.Name())
				}
			}
			b.decls = append(b.decls, name+" := &"+v.Name())
			name = "*" + name
		default:
			name = v.Name()
		}
		b.unnamed = b.unnamed || name != v.Name()
		b.results = append(b.results, name)
	}
}

// hides reports whether the name of a result is redeclared in the function.
func (b *loopBody) hides(v *types.Var) bool {
	found := false
	ast.Inspect(b.body, func(m ast.Node) bool {
		if id, ok := m.(*ast.Ident); ok && id.Name == v.Name() && b.p.Info.Defs[id] != nil {
			found = true
		}
		return !found
	})
	return found
}
