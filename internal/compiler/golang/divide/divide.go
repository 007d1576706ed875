// Package divide finds how a program divides its work among its devices, so
// that after a restart on another number of devices it can divide it anew
// (Losada and others: such a program is malleable).
//
// What follows from the devices is not state: the list of devices, bounds,
// views, arrays of each device's own. Find looks for a loop before which the
// program derives all of that, in statements that do nothing else. Then the
// compiler repeats these statements (Plan.Code) at the beginning of an
// iteration if a restart has found another number of devices. Everything else
// must not depend on the devices.
//
// When in doubt, there is no plan, and the program keeps the number of devices
// that it began with (it is pseudo-malleable). One thing is assumed: what
// kernels write in an array does not depend on how the array is divided. When
// the program divides its work anew, package device checks that the new views
// cover the same parts of all arrays as the old ones, and that nobody reads
// what was not written in arrays that were made for the new devices.
//
// FindOverwritten finds arrays that carry nothing from one iteration of a loop
// to the next. Checkpoints leave them out.
package divide

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// Plan says how a program divides its work anew.
type Plan struct {
	// Fn is the function that holds the loop.
	Fn   *callgraph.Function
	Loop ast.Stmt
	// Body is the body of the loop. Code belongs at its beginning.
	Body *ast.BlockStmt
	// Stmts are the statements before the loop that divide the work, Calls
	// the functions that they may call.
	Stmts []ast.Stmt
	Calls []*callgraph.Function
	// Derived are the variables that they set.
	Derived []Variable
	// Variant is a variable of an interface type, or nil. Then the plan
	// holds only for values of Types.
	Variant types.Object
	Types   []*types.TypeName

	device string // name of package device in the file
}

// Variable is a variable or field that follows from the devices.
type Variable struct {
	Name string
	At   token.Pos
	Cause
}

// Refusal says why a program keeps its number of devices: what depends on it.
type Refusal struct {
	Variable
	// Loop is the loop that has no plan, or nil.
	Loop ast.Stmt
	// In is the type of the interface's value to which the refusal applies,
	// or nil.
	In *types.TypeName
}

// Result is what Find found.
type Result struct {
	Plans    []*Plan
	Refusals []Refusal // why other loops or types have no plan
}

// Find finds how a program divides its work. It returns nil if the program uses
// no devices.
func Find(ld *load.Program, g *callgraph.Graph) *Result {
	if !usesDevices(ld) || g.Main == nil {
		return nil
	}
	d := newDependence(ld, g, nil)
	r := new(Result)
	if at, why := d.unsupported(); why != "" {
		r.Refusals = append(r.Refusals, Refusal{Variable: Variable{Name: why, At: at}})
		return r
	}
	for _, fn := range g.All {
		decl, ok := fn.Node.(*ast.FuncDecl)
		if !ok || !d.live[fn] {
			continue
		}
		for _, c := range candidates(d, fn, decl) {
			c.plan(r)
		}
	}
	return r
}

