package emit

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/verify"
)

// function writes the body of a rewritten function: first the code that
// continues from a saved frame, then the user's code.
func (w *generator) function(fn *function) string {
	if fn.fast {
		w.outline(fn)
		fn.outlined = w.fastAndPlain(fn) + fn.outlined
		return w.dispatcher(fn)
	}
	var b strings.Builder
	e := &emitter{w: w, fn: fn}
	b.WriteString("{\n")
	if e.isMain(fn.node) {
		b.WriteString(begin)
	}
	fmt.Fprintf(&b, "%[1]sd := %[1]s.Enter()\nif %[1]s.Resuming(%[1]sd) {\n", rewrite.Prefix)
	switch {
	case !w.outline(fn):
		b.WriteString(w.continueAfterAny(fn, func(m *mark) string { return w.continueToEnd(fn, m, false) }))
	case fn.returns():
		fmt.Fprintf(&b, "%sreturn %s\n", w.p.LineComment(fn.body.List[0].Pos()), fn.continueCall())
	default:
		fmt.Fprintf(&b, "%s%s\nreturn\n", w.p.LineComment(fn.body.List[0].Pos()), fn.continueCall())
	}
	b.WriteString("}\n")
	b.WriteString(w.boxParams(fn))
	b.WriteString(e.region(fn.body.Lbrace+1, fn.body.Rbrace, stmts(fn.body.List)...))
	if e.isMain(fn.node) {
		fmt.Fprintf(&b, "\n%s.Returning()\n", rewrite.Prefix)
	}
	b.WriteString("}")
	return b.String()
}

// boxParams puts parameters into boxes.
func (w *generator) boxParams(fn *function) string {
	var b strings.Builder
	for _, v := range fn.params {
		if fn.boxed[v] {
			fmt.Fprintf(&b, "%s := %s.New(%s)\n", box(v), rewrite.Prefix, v.Name())
		}
	}
	return b.String()
}

// continueAfterAny writes the code that continues from any of a function's
// frames.
func (w *generator) continueAfterAny(fn *function, each func(m *mark) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "switch %ss := %s.Frame[%s](%sd); %ss.%sat {\n", rewrite.Prefix, rewrite.Prefix, fn.frame(), rewrite.Prefix, rewrite.Prefix, rewrite.Prefix)
	for _, m := range fn.marks {
		fmt.Fprintf(&b, "case %d:\n%s", m.n, each(m))
	}
	fmt.Fprintf(&b, "}\n%s.BadFrame(%sd)\n", rewrite.Prefix, rewrite.Prefix)
	return b.String()
}

// continueToEnd writes the code from a mark to the end of the function.
func (w *generator) continueToEnd(fn *function, m *mark, rest bool) string {
	text := w.continueAfter(fn, m, rest)
	switch e := (&emitter{w: w}); {
	case fn.returns(): // the text ends with a return
	case e.isMain(fn.node):
		text += rewrite.Prefix + ".Returning()\nreturn\n"
	default:
		text += "return\n"
	}
	return text
}

// lineAt returns a line comment for a mark.
func (w *generator) lineAt(m *mark) string {
	if s := m.stmt(); s != nil {
		return w.p.LineComment(s.Pos())
	}
	return w.p.LineComment(m.comment.Pos())
}

func (fn *function) returns() bool { return fn.typ.Results != nil && len(fn.typ.Results.List) > 0 }

// continueCall returns a call of the function that continues from a function's
// frames.
func (fn *function) continueCall() string {
	return fmt.Sprintf("%[1]s%[4]s_%[2]s%[3]s(%[1]sd)", rewrite.Prefix, fn.name, fn.typeArgs(), fn.continuePrefix())
}

// continuePrefix returns the beginning of the names of the functions that
// continue from a function's frames.
func (fn *function) continuePrefix() string {
	if fn.fast {
		return "continue"
	}
	return "resume"
}

// passed returns the parameters that are needed again. Their values are in the
// frames.
func (fn *function) passed() (list []*types.Var) {
	for _, v := range fn.params {
		if !fn.boxed[v] && slices.ContainsFunc(fn.marks, func(m *mark) bool { return m.needed[v] }) {
			list = append(list, v)
		}
	}
	return list
}

