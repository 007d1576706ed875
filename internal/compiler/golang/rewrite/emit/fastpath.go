package emit

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Fast paths. A function that stores its frame before each call that leads to a
// point pays for that with each call. A function with a fast path does not.
// When a checkpoint is due it unwinds: it stores its frame and returns, and so
// do its callers, as far as they have fast paths, too (package resume says
// how). That works only if all functions between its calls and the points have
// fast paths.
//
// Such a function exists several times:
//
//	f                decides which of the others runs
//	cairn_plain_f    the function as it was written
//	cairn_fast_f     the function with points, at which it can unwind
//	cairn_continue_f continues from a frame, in the iteration of the point
//	cairn_rest_f     runs the iterations after that
//
// So calls on the resumable path are of three kinds. All are needed:
//
//   - A fast path calls another one of its package by name, and tests
//     afterwards whether it unwinds (Unwinding). The test is one load.
//   - Through an interface or a func value, or into another package, the callee
//     is not certain. The fast path announces the call (CallingChecked), and
//     asks afterwards (Unwound). That is a store and a look at the goroutine;
//     with it for all calls, recursive programs would be slower.
//   - A function that cannot return early, because some of its deferred calls
//     cannot be guarded (see defers.go) or because it shares changing variables
//     with literals, stores its frame before the call. With that for all calls,
//     a recursive interpreter takes more than twice its time.
//
// A fast path that runs where a caller has no frame (a library calls back, or
// another goroutine runs it) cannot unwind. At a due point it continues in
// cairn_continue_f, and nothing is saved.

// FastPaths returns the functions of a package that may have fast paths, by
// name, with the functions of the package that each calls by name on the
// resumable path. A function has a fast path if these have, and all else that
// it may call there.
func FastPaths(p *rewrite.Package) (map[string][]string, error) {
	w, _, err := newGenerator(p)
	if err != nil {
		return nil, err
	}
	can := map[string][]string{}
	for _, fn := range w.all {
		if !w.mayHaveFastPath(fn) {
			continue
		}
		name := rewrite.FuncName(fn.node.(*ast.FuncDecl))
		can[name] = nil
		for _, m := range fn.marks {
			if m.call {
				if to := w.byObj[w.callee(resumableCall(m.stmt()))]; to != nil {
					can[name] = append(can[name], rewrite.FuncName(to.node.(*ast.FuncDecl)))
				}
			}
		}
	}
	return can, nil
}

// setFastPaths records the functions with fast paths, and their calls of each
// other.
func (w *generator) setFastPaths(fast map[string]bool) {
	w.calls = map[*ast.CallExpr]*function{}
	for _, fn := range w.all {
		d, ok := fn.node.(*ast.FuncDecl)
		fn.fast = ok && fast[rewrite.FuncName(d)]
	}
	for _, fn := range w.all {
		if !fn.fast {
			continue
		}
		fn.waiter = (&emitter{w: w, fn: fn}).waitsInLoop()
		for _, m := range fn.marks {
			if !m.call {
				continue
			}
			call := resumableCall(m.stmt())
			if to := w.byObj[w.callee(call)]; to != nil && to.fast {
				w.calls[call] = to
			}
		}
	}
}

// mayHaveFastPath reports whether a function can have a fast path, provided
// that the functions that it calls on the resumable path have one.
func (w *generator) mayHaveFastPath(fn *function) bool {
	d, is := fn.node.(*ast.FuncDecl)
	if !is || d.Name.Name == "init" || d.Name.Name == "_" ||
		!w.canOutline(fn) || !w.canGuardDefers(fn) {
		return false
	}
	captured, ok := w.sharedVars(fn)
	if !ok {
		return false
	}
	return !slices.ContainsFunc(fn.marks, func(m *mark) bool {
		return m.call && (resumableCall(m.stmt()) == nil || !w.returnsToOwn(fn, m.stmt(), captured))
	})
}

