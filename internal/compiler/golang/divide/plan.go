package divide

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// statements returns the statements before the loop that divide the work, and
// the variables that they set; or why the work cannot be divided anew. all is
// the analysis of all variants.
func (c *candidate) statements(v *variant, all *dependence) ([]ast.Stmt, []Variable, *Refusal) {
	d := c.d
	if why := c.inCallers(); why != nil {
		return nil, nil, why
	}
	if why := c.indexed(); why != nil {
		return nil, nil, why
	}
	roots := c.roots()
	everything := d.newReach(v)
	first := d.newReach(v) // what is found before anything that depends on the devices
	first.stop = func(o types.Object) bool { _, on := d.cause(o); return on }
	for _, o := range roots {
		everything.root(o)
		first.root(o)
	}
	needed := first.dependent()
	for _, o := range roots { // other variants may have run before
		if x, on := all.cause(o); on && o.Parent() == o.Pkg().Scope() {
			needed[o] = x
		}
	}
	derived := map[types.Object]Cause{}
	chosen := map[int]bool{}
	start := len(c.before) // the first statement that divides, after that which asks for the devices
	asks := -1
	for i := len(c.before) - 1; i >= 0; i-- {
		s := c.before[i]
		if c.devices(s) {
			chosen[i], asks = true, i
			for o := range c.assigned(s) {
				if x, ok := needed[o]; ok {
					derived[o] = x
					delete(needed, o)
				}
			}
			break
		}
		writes := map[types.Object]bool{}
		for _, w := range c.effects(s) {
			for _, o := range w.objects() {
				if _, on := everything.found[o]; on {
					if _, on := d.cause(o); on {
						writes[o] = true
					}
				}
			}
			if w.elem && !w.fresh && w.of != nil { // a variable that is needed may share the memory
				for o := range everything.found {
					if _, on := d.cause(o); on && shares(o.Type(), w.of) {
						writes[o] = true
					}
				}
			}
		}
		if len(writes) == 0 {
			continue
		}
		if p := d.impurity(c.fn, s); p != nil {
			for o := range writes {
				if x, ok := needed[o]; ok {
					return nil, nil, &Refusal{Variable: Variable{o.Name(), o.Pos(), Cause{p.At, x.Text + "; what sets it does more: " + p.Text}}}
				}
			}
			continue
		}
		chosen[i] = true
		if _, ok := s.(*ast.DeclStmt); !ok {
			start = i
		}
		for o := range c.defines(s) {
			if x, ok := needed[o]; ok {
				derived[o] = x
				delete(needed, o)
			}
		}
		for o, x := range c.dependsOn(s) {
			if _, ok := derived[o]; !ok {
				needed[o] = x
			}
		}
	}
	for _, o := range sortedObjects(needed) {
		return nil, nil, &Refusal{Variable: Variable{o.Name(), o.Pos(), needed[o]}}
	}
	if asks < 0 || len(derived) == 0 {
		return nil, nil, &Refusal{Variable: Variable{Name: "nothing before the loop divides the work", At: c.loop.Pos()}}
	}
	var stmts []ast.Stmt
	for i, s := range c.before {
		if chosen[i] || i > 0 && chosen[i-1] && c.onlyFails(s) {
			chosen[i] = true
			stmts = append(stmts, s)
		}
	}
	if why := everything.unique(derived); why != nil {
		return nil, nil, why
	}
	if why := c.stable(everything, stmts, start); why != nil {
		return nil, nil, why
	}
	var list []Variable
	for _, o := range sortedObjects(derived) {
		list = append(list, Variable{o.Name(), o.Pos(), derived[o]})
	}
	return stmts, list, nil
}

