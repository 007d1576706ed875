package divide

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// walker follows the statements of a function. The argument ctl of its methods
// says why a statement runs with some devices only, or once for each; nil: it
// always runs.
type walker struct {
	d      *dependence
	fn     *callgraph.Function
	called *Cause         // why the function is called with some devices only; then what it sets outside depends on them
	loops  []ast.Stmt     // around the statement; nil stands for a switch or select
	failed []types.Object // errors that are not nil here
}

func either(ctl *Cause, c Cause, yes bool) *Cause {
	if ctl == nil && yes {
		return &c
	}
	return ctl
}

func (w *walker) stmt(s ast.Stmt, ctl *Cause) {
	d, pkg := w.d, w.fn.Pkg
	switch s := s.(type) {
	case nil:
	case *ast.BlockStmt:
		for _, x := range s.List {
			w.stmt(x, ctl)
		}
	case *ast.LabeledStmt:
		w.stmt(s.Stmt, ctl)
	case *ast.IfStmt:
		w.stmt(s.Init, ctl)
		w.exprs(ctl, s.Cond)
		c, yes := d.expr(pkg, s.Cond)
		inner := either(ctl, c, yes)
		n := len(w.failed)
		w.failed = append(w.failed, failedErrors(pkg, s.Cond)...)
		w.stmt(s.Body, inner)
		w.failed = w.failed[:n]
		w.stmt(s.Else, inner)
	case *ast.ForStmt:
		w.stmt(s.Init, ctl)
		w.exprs(ctl, s.Cond)
		c, yes := d.expr(pkg, s.Cond)
		inner := w.inLoop(s, either(ctl, c, yes))
		w.loops = append(w.loops, s)
		w.stmt(s.Body, inner)
		w.stmt(s.Post, inner)
		w.loops = w.loops[:len(w.loops)-1]
	case *ast.RangeStmt:
		w.exprs(ctl, s.X)
		c, yes := d.expr(pkg, s.X)
		inner := w.inLoop(s, either(ctl, c, yes))
		for _, e := range []ast.Expr{s.Key, s.Value} {
			if e != nil {
				w.assign(e, inner)
			}
		}
		if d.g.ByNode[s] != nil { // the body is a function of its own
			if inner != nil {
				w.set(d.control, d.g.ByNode[s], *inner)
			}
			return
		}
		w.loops = append(w.loops, s)
		w.stmt(s.Body, inner)
		w.loops = w.loops[:len(w.loops)-1]
	case *ast.SwitchStmt:
		w.stmt(s.Init, ctl)
		w.clauses(s.Body, either2(d, pkg, ctl, s.Tag))
	case *ast.TypeSwitchStmt:
		w.stmt(s.Init, ctl)
		w.stmt(s.Assign, ctl)
		var x ast.Expr
		ast.Inspect(s.Assign, func(n ast.Node) bool {
			if t, ok := n.(*ast.TypeAssertExpr); ok && x == nil {
				x = t.X
			}
			return true
		})
		w.clauses(s.Body, either2(d, pkg, ctl, x))
	case *ast.SelectStmt:
		w.clauses(s.Body, ctl)
	case *ast.BranchStmt:
		if ctl == nil || s.Tok == token.FALLTHROUGH {
			return
		}
		for i := len(w.loops) - 1; i >= 0 && s.Label == nil && s.Tok != token.GOTO; i-- {
			if w.loops[i] == nil && s.Tok == token.CONTINUE {
				continue
			}
			if w.loops[i] == nil {
				break
			}
			if _, ok := d.loops[w.loops[i]]; !ok {
				d.loops[w.loops[i]], d.changed = *ctl, true
			}
			return
		}
		w.set(d.early, w.fn, *ctl)
	case *ast.ReturnStmt:
		w.exprs(ctl, s.Results...)
		w.returns(s, ctl)
	case *ast.AssignStmt:
		w.exprs(ctl, slices.Concat(s.Rhs, s.Lhs)...)
		w.assigns(s, ctl)
	case *ast.IncDecStmt:
		w.exprs(ctl, s.X)
		w.assign(s.X, either2(d, pkg, ctl, s.X))
	case *ast.DeclStmt:
		if g, ok := s.Decl.(*ast.GenDecl); ok {
			for _, spec := range g.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					w.exprs(ctl, v.Values...)
				}
			}
			d.declared(pkg, g, ctl)
		}
	case *ast.ExprStmt:
		w.exprs(ctl, s.X)
	case *ast.GoStmt:
		w.exprs(ctl, s.Call)
	case *ast.DeferStmt:
		w.exprs(ctl, s.Call)
	case *ast.SendStmt:
		w.exprs(ctl, s.Chan, s.Value)
		c := either2(d, pkg, ctl, s.Value)
		if c == nil {
			c = w.called
		}
		if c != nil {
			d.mark(object(pkg, s.Chan), *c)
			d.markType(pkg.Info.TypeOf(s.Chan), *c)
		}
	}
}

