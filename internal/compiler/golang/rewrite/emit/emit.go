// Package emit writes the final source: frames, points, and the code that
// continues from them. Its stages, for each function:
//
//	marks.go          find the marks, and the statements around them
//	liveness.go       find the variables that are read after each mark
//	frame_plan.go     choose the variables of frames, and which are boxed
//	fastpath.go       choose how the function reaches a checkpoint
//	boxes.go          write variables that others may point to
//	defers.go         issue pending deferred calls again
//	continuation*.go  write the code after each mark, which a resumed function
//	                  runs
//	search_loop.go    leave out tests where they would cost too much
//	shadowing.go      rename variables that the new code could not name
//	frame_info.go     report what is saved
package emit

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Result is a package's final source.
type Result struct {
	Files  map[string][]byte // changed files, by name
	Frames []FrameInfo
}

// FrameInfo says what is saved of a function at one place.
type FrameInfo struct {
	Func  string     `json:"function"` // Grid_sweep; for closures, where they are
	At    int        `json:"at"`
	File  string     `json:"file"`
	Line  int        `json:"line"`
	Call  bool       `json:"call,omitempty"` // a call that leads to a point
	Saved []SavedVar `json:"saved"`
	// Again lists the statements that run again when the function resumes.
	Again []Again `json:"again,omitempty"`
}

// SavedVar is a variable in a frame.
type SavedVar struct {
	Name string `json:"name"` // empty: it has no name in the source
	What string `json:"what,omitempty"`
	Type string `json:"type"`
	Size int64  `json:"size"` // size of the value itself, without what it refers to
	// Refers reports whether what the value refers to is saved, too.
	Refers bool `json:"refers,omitempty"`
	Read   int  `json:"read"` // a line where it is read again
	// Captured reports whether it is a variable of a function around a closure.
	Captured bool `json:"captured,omitempty"`
}

// Again is a statement that runs again.
type Again struct {
	What string `json:"what"` // "a deferred call" or "a closure"
	Line int    `json:"line"`
}

// Emit turns marks into code. runtime is the import path of the run time.
// replace maps functions of libraries to functions of the run time that take
// their place: os.Exit to Exit. %s stands for the replaced function. fast holds
// the functions that get a fast path, by name; FastPaths must have returned
// them.
func Emit(p *rewrite.Package, runtime string, replace map[string]string, fast map[string]bool) (*Result, error) {
	w, perFile, err := newGenerator(p)
	if err != nil {
		return nil, err
	}
	w.replace, w.runtime = replace, runtime
	out := &Result{Files: map[string][]byte{}}
	w.setFastPaths(fast)
	for _, f := range p.Files {
		w.file, w.imports, w.kept = f, nil, nil
		w.byPath = map[string]string{}
		w.qual = p.Qualifier(f, w.importFor)
		w.bad = nil
		for _, fn := range perFile[f] {
			if err := w.plan(fn); err != nil {
				return nil, err
			}
		}
		text, changed := w.fileText(f, perFile[f])
		if w.bad != nil {
			return nil, w.bad
		}
		if !changed {
			continue
		}
		frames := ""
		for _, fn := range perFile[f] {
			frames += w.frameType(fn) + w.frameWriters(fn) + fn.outlined
			out.Frames = append(out.Frames, w.infos(fn)...)
		}
		head := p.Text(f.FileStart, f.Name.End())
		var b strings.Builder
		b.WriteString(head)
		fmt.Fprintf(&b, "\n\nimport %s %q\n", rewrite.Prefix, runtime)
		for _, i := range w.imports {
			b.WriteString(i)
		}
		b.WriteString(text)
		for _, k := range w.kept {
			b.WriteString(k)
		}
		b.WriteString(frames)
		if w.bad != nil {
			return nil, w.bad
		}
		if len(w.toRename) > 0 {
			continue
		}
		src, err := rewrite.Format(p.FileName(f), []byte(b.String()))
		if err != nil {
			return nil, err
		}
		out.Files[p.FileName(f)] = src
	}
	if len(w.toRename) > 0 {
		q, err := rename(p, w.toRename)
		if err != nil {
			return nil, err
		}
		return Emit(q, runtime, replace, fast)
	}
	return out, nil
}

