package divide

import (
	"cmp"
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// readers are packages of which most functions do not write to what they are
// given.
var readers = []string{"fmt", "errors", "log", "math", "math/bits", "math/cmplx", "strconv", "strings", load.DevicePath}

// onlyReads reports whether a function of a library does not write to what it
// is given, nor to its receiver.
func onlyReads(f *types.Func) bool {
	if f.Pkg() == nil || !slices.Contains(readers, f.Pkg().Path()) {
		return false
	}
	if f.Pkg().Path() == load.DevicePath {
		return true
	}
	name := f.Name()
	return f.Signature().Recv() == nil && name != "As" && !strings.HasPrefix(name, "Append") && !strings.HasPrefix(name, "Fprint") && !strings.Contains(strings.ToLower(name), "scan")
}

// isFile reports whether a value is an open file. What a program prints is not
// in its variables.
func isFile(t types.Type) bool { return types.TypeString(t, nil) == "*os.File" }

// ofLibrary reports whether a call is one of a function without source.
func (d *dependence) ofLibrary(s *load.Package, call *ast.CallExpr) bool {
	f, ok := load.Callee(s, call).(*types.Func)
	if !ok || d.byObj[f.Origin()] != nil {
		return false
	}
	r := f.Signature().Recv()
	return r == nil || !types.IsInterface(r.Type())
}

// callbacks returns the functions that a library may call because of a call.
func (d *dependence) callbacks(s *load.Package, n *ast.CallExpr) []*callgraph.Function {
	list := slices.Clone(d.given[n])
	for _, e := range n.Args {
		if fn := d.function(s, ast.Unparen(e)); fn != nil && !slices.Contains(list, fn) {
			list = append(list, fn)
		}
	}
	return list
}

// passed says why what a library, a builtin or a function outside of all
// functions gets depends on the devices, if it does: an argument, something in
// it, or the results of a function that it may call.
func (d *dependence) passed(s *load.Package, n *ast.CallExpr) (Cause, bool) {
	if fn := d.function(s, ast.Unparen(n.Fun)); fn != nil { // in the value of a package variable
		for _, c := range d.results[fn] {
			return c, true
		}
	}
	for _, e := range n.Args {
		if c, ok := d.expr(s, e); ok {
			return c, true
		}
	}
	if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && s.Info.Selections[sel] != nil {
		if c, ok := d.expr(s, sel.X); ok {
			return c, true
		}
	}
	if isDeviceFunc(s, n) || isBuiltin(s, n, "len", "cap", "append", "make", "new", "panic") {
		return Cause{}, false
	}
	for _, fn := range d.callbacks(s, n) {
		for _, c := range d.results[fn] {
			return c, true
		}
	}
	if tv := s.Info.Types[n.Fun]; tv.IsType() {
		return d.value(s, n.Args[0], tv.Type)
	}
	for _, e := range n.Args {
		if c, ok := d.within(s.Info.TypeOf(e)); ok {
			return c, true
		}
	}
	return Cause{}, false
}

// chosen says why the devices choose which function a call calls, if they do:
// the function is a value, or a method of an interface's value.
func (d *dependence) chosen(s *load.Package, n *ast.CallExpr) (Cause, bool) {
	f, ok := load.Callee(s, n).(*types.Func)
	if !ok {
		return d.expr(s, n.Fun)
	}
	sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr)
	if r := f.Signature().Recv(); r == nil || !ok || s.Info.Selections[sel] == nil || !types.IsInterface(r.Type()) {
		return Cause{}, false
	}
	return d.expr(s, sel.X)
}

// value is expr for a value that becomes one of another type: fields of that
// type have no cause of their own.
func (d *dependence) value(s *load.Package, e ast.Expr, to types.Type) (Cause, bool) {
	if c, ok := d.expr(s, e); ok {
		return c, true
	}
	from := s.Info.TypeOf(e)
	if from == nil || to == nil || types.Identical(from, to) && typeName(to) != nil {
		return Cause{}, false
	}
	switch u := deref(to).Underlying().(type) {
	case *types.Interface:
		if !u.Empty() || types.IsInterface(from) {
			return Cause{}, false
		}
	case *types.Struct:
	default:
		return Cause{}, false
	}
	return d.within(from)
}

// elements says why a value of a list or a struct without a name depends on the
// devices, if it does.
func (d *dependence) elements(s *load.Package, n *ast.CompositeLit) (Cause, bool) {
	var to types.Type
	switch u := s.Info.TypeOf(n).Underlying().(type) {
	case *types.Slice:
		to = u.Elem()
	case *types.Array:
		to = u.Elem()
	case *types.Map:
		to = u.Elem()
	default:
		return Cause{}, false
	}
	for _, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
		}
		if _, ok := e.(*ast.CompositeLit); ok && s.Info.TypeOf(e) == nil {
			continue
		}
		if c, ok := d.value(s, e, to); ok {
			return c, true
		}
	}
	return Cause{}, false
}

// within says why something in a value of a type depends on the devices: a
// field, of all values of its type.
func (d *dependence) within(t types.Type) (c Cause, yes bool) {
	seen := map[types.Type]bool{}
	var visit func(t types.Type)
	visit = func(t types.Type) {
		if t == nil || yes || seen[t] {
			return
		}
		seen[t] = true
		if x, on := d.byType[typeKey(t)]; on {
			c, yes = x, true
			return
		}
		switch u := t.Underlying().(type) {
		case *types.Pointer:
			visit(u.Elem())
		case *types.Slice:
			visit(u.Elem())
		case *types.Array:
			visit(u.Elem())
		case *types.Map:
			visit(u.Key())
			visit(u.Elem())
		case *types.Struct:
			if n := typeName(t); n != nil && n.Pkg() != nil && d.ld.Library[n.Pkg().Path()] {
				return
			}
			for f := range u.Fields() {
				if x, on := d.cause(f); on && !yes {
					c, yes = x, true
				}
				visit(f.Type())
			}
		}
	}
	visit(t)
	return c, yes
}

// appends follows append, which may write to memory that others share.
func (w *walker) appends(n *ast.CallExpr, ctl *Cause) {
	d, pkg := w.d, w.fn.Pkg
	x, yes := d.passed(pkg, n)
	c := cmp.Or(either(ctl, x, yes), w.called)
	if c == nil {
		return
	}
	to := ast.Unparen(n.Args[0])
	if part, ok := to.(*ast.SliceExpr); ok {
		d.mark(object(pkg, part.X), *c)
	}
	if v, _ := object(pkg, to).(*types.Var); v == nil || d.holds(w.fn, v) != ownMemory {
		d.markType(pkg.Info.TypeOf(n), *c)
	}
}

// marks notes that a library may have written something to an argument that
// depends on the devices.
func (w *walker) marks(e ast.Expr, c Cause) {
	d, pkg := w.d, w.fn.Pkg
	d.mark(object(pkg, e), c)
	if lit, ok := ast.Unparen(e).(*ast.CompositeLit); ok { // what it holds
		for _, x := range lit.Elts {
			if kv, ok := x.(*ast.KeyValueExpr); ok {
				x = kv.Value
			}
			if t := pkg.Info.TypeOf(x); t != nil {
				switch t.Underlying().(type) {
				case *types.Slice, *types.Map, *types.Pointer:
					w.marks(x, c)
				}
			}
		}
	}
}