// inCallers refuses if a function that leads to the loop's has variables that
// depend on the devices: only the loop's own function is given new ones.
func (c *candidate) inCallers() *Refusal {
	for fn := range c.callers() {
		if sig := signature(fn); sig == nil {
			continue
		}
		var found *Refusal
		ast.Inspect(fn.Node, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok || found != nil {
				return found == nil
			}
			o := fn.Pkg.Info.Defs[id]
			if v, ok := o.(*types.Var); ok && !load.IsError(v.Type()) && !v.IsField() {
				if x, on := c.d.cause(v); on {
					found = &Refusal{Variable: Variable{v.Name(), v.Pos(), x}}
				}
			}
			return true
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// callers returns the functions that lead to the loop's.
func (c *candidate) callers() map[*callgraph.Function]bool {
	out := map[*callgraph.Function]bool{}
	for todo := []*callgraph.Function{c.fn}; len(todo) > 0; {
		fn := todo[0]
		todo = todo[1:]
		for _, t := range fn.Callers {
			if !out[t.Caller] && t.Caller != nil {
				out[t.Caller] = true
				todo = append(todo, t.Caller)
			}
		}
	}
	return out
}

// indexed refuses if an array that all devices share may have elements that
// belong to one device: then the values of the devices that are not there any
// more would be lost. Views that are made before the loop are compared at the
// restart.
func (c *candidate) indexed() *Refusal {
	d := c.d
	refuse := func(e ast.Expr, s *load.Package, text string) *Refusal {
		name := types.ExprString(e)
		if o := object(s, e); o != nil {
			name = o.Name()
		}
		return &Refusal{Variable: Variable{name, e.Pos(), Cause{e.Pos(), text}}}
	}
	if v, at := d.sharedValues(); v != nil {
		return &Refusal{Variable: Variable{v.Name(), at, Cause{v.Pos(), "the host may write what follows from the devices to an array that they share"}}}
	}
	for fn := range d.kernels {
		if x := d.kernelReads(fn); x != nil {
			return x
		}
	}
	for _, fn := range d.g.All {
		if !d.live[fn] {
			continue
		}
		var found *Refusal
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || found != nil || !isDeviceFunc(fn.Pkg, call, "Launch", "Rows") {
				return found == nil
			}
			sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if isDeviceFunc(fn.Pkg, call, "Rows") {
				_, own := d.expr(fn.Pkg, sel.X)
				for _, e := range call.Args {
					if _, on := d.expr(fn.Pkg, e); on && !own && c.runs(fn, call) {
						found = refuse(sel.X, fn.Pkg, "the loop makes views of it for each device")
					}
				}
				return true
			}
			x, by := d.launched[call]
			var shared ast.Expr
			for i, e := range call.Args {
				_, on := d.expr(fn.Pkg, e)
				arg, is := ast.Unparen(e).(*ast.CallExpr)
				switch {
				case is && isDeviceFunc(fn.Pkg, arg, "In", "Local"):
				case is && isDeviceFunc(fn.Pkg, arg, "Out", "InOut"), load.IsDeviceType(fn.Pkg.Info.TypeOf(e), "Arg"), call.Ellipsis.IsValid() && i == len(call.Args)-1:
					if !on {
						shared = e
					}
				case on && i > 1 && isFloat(fn.Pkg.Info.TypeOf(e)):
					found = refuse(e, fn.Pkg, "a kernel gets it, and it is no position")
				case on && i > 0: // the size, or a number
					by = true
				}
			}
			if shared != nil && by {
				text := "a kernel writes to it with numbers that follow from the devices"
				if x.Text != "" {
					text = "a kernel writes to it once for each device"
				}
				if a, ok := ast.Unparen(shared).(*ast.CallExpr); ok && len(a.Args) == 1 {
					shared = a.Args[0]
				}
				found = refuse(shared, fn.Pkg, text)
			}
			return true
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// runs reports whether a node of a function may run in the loop.
func (c *candidate) runs(fn *callgraph.Function, n ast.Node) bool {
	return slices.Contains(c.inLoop, fn) || fn == c.fn && c.loop.Pos() <= n.Pos() && n.Pos() < c.loop.End()
}

// roots returns the variables that a checkpoint in the loop may hold.
func (c *candidate) roots() (list []types.Object) {
	for _, v := range c.locals() {
		if !load.IsError(v.Type()) {
			list = append(list, v)
		}
	}
	seen := map[types.Object]bool{}
	for _, fn := range c.d.g.All {
		if !c.d.live[fn] && !c.d.kernels[fn] {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool { // package variables that the program uses
			if id, ok := n.(*ast.Ident); ok {
				v, ok := fn.Pkg.Info.Uses[id].(*types.Var)
				if ok && !v.IsField() && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() && !c.d.ld.Library[v.Pkg().Path()] && !seen[v] {
					seen[v] = true
					list = append(list, v)
				}
			}
			return true
		})
	}
	for fn := range c.callers() {
		ast.Inspect(fn.Node, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if v, ok := fn.Pkg.Info.Defs[id].(*types.Var); ok && !v.IsField() && !load.IsError(v.Type()) {
					list = append(list, v)
				}
			}
			return true
		})
	}
	return list
}

// assigned returns the variables on the left side of an assignment.
func (c *candidate) assigned(s ast.Stmt) map[types.Object]bool {
	out := map[types.Object]bool{}
	if a, ok := s.(*ast.AssignStmt); ok && (a.Tok == token.ASSIGN || a.Tok == token.DEFINE) {
		for _, e := range a.Lhs {
			if id, ok := ast.Unparen(e).(*ast.Ident); ok {
				if o := c.fn.Pkg.Info.ObjectOf(id); o != nil {
					out[o] = true
				}
			}
		}
	}
	return out
}

// dependsOn returns the function's own variables in a statement that depend on
// the devices.
func (c *candidate) dependsOn(s ast.Stmt) map[types.Object]Cause {
	out := map[types.Object]Cause{}
	own := c.assigned(s)
	ast.Inspect(s, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		v, ok := c.fn.Pkg.Info.Uses[id].(*types.Var)
		if !ok || v.IsField() || load.IsError(v.Type()) || v.Pos() >= s.Pos() || v.Pos() < c.decl.Pos() || own[v] {
			return true
		}
		if x, on := c.d.cause(v); on {
			out[v] = x
		}
		return true
	})
	return out
}

// onlyFails reports whether a statement only returns an error, if there is one.
func (c *candidate) onlyFails(s ast.Stmt) bool {
	x, ok := s.(*ast.IfStmt)
	return ok && x.Init == nil && x.Else == nil && len(failedErrors(c.fn.Pkg, x.Cond)) > 0 && c.d.onlyErrors(c.fn, x) && len(x.Body.List) == 1
}

// onlyErrors reports whether all returns in a statement return errors.
func (d *dependence) onlyErrors(fn *callgraph.Function, s ast.Stmt) bool {
	w := &walker{d: d, fn: fn}
	ok := true
	var visit func(n ast.Node)
	visit = func(n ast.Node) {
		ast.Inspect(n, func(m ast.Node) bool {
			switch x := m.(type) {
			case *ast.FuncLit:
				return false
			case *ast.IfStmt:
				if x == n {
					return true
				}
				was := w.failed
				w.failed = append(slices.Clone(was), failedErrors(fn.Pkg, x.Cond)...)
				visit(x.Body)
				w.failed = was
				if x.Else != nil {
					visit(x.Else)
				}
				return false
			case *ast.ReturnStmt:
				ok = ok && w.fails(x)
			case *ast.BranchStmt:
				ok = ok && x.Label == nil && x.Tok != token.GOTO
			}
			return true
		})
	}
	visit(&ast.BlockStmt{List: []ast.Stmt{s}})
	return ok
}

// defines returns the variables and fields that a statement certainly sets,
// without having used their old values.
func (c *candidate) defines(s ast.Stmt) map[types.Object]bool {
	f := &defining{d: c.d, fn: c.fn, defined: map[types.Object]bool{}, used: map[types.Object]bool{}}
	f.self = func(o types.Object) bool { // variables of the function stand for themselves
		x, ok := o.(*types.Var)
		return ok && !x.IsField()
	}
	f.stmt(s)
	return f.defined
}

// defining finds what a sequence of statements certainly sets.
type defining struct {
	d       *dependence
	fn      *callgraph.Function
	self    func(types.Object) bool // reports whether a variable stands for one of the loop's function
	defined map[types.Object]bool
	used    map[types.Object]bool // fields whose old values may have been used
	depth   int
	over    bool // later statements may not run
}

// stmt adds what a statement sets.
func (f *defining) stmt(s ast.Stmt) {
	if f.over {
		return
	}
	s0 := s
	if x, ok := s.(*ast.IfStmt); ok && x.Init != nil && f.d.onlyErrors(f.fn, x) && x.Else == nil {
		s = x.Init
	}
	set := map[types.Object]bool{}
	pkg := f.fn.Pkg
	switch x := s.(type) {
	case *ast.AssignStmt:
		if x.Tok == token.ASSIGN || x.Tok == token.DEFINE {
			for _, e := range x.Lhs {
				if o := f.target(e); o != nil {
					set[o] = true
				}
			}
			for _, e := range x.Rhs {
				if call, ok := ast.Unparen(e).(*ast.CallExpr); ok && f.d.sites[call] != nil {
					for _, arg := range call.Args {
						f.mention(arg)
					}
				} else {
					f.mention(e)
				}
			}
		}
		for _, e := range x.Rhs {
			f.call(e, set)
		}
	case *ast.DeclStmt:
		g, ok := x.Decl.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			break
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			for _, id := range v.Names {
				if o := pkg.Info.Defs[id]; o != nil && len(v.Values) == 0 && nilable(o.Type()) {
					set[o] = true
				}
			}
		}
	case *ast.ExprStmt:
		f.call(x.X, set)
	case *ast.ReturnStmt:
		for _, e := range x.Results {
			f.call(e, set)
		}
	}
	for o := range set {
		if !f.used[o] {
			f.defined[o] = true
		}
	}
	if !f.frees(s0) {
		f.mention(s0)
	}
	if _, last := s0.(*ast.ReturnStmt); !last && !f.d.onlyErrors(f.fn, s0) {
		f.over = true
	}
}

func nilable(t types.Type) bool {
	switch t.Underlying().(type) {
	case *types.Slice, *types.Map, *types.Pointer, *types.Chan, *types.Interface:
		return true
	}
	return false
}

// target returns the variable or field that an assignment sets as a whole.
func (f *defining) target(e ast.Expr) types.Object {
	pkg := f.fn.Pkg
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		o := pkg.Info.ObjectOf(e)
		if v, ok := o.(*types.Var); ok && (f.depth == 0 || v.Parent() == pkg.Types.Scope()) {
			return v
		}
	case *ast.SelectorExpr:
		id, ok := ast.Unparen(e.X).(*ast.Ident)
		if !ok || pkg.Info.Selections[e] == nil || len(pkg.Info.Selections[e].Index()) != 1 {
			return nil
		}
		if x, ok := pkg.Info.Uses[e.Sel].(*types.Var); ok && f.self(pkg.Info.Uses[id]) {
			return x.Origin()
		}
	}
	return nil
}