// unsupported returns something for which programs keep their devices.
func (d *dependence) unsupported() (at token.Pos, why string) {
	for fn := range d.kernels {
		switch fn.Node.(type) {
		case *ast.RangeStmt: // the function around it has the same writes
			continue
		case *ast.FuncLit:
			if fn.Decl != nil && !d.live[d.g.ByNode[fn.Decl]] {
				continue
			}
		}
		for _, w := range writes(fn, fn.Body) {
			v, ok := w.obj.(*types.Var)
			if ok && !v.IsField() && !w.local && (v.Pos() < fn.Node.Pos() || v.Pos() >= fn.Node.End()) {
				return w.lhs.Pos(), "a kernel sets " + v.Name() + ", which is not an array"
			}
		}
	}
	for _, fn := range d.g.All {
		if !d.live[fn] {
			continue
		}
		for _, t := range fn.Sites {
			if t.Kind == callgraph.GoCall || t.Kind == callgraph.AsyncCallback && !isDeviceFunc(fn.Pkg, t.Call) {
				at, why = t.At(), "the program has goroutines"
			}
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return n == fn.Node || n.Body == fn.Body
			case *ast.GoStmt:
				at, why = n.Pos(), "the program has goroutines"
			case *ast.CallExpr:
				f, ok := load.Callee(fn.Pkg, n).(*types.Func)
				switch {
				case isBuiltin(fn.Pkg, n, "recover"):
					at, why = n.Pos(), "the program calls recover"
				case !ok || f.Pkg() == nil:
				case f.Pkg().Path() == load.DevicePath && slices.Contains([]string{"Open", "Raw", "Update", "View", "Copy"}, f.Name()):
					at, why = n.Pos(), "the program calls device."+f.Name()
				case f.Pkg().Path() == "unsafe" || f.Pkg().Path() == "reflect":
					at, why = n.Pos(), "the program uses package "+f.Pkg().Path()
				case f.Pkg().Path() == load.MPIPath:
					at, why = n.Pos(), "the program has several ranks"
				case f.FullName() == "(*sync.WaitGroup).Go":
					at, why = n.Pos(), "the program has goroutines"
				}
			}
			return true
		})
	}
	return at, why
}

// candidate is a loop before which the program divides its work.
type candidate struct {
	d      *dependence
	fn     *callgraph.Function
	decl   *ast.FuncDecl
	loop   ast.Stmt
	body   *ast.BlockStmt
	before []ast.Stmt // statements that run before the loop, each once
	device string     // name of package device

	inLoop []*callgraph.Function // functions that the loop may call, and kernels
}

// candidates returns the loops of a function that launch kernels, after a call
// of device.Devices.
func candidates(d *dependence, fn *callgraph.Function, decl *ast.FuncDecl) (list []*candidate) {
	var visit func(block *ast.BlockStmt, before []ast.Stmt)
	visit = func(block *ast.BlockStmt, before []ast.Stmt) {
		for _, s := range block.List {
			switch x := s.(type) {
			case *ast.BlockStmt:
				visit(x, before)
			case *ast.ForStmt:
				list = append(list, &candidate{d: d, fn: fn, decl: decl, loop: s, body: x.Body, before: slices.Clone(before)})
			case *ast.RangeStmt:
				if d.g.ByNode[x] == nil {
					list = append(list, &candidate{d: d, fn: fn, decl: decl, loop: s, body: x.Body, before: slices.Clone(before)})
				}
			}
			before = append(before, s)
		}
	}
	visit(fn.Body, nil)
	return slices.DeleteFunc(list, func(c *candidate) bool { return !c.launches() || !c.asks() })
}

// launches finds the functions that the loop calls, and reports whether one of
// them, or the loop itself, launches a kernel.
func (c *candidate) launches() bool {
	c.inLoop = c.d.reach(c.d.called(c.loop))
	found := launching(c.fn.Pkg, c.loop)
	for _, fn := range c.inLoop {
		found = found || launching(fn.Pkg, fn.Body)
	}
	c.inLoop = slices.AppendSeq(c.inLoop, maps.Keys(c.d.kernels))
	return found
}

func launching(s *load.Package, n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isDeviceFunc(s, call, "Launch")
		return !found
	})
	return found
}

// asks reports whether a statement before the loop calls device.Devices.
func (c *candidate) asks() bool {
	for _, s := range c.before {
		if c.devices(s) {
			return true
		}
	}
	return false
}

// devices reports whether a statement is
//
//	devs, err := device.Devices()
func (c *candidate) devices(s ast.Stmt) bool {
	a, ok := s.(*ast.AssignStmt)
	if !ok || len(a.Rhs) != 1 {
		return false
	}
	call, ok := ast.Unparen(a.Rhs[0]).(*ast.CallExpr)
	if !ok || !isDeviceFunc(c.fn.Pkg, call, "Devices") {
		return false
	}
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		if id, ok := sel.X.(*ast.Ident); ok {
			c.device = id.Name
			return true
		}
	}
	return false
}

