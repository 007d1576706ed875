package rewrite

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// function writes the body of a rewritten function: going on from a saved frame
// first, then what the user wrote.
func (w *weaver) function(fn *function) string {
	if fn.quick {
		w.setApart(fn)
		fn.apart = w.copies(fn) + fn.apart
		return w.decides(fn)
	}
	var b strings.Builder
	e := &emitter{w: w, fn: fn}
	b.WriteString("{\n")
	if e.isMain(fn.node) {
		b.WriteString(begin)
	}
	fmt.Fprintf(&b, "%[1]sd := %[1]s.Enter()\nif %[1]s.Resuming(%[1]sd) {\n", Prefix)
	switch {
	case !w.setApart(fn):
		b.WriteString(w.goOnAny(fn, func(m *mark) string { return w.goOnWhole(fn, m, false) }))
	case fn.returns():
		fmt.Fprintf(&b, "return %s\n", fn.goesOn())
	default:
		fmt.Fprintf(&b, "%s\nreturn\n", fn.goesOn())
	}
	b.WriteString("}\n")
	b.WriteString(w.boxParams(fn))
	b.WriteString(e.region(fn.body.Lbrace+1, fn.body.Rbrace, stmts(fn.body.List)...))
	if e.isMain(fn.node) {
		fmt.Fprintf(&b, "\n%s.Returning()\n", Prefix)
	}
	b.WriteString("}")
	return b.String()
}

// boxParams puts parameters into boxes.
func (w *weaver) boxParams(fn *function) string {
	var b strings.Builder
	for _, v := range fn.params {
		if fn.boxed[v] {
			fmt.Fprintf(&b, "%s := %s.New(%s)\n", box(v), Prefix, v.Name())
		}
	}
	return b.String()
}

// goOnAny writes what goes on from any of a function's frames.
func (w *weaver) goOnAny(fn *function, each func(m *mark) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "switch %ss := %s.Frame[%s](%sd); %ss.%sat {\n", Prefix, Prefix, fn.frame(), Prefix, Prefix, Prefix)
	for _, m := range fn.marks {
		fmt.Fprintf(&b, "case %d:\n%s", m.n, each(m))
	}
	fmt.Fprintf(&b, "}\n%s.Lost(%sd)\n", Prefix, Prefix)
	return b.String()
}

// goOnWhole writes what goes on from a mark, to the end of the function.
func (w *weaver) goOnWhole(fn *function, m *mark, rest bool) string {
	text := w.goOn(fn, m, rest)
	switch e := (&emitter{w: w}); {
	case fn.returns(): // it has returned
	case e.isMain(fn.node):
		text += Prefix + ".Returning()\nreturn\n"
	default:
		text += "return\n"
	}
	return text
}

func (fn *function) returns() bool { return fn.typ.Results != nil && len(fn.typ.Results.List) > 0 }

// goesOn calls the function that goes on from a function's frames.
func (fn *function) goesOn() string {
	return fmt.Sprintf("%[1]sresume_%[2]s%[3]s(%[1]sd)", Prefix, fn.name, fn.typeArgs())
}

// passed are the parameters that are needed again; what they are given is in
// the frames.
func (fn *function) passed() (list []*types.Var) {
	for _, v := range fn.params {
		if !fn.boxed[v] && slices.ContainsFunc(fn.marks, func(m *mark) bool { return m.needed[v] }) {
			list = append(list, v)
		}
	}
	return list
}

