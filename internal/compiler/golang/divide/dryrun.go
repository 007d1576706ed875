package divide

import (
	"bytes"
	"go/ast"
	"go/printer"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// DryRun is calls at the beginning of a loop's iterations that do nothing but
// launch kernels. When a checkpoint is due, the program makes these calls once
// more, before the point, and package device launches nothing: it notes which
// bytes the launches would read and overwrite. What they overwrite before they
// read it need not be saved. Unlike the analysis of iteration.go, this knows
// every index and every view.
//
// The calls set nothing that outlives them, and follow only from what a
// checkpoint holds. So the iteration after a restart launches the same. If a
// launch fails, the functions return at once, up to the end of the loop.
type DryRun struct {
	Type      *types.TypeName       // as in OverwrittenCase
	Functions []*callgraph.Function // that the calls may lead to
	Arrays    []OverwrittenArray    // the arrays that may be left out

	text string // the calls, as statements
}

// Without returns w without some of its dry runs.
func (w *Overwritten) Without(not func(*DryRun) bool) *Overwritten {
	x := *w
	x.DryRuns = slices.DeleteFunc(slices.Clone(w.DryRuns), not)
	return &x
}

// dryRun returns a dry run, or nil if the iteration does not begin with such
// calls. later are the calls that made arrays which the program may read when
// the loop has ended.
func (w *Overwritten) dryRun(c *candidate, o *origins, v *variant, later map[*ast.CallExpr]token.Pos) *DryRun {
	r := &DryRun{}
	if v != nil {
		r.Type = v.as
	}
	at := token.NoPos
	launches := false
	for i, s := range c.body.List {
		var next ast.Stmt
		if i+1 < len(c.body.List) {
			next = c.body.List[i+1]
		}
		if i > 0 {
			if _, failed := checkedCall(c.fn.Pkg, c.body.List[i-1], s); failed == s && failed != nil {
				continue // it belongs to the call before it
			}
		}
		call, failed := checkedCall(c.fn.Pkg, s, next)
		if call == nil || failed != nil && !c.endsLoop(failed) {
			break
		}
		reached := c.d.reach(c.d.called(call))
		text, ok := w.text(c, call)
		if !ok || !c.repeatable(c.fn, call) || slices.ContainsFunc(reached, func(fn *callgraph.Function) bool {
			return !c.repeatable(fn, fn.Body) || !c.passesErrors(fn)
		}) {
			break
		}
		if !at.IsValid() {
			at = call.Pos()
		}
		launches = launches || launching(c.fn.Pkg, call) || slices.ContainsFunc(reached, func(fn *callgraph.Function) bool { return launching(fn.Pkg, fn.Body) })
		r.Functions = append(r.Functions, reached...)
		r.text += text + "; "
	}
	if !launches {
		return nil
	}
	roots := c.locals()
	if v != nil {
		roots = []*types.Var{v.of.(*types.Var)}
	}
	for _, root := range roots {
		t := root.Type()
		if v != nil {
			t = types.NewPointer(v.as.Type())
		}
		if !w.visible(root) {
			continue
		}
		o.arrays(path{root: root, last: root}, t, 0, func(p path) {
			made := o.node(p.last).made
			for call := range made {
				if _, ok := later[call]; ok || o.outside.made[call] {
					return
				}
			}
			if len(made) > 0 {
				r.Arrays = append(r.Arrays, OverwrittenArray{root.Name() + p.all(), at, w.spec(p)})
			}
		})
	}
	if len(r.Arrays) == 0 {
		return nil
	}
	return r
}

// checkedCall returns the call that a statement makes. If the call returns an
// error, failed is what the program does with it: the body of an if statement
// that is part of the statement, or next. There is no call if the statement
// does more.
func checkedCall(s *load.Package, stmt, next ast.Stmt) (call *ast.CallExpr, failed *ast.IfStmt) {
	if e, ok := stmt.(*ast.ExprStmt); ok {
		call, ok := ast.Unparen(e.X).(*ast.CallExpr)
		if !ok || returnsError(s, call) {
			return nil, nil
		}
		return call, nil
	}
	check, ok := stmt.(*ast.IfStmt)
	if ok {
		stmt = check.Init
	} else if check, ok = next.(*ast.IfStmt); !ok || check.Init != nil {
		return nil, nil
	}
	set, ok := stmt.(*ast.AssignStmt)
	if !ok || len(set.Lhs) != 1 || len(set.Rhs) != 1 || set.Tok != token.ASSIGN && set.Tok != token.DEFINE {
		return nil, nil
	}
	call, ok = ast.Unparen(set.Rhs[0]).(*ast.CallExpr)
	if !ok || !returnsError(s, call) || check.Else != nil {
		return nil, nil
	}
	err, ok := set.Lhs[0].(*ast.Ident)
	cond, binary := ast.Unparen(check.Cond).(*ast.BinaryExpr)
	if !ok || !binary || cond.Op != token.NEQ || !s.Info.Types[cond.Y].IsNil() {
		return nil, nil
	}
	x, ok := ast.Unparen(cond.X).(*ast.Ident)
	if !ok || s.Info.ObjectOf(x) == nil || s.Info.ObjectOf(x) != s.Info.ObjectOf(err) {
		return nil, nil
	}
	return call, check
}

// returnsError reports whether the last result of a call is an error.
func returnsError(s *load.Package, call *ast.CallExpr) bool {
	t := s.Info.TypeOf(call)
	if tuple, ok := t.(*types.Tuple); ok && tuple.Len() > 0 {
		t = tuple.At(tuple.Len() - 1).Type()
	}
	return t != nil && load.IsError(t)
}

// endsLoop reports whether an if statement of the loop's body ends the loop or
// the program, and calls nothing on the way that may use an array.
func (c *candidate) endsLoop(check *ast.IfStmt) bool {
	if len(check.Body.List) == 0 {
		return false
	}
	info, ends := c.fn.Pkg.Info, false
	switch last := check.Body.List[len(check.Body.List)-1].(type) {
	case *ast.ReturnStmt:
		ends = true
	case *ast.BranchStmt:
		ends = last.Tok == token.BREAK && last.Label == nil
	case *ast.ExprStmt:
		if call, ok := last.X.(*ast.CallExpr); ok {
			switch f := load.Callee(c.fn.Pkg, call).(type) {
			case *types.Builtin:
				ends = f.Name() == "panic"
			case *types.Func:
				ends = f.FullName() == "os.Exit" || strings.HasPrefix(f.FullName(), "log.Fatal")
			}
		}
	}
	for _, s := range check.Body.List {
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit, *ast.GoStmt, *ast.DeferStmt, *ast.SelectStmt:
				ends = false
			case *ast.CallExpr:
				if info.Types[n.Fun].IsType() || info.Types[n.Fun].IsBuiltin() {
					break
				}
				f, ok := load.Callee(c.fn.Pkg, n).(*types.Func)
				if c.d.sites[n] != nil || !ok || f.Pkg() != nil && f.Pkg().Path() == load.DevicePath {
					ends = false
				}
			}
			return true
		})
	}
	return ends
}