// generator holds the state of Emit for a package.
type generator struct {
	p               *rewrite.Package
	all             []*function // functions that have marks
	byNode          map[ast.Node]*function
	byObj           map[types.Object]*function // declared functions
	replace         map[string]string
	runtime         string                      // import path of the run time
	toRename        map[*types.Var]bool         // see shadowing.go
	inspectsCallers bool                        // functions of the package inspect their callers
	calls           map[*ast.CallExpr]*function // calls between functions with a fast path

	// The following fields are for the current file.
	file    *ast.File
	qual    types.Qualifier
	imports []string
	byPath  map[string]string
	kept    []string // declarations that keep imports in use
	bad     error    // error for the first type that cannot be named
	made    []string // labels that were made
}

// newGenerator finds the functions that have marks.
func newGenerator(p *rewrite.Package) (*generator, map[*ast.File][]*function, error) {
	w := &generator{p: p, byNode: map[ast.Node]*function{}, byObj: map[types.Object]*function{}, toRename: map[*types.Var]bool{}, inspectsCallers: rewrite.InspectsCallers(p.Info)}
	perFile := map[*ast.File][]*function{}
	taken := map[string]bool{}
	for _, f := range p.Files {
		list, err := markedFuncs(p, f)
		if err != nil {
			return nil, nil, err
		}
		perFile[f] = list
		w.all = append(w.all, list...)
		for _, fn := range list {
			w.byNode[fn.node] = fn
			if d, ok := fn.node.(*ast.FuncDecl); ok {
				w.byObj[p.Info.Defs[d.Name]] = fn
			}
			name := fn.name // a_b may also be method b of type a
			for i := 2; taken[fn.name]; i++ {
				fn.name = fmt.Sprint(name, "_", i)
			}
			taken[fn.name] = true
		}
	}
	if len(w.all) > 0 {
		for _, name := range []string{"int", "panic", "nil"} {
			if o := p.Types.Scope().Lookup(name); o != nil {
				return nil, nil, p.Refuse(o.Pos(), "give it another name", "%s is declared by the package, and needed for points as Go's own", name)
			}
		}
	}
	return w, perFile, nil
}

// label returns a new name for a label.
func (w *generator) label(name string) string {
	s := fmt.Sprintf("%s%s_%d", rewrite.Prefix, name, len(w.made)+1)
	w.made = append(w.made, s)
	return s
}

// importFor imports a package that the file does not.
func (w *generator) importFor(q *types.Package) string {
	if n, ok := w.byPath[q.Path()]; ok {
		return n
	}
	n := fmt.Sprintf("%s%s%d", rewrite.Prefix, path.Base(q.Path()), len(w.imports)+1)
	n = strings.Map(func(r rune) rune {
		if r == '.' || r == '-' {
			return '_'
		}
		return r
	}, n)
	w.byPath[q.Path()] = n
	w.imports = append(w.imports, fmt.Sprintf("import %s %q\n", n, q.Path()))
	return n
}

// typeArgs returns the type parameters of a function, as arguments.
func (fn *function) typeArgs() string { return rewrite.TypeArgs(fn.tparams) }

// frame returns the name of a function's frame type.
func (fn *function) frame() string { return rewrite.Prefix + "frame_" + fn.name + fn.typeArgs() }

// frameType declares a function's frame.
func (w *generator) frameType(fn *function) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n\n// %sframe_%s is what is saved of %s.\ntype %sframe_%s%s struct {\n%sat int%s\n", rewrite.Prefix, fn.name, strings.ReplaceAll(fn.name, "_", "."), rewrite.Prefix, fn.name, w.typeParams(fn), rewrite.Prefix, nameTag(w.sourceFunction(fn), w.loopTag(fn)))
	for _, f := range fn.fields {
		fmt.Fprintf(&b, "%s %s%s\n", f.name, w.fieldType(fn, f), fieldTag(f))
	}
	b.WriteString("}\n")
	return b.String()
}

// typeParams declares a function's type parameters.
func (w *generator) typeParams(fn *function) string {
	if len(fn.tparams) == 0 {
		return ""
	}
	var l []string
	for _, t := range fn.tparams {
		c := w.typ(t.Constraint(), t.Obj().Pos())
		if strings.HasPrefix(c, "*") { // [P *S] would be parsed as an array's length
			c = "interface{ " + c + " }"
		}
		l = append(l, t.Obj().Name()+" "+c)
	}
	return "[" + strings.Join(l, ", ") + "]"
}

// fieldType returns the type of a field of a frame.
func (w *generator) fieldType(fn *function, f *field) string {
	t := w.typ(f.v.Type(), f.v.Pos())
	if fn.boxed[f.v] {
		t = "*" + t
	}
	return t
}