// outline moves the code that continues from a function's frames to functions
// of their own, one for each mark. So the Go compiler does not consider it when
// it optimizes the function's normal course, nor one continuation when it
// compiles another. Literals cannot be outlined, because they capture
// variables.
func (w *generator) outline(fn *function) bool {
	if !w.canOutline(fn) {
		return false
	}
	results := ""
	if fn.typ.Results != nil {
		results = w.p.Text(fn.typ.Results.Pos(), fn.typ.Results.End())
	}
	var names, values []string
	for _, v := range fn.passed() {
		names = append(names, v.Name())
		values = append(values, fmt.Sprintf("%s.Zero[%s]()", rewrite.Prefix, w.typ(v.Type(), v.Pos())))
	}
	vars := ""
	if len(names) > 0 { // declared together: their names may hide types
		vars = fmt.Sprintf("%s := %s\n", strings.Join(names, ", "), strings.Join(values, ", "))
		for _, n := range names {
			vars += "_ = " + n + "\n"
		}
	}
	vars = fn.lookUpWaiter() + vars
	end := "}\n"
	if fn.returns() {
		end = "panic(nil)\n}\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n// %s%s_%s continues %s from a saved frame.\n//\n//go:noinline\n", rewrite.Prefix, fn.continuePrefix(), fn.name, strings.ReplaceAll(fn.name, "_", "."))
	fmt.Fprintf(&b, "func %[1]s%[5]s_%[2]s%[3]s(%[1]sd int) %[4]s {\n", rewrite.Prefix, fn.name, w.typeParams(fn), results, fn.continuePrefix())
	b.WriteString(w.continueAfterAny(fn, func(m *mark) string {
		call := fmt.Sprintf("%[1]s%[5]s_%[4]d_%[2]s%[3]s(%[1]sd, %[1]ss)\n", rewrite.Prefix, fn.name, fn.typeArgs(), m.n, fn.continuePrefix())
		if fn.returns() {
			return w.lineAt(m) + "return " + call
		}
		return w.lineAt(m) + call + "return\n"
	}))
	b.WriteString(end)
	for _, m := range fn.marks {
		from := func(what string, rest bool) {
			fmt.Fprintf(&b, "\n//go:noinline\nfunc %[1]s%[9]s_%[5]d_%[2]s%[3]s(%[1]sd int, %[1]ss *%[6]s) %[4]s {\n%[7]s%[8]s}\n",
				rewrite.Prefix, fn.name, w.typeParams(fn), results, m.n, fn.frame(), vars, w.continueToEnd(fn, m, rest), what)
		}
		if from(fn.continuePrefix(), false); fn.rests[m] {
			from("rest", true)
		}
	}
	fn.outlined = b.String()
	return true
}

// canOutline reports whether code of a function may move to another one.
func (w *generator) canOutline(fn *function) bool {
	_, ok := fn.node.(*ast.FuncDecl)
	return ok && !w.inspectsCallers && !w.p.MustStay(fn.body)
}