// text returns a call as a statement for the beginning of the loop's body. ok
// reports whether all its names mean the same there.
func (w *Overwritten) text(c *candidate, call *ast.CallExpr) (text string, ok bool) {
	info, at := c.fn.Pkg.Info, c.body.Lbrace+1
	scope := c.fn.Pkg.Types.Scope().Innermost(at)
	if scope == nil {
		return "", false
	}
	ok = true
	ast.Inspect(call, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			ok = false
		case *ast.SelectorExpr:
			ast.Inspect(n.X, func(m ast.Node) bool {
				if id, is := m.(*ast.Ident); is {
					ok = ok && sameName(info, scope, id, at)
				}
				return true
			})
			return false
		case *ast.KeyValueExpr: // the key may be a field
			ok = false
		case *ast.Ident:
			ok = ok && sameName(info, scope, n, at)
		}
		return ok
	})
	var b bytes.Buffer
	if printer.Fprint(&b, token.NewFileSet(), call) != nil || strings.Contains(b.String(), "\n") {
		return "", false
	}
	return b.String(), ok
}

// sameName reports whether a name means the same at another position. An error
// does not: it may have been set meanwhile.
func sameName(info *types.Info, scope *types.Scope, id *ast.Ident, at token.Pos) bool {
	o := info.ObjectOf(id)
	if o == nil || o.Pkg() == nil {
		return o != nil
	}
	if v, ok := o.(*types.Var); ok && (v.IsField() || load.IsError(v.Type())) {
		return false
	}
	if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
		return false
	}
	_, found := scope.LookupParent(id.Name, at)
	return found == o
}