// sharedVars finds the variables of a function that other code sees: their
// address is taken, or a literal captures them. After an unwinding these must
// be the same variables. ok is false if they cannot be: for a literal that has
// points itself, and for one that captures a variable which changes, because it
// may run on another goroutine.
func (w *generator) sharedVars(fn *function) (seen rewrite.Vars, ok bool) {
	seen = rewrite.Vars{}
	captured, changed := rewrite.Vars{}, rewrite.Vars{}
	for _, v := range fn.results {
		changed[v] = true
	}
	ok = true
	ast.Inspect(fn.body, func(n ast.Node) bool {
		if n == nil {
			return true
		}
		if v := w.p.Addressed(n); v != nil {
			seen[v], changed[v] = true, true
		}
		w.p.Changes(n, changed)
		if lit, is := n.(*ast.FuncLit); is {
			ok = ok && w.byNode[lit] == nil
			w.p.Captures(lit, func(v *types.Var) { seen[v], captured[v] = true, true })
		}
		return true
	})
	for v := range captured {
		ok = ok && (!changed[v] || v.Parent() == nil || v.Parent() == w.p.Types.Scope() || v.Pkg() != w.p.Types)
	}
	return seen, ok
}

// callee returns the function of this package that a call names, or nil.
func (w *generator) callee(call *ast.CallExpr) types.Object {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return w.p.Info.Uses[f]
	case *ast.SelectorExpr:
		if s := w.p.Info.Selections[f]; s != nil && s.Kind() == types.MethodVal && !types.IsInterface(s.Recv()) {
			return s.Obj().(*types.Func).Origin()
		}
	}
	return nil
}

// instantiated returns the type arguments of what a call names.
func (w *generator) instantiated(call *ast.CallExpr) string {
	var args *types.TypeList
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		args = w.p.Info.Instances[f].TypeArgs
	case *ast.SelectorExpr:
		t := types.Unalias(w.p.Info.Selections[f].Obj().(*types.Func).Signature().Recv().Type())
		if p, ok := t.(*types.Pointer); ok {
			t = types.Unalias(p.Elem())
		}
		if n, ok := t.(*types.Named); ok {
			args = n.TypeArgs()
		}
	}
	if args.Len() == 0 {
		return ""
	}
	var list []string
	for t := range args.Types() {
		list = append(list, w.typ(t, call.Pos()))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// returnsToOwn reports whether the results of a call go to variables that
// neither other code reads, nor the call itself when it is made again. A callee
// that unwinds returns meaningless values.
func (w *generator) returnsToOwn(fn *function, s ast.Stmt, captured rewrite.Vars) bool {
	a, ok := s.(*ast.AssignStmt)
	if !ok {
		return true
	}
	if a.Tok != token.ASSIGN && a.Tok != token.DEFINE {
		return false
	}
	for _, x := range a.Lhs {
		id, ok := x.(*ast.Ident)
		if !ok {
			return false
		}
		if id.Name == "_" {
			continue
		}
		v, ok := w.p.Info.ObjectOf(id).(*types.Var)
		if !ok || captured[v] || v.Pos() < fn.node.Pos() || v.Pos() >= fn.node.End() || w.uses(resumableCall(s).Fun, v) {
			return false
		}
	}
	return true
}

// uses reports whether a variable is named in an expression.
func (w *generator) uses(x ast.Expr, v *types.Var) (found bool) {
	ast.Inspect(x, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && w.p.Info.Uses[id] == v
		return !found
	})
	return found
}

// dispatcher writes the body of a function with a fast path under its own name.
func (w *generator) dispatcher(fn *function) string {
	d := fn.node.(*ast.FuncDecl)
	sig := w.p.Info.Defs[d.Name].(*types.Func).Signature()
	var args []string
	for i := range sig.Params().Len() {
		v := sig.Params().At(i)
		arg := v.Name()
		if arg == "" || arg == "_" {
			arg = fmt.Sprintf("%s.Zero[%s]()", rewrite.Prefix, w.typ(v.Type(), fn.body.Lbrace+1))
		}
		if sig.Variadic() && i == sig.Params().Len()-1 {
			arg += "..."
		}
		args = append(args, arg)
	}
	on, targs := "", fn.typeArgs()
	if r := sig.Recv(); r != nil {
		on, targs = r.Name()+".", ""
		if r.Name() == "" || r.Name() == "_" {
			on = fmt.Sprintf("%s.Zero[%s]().", rewrite.Prefix, w.typ(r.Type(), fn.body.Lbrace+1))
		}
	}
	call := func(what string) string {
		return fmt.Sprintf("%s%s%s_%s%s(%s)", on, rewrite.Prefix, what, d.Name.Name, targs, strings.Join(args, ", "))
	}
	line := w.p.LineComment(fn.body.List[0].Pos())
	var list []string
	for i := range sig.Results().Len() {
		list = append(list, fmt.Sprintf("%sr%d", rewrite.Prefix, i+1))
	}
	results := strings.Join(list, ", ")
	returns := func(call string) string { // code that returns the results of a call
		if results == "" {
			return line + call + "\nreturn\n"
		}
		return line + "return " + call + "\n"
	}
	unlessUnwound := func(call string) string {
		if results != "" {
			call = results + " := " + call
		}
		return fmt.Sprintf("%[2]s%[3]s\nif !%[1]s.UnwoundTo(%[1]sd) {\nreturn %[4]s\n}\n", rewrite.Prefix, line, call, results)
	}
	first := ""
	if (&emitter{w: w}).isMain(d) {
		first = begin
	}
	return fmt.Sprintf("{\n%[2]s%[1]sd := %[1]s.Enter()\nif %[1]sd == -1 {\n%[3]s}\nif %[1]sd == %[1]s.Checked {\n%[4]s}\nif !%[1]s.Resuming(%[1]sd) {\n%[5]s}\nfor {\n%[6]s}\n}",
		rewrite.Prefix, first, returns(call("plain")), returns(call("fast")), unlessUnwound(call("fast")), unlessUnwound(fn.continueCall()))
}

