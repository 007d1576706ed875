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

// maxCopies bounds the number of syntax nodes of a function times its marks:
// each mark has a copy of the code after it.
const maxCopies = 1 << 19

// plan decides what a function's frames contain.
func (w *generator) plan(fn *function) error {
	p := w.p
	nodes := 0
	for range ast.Preorder(fn.body) {
		nodes++
	}
	if len(fn.marks) > 8 && nodes*len(fn.marks) > maxCopies {
		return p.Refuse(fn.body.Pos(), "split it into functions", "the function has %d points and calls that lead to points: with a copy of what comes after each it would be too long", len(fn.marks))
	}
	var live *liveness
	fn.withMarks(func() { live = findLive(p, fn) })
	w.closures(fn)
	w.records(fn)
	shared := w.shared(fn)
	for _, m := range fn.marks {
		if err := w.planMark(fn, live, m); err != nil {
			return err
		}
	}
	w.spread(fn)
	for _, m := range fn.marks {
		for _, t := range fn.tparams {
			if t.Obj().Name() == "_" {
				return p.Refuse(fn.node.Pos(), "give it a name", "a function with a point, or a call that leads to one, has a type parameter without a name")
			}
			w.needType(t, m.comment.Pos(), map[types.Type]bool{})
		}
		for _, v := range m.saved {
			w.needName(v, m.comment.Pos())
			if fn.fast && m.call {
				w.needName(v, m.stmt().End())
			}
			if fn.byVar[v] == nil {
				name := v.Name()
				for i := 2; fn.hasField(name); i++ {
					name = fmt.Sprintf("%s_%d", v.Name(), i)
				}
				f := &field{v, name}
				fn.byVar[v] = f
				fn.fields = append(fn.fields, f)
			}
			if shared[v] || p.Large(v.Type()) {
				fn.boxed[v] = true
			}
		}
	}
	for _, v := range fn.results {
		if fn.boxed[v] && shared[v] {
			return p.Refuse(v.Pos(), "use a local variable, and return its value", "the address of result %s is taken, and it is needed after a point", v.Name())
		}
		delete(fn.boxed, v)
	}
	return nil
}

func (fn *function) hasField(name string) bool {
	return slices.ContainsFunc(fn.fields, func(f *field) bool { return f.name == name })
}

// shared finds the variables that may change while their frame waits for a call
// to return: their address is taken, or a literal that may run meanwhile
// captures them. A rewritten literal may call the others; a literal that is
// passed on may run on another goroutine.
func (w *generator) shared(fn *function) rewrite.Vars {
	out := rewrite.Vars{}
	captured := rewrite.Vars{}
	runs := false
	away := w.givenAway(fn)
	ast.Inspect(fn.body, func(n ast.Node) bool {
		if n == nil {
			return true
		}
		if v := w.p.Addressed(n); v != nil {
			out[v] = true
		}
		if lit, ok := n.(*ast.FuncLit); ok {
			runs = runs || w.byNode[lit] != nil
			changed := rewrite.Vars{}
			if away[lit] {
				ast.Inspect(lit.Body, func(m ast.Node) bool {
					w.p.Changes(m, changed)
					return true
				})
			}
			w.p.Captures(lit, func(v *types.Var) { captured[v] = captured[v] || changed[v] })
		}
		return true
	})
	for v, changed := range captured {
		if (runs || changed) && fn.again[v] == nil && !fn.lateResult(v) {
			out[v] = true
		}
	}
	return out
}

// lateResult reports whether a variable is a result that only the first
// deferred call assigns.
func (fn *function) lateResult(v *types.Var) bool {
	return strings.HasPrefix(v.Name(), rewrite.Prefix+"o") && slices.Contains(fn.results, v)
}

// closures finds local variables that a single statement assigns and that hold
// a function literal. The continuation can run that statement again.
func (w *generator) closures(fn *function) {
	count := map[*types.Var]int{}
	note := func(e, rhs ast.Expr, s ast.Stmt) {
		id, ok := e.(*ast.Ident)
		if !ok {
			return
		}
		v, ok := w.p.Info.ObjectOf(id).(*types.Var)
		if !ok {
			return
		}
		count[v]++
		if _, lit := rhs.(*ast.FuncLit); lit {
			fn.again[v] = s
		}
	}
	ast.Inspect(fn.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, e := range n.Lhs {
				var rhs ast.Expr
				if len(n.Lhs) == 1 && len(n.Rhs) == 1 {
					rhs = n.Rhs[i]
				}
				note(e, rhs, n)
			}
		case *ast.RangeStmt:
			if n.Key != nil {
				note(n.Key, nil, n)
			}
			if n.Value != nil {
				note(n.Value, nil, n)
			}
		case *ast.DeclStmt:
			if d, ok := n.Decl.(*ast.GenDecl); ok && d.Tok == token.VAR && len(d.Specs) == 1 {
				if s := d.Specs[0].(*ast.ValueSpec); len(s.Names) == 1 && len(s.Values) == 1 {
					note(s.Names[0], s.Values[0], n)
				}
			}
		}
		return true
	})
	for v := range fn.again {
		if count[v] != 1 {
			delete(fn.again, v)
		}
	}
}