// frameWriter returns the name of the function that saves a frame at a mark. It
// is outlined, so that rarely executed code uses neither space nor registers in
// hot loops.
func (fn *function) frameWriter(m *mark) string {
	what := "point"
	switch {
	case m.call && fn.fast:
		what = "unwind"
	case m.call:
		what = "store"
	}
	return fmt.Sprintf("%s%s_%s_%d", rewrite.Prefix, what, fn.name, m.n)
}

// frameWriters declares the functions that save a function's frames.
func (w *generator) frameWriters(fn *function) string {
	if fn.fast {
		return w.unwinders(fn)
	}
	var b strings.Builder
	slot := fmt.Sprintf("%s.NewFrame[%s]", rewrite.Prefix, fn.frame()) // generic functions have no static variables
	if len(fn.tparams) == 0 && slices.ContainsFunc(fn.marks, func(m *mark) bool { return m.call }) {
		slot = fmt.Sprintf("%sframes_%s.Get", rewrite.Prefix, fn.name)
		fmt.Fprintf(&b, "\nvar %[1]sframes_%[2]s %[1]s.FramePool[%[3]s]\n", rewrite.Prefix, fn.name, fn.frame())
	}
	for _, m := range fn.marks {
		params, whole := w.savedAs(fn, m)
		fmt.Fprintf(&b, "\n//go:noinline\nfunc %s%s(%s) {\n", fn.frameWriter(m), w.typeParams(fn), strings.Join(append([]string{rewrite.Prefix + "d int"}, params...), ", "))
		if !m.call {
			fmt.Fprintf(&b, "%[1]s.Point(%[1]sd, &%[2]s{%[3]s})\n}\n", rewrite.Prefix, fn.frame(), whole)
			continue
		}
		// Assign field by field: for a composite literal, the compiler would
		// build the value elsewhere and copy it.
		fields := fmt.Sprintf("%sf.%sat = %d\n", rewrite.Prefix, rewrite.Prefix, m.n)
		for _, f := range fn.fields {
			value := rewrite.Prefix + "v_" + f.name
			if !slices.Contains(m.saved, f.v) {
				value = fmt.Sprintf("%s.Zero[%s]()", rewrite.Prefix, w.fieldType(fn, f))
			}
			fields += fmt.Sprintf("%sf.%s = %s\n", rewrite.Prefix, f.name, value)
		}
		fmt.Fprintf(&b, "%[1]sg := %[1]s.Own()\n%[1]sf, %[1]sok := %[1]sg.ReusableFrame(%[1]sd).(*%[2]s)\nif !%[1]sok {\n%[1]sf = %[3]s(%[1]sd)\n}\n%[4]s%[1]sg.Calling(%[1]sd)\n}\n", rewrite.Prefix, fn.frame(), slot, fields)
	}
	return b.String()
}

// savedAs returns the parameters for the variables that are saved at a mark,
// and the frame that holds them.
func (w *generator) savedAs(fn *function, m *mark) (params []string, frame string) {
	frame = fmt.Sprintf("%sat: %d", rewrite.Prefix, m.n)
	for _, f := range fn.fields {
		if slices.Contains(m.saved, f.v) {
			name := rewrite.Prefix + "v_" + f.name // its own name may hide a type
			params = append(params, name+" "+w.fieldType(fn, f))
			frame += fmt.Sprintf(", %s: %s", f.name, name)
		}
	}
	return params, frame
}

// fileText returns the text after a file's package clause, and whether it has
// changed.
func (w *generator) fileText(f *ast.File, list []*function) (string, bool) {
	e := &emitter{w: w, top: true}
	var edits []rewrite.Edit
	for _, d := range f.Decls {
		e.edits(d, &edits)
	}
	if len(edits) == 0 {
		return "", false
	}
	return w.p.Apply(f.Name.End(), f.FileEnd, edits), true
}

// emitter writes code of one function.
type emitter struct {
	w       *generator
	fn      *function
	top     bool              // the code is outside of rewritten functions
	labels  map[string]string // new names of labels
	named   map[*ast.LabeledStmt]string
	plain   bool // marks are ignored
	resumed bool // the code continues from a frame
}

