package divide

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// dependence finds what depends on the devices. It knows no order of
// statements, and merges all objects of a type: a variable or field depends on
// the devices if an assignment anywhere may give it a value that does. Besides
// values, it follows control: what a program assigns only with some devices, or
// once for each, depends on them, too. What kernels write in arrays is not
// followed.
type dependence struct {
	ld      *load.Program
	g       *callgraph.Graph
	live    map[*callgraph.Function]bool // functions that the host may call
	kernels map[*callgraph.Function]bool // functions that devices may run
	byObj   map[*types.Func]*callgraph.Function
	sites   map[*ast.CallExpr]*callgraph.Site       // calls of the program's functions
	given   map[*ast.CallExpr][]*callgraph.Function // what calls of libraries may call

	on        map[types.Object]Cause // variables and fields
	byType    map[string]Cause       // all variables of a type, because of an element of one
	results   map[*callgraph.Function]map[int]Cause
	control   map[*callgraph.Function]Cause // functions that are called with some devices only, or once for each
	early     map[*callgraph.Function]Cause // functions that end early with some devices
	loops     map[ast.Stmt]Cause            // loops that some devices end early
	addressed map[string][]types.Object     // variables whose address is taken, by type
	held      map[*types.Var]holding
	reached   map[*callgraph.Function][]*callgraph.Function
	launched  map[*ast.CallExpr]Cause // launches with some devices only, or once for each
	changed   bool
}

// Cause is why something depends on the devices.
type Cause struct {
	At   token.Pos
	Text string
}

// usesDevices reports whether a program imports package device.
func usesDevices(ld *load.Program) bool {
	return slices.ContainsFunc(ld.Sources, func(s *load.Package) bool { return slices.Contains(s.Imports, load.DevicePath) })
}

// newDependence analyses a program, with the methods of one type of a variant
// if v is not nil.
func newDependence(ld *load.Program, g *callgraph.Graph, v *variant) *dependence {
	d := newCalls(ld, g, v)
	for d.changed = true; d.changed; {
		d.changed = false
		for _, s := range ld.Sources {
			for _, f := range s.Files {
				for _, decl := range f.Decls {
					if decl, ok := decl.(*ast.GenDecl); ok {
						d.declared(s, decl, nil)
					}
				}
			}
		}
		for _, fn := range g.All {
			if d.live[fn] {
				w := walker{d: d, fn: fn, called: d.of(d.control, fn)}
				w.stmt(fn.Body, d.of(d.early, fn))
			}
		}
	}
	return d
}

// newCalls is newDependence without what depends on the devices: only who calls
// what is known.
func newCalls(ld *load.Program, g *callgraph.Graph, v *variant) *dependence {
	d := &dependence{ld: ld, g: g, byObj: map[*types.Func]*callgraph.Function{}, sites: map[*ast.CallExpr]*callgraph.Site{}, given: map[*ast.CallExpr][]*callgraph.Function{},
		on: map[types.Object]Cause{}, byType: map[string]Cause{}, results: map[*callgraph.Function]map[int]Cause{},
		control: map[*callgraph.Function]Cause{}, early: map[*callgraph.Function]Cause{}, loops: map[ast.Stmt]Cause{}, addressed: map[string][]types.Object{},
		launched: map[*ast.CallExpr]Cause{}, held: map[*types.Var]holding{}, reached: map[*callgraph.Function][]*callgraph.Function{}}
	for _, fn := range g.All {
		if decl, ok := fn.Node.(*ast.FuncDecl); ok {
			if f, ok := fn.Pkg.Info.Defs[decl.Name].(*types.Func); ok {
				d.byObj[f] = fn
			}
		}
	}
	for _, fn := range g.All {
		for _, t := range fn.Sites {
			switch {
			case t.Call == nil || isDeviceFunc(fn.Pkg, t.Call, "NewKernel", "KernelOf"):
			case t.Kind == callgraph.AsyncCallback || t.Kind == callgraph.SyncCallback || d.ofLibrary(fn.Pkg, t.Call):
				d.given[t.Call] = slices.Concat(d.given[t.Call], t.Callees, t.MayCall)
			default:
				d.sites[t.Call] = v.only(t)
			}
		}
	}
	d.findLive()
	d.findAddressed()
	return d
}