// repeatableDevice are the functions of package device that a dry run may call.
// What they return does not follow from the kind of the device.
var repeatableDevice = []string{"In", "Out", "InOut", "Local", "Launch", "Rows", "Dims", "Len", "At"}

// repeatable reports whether a part of a function may run twice: it sets only
// variables of its own, and follows only from the program's variables.
func (c *candidate) repeatable(fn *callgraph.Function, root ast.Node) bool {
	for _, w := range writes(fn, root) {
		if !w.local && !w.fresh {
			return false
		}
	}
	ok, info := true, fn.Pkg.Info
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return n.Body == fn.Body // another function, which may be called
		case *ast.GoStmt, *ast.DeferStmt, *ast.SendStmt, *ast.SelectStmt, *ast.TypeSwitchStmt, *ast.TypeAssertExpr:
			ok = false
		case *ast.BranchStmt:
			ok = ok && n.Tok != token.GOTO
		case *ast.RangeStmt:
			switch info.TypeOf(n.X).Underlying().(type) {
			case *types.Map, *types.Chan, *types.Signature:
				ok = false
			}
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.ARROW
		case *ast.BinaryExpr:
			ok = ok && sameEverywhere(info, n)
		case *ast.SwitchStmt:
			if n.Tag != nil {
				b, basic := info.TypeOf(n.Tag).Underlying().(*types.Basic)
				ok = ok && basic && b.Info()&types.IsFloat == 0
			}
		case *ast.Ident:
			v, is := info.Uses[n].(*types.Var)
			if is && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
				ok = ok && !c.d.ld.Library[v.Pkg().Path()]
			}
		case *ast.CallExpr:
			ok = ok && c.repeatableCall(fn, n)
		}
		return ok
	})
	return ok
}

// sameEverywhere reports whether a comparison has the same result on other
// machines and devices. Floats may differ in the last bit, and variables for
// several devices may be the same device after a restart.
func sameEverywhere(info *types.Info, n *ast.BinaryExpr) bool {
	switch n.Op {
	case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
	default:
		return true
	}
	if info.Types[n.X].IsNil() || info.Types[n.Y].IsNil() || info.Types[n].Value != nil {
		return true
	}
	b, ok := info.TypeOf(n.X).Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsFloat|types.IsComplex) == 0
}

// repeatableCall reports whether a call may be made twice, without regard to
// what the function does if it is one of the program.
func (c *candidate) repeatableCall(fn *callgraph.Function, n *ast.CallExpr) bool {
	info := fn.Pkg.Info
	if info.Types[n.Fun].IsType() {
		b, ok := info.TypeOf(n).Underlying().(*types.Basic)
		return !ok || b.Kind() != types.UnsafePointer && b.Kind() != types.Uintptr
	}
	if info.Types[n.Fun].IsBuiltin() {
		b, ok := load.Callee(fn.Pkg, n).(*types.Builtin)
		return ok && slices.Contains([]string{"len", "cap", "min", "max", "make", "new", "real", "imag", "complex"}, b.Name())
	}
	if t := c.d.sites[n]; t != nil {
		return t.Kind == callgraph.PlainCall && len(t.Callees)+len(t.MayCall) > 0
	}
	f, ok := load.Callee(fn.Pkg, n).(*types.Func)
	if !ok || f.Pkg() == nil {
		return ok && f.FullName() == "(error).Error"
	}
	switch {
	case f.Pkg().Path() == load.DevicePath:
		return slices.Contains(repeatableDevice, f.Name())
	case f.FullName() == "fmt.Errorf" || f.FullName() == "errors.New":
		return true
	}
	return slices.Contains([]string{"math", "math/bits"}, f.Pkg().Path()) && f.Signature().Recv() == nil
}