// setApart makes what goes on from a function's frames functions of their own, one
// for each mark, so that the compiler need not think of it where the function is in
// its normal course, nor of one when it compiles another. That can't be done with
// literals, which capture variables.
func (w *weaver) setApart(fn *function) bool {
	if !w.canBeApart(fn) {
		return false
	}
	results := ""
	if fn.typ.Results != nil {
		results = w.p.at(fn.typ.Results.Pos(), fn.typ.Results.End())
	}
	var names, values []string
	for _, v := range fn.passed() {
		names = append(names, v.Name())
		values = append(values, fmt.Sprintf("%s.Zero[%s]()", Prefix, w.typ(v.Type(), v.Pos())))
	}
	vars := ""
	if len(names) > 0 { // at once: their names may hide types
		vars = fmt.Sprintf("%s := %s\n", strings.Join(names, ", "), strings.Join(values, ", "))
		for _, n := range names {
			vars += "_ = " + n + "\n"
		}
	}
	end := "}\n"
	if fn.returns() {
		end = "panic(nil)\n}\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n// %sresume_%s goes on with %s from a saved frame.\n//\n//go:noinline\n", Prefix, fn.name, strings.ReplaceAll(fn.name, "_", "."))
	fmt.Fprintf(&b, "func %[1]sresume_%[2]s%[3]s(%[1]sd int) %[4]s {\n", Prefix, fn.name, w.typeParams(fn), results)
	b.WriteString(w.goOnAny(fn, func(m *mark) string {
		call := fmt.Sprintf("%[1]sresume_%[4]d_%[2]s%[3]s(%[1]sd, %[1]ss)\n", Prefix, fn.name, fn.typeArgs(), m.n)
		if fn.returns() {
			return "return " + call
		}
		return call + "return\n"
	}))
	b.WriteString(end)
	for _, m := range fn.marks {
		from := func(what string, rest bool) {
			fmt.Fprintf(&b, "\n//go:noinline\nfunc %[1]s%[9]s_%[5]d_%[2]s%[3]s(%[1]sd int, %[1]ss *%[6]s) %[4]s {\n%[7]s%[8]s}\n",
				Prefix, fn.name, w.typeParams(fn), results, m.n, fn.frame(), vars, w.goOnWhole(fn, m, rest), what)
		}
		if from("resume", false); fn.rests[m] {
			from("rest", true)
		}
	}
	fn.apart = b.String()
	return true
}

// canBeApart says that code of a function may be in another one.
func (w *weaver) canBeApart(fn *function) bool {
	_, ok := fn.node.(*ast.FuncDecl)
	return ok && !w.asks && !w.mustBeItself(fn.body)
}

// mustBeItself says that it matters what function some code is in: recover has to
// be called by what was deferred, and logs may tell the name of who calls them.
func (w *weaver) mustBeItself(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			switch o := w.p.Info.Uses[id].(type) {
			case *types.Builtin:
				found = found || o.Name() == "recover"
			case *types.Func:
				found = found || o.Pkg() != nil && o.Pkg() != w.p.Types && w.p.tellsCaller(o.Pkg())
			}
		}
		return !found
	})
	return found
}

// tellsCaller says that a package may look at who calls it. (Package log tells
// the line only.)
func (p *Package) tellsCaller(q *types.Package) bool {
	return q.Path() == "log/slog" || p.Asks != nil && p.Asks(q.Path())
}

// AsksForCallers says that functions of a package look at who calls them.
func AsksForCallers(info *types.Info) bool {
	for _, o := range info.Uses {
		f, ok := o.(*types.Func)
		if ok && f.Pkg() != nil && (f.Pkg().Path() == "runtime" || f.Pkg().Path() == "runtime/debug") && callers.MatchString(f.Name()) {
			return true
		}
	}
	return false
}

var callers = regexp.MustCompile(`^(Callers?|FuncForPC|Stack|PrintStack)$`)

func stmts(list []ast.Stmt) []ast.Node {
	var out []ast.Node
	for _, s := range list {
		out = append(out, s)
	}
	return out
}

// goOn writes what comes after a mark.
func (w *weaver) goOn(fn *function, m *mark, rest bool) string {
	e := &continuation{emitter: emitter{w: w, fn: fn, labels: map[string]string{}}, m: m, saved: vars{}, rest: rest}
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
			fmt.Fprintf(&b, "%s = %ss.%s\n", v.Name(), Prefix, fn.byVar[v].name)
		}
	}
	from := len(w.made)
	b.WriteString(e.from(0))
	text := b.String()
	for _, l := range w.made[from:] { // some are of jumps that are over
		if !regexp.MustCompile(`\b(break|continue|goto) ` + regexp.QuoteMeta(l) + `\b`).MatchString(text) {
			text = regexp.MustCompile(regexp.QuoteMeta(l)+`:\s*`).ReplaceAllString(text, "")
		}
	}
	return text
}