// either2 returns ctl, or why an expression depends on the devices.
func either2(d *dependence, s *load.Package, ctl *Cause, e ast.Expr) *Cause {
	c, yes := d.expr(s, e)
	return either(ctl, c, yes)
}

func (w *walker) inLoop(s ast.Stmt, ctl *Cause) *Cause {
	c, yes := w.d.loops[s]
	return either(ctl, c, yes)
}

func (w *walker) set(m map[*callgraph.Function]Cause, fn *callgraph.Function, c Cause) {
	if _, ok := m[fn]; !ok {
		m[fn], w.d.changed = c, true
	}
}

// assign notes an assignment. It depends on the devices if c is not nil, or if
// it reaches beyond a function that is called with some devices only.
func (w *walker) assign(e ast.Expr, c *Cause) {
	if c == nil && w.called != nil {
		if x := newWrite(w.fn, e); x != nil && !x.local && !x.fresh {
			c = w.called
		}
	}
	if c != nil {
		w.d.assign(w.fn, e, *c)
	}
}

// clauses follows the clauses of a switch or select.
func (w *walker) clauses(body *ast.BlockStmt, ctl *Cause) {
	w.loops = append(w.loops, nil)
	defer func() { w.loops = w.loops[:len(w.loops)-1] }()
	for _, s := range body.List {
		if c, ok := s.(*ast.CaseClause); ok {
			for _, e := range c.List {
				ctl = either2(w.d, w.fn.Pkg, ctl, e)
			}
		}
	}
	for _, s := range body.List {
		switch c := s.(type) {
		case *ast.CaseClause:
			w.exprs(ctl, c.List...)
			for _, x := range c.Body {
				w.stmt(x, ctl)
			}
		case *ast.CommClause:
			w.stmt(c.Comm, ctl)
			for _, x := range c.Body {
				w.stmt(x, ctl)
			}
		}
	}
}

