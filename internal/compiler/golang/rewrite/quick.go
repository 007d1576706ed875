package rewrite

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// Quick functions. A function that stores its frame before each call that leads
// to a point pays for that with each call. One is quick if it need not: if all that
// can be between its calls and the points is quick too. Then it returns when a set
// is due, with its frame, and so do those that have called it, as far as they are
// quick (package resume says how). Such a function is there several times: under its
// own name what decides between the others, as it was written (cairn_plain_), with
// points (cairn_fast_), and what goes on from its frames: the round of the point
// (cairn_continue_), and those after it (cairn_rest_).

// Quick returns the functions of a package that may be quick, by name, with those
// of the package that each calls by name on the way to points: it is quick if these
// are, and all else that it may call on the way.
func (p *Package) Quick() (map[string][]string, error) {
	w, _, err := p.weaver()
	if err != nil {
		return nil, err
	}
	can := map[string][]string{}
	for _, fn := range w.all {
		if !w.mayBeQuick(fn) {
			continue
		}
		name := FuncName(fn.node.(*ast.FuncDecl))
		can[name] = nil
		for _, m := range fn.marks {
			if m.call {
				if to := w.byObj[w.callee(spineCall(m.stmt()))]; to != nil {
					can[name] = append(can[name], FuncName(to.node.(*ast.FuncDecl)))
				}
			}
		}
	}
	return can, nil
}

// setQuick takes note of the quick functions, and of their calls of each other.
func (w *weaver) setQuick(quick map[string]bool) {
	w.calls = map[*ast.CallExpr]*function{}
	for _, fn := range w.all {
		d, ok := fn.node.(*ast.FuncDecl)
		fn.quick = ok && quick[FuncName(d)]
	}
	for _, fn := range w.all {
		if !fn.quick {
			continue
		}
		for _, m := range fn.marks {
			if !m.call {
				continue
			}
			call := spineCall(m.stmt())
			if to := w.byObj[w.callee(call)]; to != nil && to.quick {
				w.calls[call] = to
			}
		}
	}
}

// mayBeQuick says that a function is quick if those are that it calls on the way to
// points.
func (w *weaver) mayBeQuick(fn *function) bool {
	d, is := fn.node.(*ast.FuncDecl)
	if !is || fn.recovers || d.Name.Name == "init" || d.Name.Name == "_" ||
		!w.canBeApart(fn) {
		return false
	}
	captured, ok := w.sharedWith(fn)
	if !ok {
		return false
	}
	for _, m := range fn.marks {
		if m.call && (spineCall(m.stmt()) == nil || !w.returnsToOwn(fn, m.stmt(), captured)) {
			return false
		}
	}
	return true
}

// sharedWith finds the variables of a function that others see: their address is
// taken, or a literal captures them. When the function is gone on with, those have
// to be the same variables; where that can't be had it says no: a literal that has
// points itself, and one that captures a variable which changes, since it may be
// running on another goroutine.
func (w *weaver) sharedWith(fn *function) (seen vars, ok bool) {
	seen = vars{}
	captured, changed := vars{}, vars{}
	for _, v := range fn.results {
		changed[v] = true
	}
	ok = true
	ast.Inspect(fn.body, func(n ast.Node) bool {
		if n == nil {
			return true
		}
		if v := w.p.addressed(n); v != nil {
			seen[v], changed[v] = true, true
		}
		w.p.changes(n, changed)
		if lit, is := n.(*ast.FuncLit); is {
			ok = ok && w.byNode[lit] == nil
			w.p.captures(lit, func(v *types.Var) { seen[v], captured[v] = true, true })
		}
		return true
	})
	for v := range captured {
		ok = ok && (!changed[v] || v.Parent() == nil || v.Parent() == w.p.Types.Scope() || v.Pkg() != w.p.Types)
	}
	return seen, ok
}

// callee is the function of this package that a call names.
func (w *weaver) callee(call *ast.CallExpr) types.Object {
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

// instantiated are the type arguments of what a call names.
func (w *weaver) instantiated(call *ast.CallExpr) string {
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

// returnsToOwn says that what a call returns goes to variables that nobody else
// looks at, nor the call itself when it is done again: when the called function is
// left, it returns nothing of meaning.
func (w *weaver) returnsToOwn(fn *function, s ast.Stmt, captured vars) bool {
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
		if !ok || captured[v] || v.Pos() < fn.node.Pos() || v.Pos() >= fn.node.End() || w.uses(spineCall(s).Fun, v) {
			return false
		}
	}
	return true
}

// uses says that a variable is named in an expression.
func (w *weaver) uses(x ast.Expr, v *types.Var) (found bool) {
	ast.Inspect(x, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && w.p.Info.Uses[id] == v
		return !found
	})
	return found
}