// scope returns the variables that are declared on the path to a mark.
func (w *generator) scope(fn *function, m *mark) []*types.Var {
	var out []*types.Var
	out = append(out, fn.params...)
	out = append(out, fn.results...)
	for k := range m.path {
		st := &m.path[k]
		for _, s := range st.list[:st.i] {
			out = append(out, w.defined(s)...)
		}
		if k+1 < len(m.path) {
			out = append(out, w.header(st.list[st.i], m.path[k+1].owner)...)
		}
	}
	return out
}

// defined returns the variables that a statement declares in its list.
func (w *generator) defined(s ast.Stmt) []*types.Var {
	var out []*types.Var
	add := func(id *ast.Ident) {
		if v, ok := w.p.Info.Defs[id].(*types.Var); ok && id.Name != "_" {
			out = append(out, v)
		}
	}
	switch s := s.(type) {
	case *ast.LabeledStmt:
		return w.defined(s.Stmt)
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			for _, e := range s.Lhs {
				add(e.(*ast.Ident))
			}
		}
	case *ast.DeclStmt:
		if d := s.Decl.(*ast.GenDecl); d.Tok == token.VAR {
			for _, sp := range d.Specs {
				for _, id := range sp.(*ast.ValueSpec).Names {
					add(id)
				}
			}
		}
	}
	return out
}

// header returns the variables that a statement declares for one of its lists.
func (w *generator) header(s ast.Stmt, owner ast.Node) []*types.Var {
	init := func(i ast.Stmt) []*types.Var {
		if i == nil {
			return nil
		}
		return w.defined(i)
	}
	switch s := s.(type) {
	case *ast.LabeledStmt:
		return w.header(s.Stmt, owner)
	case *ast.IfStmt:
		out := init(s.Init)
		if owner != ast.Node(s.Body) && s.Else != nil {
			out = append(out, w.header(s.Else, owner)...)
		}
		return out
	case *ast.ForStmt:
		return init(s.Init)
	case *ast.RangeStmt:
		var out []*types.Var
		for _, e := range []ast.Expr{s.Key, s.Value} {
			if id, ok := e.(*ast.Ident); ok && s.Tok == token.DEFINE && id.Name != "_" {
				if v, ok := w.p.Info.Defs[id].(*types.Var); ok {
					out = append(out, v)
				}
			}
		}
		return out
	case *ast.SwitchStmt:
		return init(s.Init)
	case *ast.TypeSwitchStmt:
		out := init(s.Init)
		if v, ok := w.p.Info.Implicits[owner].(*types.Var); ok {
			out = append(out, v)
		}
		return out
	case *ast.SelectStmt:
		if c, ok := owner.(*ast.CommClause); ok {
			return init(c.Comm)
		}
	}
	return nil
}