func stmts(list []ast.Stmt) []ast.Node {
	var out []ast.Node
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

// continueAfter writes the code after a mark.
func (w *generator) continueAfter(fn *function, m *mark, rest bool) string {
	e := &continuation{emitter: emitter{w: w, fn: fn, labels: map[string]string{}, resumed: true}, m: m, saved: rewrite.Vars{}, rest: rest}
	for _, v := range m.saved {
		e.saved[v] = true
	}
	var b strings.Builder
	for _, v := range append(append([]*types.Var(nil), fn.params...), fn.results...) {
		switch {
		case !m.needed[v]:
		case fn.boxed[v]:
			b.WriteString(e.restore(v))
		case e.saved[v]:
			fmt.Fprintf(&b, "%s = %ss.%s\n", v.Name(), rewrite.Prefix, fn.byVar[v].name)
		}
	}
	from := len(w.made)
	b.WriteString(e.from(0))
	text := b.String()
	for _, l := range w.made[from:] { // some are labels of jumps that are not part of it
		if !regexp.MustCompile(`\b(break|continue|goto) ` + regexp.QuoteMeta(l) + `\b`).MatchString(text) {
			text = regexp.MustCompile(regexp.QuoteMeta(l)+`:\s*`).ReplaceAllString(text, "")
		}
	}
	return w.verify(fn, m, text)
}

// continuation writes the code after a mark.
type continuation struct {
	emitter
	m     *mark
	saved rewrite.Vars
	first string // name of the variable that is true in the point's iteration, if the point begins the iterations
	rest  bool   // it continues with the mark's iteration after a point that did not save
}

// value returns a variable's initial value in the continuation.
func (e *continuation) value(v *types.Var) string {
	if e.saved[v] {
		return fmt.Sprintf("%ss.%s", rewrite.Prefix, e.fn.byVar[v].name)
	}
	return fmt.Sprintf("%s.Zero[%s]()", rewrite.Prefix, e.w.typ(v.Type(), v.Pos()))
}

// restore declares a variable with its value.
func (e *continuation) restore(v *types.Var) string {
	if e.fn.boxed[v] {
		if e.saved[v] {
			return fmt.Sprintf("%s := %ss.%s\n_ = %s\n", box(v), rewrite.Prefix, e.fn.byVar[v].name, box(v))
		}
		return fmt.Sprintf("%s%s := %s.New(%s.Zero[%s]())\n_ = %s\n", verify.NoValue, box(v), rewrite.Prefix, rewrite.Prefix, e.w.typ(v.Type(), v.Pos()), box(v))
	}
	if e.saved[v] {
		return fmt.Sprintf("%s := %ss.%s\n_ = %s\n", v.Name(), rewrite.Prefix, e.fn.byVar[v].name, v.Name())
	}
	return fmt.Sprintf("var %s%s %s\n_ = %s\n", verify.NoValue, v.Name(), e.w.typ(v.Type(), v.Pos()), v.Name())
}

// restoreAll declares the variables of list that are needed.
func (e *continuation) restoreAll(list []*types.Var) string {
	var b strings.Builder
	for _, v := range list {
		if e.m.needed[v] {
			b.WriteString(e.restore(v))
		}
	}
	return b.String()
}

// from writes the k-th list of the path, from the mark on.
func (e *continuation) from(k int) string {
	st := &e.m.path[k]
	var b strings.Builder
	for _, s := range st.list[:st.i] {
		b.WriteString(e.passed(s))
	}
	var lo token.Pos
	for _, s := range st.list[st.i:] { // nested code may jump to code after it
		for l, ok := s.(*ast.LabeledStmt); ok; l, ok = l.Stmt.(*ast.LabeledStmt) {
			name := l.Label.Name
			if was, had := e.labels[name]; had {
				defer func() { e.labels[name] = was }()
			} else {
				defer delete(e.labels, name)
			}
			e.labels[name] = e.w.label(name)
			if e.named == nil {
				e.named = map[*ast.LabeledStmt]string{}
			}
			e.named[l] = e.labels[name]
			defer delete(e.named, l)
		}
	}
	switch {
	case k+1 < len(e.m.path):
		b.WriteString(e.reissued(unlabelled(st.list[st.i])))
		b.WriteString(e.inside(st.list[st.i], k+1, ""))
		lo = st.list[st.i].End()
	case e.m.call:
		if e.isChecked(e.m) {
			fmt.Fprintf(&b, "%[1]s.Reentering(%[1]sd)\n", rewrite.Prefix)
		}
		b.WriteString(e.w.lineAt(e.m) + e.again(st.list[st.i]) + e.afterCall(e.m) + "\n")
		lo = st.list[st.i].End()
	default:
		here := rewrite.Prefix + ".Resumed()\n"
		if e.fn.fast {
			here = fmt.Sprintf("if %[1]s.ResumedFast(%[1]sd) {\n%[2]s\n}\n", rewrite.Prefix, e.unwindAt(e.m))
		}
		if e.first != "" {
			here = fmt.Sprintf("if %[1]s {\n%[1]s = false\n%[2]s} else %[3]s\n", e.first, here, e.save(e.m))
		}
		b.WriteString(here)
		lo = e.m.comment.End()
	}
	b.WriteString(e.list(st, lo))
	return b.String()
}

// unlabelled returns a statement without its labels.
func unlabelled(s ast.Stmt) ast.Stmt {
	for {
		l, ok := s.(*ast.LabeledStmt)
		if !ok {
			return s
		}
		s = l.Stmt
	}
}

// passed writes what remains of a statement before the mark: variables with
// their values, deferred calls, local closures, constants and types.
func (e *continuation) passed(s ast.Stmt) string {
	if l, ok := s.(*ast.LabeledStmt); ok {
		return e.passed(l.Stmt)
	}
	for v, made := range e.fn.again {
		if made == s && e.m.needed[v] {
			return e.region(s.Pos(), s.End(), s) + "\n_ = " + v.Name() + "\n"
		}
	}
	switch s := s.(type) {
	case *ast.DeclStmt:
		if s.Decl.(*ast.GenDecl).Tok != token.VAR {
			return e.region(s.Pos(), s.End(), s) + "\n"
		}
	case *ast.DeferStmt:
		if e.fn.records[s] != nil || e.rest {
			return ""
		}
		return e.region(s.Pos(), s.End(), s) + "\n"
	}
	return e.restoreAll(e.w.defined(s)) + e.pending(s)
}

// pending writes the deferred calls in an earlier statement, if they were
// issued.
func (e *continuation) pending(s ast.Stmt) string {
	if e.rest { // the function that has called this one has issued them
		return ""
	}
	var b strings.Builder
	ast.Inspect(s, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ForStmt, *ast.RangeStmt:
			b.WriteString(e.reissued(n.(ast.Stmt)))
		case *ast.DeferStmt:
			if e.fn.records[n] != nil {
				return false
			}
			flag := e.w.deferFlag(e.fn, n)
			if flag == nil {
				e.fail(n.Pos(), "move the loop into a function of its own", "a deferred call in a loop, before a point")
				return false
			}
			fmt.Fprintf(&b, "if %s {\n%s\n}\n", flag.Name, e.region(n.Pos(), n.End(), n))
			return false
		}
		return true
	})
	return b.String()
}