// called returns the functions that a part of a function calls directly.
func (d *dependence) called(n ast.Node) (list []*callgraph.Function) {
	ast.Inspect(n, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			list = append(list, d.g.ByNode[n]) // it may be called
			return false
		}
		if call, ok := n.(*ast.CallExpr); ok && d.sites[call] != nil {
			list = append(append(list, d.sites[call].Callees...), d.sites[call].MayCall...)
		} else if ok {
			list = append(list, d.given[call]...)
		}
		return true
	})
	return list
}

// reach returns what some functions call, with themselves.
func (d *dependence) reach(from []*callgraph.Function) (list []*callgraph.Function) {
	seen := map[*callgraph.Function]bool{}
	for todo := slices.Clone(from); len(todo) > 0; {
		fn := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if fn == nil || seen[fn] {
			continue
		}
		seen[fn] = true
		list = append(list, fn)
		next, ok := d.reached[fn]
		if !ok {
			next = d.called(fn.Body)
			for _, t := range fn.Sites {
				if t.Call == nil || !isDeviceFunc(fn.Pkg, t.Call, "NewKernel", "KernelOf") {
					t = d.site(t)
					next = append(append(next, t.Callees...), t.MayCall...)
				}
			}
			d.reached[fn] = next
		}
		todo = append(todo, next...)
	}
	return list
}

// variant is a variable of an interface type, with one of the types that its
// value may have.
type variant struct {
	of types.Object
	as *types.TypeName
}

// only returns a call with the methods of the type, if it calls a method of the
// variable.
func (v *variant) only(t *callgraph.Site) *callgraph.Site {
	if v == nil {
		return t
	}
	sel, ok := ast.Unparen(t.Call.Fun).(*ast.SelectorExpr)
	if !ok {
		return t
	}
	if id, ok := ast.Unparen(sel.X).(*ast.Ident); !ok || t.Caller.Pkg.Info.Uses[id] != v.of {
		return t
	}
	not := func(fn *callgraph.Function) bool {
		sig := signature(fn)
		return sig == nil || sig.Recv() == nil || typeName(sig.Recv().Type()) != v.as
	}
	x := *t
	x.Callees = slices.DeleteFunc(slices.Clone(t.Callees), not)
	x.MayCall = slices.DeleteFunc(slices.Clone(t.MayCall), not)
	if len(x.Callees) == 0 {
		return t // a method of an embedded type
	}
	return &x
}

// typeName returns the name of a type, or of what it points to.
func typeName(t types.Type) *types.TypeName {
	if n, ok := types.Unalias(deref(t)).(*types.Named); ok {
		return n.Origin().Obj()
	}
	return nil
}

// variants returns the types that the first local variable of an interface type
// may have; nil alone if there is none.
func (c *candidate) variants(d *dependence) (out []*variant) {
	for _, v := range c.locals() {
		if _, ok := v.Type().Underlying().(*types.Interface); ok && !load.IsError(v.Type()) {
			for _, t := range d.implementations(v.Type()) {
				out = append(out, &variant{v, t})
			}
			if len(out) > 0 {
				return out
			}
		}
	}
	return []*variant{nil}
}

// plan adds the loop's plan, or why it has none, to r.
func (c *candidate) plan(r *Result) {
	var p *Plan
	for _, v := range c.variants(c.d) {
		x := *c
		var in *types.TypeName
		if v != nil {
			x.d, in = newDependence(c.d.ld, c.d.g, v), v.as
			x.launches()
		}
		stmts, derived, why := x.statements(v, c.d)
		if why != nil {
			why.In, why.Loop = in, c.loop
			r.Refusals = append(r.Refusals, *why)
			continue
		}
		if p == nil {
			p = &Plan{Fn: c.fn, Loop: c.loop, Body: c.body, Stmts: stmts, device: c.device}
			if v != nil {
				p.Variant = v.of
			}
			r.Plans = append(r.Plans, p)
		} else if !slices.Equal(p.Stmts, stmts) {
			r.Refusals = append(r.Refusals, Refusal{Variable{Name: "other statements divide its work than that of other types", At: c.loop.Pos()}, c.loop, in})
			continue
		}
		for _, s := range stmts {
			p.Calls = append(p.Calls, x.d.reach(x.d.called(s))...)
		}
		for _, x := range derived {
			if !slices.ContainsFunc(p.Derived, func(y Variable) bool { return y.Name == x.Name && y.At == x.At }) {
				p.Derived = append(p.Derived, x)
			}
		}
		if in != nil {
			p.Types = append(p.Types, in)
		}
	}
}