// failedErrors returns the errors that a condition compares with nil: if the
// condition holds, they are not nil.
func failedErrors(s *load.Package, cond ast.Expr) []types.Object {
	b, ok := ast.Unparen(cond).(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ || !s.Info.Types[b.Y].IsNil() || !load.IsError(s.Info.TypeOf(b.X)) {
		return nil
	}
	if obj := object(s, b.X); obj != nil {
		return []types.Object{obj}
	}
	return nil
}

// fails reports whether a return certainly returns an error: then the program
// does not continue as if nothing had happened, unless its caller looks at the
// error.
func (w *walker) fails(s *ast.ReturnStmt) bool {
	if len(s.Results) == 0 {
		return false
	}
	e := ast.Unparen(s.Results[len(s.Results)-1])
	if !load.IsError(w.fn.Pkg.Info.TypeOf(e)) {
		return false
	}
	if call, ok := e.(*ast.CallExpr); ok {
		f, ok := load.Callee(w.fn.Pkg, call).(*types.Func)
		return ok && (f.FullName() == "fmt.Errorf" || f.FullName() == "errors.New")
	}
	id, ok := e.(*ast.Ident)
	return ok && slices.Contains(w.failed, w.fn.Pkg.Info.ObjectOf(id))
}

func (w *walker) returns(s *ast.ReturnStmt, ctl *Cause) {
	d, pkg := w.d, w.fn.Pkg
	var n int
	var named *types.Tuple
	if sig := signature(w.fn); sig != nil {
		named, n = sig.Results(), sig.Results().Len()
	}
	if ctl != nil && w.fails(s) {
		d.markResult(w.fn, n-1, *ctl)
		return
	}
	if ctl != nil {
		w.set(d.early, w.fn, *ctl)
		for i := range n {
			d.markResult(w.fn, i, *ctl)
		}
		return
	}
	for i, e := range s.Results {
		if len(s.Results) == n {
			if c, ok := d.value(pkg, e, named.At(i).Type()); ok {
				d.markResult(w.fn, i, c)
			}
		}
	}
	if len(s.Results) == 1 && n > 1 {
		for i := range n {
			if c, ok := w.result(s.Results[0], i); ok {
				d.markResult(w.fn, i, c)
			}
		}
	}
	for i := range n { // also what deferred functions set
		if c, ok := d.cause(named.At(i)); ok {
			d.markResult(w.fn, i, c)
		}
	}
}

// result says why result i of a call depends on the devices, if it does.
func (w *walker) result(e ast.Expr, i int) (Cause, bool) {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if ok && w.d.sites[call] != nil {
		t := w.d.sites[call]
		for _, to := range slices.Concat(t.Callees, t.MayCall) {
			if c, ok := w.d.results[to][i]; ok {
				return c, true
			}
		}
		return Cause{}, false
	}
	return w.d.expr(w.fn.Pkg, e)
}

// signature returns the type of a function, or nil if it is the body of a loop.
func signature(fn *callgraph.Function) *types.Signature {
	switch n := fn.Node.(type) {
	case *ast.FuncDecl:
		if f, ok := fn.Pkg.Info.Defs[n.Name].(*types.Func); ok {
			return f.Signature()
		}
	case *ast.FuncLit:
		sig, _ := fn.Pkg.Info.TypeOf(n).(*types.Signature)
		return sig
	}
	return nil
}

func (w *walker) assigns(s *ast.AssignStmt, ctl *Cause) {
	d, pkg := w.d, w.fn.Pkg
	for i, e := range s.Lhs {
		var c Cause
		yes := false
		if len(s.Rhs) == len(s.Lhs) {
			c, yes = d.value(pkg, s.Rhs[i], pkg.Info.TypeOf(e))
		} else {
			c, yes = w.result(s.Rhs[0], i)
		}
		if s.Tok != token.ASSIGN && s.Tok != token.DEFINE && !yes {
			c, yes = d.expr(pkg, e)
		}
		if _, index := ast.Unparen(e).(*ast.IndexExpr); index && !yes { // which element depends on them
			c, yes = d.expr(pkg, e)
		}
		w.assign(e, either(ctl, c, yes))
	}
}

func isBuiltin(s *load.Package, call *ast.CallExpr, names ...string) bool {
	b, ok := load.Callee(s, call).(*types.Builtin)
	return ok && slices.Contains(names, b.Name())
}

// exprs follows the calls and literals in expressions.
func (w *walker) exprs(ctl *Cause, list ...ast.Expr) {
	for _, e := range list {
		if e == nil {
			continue
		}
		ast.Inspect(e, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.CallExpr:
				w.call(n, ctl)
			case *ast.CompositeLit:
				w.literal(n)
			case *ast.BinaryExpr: // y of x && y runs if x holds
				if n.Op == token.LAND || n.Op == token.LOR {
					w.exprs(ctl, n.X)
					w.exprs(either2(w.d, w.fn.Pkg, ctl, n.X), n.Y)
					return false
				}
			}
			return true
		})
	}
}

// literal assigns the elements of a composite literal to the struct's fields.
func (w *walker) literal(n *ast.CompositeLit) {
	info := w.fn.Pkg.Info
	st, ok := deref(info.TypeOf(n)).Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range n.Elts {
		var field types.Object
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
			if id, ok := kv.Key.(*ast.Ident); ok {
				field = info.Uses[id]
			}
		} else if i < st.NumFields() {
			field = st.Field(i)
		}
		if field == nil {
			continue
		}
		if c, ok := w.d.value(w.fn.Pkg, e, field.Type()); ok {
			w.d.mark(field, c)
		}
	}
}