// call adds what a call certainly sets: of what the loop's function passes to
// it.
func (f *defining) call(e ast.Expr, set map[types.Object]bool) {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok || f.depth > 8 || f.d.sites[call] == nil {
		return
	}
	var to []*callgraph.Function
	for _, fn := range slices.Concat(f.d.sites[call].Callees, f.d.sites[call].MayCall) {
		if !slices.Contains(to, fn) {
			to = append(to, fn)
		}
	}
	if len(to) != 1 {
		return
	}
	sig := signature(to[0])
	if sig == nil || f.d.recursive(to[0]) {
		return
	}
	passed := map[types.Object]bool{}
	is := func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		return ok && f.self(f.fn.Pkg.Info.Uses[id])
	}
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && sig.Recv() != nil && is(sel.X) {
		passed[sig.Recv()] = true
	}
	for i, e := range call.Args {
		if i < sig.Params().Len() && !sig.Variadic() && is(e) {
			passed[sig.Params().At(i)] = true
		}
	}
	g := &defining{d: f.d, fn: to[0], defined: map[types.Object]bool{}, used: map[types.Object]bool{}, depth: f.depth + 1}
	g.self = func(o types.Object) bool {
		_, pointer := o.Type().Underlying().(*types.Pointer)
		return passed[o] && pointer && !f.d.reassigned(to[0], o)
	}
	for _, s := range to[0].Body.List {
		g.stmt(s)
	}
	for o := range g.defined {
		set[o] = true
	}
}