// passesErrors reports whether a function returns an error as soon as a launch,
// or a function of the program, has returned one.
func (c *candidate) passesErrors(fn *callgraph.Function) bool {
	passed := map[*ast.CallExpr]bool{}
	may := func(n *ast.CallExpr) bool { // it may return the error of a launch
		return (isDeviceFunc(fn.Pkg, n, "Launch") || c.d.sites[n] != nil) && returnsError(fn.Pkg, n)
	}
	list := func(stmts []ast.Stmt) {
		for i, s := range stmts {
			var next ast.Stmt
			if i+1 < len(stmts) {
				next = stmts[i+1]
			}
			if call, failed := checkedCall(fn.Pkg, s, next); call != nil && failed != nil && c.returnsIt(fn, failed) {
				passed[call] = true
			}
		}
	}
	ok := true
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return n.Body == fn.Body
		case *ast.BlockStmt:
			list(n.List)
		case *ast.CaseClause:
			list(n.Body)
		case *ast.ReturnStmt:
			if len(n.Results) == 1 {
				if call, is := ast.Unparen(n.Results[0]).(*ast.CallExpr); is {
					passed[call] = true
				}
			}
		case *ast.CallExpr:
			ok = ok && (!may(n) || passed[n])
		}
		return ok
	})
	return ok
}

// returnsIt reports whether an if statement does nothing but return the error
// that it has found, or a new one.
func (c *candidate) returnsIt(fn *callgraph.Function, check *ast.IfStmt) bool {
	if len(check.Body.List) != 1 {
		return false
	}
	r, ok := check.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(r.Results) == 0 {
		return false
	}
	info := fn.Pkg.Info
	switch e := ast.Unparen(r.Results[len(r.Results)-1]).(type) {
	case *ast.Ident:
		cond := ast.Unparen(check.Cond).(*ast.BinaryExpr)
		return info.ObjectOf(e) == info.ObjectOf(ast.Unparen(cond.X).(*ast.Ident))
	case *ast.CallExpr:
		f, ok := load.Callee(fn.Pkg, e).(*types.Func)
		return ok && (f.FullName() == "fmt.Errorf" || f.FullName() == "errors.New")
	}
	return false
}

// mostFields bounds the length of the paths to arrays.
const mostFields = 6

// arrays calls f with the paths from a value of type t to arrays.
func (o *origins) arrays(p path, t types.Type, fields int, f func(path)) {
	if load.IsDeviceType(deref(t), "Array") {
		f(p)
		return
	}
	if fields > mostFields || !o.reaches(t, true) {
		return
	}
	switch u := deref(t).Underlying().(type) {
	case *types.Slice, *types.Array, *types.Map:
		if _, array := u.(*types.Array); !array && load.IsPointer(t) {
			return
		}
		p.text += "[*]"
		o.arrays(p, elemType(u), fields+1, f)
	case *types.Struct:
		if name := typeName(t); name != nil && name.Pkg() != nil && o.d.ld.Library[name.Pkg().Path()] {
			return
		}
		for field := range u.Fields() {
			q := path{root: p.root, text: p.text + "." + field.Name(), last: field.Origin()}
			o.arrays(q, field.Type(), fields+1, f)
		}
	}
}