// continuation writes code that goes on from a mark.
type continuation struct {
	emitter
	m     *mark
	saved vars
	first string // the variable that is true in the round of the point, where the point begins the rounds
	rest  bool   // it goes on with the round that the mark begins, and was not saved there
}

// value is what a variable is given.
func (e *continuation) value(v *types.Var) string {
	if e.saved[v] {
		return fmt.Sprintf("%ss.%s", Prefix, e.fn.byVar[v].name)
	}
	return fmt.Sprintf("%s.Zero[%s]()", Prefix, e.w.typ(v.Type(), v.Pos()))
}

// restore declares a variable with its value.
func (e *continuation) restore(v *types.Var) string {
	if e.fn.boxed[v] {
		if e.saved[v] {
			return fmt.Sprintf("%s := %ss.%s\n_ = %s\n", box(v), Prefix, e.fn.byVar[v].name, box(v))
		}
		return fmt.Sprintf("%s := %s.New(%s.Zero[%s]())\n_ = %s\n", box(v), Prefix, Prefix, e.w.typ(v.Type(), v.Pos()), box(v))
	}
	if e.saved[v] {
		return fmt.Sprintf("%s := %ss.%s\n_ = %s\n", v.Name(), Prefix, e.fn.byVar[v].name, v.Name())
	}
	return fmt.Sprintf("var %s %s\n_ = %s\n", v.Name(), e.w.typ(v.Type(), v.Pos()), v.Name())
}

// restoreAll declares those of some variables that are needed.
func (e *continuation) restoreAll(list []*types.Var) string {
	var b strings.Builder
	for _, v := range list {
		if e.m.needed[v] {
			b.WriteString(e.restore(v))
		}
	}
	return b.String()
}