// site returns what is known of a call.
func (d *dependence) site(t *callgraph.Site) *callgraph.Site {
	if x := d.sites[t.Call]; x != nil && t.Kind == x.Kind {
		return x
	}
	return t
}

func (d *dependence) of(m map[*callgraph.Function]Cause, fn *callgraph.Function) *Cause {
	if c, ok := m[fn]; ok {
		return &c
	}
	return nil
}

// findLive finds the functions that the host and the devices may run.
func (d *dependence) findLive() {
	var kernels []*callgraph.Function
	passed := map[ast.Node]bool{} // kernels, where they are given to NewKernel
	for _, s := range d.ld.Sources {
		for _, f := range s.Files {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !isDeviceFunc(s, call, "NewKernel", "KernelOf") || len(call.Args) == 0 {
					return true
				}
				k := ast.Unparen(call.Args[len(call.Args)-1])
				passed[k] = true
				if fn := d.function(s, k); fn != nil {
					kernels = append(kernels, fn)
				}
				return true
			})
		}
	}
	d.kernels = callgraph.Reach(kernels, callgraph.PlainCall, callgraph.DeferCall, callgraph.GoCall, callgraph.SyncCallback, callgraph.AsyncCallback)
	todo := []*callgraph.Function{d.g.Main}
	for _, s := range d.ld.Sources {
		for _, f := range s.Files {
			for _, decl := range f.Decls {
				if decl, ok := decl.(*ast.FuncDecl); ok {
					if decl.Recv == nil && decl.Name.Name == "init" {
						todo = append(todo, d.g.ByNode[decl])
					}
					continue
				}
				ast.Inspect(decl, func(n ast.Node) bool { // initial values of package variables
					if passed[n] {
						return false
					}
					if e, ok := n.(ast.Expr); ok {
						if fn := d.function(s, e); fn != nil {
							todo = append(todo, fn)
						}
					}
					return true
				})
			}
		}
	}
	d.live = map[*callgraph.Function]bool{}
	for len(todo) > 0 {
		fn := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if fn == nil || d.live[fn] {
			continue
		}
		d.live[fn] = true
		for _, t := range fn.Sites {
			if t.Call != nil && isDeviceFunc(fn.Pkg, t.Call, "NewKernel", "KernelOf") {
				continue
			}
			t = d.site(t)
			todo = append(append(todo, t.Callees...), t.MayCall...)
		}
	}
}

// function returns the function that an expression names or is.
func (d *dependence) function(s *load.Package, e ast.Expr) *callgraph.Function {
	if sel, ok := e.(*ast.SelectorExpr); ok {
		e = sel.Sel
	}
	if id, ok := e.(*ast.Ident); ok {
		if f, ok := s.Info.Uses[id].(*types.Func); ok {
			return d.byObj[f.Origin()]
		}
	}
	return d.g.ByNode[e]
}

// findAddressed finds variables and fields whose address is taken.
func (d *dependence) findAddressed() {
	for _, s := range d.ld.Sources {
		for _, f := range s.Files {
			ast.Inspect(f, func(n ast.Node) bool {
				if u, ok := n.(*ast.UnaryExpr); ok && u.Op == token.AND {
					if obj := object(s, u.X); obj != nil {
						t := typeKey(s.Info.TypeOf(u.X))
						d.addressed[t] = append(d.addressed[t], obj)
					}
				}
				return true
			})
		}
	}
}

func typeKey(t types.Type) string { return types.TypeString(t, nil) }

// isDeviceFunc reports whether a call names a function or method of package
// device.
func isDeviceFunc(s *load.Package, call *ast.CallExpr, names ...string) bool {
	f, ok := load.Callee(s, call).(*types.Func)
	return ok && f.Pkg() != nil && f.Pkg().Path() == load.DevicePath && (len(names) == 0 || slices.Contains(names, f.Name()))
}

// isDevices reports whether values of a type are devices, or hold devices
// directly.
func isDevices(t types.Type) bool {
	if t == nil {
		return false
	}
	if load.IsDeviceType(t, "Device") || load.IsDeviceType(t, "Group") {
		return true
	}
	switch u := types.Unalias(t).(type) {
	case *types.Slice:
		return isDevices(u.Elem())
	case *types.Array:
		return isDevices(u.Elem())
	case *types.Map:
		return isDevices(u.Elem()) || isDevices(u.Key())
	case *types.Chan:
		return isDevices(u.Elem())
	}
	return false
}