// region writes the text from lo to hi, in which nodes lie.
func (e *emitter) region(lo, hi token.Pos, nodes ...ast.Node) string {
	inner := *e
	if e.labels != nil { // in a copy, labels must differ from those of other copies
		inner.labels = maps.Clone(e.labels)
		for _, n := range nodes {
			ast.Inspect(n, func(m ast.Node) bool {
				switch m := m.(type) {
				case *ast.FuncLit:
					return false
				case *ast.LabeledStmt:
					to := e.named[m]
					if to == "" {
						to = e.w.label(m.Label.Name)
					}
					inner.labels[m.Label.Name] = to
				}
				return true
			})
		}
	}
	var edits []rewrite.Edit
	for _, n := range nodes {
		inner.edits(n, &edits)
	}
	if e.fn != nil {
		for _, m := range e.fn.marks {
			if e.isSearchLoop(m) {
				st := &m.path[len(m.path)-2]
				if at := st.list[st.i].Pos(); lo <= at && at < hi {
					edits = append(edits, rewrite.Edit{Lo: at, Hi: at, Text: inner.beforeSearchLoop(m) + e.w.p.LineComment(at)})
				}
			}
			text := ""
			if m.call && lo <= m.comment.Pos() && m.stmt().End() <= hi {
				text = inner.bareStatement(m)
			}
			if text != "" {
				edits = append(edits, rewrite.Edit{Lo: m.comment.Pos(), Hi: m.comment.End()}, rewrite.Edit{Lo: m.stmt().Pos(), Hi: m.stmt().End(), Text: text})
			} else if lo <= m.comment.Pos() && m.comment.End() <= hi {
				edits = append(edits, rewrite.Edit{Lo: m.comment.Pos(), Hi: m.comment.End(), Text: inner.save(m)})
				if m.call && m.stmt().End() <= hi {
					edits = append(edits, rewrite.Edit{Lo: m.stmt().End(), Hi: m.stmt().End(), Text: inner.afterCall(m)})
				}
			}
		}
	}
	return e.w.p.Apply(lo, hi, edits)
}

// afterCall writes the code after a call that leads to a point. If the callee
// did not store a frame, the run time must not mistake the next call, or a
// deferred one, for it.
func (e *emitter) afterCall(m *mark) string {
	switch {
	case e.plain:
	case e.fn.fast:
		was := "Unwinding"
		if e.isChecked(m) {
			was = "Unwound"
		}
		return fmt.Sprintf("\nif %s.%s() {\n%s\n}", rewrite.Prefix, was, e.unwind(m))
	case e.fn.recovers, !e.enters(m):
		return fmt.Sprintf("\n%s.Returned(%sd)", rewrite.Prefix, rewrite.Prefix)
	}
	return ""
}

// enters reports whether the call of a mark certainly enters a function with
// marks, because it names a function of the package.
func (e *emitter) enters(m *mark) bool {
	return e.w.byObj[e.w.callee(resumableCall(m.stmt()))] != nil
}

// list writes the statements of a list from a position on.
func (e *emitter) list(st *step, lo token.Pos) string {
	var nodes []ast.Node
	for _, s := range st.list {
		if s.Pos() >= lo {
			nodes = append(nodes, s)
		}
	}
	if lo >= st.end {
		return ""
	}
	return e.region(lo, st.end, nodes...) + "\n"
}

// isChecked reports whether a function with a fast path must ask the run time
// after the call of a mark whether the callee has unwound. It must if the call
// does not name the callee's fast path.
func (e *emitter) isChecked(m *mark) bool {
	return e.fn.fast && m.call && e.w.calls[resumableCall(m.stmt())] == nil
}

// isSearchLoop reports whether a point is tested only when its loop begins.
func (e *emitter) isSearchLoop(m *mark) bool {
	return !e.plain && !e.resumed && e.fn.fast && !e.fn.recovers && !e.boxes(loopInit(m)) && e.w.searchLoop(e.fn, m) != nil
}

// save writes the code of a mark.
func (e *emitter) save(m *mark) string {
	fn := e.fn
	switch {
	case e.plain:
		return ""
	case e.isChecked(m):
		return rewrite.Prefix + ".CallingChecked()\n"
	case fn.fast && m.call, e.isSearchLoop(m):
		return ""
	case fn.fast && e.resumed: // it may run where it cannot unwind
		return fmt.Sprintf("if %[1]s.Due() && %[1]sd >= 0 {\n%[2]s\n}", rewrite.Prefix, e.unwindAt(m))
	case fn.fast:
		return fmt.Sprintf("if %s.Due() {\n%s\n}", rewrite.Prefix, e.unwindAt(m))
	}
	when := rewrite.Prefix + ".Due()"
	if m.call {
		when = fmt.Sprintf("%s.Storing(%sd)", rewrite.Prefix, rewrite.Prefix)
	}
	args := append([]string{rewrite.Prefix + "d"}, e.savedAt(m)...)
	return fmt.Sprintf("if %s {\n%s%s%s(%s)\n}", when, e.w.lineAt(m), fn.frameWriter(m), fn.typeArgs(), strings.Join(args, ", "))
}