// planMark finds the variables that are named after a mark, and those of them
// that must be saved.
func (w *generator) planMark(fn *function, live *liveness, m *mark) error {
	inScope := rewrite.Vars{}
	scope := w.scope(fn, m)
	for _, v := range scope {
		inScope[v] = true
	}
	name := func(n ast.Node) {
		if n == nil {
			return
		}
		ast.Inspect(n, func(k ast.Node) bool {
			if id, ok := k.(*ast.Ident); ok {
				if v, ok := w.p.Info.ObjectOf(id).(*types.Var); ok && inScope[v] {
					m.needed[v] = true
				}
			}
			return true
		})
		rewrite.InspectOwn(n, func(k ast.Node) bool { // a return need not name its results
			if r, ok := k.(*ast.ReturnStmt); ok && len(r.Results) == 0 {
				for _, v := range fn.results {
					m.needed[v] = true
				}
			}
			return true
		})
	}
	if fn.recovers { // after a panic, the function returns their current values
		for _, v := range fn.results {
			m.needed[v] = true
		}
	}
	forced := rewrite.Vars{}
	force := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			if v, ok := w.p.Info.ObjectOf(id).(*types.Var); ok && inScope[v] {
				m.needed[v], forced[v] = true, true
			}
		}
	}
	pending := func(s ast.Stmt) {
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ForStmt, *ast.RangeStmt:
				return false
			case *ast.DeferStmt:
				if fn.records[n] != nil {
					return false
				}
				name(n)
				ast.Inspect(n, func(k ast.Node) bool {
					if id, ok := k.(*ast.Ident); ok {
						force(id)
					}
					return true
				})
				if flag := w.deferFlag(fn, n); flag != nil {
					force(flag)
				}
			}
			return true
		})
	}
	for k := range m.path {
		st := &m.path[k]
		from := st.i
		if k+1 < len(m.path) {
			s := st.list[st.i]
			for {
				l, ok := s.(*ast.LabeledStmt)
				if !ok {
					break
				}
				s = l.Stmt
			}
			switch s := s.(type) {
			case *ast.ForStmt:
				name(s)
			case *ast.RangeStmt:
				name(s)
				force(s.X)
				if s.Key != nil { // the loop's head reads it even if nothing after the mark does
					force(s.Key)
				}
			case *ast.SwitchStmt, *ast.TypeSwitchStmt:
				if rewrite.FallsThrough(m.path[k+1].list) {
					name(s)
				}
				for _, t := range fallen(s, m.path[k+1].owner) {
					pending(t)
				}
			}
			from++
		} else if m.call {
			from++
		}
		for _, s := range st.list[from:] {
			name(s)
		}
		// Deferred calls are issued again, with their arguments.
		for _, s := range st.list[:min(st.i, len(st.list))] {
			pending(s)
		}
	}
	w.needRecords(fn, m, force)
	if cond := w.testedAgain(fn, m); cond != nil {
		ast.Inspect(cond, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				force(id)
			}
			return true
		})
	}
	var assigned rewrite.Vars
	if m.call {
		var err error
		if assigned, err = w.planCall(fn, m, force, name); err != nil {
			return err
		}
	}
	// Local closures are made again, so their captured variables are needed.
	for grew := true; grew; {
		grew = false
		for v, s := range fn.again {
			if m.needed[v] && !assigned[v] && onPath(m, s) {
				before := len(m.needed)
				name(s)
				grew = grew || len(m.needed) > before
			}
		}
	}
	at := live.at[m.empty]
	seen := rewrite.Vars{}
	for _, v := range scope {
		// A call may assign the variable that finds its callee: x = x.next().
		if seen[v] || !m.needed[v] || assigned[v] && !live.held[v] && !forced[v] {
			continue
		}
		seen[v] = true
		if s := fn.again[v]; s != nil && onPath(m, s) {
			continue
		}
		if !forced[v] && !at[v] && !live.held[v] {
			continue
		}
		if s := fn.again[v]; s != nil {
			return w.p.Refuse(s.Pos(), "declare it where it is given its value", "%s is a function literal that is needed after a point, and made in a nested block", v.Name())
		}
		m.saved = append(m.saved, v)
	}
	return nil
}

// fallen returns the statements of the clauses that fall through to one.
func fallen(s ast.Stmt, clause ast.Node) (list []ast.Stmt) {
	sw, ok := s.(*ast.SwitchStmt)
	if !ok {
		return nil
	}
	for _, c := range sw.Body.List {
		if ast.Node(c) == clause {
			return list
		}
		list = append(list, c.(*ast.CaseClause).Body...)
		if !rewrite.FallsThrough(c.(*ast.CaseClause).Body) {
			list = nil
		}
	}
	return nil
}

// onPath reports whether a statement stands before a mark in a list of its
// path.
func onPath(m *mark, s ast.Stmt) bool {
	for k := range m.path {
		st := &m.path[k]
		if slices.Contains(st.list[:min(st.i, len(st.list))], s) {
			return true
		}
	}
	return false
}

// resumableCall returns the call of a statement that consists of a call.
func resumableCall(s ast.Stmt) *ast.CallExpr {
	switch s := s.(type) {
	case *ast.ExprStmt:
		c, _ := ast.Unparen(s.X).(*ast.CallExpr)
		return c
	case *ast.AssignStmt:
		if len(s.Rhs) == 1 {
			c, _ := ast.Unparen(s.Rhs[0]).(*ast.CallExpr)
			return c
		}
	}
	return nil
}