// implementations returns the program's own types that may be behind an
// interface.
func (d *dependence) implementations(t types.Type) (list []*types.TypeName) {
	in, ok := t.Underlying().(*types.Interface)
	if !ok || in.Empty() {
		return nil
	}
	for _, s := range d.ld.Sources {
		for _, name := range s.Types.Scope().Names() {
			obj, ok := s.Types.Scope().Lookup(name).(*types.TypeName)
			if !ok || obj.IsAlias() || types.IsInterface(obj.Type()) {
				continue
			}
			if types.Implements(obj.Type(), in) || types.Implements(types.NewPointer(obj.Type()), in) {
				list = append(list, obj)
			}
		}
	}
	return list
}

// locals returns the function's variables that were declared before the loop
// and are used in it or after it.
func (c *candidate) locals() (list []*types.Var) {
	info := c.fn.Pkg.Info
	seen := map[types.Object]bool{}
	ast.Inspect(c.decl, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || id.Pos() < c.loop.Pos() {
			return true
		}
		v, ok := info.ObjectOf(id).(*types.Var)
		if !ok || v.IsField() || seen[v] || v.Parent() == c.fn.Pkg.Types.Scope() || v.Pkg() != c.fn.Pkg.Types {
			return true
		}
		seen[v] = true
		if v.Pos() >= c.decl.Pos() && v.Pos() < c.body.Lbrace {
			list = append(list, v)
		}
		return true
	})
	return list
}

// Code returns the statements that divide the work anew, with the source of the
// file that holds the loop.
func (p *Plan) Code(fset *token.FileSet, source []byte) string {
	text := func(lo, hi token.Pos) string {
		return string(source[fset.Position(lo).Offset:fset.Position(hi).Offset])
	}
	line := func(pos token.Pos) string { // as normalize.Mark has them
		at := fset.Position(pos)
		return fmt.Sprintf("/*line %s:%d:%d*/", at.Filename, at.Line, at.Column)
	}
	var b strings.Builder
	for _, s := range p.Stmts {
		b.WriteString(line(s.Pos()))
		switch s := s.(type) {
		case *ast.AssignStmt:
			b.WriteString(text(s.Pos(), s.TokPos) + " = " + text(s.Rhs[0].Pos(), s.End()))
		case *ast.DeclStmt:
			for _, spec := range s.Decl.(*ast.GenDecl).Specs {
				for _, id := range spec.(*ast.ValueSpec).Names {
					b.WriteString(id.Name + " = nil;")
				}
			}
		default:
			b.WriteString(text(s.Pos(), s.End()))
		}
		b.WriteString("\n")
	}
	code := fmt.Sprintf("%sfor %s.CairnDivides() {\n%s}", line(p.Loop.Pos()), p.device, b.String())
	if p.Variant != nil && len(p.Types) > 0 {
		var list []string
		for _, t := range p.Types {
			star := "*"
			if types.Implements(t.Type(), p.Variant.Type().Underlying().(*types.Interface)) {
				list = append(list, t.Name())
			}
			list = append(list, star+t.Name())
		}
		code = fmt.Sprintf("%sswitch %s.(type) {\ncase %s:\n%s\n}", line(p.Loop.Pos()), p.Variant.Name(), strings.Join(list, ", "), code)
	}
	return code + "\n"
}

// sortedObjects returns objects in the order of the source.
func sortedObjects[V any](m map[types.Object]V) []types.Object {
	return slices.SortedFunc(maps.Keys(m), func(a, b types.Object) int { return int(a.Pos() - b.Pos()) })
}