// savedAt returns the variables that are saved at a mark, as expressions there.
func (e *emitter) savedAt(m *mark) (list []string) {
	for _, f := range e.fn.fields {
		switch {
		case !slices.Contains(m.saved, f.v):
		case e.fn.boxed[f.v]:
			list = append(list, box(f.v))
		default:
			list = append(list, f.v.Name())
		}
	}
	return list
}

// edits finds the changes inside a node.
func (e *emitter) edits(root ast.Node, out *[]rewrite.Edit) {
	w := e.w
	put := func(n ast.Node, text string) { *out = append(*out, rewrite.Edit{Lo: n.Pos(), Hi: n.End(), Text: text}) }
	deferred := map[*ast.CallExpr]bool{}
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if fn := w.byNode[n]; fn != nil {
				put(n.Body, w.function(fn))
				return false
			}
			if n.Body != nil && e.isMain(n) {
				in := *e
				in.fn = &function{node: n, body: n.Body}
				*out = append(*out, rewrite.Edit{Lo: n.Body.Lbrace, Hi: n.Body.Lbrace + 1, Text: "{\n" + begin})
				in.edits(n.Body, out)
				*out = append(*out, rewrite.Edit{Lo: n.Body.Rbrace, Hi: n.Body.Rbrace + 1, Text: rewrite.Prefix + ".Returning()\n}"})
				return false
			}
		case *ast.FuncLit:
			if fn := w.byNode[n]; fn != nil {
				put(n.Body, w.function(fn))
				return false
			}
			if e.fn != nil { // it has labels and returns of its own
				in := *e
				in.labels = nil
				in.fn = &function{outer: e.fn, node: n, body: n.Body}
				in.edits(n.Body, out)
				return false
			}
		case *ast.DeferStmt:
			deferred[n.Call] = true
			if e.guards(n) {
				if lit, ok := ast.Unparen(n.Call.Fun).(*ast.FuncLit); ok {
					at := lit.Body.Lbrace + 1
					*out = append(*out, rewrite.Edit{Lo: at, Hi: at, Text: fmt.Sprintf("\nif %s.Unwinding() {\nreturn\n}\n", rewrite.Prefix)})
					break
				}
				put(n, fmt.Sprintf("defer func() {\nif !%s.Unwinding() {\n%s%s\n}\n}()", rewrite.Prefix, w.p.LineComment(n.Pos()), e.region(n.Call.Pos(), n.Call.End(), n.Call)))
				return false
			}
		case *ast.CallExpr:
			if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && !deferred[n] {
				if b, ok := w.p.Info.Uses[id].(*types.Builtin); ok && b.Name() == "recover" {
					put(n, rewrite.Prefix+".Recovered("+w.p.Text(n.Pos(), n.End())+")")
					return false
				}
			}
			if to := w.calls[n]; to != nil {
				name, ok := ast.Unparen(n.Fun).(*ast.Ident)
				if s, is := ast.Unparen(n.Fun).(*ast.SelectorExpr); is {
					name, ok = s.Sel, true
				}
				what := "fast_"
				if e.plain {
					what = "plain_"
				}
				if ok {
					put(name, rewrite.Prefix+what+name.Name)
				}
			}
		case *ast.GoStmt:
			if line, ok := w.p.WaitLine(n); ok {
				put(n, fmt.Sprintf("%s.Go(%d, %s)", rewrite.Prefix, line, e.region(n.Call.Fun.Pos(), n.Call.Fun.End(), n.Call.Fun)))
				return false
			}
		case *ast.ReturnStmt:
			if e.fn != nil && e.isMain(e.fn.node) {
				*out = append(*out, rewrite.Edit{Lo: n.Pos(), Hi: n.Pos(), Text: rewrite.Prefix + ".Returning()\n"})
			}
		case *ast.LabeledStmt:
			if to := e.labels[n.Label.Name]; to != "" {
				put(n.Label, to)
			}
		case *ast.BranchStmt:
			if n.Label != nil {
				if to := e.labels[n.Label.Name]; to != "" {
					put(n.Label, to)
				}
			}
			return false
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				if v := e.boxedIn(n.X); v != nil {
					put(n, box(v))
					return false
				}
			}
		case *ast.Ident:
			if v, ok := w.p.Info.Uses[n].(*types.Var); ok && v == e.boxedIn(n) {
				put(n, "(*"+box(v)+")")
			}
		case *ast.SelectorExpr:
			if to, ok := e.replaced(n); ok {
				put(n, rewrite.Prefix+"."+to)
				return false
			}
			if v := e.boxedIn(n.X); v != nil && w.p.Addressed(n) == v { // (*p).M would be compiled to code that tests p
				put(n.X, box(v))
				return false
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE && slices.ContainsFunc(n.Lhs, func(x ast.Expr) bool { return e.boxedIn(x) != nil || e.outside(x) }) {
				var rhs []string
				for _, r := range n.Rhs {
					rhs = append(rhs, e.region(r.Pos(), r.End(), r))
				}
				put(n, e.define(n.Lhs, strings.Join(rhs, ", ")))
				return false
			}
		case *ast.DeclStmt:
			if text, ok := e.declare(n); ok {
				put(n, text)
				return false
			}
		case *ast.IfStmt:
			if e.boxes(n.Init) {
				rest := e.region(n.Cond.Pos(), n.End(), n.Cond, n.Body)
				if n.Else != nil {
					rest = e.region(n.Cond.Pos(), n.End(), n.Cond, n.Body, n.Else)
				}
				put(n, "{\n"+e.region(n.Init.Pos(), n.Init.End(), n.Init)+"\nif "+rest+"\n}")
				return false
			}
		case *ast.ForStmt:
			if e.boxes(n.Init) {
				head, begin := e.boxedFor(n, "", "", func(*types.Var) string { return "" })
				put(n, head+" {\n"+begin+e.region(n.Body.Lbrace+1, n.Body.Rbrace, stmts(n.Body.List)...)+"}")
				return false
			}
		case *ast.SwitchStmt:
			if e.boxes(n.Init) {
				e.fail(n.Init.Pos(), "declare it before the switch", "the address of a variable that is declared by a switch is taken, and it is needed at a point")
			}
		case *ast.TypeSwitchStmt:
			if e.boxes(n.Init) {
				e.fail(n.Init.Pos(), "declare it before the switch", "the address of a variable that is declared by a switch is taken, and it is needed at a point")
			}
			for _, c := range n.Body.List {
				if v, ok := w.p.Info.Implicits[c].(*types.Var); ok && e.fn != nil && e.fn.boxed[v] {
					e.fail(c.Pos(), "copy it to a variable in the clause", "the address of a type switch's variable is taken, and it is needed at a point")
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE && (e.boxedIn(n.Key) != nil || e.boxedIn(n.Value) != nil) {
				e.fail(n.Pos(), "copy it to a variable in the loop's body", "the address of a loop variable is taken, and it is needed at a point")
			}
		case *ast.CommClause:
			if e.boxes(n.Comm) {
				e.fail(n.Pos(), "copy it to a variable in the clause", "the address of a variable that a select declares is taken, and it is needed at a point")
			}
		}
		return true
	})
}