// planCall records what the call of a mark needs to find its callee again, and
// returns the variables that it assigns.
func (w *generator) planCall(fn *function, m *mark, force func(ast.Expr), name func(ast.Node)) (rewrite.Vars, error) {
	call := resumableCall(m.stmt())
	if call == nil {
		return nil, w.p.Refuse(m.comment.Pos(), "", "internal: no call after its mark")
	}
	out := rewrite.Vars{}
	if a, ok := m.stmt().(*ast.AssignStmt); ok {
		for _, e := range a.Lhs {
			if id, ok := e.(*ast.Ident); ok {
				if v, ok := w.p.Info.ObjectOf(id).(*types.Var); ok && !fn.outerVar(w, v) {
					out[v] = true
				}
			}
			name(e)
		}
	}
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.FuncLit:
		name(f)
	case *ast.Ident:
		if v, ok := w.p.Info.Uses[f].(*types.Var); ok {
			if fn.again[v] != nil {
				name(f)
			} else {
				force(f)
			}
		}
	case *ast.SelectorExpr:
		if s := w.p.Info.Selections[f]; s != nil && (s.Kind() == types.FieldVal || types.IsInterface(s.Recv())) {
			ast.Inspect(f.X, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					force(id)
				}
				return true
			})
		}
	}
	return out, nil
}

// outerVar reports whether a variable belongs to another function.
func (fn *function) outerVar(w *generator, v *types.Var) bool {
	return !(fn.node.Pos() <= v.Pos() && v.Pos() < fn.node.End())
}

// spread makes every mark save what the marks after it save. Their code is part
// of its continuation, and names more variables than the source does.
func (w *generator) spread(fn *function) {
	scopes := map[*mark]rewrite.Vars{}
	for _, m := range fn.marks {
		scopes[m] = rewrite.Vars{}
		for _, v := range w.scope(fn, m) {
			scopes[m][v] = true
		}
	}
	for grew := true; grew; {
		grew = false
		for _, m := range fn.marks {
			for _, later := range fn.marks {
				if !m.before(later) {
					continue
				}
				for _, v := range later.saved {
					if scopes[m][v] && !slices.Contains(m.saved, v) {
						m.saved, m.needed[v], grew = append(m.saved, v), true, true
					}
				}
			}
		}
	}
}

// before reports whether the continuation of m contains later, perhaps in the
// next iteration of a loop.
func (m *mark) before(later *mark) bool {
	pos := later.comment.Pos()
	for k := range m.path {
		st := &m.path[k]
		if k+1 == len(m.path) {
			lo := m.comment.End()
			if m.call {
				lo = m.stmt().End()
			}
			return lo <= pos && pos < st.end
		}
		s := st.list[st.i]
		if s.End() <= pos && pos < st.end {
			return true
		}
		for {
			l, ok := s.(*ast.LabeledStmt)
			if !ok {
				break
			}
			s = l.Stmt
		}
		switch s := s.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			if s.Pos() <= pos && pos < s.End() {
				return true
			}
		case *ast.SwitchStmt, *ast.TypeSwitchStmt:
			if rewrite.FallsThrough(m.path[k+1].list) && s.Pos() <= pos && pos < s.End() {
				return true
			}
		}
	}
	return false
}

// givenAway finds literals that are not only called, either in place or through
// a local variable.
func (w *generator) givenAway(fn *function) map[*ast.FuncLit]bool {
	away := map[*ast.FuncLit]bool{}
	called := map[ast.Expr]bool{}
	byVar := map[*types.Var][]*ast.FuncLit{}
	ast.Inspect(fn.body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			called[ast.Unparen(n.Call.Fun)] = false
		case *ast.CallExpr:
			if _, going := called[ast.Unparen(n.Fun)]; !going {
				called[ast.Unparen(n.Fun)] = true
			}
		case *ast.AssignStmt:
			for i, x := range n.Rhs {
				lit, ok := x.(*ast.FuncLit)
				if !ok || len(n.Lhs) != len(n.Rhs) {
					continue
				}
				if id, ok := n.Lhs[i].(*ast.Ident); ok {
					if v, ok := w.p.Info.ObjectOf(id).(*types.Var); ok && v.Parent() != w.p.Types.Scope() {
						byVar[v] = append(byVar[v], lit)
						called[lit] = true // handled below
					}
				}
			}
		case *ast.FuncLit:
			if !called[n] {
				away[n] = true
			}
		}
		return true
	})
	ast.Inspect(fn.body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && !called[id] {
			if v, ok := w.p.Info.Uses[id].(*types.Var); ok {
				for _, lit := range byVar[v] {
					away[lit] = true
				}
			}
		}
		return true
	})
	for found := true; found; { // a literal runs wherever its callers run
		found = false
		for lit := range away {
			w.p.Captures(lit, func(v *types.Var) {
				for _, in := range byVar[v] {
					found = found || !away[in]
					away[in] = true
				}
			})
		}
	}
	return away
}