// from writes the k-th list of the path from the mark on.
func (e *continuation) from(k int) string {
	st := &e.m.path[k]
	var b strings.Builder
	for _, s := range st.list[:st.i] {
		b.WriteString(e.passed(s))
	}
	var lo token.Pos
	for _, s := range st.list[st.i:] { // what is inside may jump to what comes after
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
		b.WriteString(e.again(st.list[st.i]) + e.back(e.m) + "\n")
		lo = st.list[st.i].End()
	default:
		here := Prefix + ".Here()\n"
		if e.fn.quick {
			here = fmt.Sprintf("if %[1]s.Arrived(%[1]sd) {\n%[2]s\n}\n", Prefix, e.leave(e.m))
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

// unlabelled is a statement without its labels.
func unlabelled(s ast.Stmt) ast.Stmt {
	for {
		l, ok := s.(*ast.LabeledStmt)
		if !ok {
			return s
		}
		s = l.Stmt
	}
}

// passed writes what remains of a statement before the mark: variables with their
// values, deferred calls, local closures, constants and types.
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
		if e.fn.records[s] != nil {
			return ""
		}
		return e.region(s.Pos(), s.End(), s) + "\n"
	}
	return e.restoreAll(e.w.defined(s)) + e.pending(s)
}

// pending writes the deferred calls in a statement that was done, if they were.
func (e *continuation) pending(s ast.Stmt) string {
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

// block is from, in a block of its own if variables are declared before it: the
// list may declare others of the same names.
func (e *continuation) block(before string, k int) string {
	if before == "" {
		return e.from(k)
	}
	return "{\n" + e.from(k) + "}\n"
}

// clauses writes the clause of a switch or select that the mark is in, and those
// that it falls through to.
func (e *continuation) clauses(body *ast.BlockStmt, k int, init, label string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n%s%sswitch {\ndefault:\n%s", init, label, e.from(k))
	if falls(e.m.path[k].list) {
		b.Reset()
		fmt.Fprintf(&b, "{\n%s%sswitch 0 {\ncase 0:\n%s", init, label, e.from(k))
		on, n := false, 0
		for _, c := range body.List {
			c := c.(*ast.CaseClause)
			if on {
				n++
				st := step{owner: c, list: c.Body, end: clauseEnd(&ast.SwitchStmt{Body: body}, c)}
				fmt.Fprintf(&b, "case %d:\n%s", n, e.list(&st, c.Colon+1))
				on = falls(c.Body)
			}
			if ast.Node(c) == e.m.path[k].owner {
				on = true
			}
		}
	}
	b.WriteString("}\n}\n")
	return b.String()
}

// insideFor writes a loop whose first iteration begins at the mark. Its condition
// is not asked again for that one.
func (e *continuation) insideFor(s *ast.ForStmt, k int, label string) string {
	var names, values []string
	if s.Init != nil {
		for _, v := range e.w.defined(s.Init) {
			names = append(names, v.Name())
			values = append(values, e.value(v))
		}
	}
	again := fmt.Sprintf("%sagain%d", Prefix, k)
	if e.boxes(s.Init) {
		for i, v := range e.w.defined(s.Init) {
			if e.fn.boxed[v] && !e.saved[v] {
				values[i] = fmt.Sprintf("%s.New(%s)", Prefix, values[i])
			}
		}
		head, begin := e.boxedFor(s, strings.Join(values, ", "), again)
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
	return head() + e.rounds(k, again, s.Body, s.Cond) + "}\n"
}

// rounds writes the body of a loop whose first round begins at the mark.
func (e *continuation) rounds(k int, again string, body *ast.BlockStmt, cond ast.Expr) string {
	var rest string
	switch {
	case e.begins(k, cond):
		if e.fn.rests == nil {
			e.fn.rests = map[*mark]bool{}
		}
		e.fn.rests[e.m] = true
		rest = e.goesOnWith()
	case !e.m.call && k+1 == len(e.m.path) && e.m.path[k].i == 0:
		e.first = again
		return e.from(k)
	default:
		rest = e.body(body)
	}
	return fmt.Sprintf("if %s {\n%s = false\n%s} else {\n%s}\n", again, again, e.from(k), rest)
}

// begins says that a point is where rounds of a loop begin, and that the loop can
// be gone on with there as if it began. That is done in a function of its own, for
// the rounds after the first: what the first one needs would cost something in
// each.
func (e *continuation) begins(k int, cond ast.Expr) bool {
	return e.fn.quick && !e.m.call && k+1 == len(e.m.path) && e.m.path[k].i == 0 && (cond == nil || e.w.pure(cond))
}

// goesOnWith calls the function that goes on with the round that the mark begins.
func (e *continuation) goesOnWith() string {
	frame := fmt.Sprintf("%sat: %d", Prefix, e.m.n)
	at := e.savedAt(e.m)
	for _, f := range e.fn.fields {
		if slices.Contains(e.m.saved, f.v) {
			frame += fmt.Sprintf(", %s: %s", f.name, at[0])
			at = at[1:]
		}
	}
	call := fmt.Sprintf("%[1]srest_%[3]d_%[2]s(%[1]sd, &%[4]s{%[5]s})\n", Prefix, e.fn.name, e.m.n, e.fn.frame(), frame)
	if e.fn.returns() {
		return "return " + call
	}
	return call + "return\n"
}

// pure says that it makes no difference whether an expression is evaluated twice.
func (w *weaver) pure(x ast.Expr) bool {
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
	again := fmt.Sprintf("%sagain%d", Prefix, k)
	var x *ast.Ident
	if x, _ = s.X.(*ast.Ident); x == nil {
		// Without its value, an array is as good as its length.
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
	t := coreType(e.w.p.Info.TypeOf(s.X))
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
			label, again, again, again, first, e.block(first, k), rest, Prefix, op, x.Name, Prefix, blank(val), "{\n"+e.body(s.Body)+"}\n")
	}
	if key == nil || own(key) == nil {
		e.fail(s.Pos(), "", "internal: a range loop without an index")
		return ""
	}
	i := own(key)
	if b, ok := t.(*types.Basic); ok && b.Info()&types.IsString != 0 {
		from := fmt.Sprintf("%so%d", Prefix, k)
		val, _ := s.Value.(*ast.Ident)
		first, name := "", "_"
		if v := own(val); v != nil {
			name = v.Name()
			if e.m.needed[v] {
				first = e.restore(v)
			}
		}
		return fmt.Sprintf("%s := %s\n%sfor %sj%d, %s := range %s[%s:] {\n%s := %s + %sj%d\n_ = %s\nif %sj%d == 0 {\n%s%s} else {\n%s}\n}\n",
			from, e.value(i), label, Prefix, k, name, x.Name, from, i.Name(), from, Prefix, k, i.Name(), Prefix, k, first, e.block(first, k), e.body(s.Body))
	}
	var end string
	if n, ok := arrayOf(t); ok {
		end = fmt.Sprint(n)
	} else if _, ok := t.(*types.Basic); ok {
		end = x.Name
	} else {
		if e.w.shadowed("len", s.Pos()) {
			e.fail(s.Pos(), "rename it", "the program has its own len")
		}
		end = "len(" + x.Name + ")"
	}
	if v := e.boxedIn(x); x != nil && v != nil {
		end = strings.Replace(end, x.Name, "(*"+box(v)+")", 1)
	}
	if e.rest && e.begins(k, nil) {
		return fmt.Sprintf("%sfor %s := %s; %s < %s; %s++ {\n%s}\n", label, i.Name(), e.value(i), i.Name(), end, i.Name(), e.body(s.Body))
	}
	return fmt.Sprintf("%sfor %s, %s := %s, true; %s < %s; %s++ {\n%s}\n",
		label, i.Name(), again, e.value(i), i.Name(), end, i.Name(), e.rounds(k, again, s.Body, nil))
}

func blank(v *types.Var) string {
	if v == nil {
		return ""
	}
	return "_ = " + v.Name() + "\n"
}

// arrayOf returns the length of an array, or of one that is pointed to.
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

// shadowed says that a predeclared name has another meaning at a place.
func (w *weaver) shadowed(name string, at token.Pos) bool {
	s := w.p.Types.Scope().Innermost(at)
	if s == nil {
		return false
	}
	_, o := s.LookupParent(name, at)
	return o != nil && o.Parent() != types.Universe
}

// again writes the call of a mark for a callee that takes its own frame: its
// arguments mean nothing.
func (e *continuation) again(s ast.Stmt) string {
	call := spineCall(s)
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
		return fmt.Sprintf("%[1]sresume_%[2]s(%[1]sd + 1)", Prefix, to.name)
	}
	sig, _ := info.TypeOf(call.Fun).Underlying().(*types.Signature)
	var args []string
	if sig != nil {
		n := sig.Params().Len()
		if sig.Variadic() {
			n--
		}
		for i := range n {
			args = append(args, fmt.Sprintf("%s.Zero[%s]()", Prefix, e.w.typ(sig.Params().At(i).Type(), call.Pos())))
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
			text = fmt.Sprintf("%s.Zero[%s]().%s", Prefix, e.w.typ(recv, f.Pos()), f.Sel.Name)
			break
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

// deferNumber returns the number in the comment before a defer.
func (w *weaver) deferNumber(fn *function, d *ast.DeferStmt) (int, bool) {
	for _, g := range fn.file.Comments {
		for _, c := range g.List {
			if c.End() <= d.Pos() && strings.TrimSpace(w.p.at(c.End(), d.Pos())) == "" {
				if m := deferWord.FindStringSubmatch(c.Text); m != nil {
					var n int
					fmt.Sscan(m[1], &n)
					return n, true
				}
			}
		}
	}
	return 0, false
}