// fastAndPlain writes the function unchanged, and its fast path.
func (w *generator) fastAndPlain(fn *function) string {
	d := fn.node.(*ast.FuncDecl)
	head := func(what, says string) string {
		return fmt.Sprintf("\n// %s%s_%s is %s %s.\n%s%s%s_%s%s", rewrite.Prefix, what, d.Name.Name, strings.ReplaceAll(fn.name, "_", "."), says,
			w.p.Text(d.Pos(), d.Name.Pos()), rewrite.Prefix, what, d.Name.Name, w.p.Text(d.Name.End(), fn.body.Lbrace))
	}
	plain := &emitter{w: w, fn: &function{node: d, body: fn.body, marks: fn.marks}, plain: true}
	fast := &emitter{w: w, fn: fn}
	text := func(e *emitter) string {
		last := "}\n"
		if e.isMain(d) {
			last = "\n" + rewrite.Prefix + ".Returning()\n}\n"
		}
		return e.region(fn.body.Lbrace+1, fn.body.Rbrace, stmts(fn.body.List)...) + last
	}
	return head("plain", "where nothing is saved of it") + "{\n" + text(plain) +
		head("fast", "while a checkpoint may come due") + "{\n" + fn.lookUpWaiter() + w.boxParams(fn) + text(fast)
}

// unwind writes the code that unwinds a fast path at a mark.
func (e *emitter) unwind(m *mark) string {
	text := fmt.Sprintf("%s%s(%s)", e.fn.frameWriter(m), e.fn.typeArgs(), strings.Join(e.savedAt(m), ", "))
	if e.fn.returns() {
		text = "return " + text
	} else {
		text += "\nreturn"
	}
	return e.w.lineAt(m) + text
}

// unwinders declares the functions that store the frames of a fast path.
func (w *generator) unwinders(fn *function) string {
	var b strings.Builder
	sig := w.p.Info.Defs[fn.node.(*ast.FuncDecl).Name].(*types.Func).Signature()
	var results []string
	for i := range sig.Results().Len() {
		results = append(results, fmt.Sprintf("%sr%d %s", rewrite.Prefix, i+1, w.typ(sig.Results().At(i).Type(), fn.node.Pos())))
	}
	for _, m := range fn.marks {
		params, whole := w.savedAs(fn, m)
		fmt.Fprintf(&b, "\n//go:noinline\nfunc %s%s(%s) (%s) {\n%ss := &%s{%s}\n", fn.frameWriter(m), w.typeParams(fn), strings.Join(params, ", "), strings.Join(results, ", "), rewrite.Prefix, fn.frame(), whole)
		if !m.call && !fn.recovers { // the callers can unwind if their callee did
			on := fmt.Sprintf("%scontinue_%d_%s%s(-1, %ss)\n", rewrite.Prefix, m.n, fn.name, fn.typeArgs(), rewrite.Prefix)
			if fn.returns() {
				on = w.lineAt(m) + "return " + on
			} else {
				on = w.lineAt(m) + on + "return\n"
			}
			fmt.Fprintf(&b, "if !%s.CanUnwind() {\n%s}\n", rewrite.Prefix, on)
		}
		fmt.Fprintf(&b, "%[1]s.Unwind(%[1]ss)\nreturn\n}\n", rewrite.Prefix)
	}
	return b.String()
}