// inside writes a statement that the mark is in.
func (e *continuation) inside(s ast.Stmt, k int, label string) string {
	next := e.m.path[k].owner
	switch s := s.(type) {
	case *ast.LabeledStmt:
		return e.inside(s.Stmt, k, label+e.labels[s.Label.Name]+":\n")
	case *ast.BlockStmt:
		return label + "{\n" + e.from(k) + "}\n"
	case *ast.IfStmt:
		init := ""
		if s.Init != nil {
			init = e.restoreAll(e.w.defined(s.Init))
		}
		if next == ast.Node(s.Body) || next == ast.Node(s.Else) {
			return label + "{\n" + init + e.block(init, k) + "}\n"
		}
		return label + "{\n" + init + e.inside(s.Else, k, "") + "}\n"
	case *ast.ForStmt:
		return e.insideFor(s, k, label)
	case *ast.RangeStmt:
		return e.insideRange(s, k, label)
	case *ast.SwitchStmt:
		init := ""
		if s.Init != nil {
			init = e.restoreAll(e.w.defined(s.Init))
		}
		for _, t := range fallen(s, next) {
			init += e.pending(t)
		}
		return e.clauses(s.Body, k, init, label)
	case *ast.TypeSwitchStmt:
		init := ""
		if s.Init != nil {
			init = e.restoreAll(e.w.defined(s.Init))
		}
		if v, ok := e.w.p.Info.Implicits[next].(*types.Var); ok && e.m.needed[v] {
			init += e.restore(v)
		}
		return e.clauses(s.Body, k, init, label)
	case *ast.SelectStmt:
		init := ""
		if c := next.(*ast.CommClause); c.Comm != nil {
			init = e.restoreAll(e.w.defined(c.Comm))
		}
		return e.clauses(s.Body, k, init, label)
	}
	e.fail(s.Pos(), "", fmt.Sprintf("internal: a mark in a %T", s))
	return ""
}

// block does the same as from, in a separate block if variables are declared
// before it: the list may declare others with the same names.
func (e *continuation) block(before string, k int) string {
	if before == "" {
		return e.from(k)
	}
	return "{\n" + e.from(k) + "}\n"
}