// object returns the variable or field that an expression is, or is an element
// of.
func object(s *load.Package, e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if v, ok := s.Info.ObjectOf(e).(*types.Var); ok {
			return v.Origin()
		}
	case *ast.SelectorExpr:
		if v, ok := s.Info.Uses[e.Sel].(*types.Var); ok {
			return v.Origin()
		}
	case *ast.IndexExpr:
		return object(s, e.X)
	case *ast.SliceExpr:
		return object(s, e.X)
	case *ast.StarExpr:
		return object(s, e.X)
	case *ast.TypeAssertExpr:
		return object(s, e.X)
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return object(s, e.X)
		}
	}
	return nil
}

// cause says why a variable or field depends on the devices, if it does.
func (d *dependence) cause(obj types.Object) (Cause, bool) {
	v, ok := obj.(*types.Var)
	if !ok {
		return Cause{}, false
	}
	v = v.Origin()
	if c, ok := d.on[v]; ok {
		return c, true
	}
	if isDevices(v.Type()) {
		return Cause{v.Pos(), "the devices"}, true
	}
	for t := v.Type(); t != nil; t = element(t) { // it may share memory with a variable of the type
		if c, ok := d.byType[typeKey(t)]; ok {
			return c, true
		}
	}
	return Cause{}, false
}

// element returns the type of the elements of a list or map, or of what a
// pointer points to, or nil.
func element(t types.Type) types.Type {
	switch u := t.Underlying().(type) {
	case *types.Chan:
	case interface{ Elem() types.Type }:
		return u.Elem()
	}
	return nil
}

// shares reports whether a variable of type t may share memory with an element
// of a list, map or pointer of type of.
func shares(t, of types.Type) bool {
	for ; t != nil; t = element(t) {
		if typeKey(t) == typeKey(of) {
			return true
		}
	}
	return false
}

func (d *dependence) mark(obj types.Object, c Cause) {
	v, ok := obj.(*types.Var)
	if !ok || v.Name() == "_" {
		return
	}
	if _, ok := d.on[v.Origin()]; !ok {
		d.on[v.Origin()], d.changed = c, true
	}
}

func (d *dependence) markType(t types.Type, c Cause) {
	if t == nil {
		return
	}
	if k := typeKey(t); d.byType[k] == (Cause{}) {
		d.byType[k], d.changed = c, true
	}
}

// assign notes that an expression is given a value that depends on the devices.
func (d *dependence) assign(fn *callgraph.Function, lhs ast.Expr, c Cause) {
	s := fn.Pkg
	lhs = ast.Unparen(lhs)
	obj := object(s, lhs)
	_, plain := lhs.(*ast.Ident)
	d.mark(obj, c)
	if v, ok := obj.(*types.Var); ok && !plain && d.holds(fn, v) == arrayValues {
		return // see sharedValues
	}
	for e := lhs; ; { // an element: other variables may share it
		if v, ok := obj.(*types.Var); ok && d.holds(fn, v) == ownMemory {
			return
		}
		switch x := e.(type) {
		case *ast.IndexExpr:
			if _, array := s.Info.TypeOf(x.X).Underlying().(*types.Array); !array {
				d.markType(s.Info.TypeOf(x.X), c)
			}
			e = ast.Unparen(x.X)
			continue
		case *ast.StarExpr:
			d.markType(s.Info.TypeOf(x.X), c)
			for _, obj := range d.addressed[typeKey(s.Info.TypeOf(x))] {
				d.mark(obj, c)
			}
		}
		return
	}
}

// holding is what a variable holds whenever it has a value.
type holding int

const (
	anything    holding = iota
	ownMemory           // memory that the function has allocated
	arrayValues         // values of an array of package device
)

// holds returns what a variable of a function holds.
func (d *dependence) holds(fn *callgraph.Function, v *types.Var) holding {
	if v.IsField() || v.Pos() < fn.Node.Pos() || v.Pos() >= fn.Node.End() || fn.Parameter(v) {
		return anything
	}
	h, ok := d.held[v]
	if !ok {
		switch {
		case assignedOnly(fn, v, func(e ast.Expr, _ int) bool { return makes(fn, v, e) }):
			h = ownMemory
		case assignedOnly(fn, v, func(e ast.Expr, i int) bool {
			call, ok := ast.Unparen(e).(*ast.CallExpr)
			return ok && i == 0 && isDeviceFunc(fn.Pkg, call, "Data", "Read")
		}):
			h = arrayValues
		}
		d.held[v] = h
	}
	return h
}