// decides writes the body of a quick function under its own name.
func (w *weaver) decides(fn *function) string {
	d := fn.node.(*ast.FuncDecl)
	sig := w.p.Info.Defs[d.Name].(*types.Func).Signature()
	var args []string
	for i := range sig.Params().Len() {
		v := sig.Params().At(i)
		arg := v.Name()
		if arg == "" || arg == "_" {
			arg = fmt.Sprintf("%s.Zero[%s]()", Prefix, w.typ(v.Type(), fn.body.Lbrace+1))
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
			on = fmt.Sprintf("%s.Zero[%s]().", Prefix, w.typ(r.Type(), fn.body.Lbrace+1))
		}
	}
	call := func(what string) string {
		return fmt.Sprintf("%s%s%s_%s%s(%s)", on, Prefix, what, d.Name.Name, targs, strings.Join(args, ", "))
	}
	line := w.p.lineOf(fn.body.List[0].Pos())
	var list []string
	for i := range sig.Results().Len() {
		list = append(list, fmt.Sprintf("%sr%d", Prefix, i+1))
	}
	results := strings.Join(list, ", ")
	returns := func(call string) string { // … what it returns
		if results == "" {
			return line + call + "\nreturn\n"
		}
		return line + "return " + call + "\n"
	}
	unlessLeft := func(call string) string {
		if results != "" {
			call = results + " := " + call
		}
		return fmt.Sprintf("%[2]s%[3]s\nif !%[1]s.UnwoundTo(%[1]sd) {\nreturn %[4]s\n}\n", Prefix, line, call, results)
	}
	first := ""
	if (&emitter{w: w}).isMain(d) {
		first = begin
	}
	return fmt.Sprintf("{\n%[2]s%[1]sd := %[1]s.Enter()\nif %[1]sd == -1 {\n%[3]s}\nif %[1]sd == %[1]s.Checked {\n%[4]s}\nif !%[1]s.Resuming(%[1]sd) {\n%[5]s}\nfor {\n%[6]s}\n}",
		Prefix, first, returns(call("plain")), returns(call("fast")), unlessLeft(call("fast")), unlessLeft(fn.goesOn()))
}

// copies writes a quick function as it was written, and with points.
func (w *weaver) copies(fn *function) string {
	d := fn.node.(*ast.FuncDecl)
	head := func(what, says string) string {
		return fmt.Sprintf("\n// %s%s_%s is %s %s.\n%s%s%s_%s%s", Prefix, what, d.Name.Name, strings.ReplaceAll(fn.name, "_", "."), says,
			w.p.at(d.Pos(), d.Name.Pos()), Prefix, what, d.Name.Name, w.p.at(d.Name.End(), fn.body.Lbrace))
	}
	plain := &emitter{w: w, fn: &function{node: d, body: fn.body, marks: fn.marks}, plain: true}
	quick := &emitter{w: w, fn: fn}
	text := func(e *emitter) string {
		last := "}\n"
		if e.isMain(d) {
			last = "\n" + Prefix + ".Returning()\n}\n"
		}
		return e.region(fn.body.Lbrace+1, fn.body.Rbrace, stmts(fn.body.List)...) + last
	}
	return head("plain", "where nothing is saved of it") + "{\n" + text(plain) +
		head("fast", "while a set may come due") + "{\n" + w.boxParams(fn) + text(quick)
}

// leave writes how a quick function is left at a mark.
func (e *emitter) leave(m *mark) string {
	text := fmt.Sprintf("%s%s(%s)", e.fn.saver(m), e.fn.typeArgs(), strings.Join(e.savedAt(m), ", "))
	if e.fn.returns() {
		text = "return " + text
	} else {
		text += "\nreturn"
	}
	return e.w.lineAt(m) + text
}

// leavers declares the functions that give the frames of a quick function.
func (w *weaver) leavers(fn *function) string {
	var b strings.Builder
	sig := w.p.Info.Defs[fn.node.(*ast.FuncDecl).Name].(*types.Func).Signature()
	var results []string
	for i := range sig.Results().Len() {
		results = append(results, fmt.Sprintf("%sr%d %s", Prefix, i+1, w.typ(sig.Results().At(i).Type(), fn.node.Pos())))
	}
	for _, m := range fn.marks {
		params, whole := w.savedAs(fn, m)
		fmt.Fprintf(&b, "\n//go:noinline\nfunc %s%s(%s) (%s) {\n%ss := &%s{%s}\n", fn.saver(m), w.typeParams(fn), strings.Join(params, ", "), strings.Join(results, ", "), Prefix, fn.frame(), whole)
		if !m.call { // those around can be left if what they have called was
			on := fmt.Sprintf("%scontinue_%d_%s%s(-1, %ss)\n", Prefix, m.n, fn.name, fn.typeArgs(), Prefix)
			if fn.returns() {
				on = w.lineAt(m) + "return " + on
			} else {
				on = w.lineAt(m) + on + "return\n"
			}
			fmt.Fprintf(&b, "if !%s.CanUnwind() {\n%s}\n", Prefix, on)
		}
		fmt.Fprintf(&b, "%[1]s.Unwind(%[1]ss)\nreturn\n}\n", Prefix)
	}
	return b.String()
}