// recursive reports whether a function may call itself.
func (d *dependence) recursive(fn *callgraph.Function) bool {
	return slices.Contains(d.reach(d.called(fn.Body)), fn)
}

// reassigned reports whether a function assigns to one of its parameters.
func (d *dependence) reassigned(fn *callgraph.Function, o types.Object) bool {
	for _, w := range writes(fn, fn.Body) {
		if w.obj == o && !w.elem && !w.field {
			return true
		}
	}
	return slices.ContainsFunc(d.addressed[typeKey(o.Type())], func(x types.Object) bool { return x == o })
}

// mention notes fields and package variables that a node uses, itself or in
// functions that it calls.
func (f *defining) mention(n ast.Node) {
	note := func(s *load.Package, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if v, ok := s.Info.Uses[id].(*types.Var); ok && (v.IsField() || v.Parent() == s.Types.Scope() || f.depth == 0) {
					f.used[v.Origin()] = true
				}
			}
			return true
		})
	}
	note(f.fn.Pkg, n)
	for _, fn := range f.d.reach(f.d.called(n)) {
		note(fn.Pkg, fn.Body)
	}
}

// frees reports whether a statement is a loop that only frees arrays, before
// new ones are made.
func (f *defining) frees(s ast.Stmt) bool {
	loop, ok := s.(*ast.RangeStmt)
	if !ok || loop.Tok != token.DEFINE {
		return false
	}
	ok = true
	ast.Inspect(loop.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			ok = ok && isDeviceFunc(f.fn.Pkg, n, "Free")
		case ast.Stmt:
			switch n.(type) {
			case *ast.BlockStmt, *ast.IfStmt, *ast.ExprStmt:
			default:
				ok = false
			}
		}
		return true
	})
	return ok
}