// call passes arguments to parameters.
func (w *walker) call(n *ast.CallExpr, ctl *Cause) {
	d, pkg := w.d, w.fn.Pkg
	if isDeviceFunc(pkg, n, "Launch") {
		if c := cmp.Or(ctl, w.called); c != nil {
			d.launched[n] = *c
		}
	}
	if t := d.sites[n]; t != nil {
		x, yes := d.chosen(pkg, n)
		for _, to := range slices.Concat(t.Callees, t.MayCall) {
			w.enter(to, n, either(ctl, x, yes))
		}
		return
	}
	w.callbacks(n, ctl)
	if tv := pkg.Info.Types[n.Fun]; tv.IsType() || isBuiltin(pkg, n, "len", "cap", "make", "new", "min", "max", "panic", "print", "println", "real", "imag", "complex") {
		return
	}
	if isBuiltin(pkg, n, "append") {
		w.appends(n, ctl)
		return
	}
	if f, ok := load.Callee(pkg, n).(*types.Func); ok && onlyReads(f) {
		return
	}
	// A library or a builtin may write to what it is given.
	x, yes := d.passed(pkg, n)
	c := either(cmp.Or(ctl, w.called), x, yes)
	args := n.Args
	if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && pkg.Info.Selections[sel] != nil {
		c = either2(d, pkg, c, sel.X)
		args = append(slices.Clone(args), sel.X)
	}
	if c == nil {
		return
	}
	reads := false // it reads the slices that it is given
	if f, ok := load.Callee(pkg, n).(*types.Func); ok {
		reads = slices.ContainsFunc([]string{"Write", "Marshal", "Encode", "Sum"}, func(s string) bool { return strings.HasPrefix(f.Name(), s) })
	}
	for _, e := range args {
		switch t := pkg.Info.TypeOf(e).Underlying().(type) {
		case *types.Basic, *types.Signature:
		default:
			_, slice := t.(*types.Slice)
			if slice && reads || isFile(pkg.Info.TypeOf(e)) {
				continue
			}
			w.marks(e, *c)
			if slice {
				d.markType(pkg.Info.TypeOf(e), *c)
			}
		}
	}
}

// callbacks follows functions that are passed to a library.
func (w *walker) callbacks(n *ast.CallExpr, ctl *Cause) {
	d, pkg := w.d, w.fn.Pkg
	if isDeviceFunc(pkg, n, "NewKernel", "KernelOf") {
		return
	}
	x, yes := d.passed(pkg, n)
	c := either(cmp.Or(ctl, w.called), x, yes)
	if c == nil {
		return
	}
	for _, fn := range d.callbacks(pkg, n) {
		w.set(d.control, fn, *c)
		if sig := signature(fn); sig != nil {
			for p := range sig.Params().Variables() {
				d.mark(p, *c)
			}
		}
	}
}

// enter passes the arguments of a call to a function.
func (w *walker) enter(to *callgraph.Function, n *ast.CallExpr, ctl *Cause) {
	d, pkg := w.d, w.fn.Pkg
	if ctl != nil {
		w.set(d.control, to, *ctl)
	} else if w.called != nil {
		w.set(d.control, to, *w.called)
	}
	sig := signature(to)
	if sig == nil {
		return
	}
	params := sig.Params()
	if sig.Recv() != nil {
		sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
		if ok && pkg.Info.Selections[sel] != nil && !pkg.Info.Types[sel.X].IsType() {
			if c, ok := d.expr(pkg, sel.X); ok {
				d.mark(sig.Recv(), c)
			}
		} else { // a method as a function: the arguments are not told apart
			for _, e := range append(slices.Clone(n.Args), n.Fun) {
				if c, ok := d.expr(pkg, e); ok {
					d.mark(sig.Recv(), c)
					for p := range params.Variables() {
						d.mark(p, c)
					}
				}
			}
		}
	}
	if len(n.Args) == 1 && params.Len() > 1 { // the results of a call
		for i := range params.Len() {
			if c, ok := w.result(n.Args[0], i); ok {
				d.mark(params.At(i), c)
			}
		}
		return
	}
	for i, e := range n.Args {
		if params.Len() == 0 {
			break
		}
		p := params.At(min(i, params.Len()-1))
		t := p.Type()
		if list, ok := t.(*types.Slice); ok && sig.Variadic() && i >= params.Len()-1 && !n.Ellipsis.IsValid() {
			t = list.Elem()
		}
		if c, ok := d.value(pkg, e, t); ok {
			d.mark(p, c)
		}
	}
}