// clauses writes the clause of a switch or select that the mark is in, and
// those that it falls through to.
func (e *continuation) clauses(body *ast.BlockStmt, k int, init, label string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n%s%sswitch {\ndefault:\n%s", init, label, e.from(k))
	if rewrite.FallsThrough(e.m.path[k].list) {
		b.Reset()
		fmt.Fprintf(&b, "{\n%s%sswitch 0 {\ncase 0:\n%s", init, label, e.from(k))
		on, n := false, 0
		for _, c := range body.List {
			c := c.(*ast.CaseClause)
			if on {
				n++
				st := step{owner: c, list: c.Body, end: clauseEnd(&ast.SwitchStmt{Body: body}, c)}
				fmt.Fprintf(&b, "case %d:\n%s", n, e.list(&st, c.Colon+1))
				on = rewrite.FallsThrough(c.Body)
			}
			if ast.Node(c) == e.m.path[k].owner {
				on = true
			}
		}
	}
	b.WriteString("}\n}\n")
	return b.String()
}

// again writes the call of a mark. The callee resumes from its own frame and
// ignores its arguments.
func (e *continuation) again(s ast.Stmt) string {
	call := resumableCall(s)
	text := e.callAgain(call)
	a, ok := s.(*ast.AssignStmt)
	if !ok {
		return text + "\n"
	}
	if a.Tok == token.DEFINE {
		return e.define(a.Lhs, text) + "\n"
	}
	var lhs []string
	for _, x := range a.Lhs {
		lhs = append(lhs, e.region(x.Pos(), x.End(), x))
	}
	return strings.Join(lhs, ", ") + " = " + text + "\n"
}

func (e *continuation) callAgain(call *ast.CallExpr) string {
	info := e.w.p.Info
	if to := e.w.calls[call]; to != nil {
		return fmt.Sprintf("%[1]scontinue_%[2]s%[3]s(%[1]sd + 1)", rewrite.Prefix, to.name, e.w.instantiated(call))
	}
	sig, _ := info.TypeOf(call.Fun).Underlying().(*types.Signature)
	var args []string
	if sig != nil {
		n := sig.Params().Len()
		if sig.Variadic() {
			n--
		}
		for i := range n {
			args = append(args, fmt.Sprintf("%s.Zero[%s]()", rewrite.Prefix, e.w.typ(sig.Params().At(i).Type(), call.Pos())))
		}
	}
	fun := ast.Unparen(call.Fun)
	var text string
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		if s := info.Selections[f]; s != nil && s.Kind() == types.MethodVal && !types.IsInterface(s.Recv()) {
			if _, tp := s.Recv().(*types.TypeParam); tp {
				text = e.region(f.Pos(), f.End(), f)
				break
			}
			recv := s.Obj().(*types.Func).Signature().Recv().Type()
			text = fmt.Sprintf("%s.Zero[%s]().%s", rewrite.Prefix, e.w.typ(recv, f.Pos()), f.Sel.Name)
			break
		}
		if s := info.Selections[f]; s != nil && s.Kind() == types.MethodExpr && len(args) > 0 {
			// A zero receiver is a nil pointer, through which an embedded field
			// cannot be reached.
			if recv := s.Obj().(*types.Func).Signature().Recv().Type(); !types.IsInterface(recv) {
				text = fmt.Sprintf("%s.Zero[%s]().%s", rewrite.Prefix, e.w.typ(recv, f.Pos()), f.Sel.Name)
				args = args[1:]
				break
			}
		}
		text = e.region(f.Pos(), f.End(), f) + e.instance(f.Sel)
	case *ast.Ident:
		text = e.region(f.Pos(), f.End(), f) + e.instance(f)
	default:
		text = e.region(fun.Pos(), fun.End(), fun)
		if _, ok := fun.(*ast.ParenExpr); !ok && call.Fun != fun {
			text = "(" + text + ")"
		}
	}
	return text + "(" + strings.Join(args, ", ") + ")"
}

// instance writes type arguments that were inferred.
func (e *continuation) instance(id *ast.Ident) string {
	in, ok := e.w.p.Info.Instances[id]
	if !ok {
		return ""
	}
	var l []string
	for t := range in.TypeArgs.Types() {
		l = append(l, e.w.typ(t, id.Pos()))
	}
	return "[" + strings.Join(l, ", ") + "]"
}

var deferWord = regexp.MustCompile(`^//cairn:defer (\d+)$`)

// deferNumber returns the number in the comment before a defer. A line comment
// may stand between the two.
func (w *generator) deferNumber(fn *function, d *ast.DeferStmt) (int, bool) {
	for _, g := range fn.file.Comments {
		for _, c := range g.List {
			if c.End() > d.Pos() {
				return 0, false
			}
			m := deferWord.FindStringSubmatch(c.Text)
			if m != nil && len(bytes.TrimSpace(rewrite.StripLineComments([]byte(w.p.Text(c.End(), d.Pos()))))) == 0 {
				var n int
				fmt.Sscan(m[1], &n)
				return n, true
			}
		}
	}
	return 0, false
}

// verify checks the code after a mark, and returns it without the verifier's
// marks.
func (w *generator) verify(fn *function, m *mark, text string) string {
	v := verify.New()
	v.Recovers = fn.recovers
	for _, s := range m.saved {
		v.Saved[fn.byVar[s].name] = true
	}
	var params, results []string
	for _, p := range fn.params {
		if !fn.boxed[p] && p.Name() != "" && p.Name() != "_" {
			params = append(params, verify.NoValue+p.Name())
		}
	}
	for _, r := range fn.results {
		results = append(results, verify.NoValue+r.Name())
	}
	// If there are variables to rename, Emit starts again.
	if err := v.Check(params, results, text); err != nil && len(w.toRename) == 0 {
		e := &emitter{w: w}
		e.fail(m.comment.Pos(), "please report it", "internal: what continues here is not right: "+err.Error())
	}
	return strings.NewReplacer(verify.NoValue, "", verify.EntersNow, "").Replace(text)
}