// sharedValues returns a slice of an array's values that depends on the devices
// though the array does not: the host may have written something there that
// follows from them.
func (d *dependence) sharedValues() (found *types.Var, at token.Pos) {
	for _, fn := range d.g.All {
		if !d.live[fn] {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || len(a.Rhs) != 1 {
				return true
			}
			call, ok := ast.Unparen(a.Rhs[0]).(*ast.CallExpr)
			if !ok || !isDeviceFunc(fn.Pkg, call, "Data", "Read") {
				return true
			}
			sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if _, own := d.expr(fn.Pkg, sel.X); own {
				return true
			}
			if v, ok := object(fn.Pkg, a.Lhs[0]).(*types.Var); ok && found == nil {
				if _, on := d.cause(v); on {
					found, at = v, a.Pos()
				}
			}
			return true
		})
	}
	return found, at
}

func (d *dependence) markResult(fn *callgraph.Function, i int, c Cause) {
	if d.results[fn] == nil {
		d.results[fn] = map[int]Cause{}
	}
	if _, ok := d.results[fn][i]; !ok {
		d.results[fn][i], d.changed = c, true
	}
}

// expr says why an expression depends on the devices, if it does.
func (d *dependence) expr(s *load.Package, e ast.Expr) (c Cause, yes bool) {
	if e == nil {
		return c, false
	}
	ast.Inspect(e, func(n ast.Node) bool {
		if yes {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.CompositeLit:
			t := s.Info.TypeOf(n)
			if t == nil {
				return true
			}
			if _, ok := deref(t).Underlying().(*types.Struct); ok && typeName(t) != nil {
				return false // its fields have the cause
			}
			if c, yes = d.elements(s, n); yes {
				return false
			}
		case *ast.Ident:
			if v, ok := s.Info.Uses[n].(*types.Var); ok {
				c, yes = d.cause(v)
			}
		case *ast.CallExpr:
			if t := d.sites[n]; t != nil {
				for _, to := range slices.Concat(t.Callees, t.MayCall) {
					for _, x := range d.results[to] {
						c, yes = x, true
					}
				}
				if !yes {
					c, yes = d.chosen(s, n)
				}
				if !yes && isDevices(s.Info.TypeOf(n)) {
					c, yes = Cause{n.Pos(), "the devices"}, true
				}
				return false // its results count, not its arguments
			}
			if isDevices(s.Info.TypeOf(n)) || isDeviceFunc(s, n, "Devices", "Open", "Spread", "NewGroup") {
				c, yes = Cause{n.Pos(), "the devices"}, true
			} else {
				c, yes = d.passed(s, n)
			}
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				if c, yes = d.within(s.Info.TypeOf(n.X)); !yes {
					c, yes = d.within(s.Info.TypeOf(n.Y))
				}
			}
		case *ast.IndexExpr:
			if m, ok := s.Info.TypeOf(n.X).Underlying().(*types.Map); ok {
				c, yes = d.value(s, n.Index, m.Key())
				if !yes {
					c, yes = d.within(s.Info.TypeOf(n.Index))
				}
			}
		}
		return !yes
	})
	return c, yes
}

func deref(t types.Type) types.Type {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		return p.Elem()
	}
	return t
}

// declared follows declarations of variables.
func (d *dependence) declared(s *load.Package, decl *ast.GenDecl, ctl *Cause) {
	for _, spec := range decl.Specs {
		v, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for i, id := range v.Names {
			c, yes := Cause{}, false
			switch {
			case len(v.Values) == len(v.Names):
				c, yes = d.value(s, v.Values[i], s.Info.TypeOf(id))
			case len(v.Values) > 0:
				c, yes = d.expr(s, v.Values[0])
			}
			if yes {
				d.mark(s.Info.Defs[id], c)
			} else if ctl != nil {
				d.mark(s.Info.Defs[id], *ctl)
			}
		}
	}
}