func (e *emitter) fail(at token.Pos, remedy, reason string) {
	if e.w.bad == nil {
		e.w.bad = e.w.p.Refuse(at, remedy, "%s", reason)
	}
}

func (e *emitter) isMain(n ast.Node) bool {
	d, ok := n.(*ast.FuncDecl)
	return ok && d.Recv == nil && d.Name.Name == "main" && e.w.p.Types.Name() == "main"
}

const begin = rewrite.Prefix + ".Begin()\ndefer " + rewrite.Prefix + ".End()\n"

// replaced returns the run time's replacement of a library's function.
func (e *emitter) replaced(s *ast.SelectorExpr) (string, bool) {
	id, ok := s.X.(*ast.Ident)
	if !ok {
		return "", false
	}
	pkg, ok := e.w.p.Info.Uses[id].(*types.PkgName)
	if !ok {
		return "", false
	}
	to, ok := e.w.replace[pkg.Imported().Path()+"."+s.Sel.Name]
	if !ok {
		return "", false
	}
	if strings.Contains(to, "%s") {
		return fmt.Sprintf(to, id.Name+"."+s.Sel.Name), true
	}
	keep := fmt.Sprintf("\nvar _ = %s.%s // keeps the import in use\n", id.Name, s.Sel.Name)
	if !slices.Contains(e.w.kept, keep) {
		e.w.kept = append(e.w.kept, keep)
	}
	return to, true
}
