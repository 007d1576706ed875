package kernel

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"strings"
)

// push enters a statement that break and continue may leave.
func (f *function) push(label string, kind byte) *target {
	f.labels++
	t := &target{label: label, kind: kind, end: fmt.Sprintf("end%d", f.labels), next: fmt.Sprintf("next%d", f.labels)}
	f.targets = append(f.targets, t)
	return t
}

// pop leaves it, after its closing brace.
func (f *function) pop(t *target) {
	f.targets = f.targets[:len(f.targets)-1]
	if t.usesEnd {
		f.line("%s:;", t.end)
	}
}

// branch translates break and continue.
func (f *function) branch(s *ast.BranchStmt) {
	if s.Tok == token.GOTO || s.Tok == token.FALLTHROUGH {
		f.refuse(s, "a kernel cannot use %s: use if and for", s.Tok)
	}
	innermost := true
	for i := len(f.targets) - 1; i >= 0; i-- {
		t := f.targets[i]
		if s.Label != nil && t.label != s.Label.Name || s.Label == nil && s.Tok == token.CONTINUE && t.kind == 's' {
			if t.kind == 'i' || t.kind == 'g' {
				f.refuse(s, "a kernel cannot leave a loop over work items, which run in parallel: use an if")
			}
			innermost = innermost && t.kind == 's'
			continue
		}
		switch {
		case s.Tok == token.BREAK && (t.kind == 'i' || t.kind == 'g'):
			f.refuse(s, "a kernel cannot leave a loop over work items, which run in parallel: use continue and a condition")
		case s.Tok == token.BREAK && t.kind == 'f' && innermost:
			f.line("break;")
		case s.Tok == token.BREAK:
			t.usesEnd = true
			f.line("goto %s;", t.end)
		case t.kind == 'g':
			f.line("return;")
		case t.kind == 's':
			f.refuse(s, "continue does not name a loop")
		case innermost && !t.post:
			f.line("continue;")
		default:
			t.usesNext = true
			f.line("goto %s;", t.next)
		}
		return
	}
	f.refuse(s, "%s leaves nothing here", s.Tok)
}

// body translates the body of a loop.
func (f *function) body(t *target, list []ast.Stmt) {
	if f.kernel != nil && len(f.kernel.open) == 0 && t.kind == 'f' {
		f.kernel.enterLoop()
		defer f.kernel.leaveLoop()
	}
	f.indent++
	f.line("{")
	f.braces(list)
	f.line("}")
	if t.usesNext {
		f.line("%s:;", t.next)
	}
	f.indent--
}

func (f *function) forStmt(s *ast.ForStmt, label string) {
	if f.kernel != nil && f.itemLoop(s, label) {
		return
	}
	f.line("{")
	f.indent++
	if s.Init != nil {
		f.stmt(s.Init, "")
	}
	cond := ""
	if s.Cond != nil {
		cond = f.expr(s.Cond)
	}
	// The last statement becomes part of the header if it is one
	// expression.
	post := ""
	var after string
	if s.Post != nil {
		out, indent := f.out, f.indent
		f.out, f.indent = strings.Builder{}, 0
		f.stmt(s.Post, "")
		after = f.out.String()
		f.out, f.indent = strings.Builder{}, indent
		f.out.WriteString(out.String())
		if text := strings.TrimSuffix(after, ";\n"); strings.Count(after, "\n") == 1 && !strings.Contains(text, ";") {
			post, after = text, ""
		}
	}
	t := f.push(label, 'f')
	t.post = after != ""
	f.line("for (; %s; %s) {", cond, post)
	f.body(t, s.Body.List)
	if after != "" {
		for l := range strings.Lines(after) {
			f.line("\t%s", strings.TrimSuffix(l, "\n"))
		}
	}
	f.line("}")
	f.pop(t)
	f.indent--
	f.line("}")
}

func (f *function) rangeStmt(s *ast.RangeStmt, label string) {
	if f.kernel != nil && (f.groupLoop(s, label) || f.itemRange(s, label)) {
		return
	}
	t := f.Info.TypeOf(s.X)
	if s.Tok == token.ASSIGN {
		f.refuse(s, "a kernel cannot range with existing variables: declare them with :=")
	}
	key, _ := s.Key.(*ast.Ident)
	var value *ast.Ident
	if s.Value != nil {
		value, _ = s.Value.(*ast.Ident)
		if value != nil && value.Name == "_" {
			value = nil
		}
	}
	if key != nil && key.Name == "_" {
		key = nil
	}
	f.line("{")
	f.indent++
	limit, count := f.fresh("end"), f.fresh("at")
	ctype := "long"
	var element func() string
	switch u := t.Underlying().(type) {
	case *types.Basic:
		k, ok := number(t)
		if !ok || k.class != 'i' {
			f.refuse(s, "a kernel cannot range over a %s", t)
		}
		// The type of the loop variable is that of s.X.
		if key != nil {
			if obj := f.Info.Defs[key]; obj != nil {
				k, _ = number(obj.Type())
			}
		}
		ctype = k.name
		f.line("%s %s = %s;", ctype, limit, f.expr(s.X))
	case *types.Slice:
		of := f.slice(s.X)
		f.line("long %s = %s;", limit, f.lenOf(s, of))
		element = func() string { return f.element(s.X, of, count, nil, false) }
	case *types.Array:
		f.line("long %s = %dL;", limit, u.Len())
		if value != nil {
			of := f.variable(s.X)
			if of == nil || f.assignedIn(s.Body, of) {
				f.refuse(s, "a kernel can range over the values of an array only if it is a variable that the loop does not change, because Go copies it: range over its indexes")
			}
			element = func() string { return f.lvalue(s.X, false) + "[" + count + "]" }
		}
	default:
		f.refuse(s, "a kernel cannot range over a %s", t)
	}
	at := f.push(label, 'f')
	f.line("for (%s %s = 0; %s < %s; %s++) {", ctype, count, count, limit, count)
	f.indent++
	if f.kernel != nil && len(f.kernel.open) == 0 {
		f.kernel.enterLoop()
	}
	if key != nil {
		obj := f.Info.Defs[key]
		f.line("%s = %s;", f.declaration(key, obj.Type(), f.define(obj)), count)
	}
	if value != nil {
		obj := f.Info.Defs[value]
		f.line("%s = %s;", f.declaration(value, obj.Type(), f.define(obj)), element())
	}
	if f.kernel != nil && len(f.kernel.open) == 0 {
		f.kernel.leaveLoop()
	}
	f.indent--
	f.body(at, s.Body.List)
	f.line("}")
	f.pop(at)
	f.indent--
	f.line("}")
}

// assignedIn reports whether statements assign to a variable or a part of it.
func (f *function) assignedIn(n ast.Node, obj types.Object) bool {
	found := false
	sum := &summary{assigned: make(map[types.Object]bool), writes: make(map[types.Object]bool)}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				sum.assign(f.program, l)
			}
		case *ast.IncDecStmt:
			sum.assign(f.program, n.X)
		}
		found = sum.assigned[obj]
		return !found
	})
	return found
}

// variable returns the variable that x is or is a part of, or nil.
func (f *function) variable(x ast.Expr) types.Object {
	switch x := ast.Unparen(x).(type) {
	case *ast.Ident:
		return f.Info.ObjectOf(x)
	case *ast.SelectorExpr:
		return f.variable(x.X)
	case *ast.IndexExpr:
		if !isSlice(f.Info.TypeOf(x.X)) {
			return f.variable(x.X)
		}
	}
	return nil
}
