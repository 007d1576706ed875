package divide

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// origins finds which arrays an expression may be: the calls of device.New that
// may have made them. It knows no order of statements, and merges all objects
// of a type: a variable, or a field of a struct type, has all arrays that any
// assignment may give it, or an element of it.
type origins struct {
	d       *dependence
	nodes   map[any]*origin
	outside *origin // what functions without source may hold
	bearing map[string]bool
	refused *Cause // something that this analysis does not follow
}

// origin is the arrays of a variable, field, result or call.
type origin struct {
	made map[*ast.CallExpr]bool
	to   map[*origin]bool
}

// resultOf is the key of a function's result.
type resultOf struct {
	fn *callgraph.Function
	i  int
}

func newOrigins(d *dependence) *origins {
	o := &origins{d: d, nodes: map[any]*origin{}, bearing: map[string]bool{}}
	o.outside = o.node("outside")
	for _, s := range d.ld.Sources {
		for _, f := range s.Files {
			for _, decl := range f.Decls {
				if decl, ok := decl.(*ast.GenDecl); ok {
					o.walk(s, nil, decl)
				}
			}
		}
	}
	for _, fn := range d.g.All {
		if d.live[fn] || d.kernels[fn] {
			o.walk(fn.Pkg, fn, fn.Body)
		}
	}
	o.solve()
	return o
}

func (o *origins) node(key any) *origin {
	if v, ok := key.(*types.Var); ok {
		key = v.Origin()
	}
	n := o.nodes[key]
	if n == nil {
		n = &origin{made: map[*ast.CallExpr]bool{}, to: map[*origin]bool{}}
		o.nodes[key] = n
	}
	return n
}

func (o *origins) solve() {
	todo := slices.Collect(maps.Values(o.nodes))
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for to := range n.to {
			before := len(to.made)
			maps.Copy(to.made, n.made)
			if len(to.made) > before {
				todo = append(todo, to)
			}
		}
	}
}

// bears reports whether a value of a type is an array, or leads to arrays other
// than by fields of structs.
func (o *origins) bears(t types.Type) bool { return o.reaches(t, false) }

// reaches is bears, with deep also by fields.
func (o *origins) reaches(t types.Type, deep bool) bool {
	if t == nil {
		return false
	}
	key := typeKey(t)
	if deep {
		key = "deep " + key
	}
	if b, ok := o.bearing[key]; ok {
		return b
	}
	o.bearing[key] = false // for types that refer to themselves
	b := func() bool {
		t := types.Unalias(t)
		switch t := t.(type) {
		case *types.TypeParam:
			return true
		case *types.Named:
			if p := t.Obj().Pkg(); p != nil && p.Path() == load.DevicePath {
				return t.Obj().Name() == "Array" || t.Obj().Name() == "Arg"
			}
			if deep && t.Obj().Pkg() != nil && o.d.ld.Library[t.Obj().Pkg().Path()] && !types.IsInterface(t) {
				return slices.ContainsFunc(slices.Collect(t.TypeArgs().Types()), func(a types.Type) bool { return o.reaches(a, deep) })
			}
		}
		switch u := t.Underlying().(type) {
		case *types.Pointer:
			return o.reaches(u.Elem(), deep)
		case *types.Slice:
			return o.reaches(u.Elem(), deep)
		case *types.Array:
			return o.reaches(u.Elem(), deep)
		case *types.Chan:
			return o.reaches(u.Elem(), deep)
		case *types.Map:
			return o.reaches(u.Key(), deep) || o.reaches(u.Elem(), deep)
		case *types.Struct:
			for f := range u.Fields() {
				if deep && o.reaches(f.Type(), deep) {
					return true
				}
			}
		case *types.Interface:
			if load.IsError(t) {
				return false
			}
			if !deep || u.Empty() {
				return true
			}
			for _, n := range o.d.implementations(t) {
				if o.reaches(n.Type(), deep) {
					return true
				}
			}
		}
		return false
	}()
	o.bearing[key] = b
	return b
}

// shared reports whether a copy of a value of this type leads to the same
// variables, so that an assignment to an element of one is seen in the other.
func shared(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		return !load.IsDeviceType(t, "Array")
	case *types.Slice, *types.Map, *types.Chan, *types.Interface:
		return true
	case *types.Array:
		return shared(u.Elem())
	}
	return false
}

// sources returns what an expression may be, or what it has as elements. i is
// the result, of a call with several.
func (o *origins) sources(s *load.Package, e ast.Expr, i int) []*origin {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if v, ok := s.Info.ObjectOf(e).(*types.Var); ok {
			return []*origin{o.node(v)}
		}
	case *ast.SelectorExpr:
		if v, ok := s.Info.Uses[e.Sel].(*types.Var); ok {
			return []*origin{o.node(v)}
		}
	case *ast.IndexExpr:
		return o.sources(s, e.X, 0)
	case *ast.SliceExpr:
		return o.sources(s, e.X, 0)
	case *ast.StarExpr:
		return o.sources(s, e.X, 0)
	case *ast.UnaryExpr:
		return o.sources(s, e.X, 0)
	case *ast.TypeAssertExpr:
		return o.sources(s, e.X, 0)
	case *ast.KeyValueExpr:
		return append(o.sources(s, e.Key, 0), o.sources(s, e.Value, 0)...)
	case *ast.CompositeLit:
		if t := s.Info.TypeOf(e); t != nil {
			if _, ok := deref(t).Underlying().(*types.Struct); ok {
				return nil // walk assigns the fields
			}
		}
		var list []*origin
		for _, x := range e.Elts {
			list = append(list, o.sources(s, x, 0)...)
		}
		return list
	case *ast.CallExpr:
		return o.called(s, e, i)
	}
	return nil
}

// called returns what a call returns.
func (o *origins) called(s *load.Package, call *ast.CallExpr, i int) (list []*origin) {
	all := func() {
		for _, a := range call.Args {
			list = append(list, o.sources(s, a, 0)...)
		}
	}
	if s.Info.Types[call.Fun].IsType() || isBuiltin(s, call, "append") {
		all()
		return list
	}
	if isBuiltin(s, call, "recover") {
		return []*origin{o.outside}
	}
	if f, ok := load.Callee(s, call).(*types.Func); ok && f.Pkg() != nil && f.Pkg().Path() == load.DevicePath {
		sel, _ := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		switch {
		case f.Name() == "New" || f.Name() == "NewConstant" || f.Name() == "Raw":
			n := o.node(call)
			n.made[call] = true
			return []*origin{n}
		case f.Signature().Recv() == nil && slices.Contains([]string{"In", "Out", "InOut"}, f.Name()):
			all()
		case f.Name() == "Rows" && sel != nil:
			return o.receiver(s, sel)
		}
		return list
	}
	if t := o.d.sites[call]; t != nil {
		for _, to := range slices.Concat(t.Callees, t.MayCall) {
			list = append(list, o.node(resultOf{to, i}))
		}
		if _, static := load.Callee(s, call).(*types.Func); static && len(t.MayCall) == 0 {
			return list
		}
	}
	return append(list, o.outside)
}

// receiver returns the array whose method sel is.
func (o *origins) receiver(s *load.Package, sel *ast.SelectorExpr) []*origin {
	x := s.Info.Selections[sel]
	if x == nil || len(x.Index()) < 2 {
		return o.sources(s, sel.X, 0)
	}
	t := x.Recv() // the method is that of an embedded field
	var f *types.Var
	for _, i := range x.Index()[:len(x.Index())-1] {
		st, ok := deref(t).Underlying().(*types.Struct)
		if !ok {
			return []*origin{o.outside}
		}
		f = st.Field(i)
		t = f.Type()
	}
	return []*origin{o.node(f)}
}

// made returns the calls that may have made the arrays of an expression.
func (o *origins) made(s *load.Package, e ast.Expr) map[*ast.CallExpr]bool {
	out := map[*ast.CallExpr]bool{}
	for _, n := range o.sources(s, e, 0) {
		maps.Copy(out, n.made)
	}
	return out
}

// converts refuses an assignment between structs that are alike, but whose
// fields are not the same variables for this analysis.
func (o *origins) converts(at token.Pos, from, to types.Type) {
	if from == nil || to == nil {
		return
	}
	var differ func(a, b types.Type, depth int) bool
	differ = func(a, b types.Type, depth int) bool {
		if depth > 5 {
			return false
		}
		switch u := a.Underlying().(type) {
		case *types.Struct:
			v, ok := b.Underlying().(*types.Struct)
			return ok && u.NumFields() > 0 && v.NumFields() > 0 && u.Field(0).Origin() != v.Field(0).Origin()
		case *types.Map:
			v, ok := b.Underlying().(*types.Map)
			return ok && differ(u.Elem(), v.Elem(), depth+1)
		case *types.Pointer, *types.Slice, *types.Array, *types.Chan:
			x, y := elemType(a), elemType(b)
			return x != a && y != b && differ(x, y, depth+1)
		}
		return false
	}
	if differ(from, to, 0) && o.reaches(from, true) {
		o.refuse(at, "it converts a struct with arrays to another type")
	}
}

// flow says that values of an expression may get to a node.
func (o *origins) flow(s *load.Package, from ast.Expr, i int, to *origin) {
	t := s.Info.TypeOf(from)
	if tuple, ok := t.(*types.Tuple); ok {
		if i >= tuple.Len() {
			return
		}
		t = tuple.At(i).Type()
	}
	if t == nil || !o.bears(t) {
		return
	}
	for _, n := range o.sources(s, from, i) {
		n.to[to] = true
		if shared(t) {
			to.to[n] = true
		}
	}
}

// assign says that an expression is given a value.
func (o *origins) assign(s *load.Package, lhs, rhs ast.Expr, i int) {
	lhs = ast.Unparen(lhs)
	if id, ok := lhs.(*ast.Ident); ok && id.Name == "_" {
		return
	}
	t := s.Info.TypeOf(lhs)
	if _, tuple := s.Info.TypeOf(rhs).(*types.Tuple); !tuple {
		o.converts(lhs.Pos(), s.Info.TypeOf(rhs), t)
	}
	if star, ok := lhs.(*ast.StarExpr); ok {
		if !load.IsPointer(t) && load.IsDeviceType(t, "Array") || load.IsDeviceType(t, "Arg") {
			o.refuse(lhs.Pos(), "it overwrites an Array itself")
		}
		for _, v := range o.d.addressed[typeKey(s.Info.TypeOf(star))] {
			o.flow(s, rhs, i, o.node(v))
		}
	}
	if v := object(s, lhs); v != nil {
		o.flow(s, rhs, i, o.node(v))
	} else {
		o.flow(s, rhs, i, o.outside)
	}
}

func (o *origins) refuse(at token.Pos, text string) {
	if o.refused == nil {
		o.refused = &Cause{at, text}
	}
}

// walk follows a part of a function, without the literals in it.
func (o *origins) walk(s *load.Package, fn *callgraph.Function, root ast.Node) {
	if fn != nil {
		if sig := signature(fn); sig != nil {
			for i := range sig.Results().Len() {
				if v := sig.Results().At(i); o.bears(v.Type()) {
					r := o.node(resultOf{fn, i})
					o.node(v).to[r] = true
					if shared(v.Type()) {
						r.to[o.node(v)] = true
					}
				}
			}
		}
	}
	called := map[ast.Expr]bool{}
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return n.Body == root
		case *ast.AssignStmt:
			for i, e := range n.Lhs {
				if len(n.Rhs) == len(n.Lhs) {
					o.assign(s, e, n.Rhs[i], 0)
				} else {
					o.assign(s, e, n.Rhs[0], i)
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if len(n.Values) == len(n.Names) {
					o.assign(s, id, n.Values[i], 0)
				} else if len(n.Values) == 1 {
					o.assign(s, id, n.Values[0], i)
				}
			}
		case *ast.RangeStmt:
			o.ranges(s, n)
		case *ast.SendStmt:
			o.assign(s, n.Chan, n.Value, 0)
		case *ast.ReturnStmt:
			for i, e := range n.Results {
				if t, ok := s.Info.TypeOf(e).(*types.Tuple); ok && len(n.Results) == 1 {
					for j := range t.Len() {
						o.flow(s, e, j, o.node(resultOf{fn, j}))
					}
				} else {
					if sig := signature(fn); sig != nil && i < sig.Results().Len() {
						o.converts(e.Pos(), s.Info.TypeOf(e), sig.Results().At(i).Type())
					}
					o.flow(s, e, 0, o.node(resultOf{fn, i}))
				}
			}
		case *ast.CompositeLit:
			o.literal(s, n)
		case *ast.TypeSwitchStmt:
			o.typeSwitch(s, n)
		case *ast.SelectorExpr:
			sel := s.Info.Selections[n]
			if sel != nil && sel.Kind() == types.MethodVal && !called[n] { // anybody may call it
				for _, from := range o.receiver(s, n) {
					from.to[o.outside] = true
				}
			}
			if sel != nil && sel.Kind() == types.MethodExpr && load.IsDeviceType(sel.Recv(), "Array") {
				o.refuse(n.Pos(), "it calls a method by its type")
			}
			if sel != nil && sel.Kind() != types.FieldVal && o.bears(s.Info.TypeOf(n.X)) && !load.IsDeviceType(s.Info.TypeOf(n.X), "Array") {
				if _, call := s.Info.TypeOf(n.X).Underlying().(*types.Interface); !call {
					o.refuse(n.Pos(), "it calls a method of a type that is a list of arrays")
				}
			}
		case *ast.CallExpr:
			called[ast.Unparen(n.Fun)] = true
			o.passes(s, fn, n)
		}
		return true
	})
}

// ranges follows the variables of a loop.
func (o *origins) ranges(s *load.Package, n *ast.RangeStmt) {
	_, over := s.Info.TypeOf(n.X).Underlying().(*types.Signature)
	for _, e := range []ast.Expr{n.Key, n.Value} {
		if e == nil || !o.bears(s.Info.TypeOf(e)) {
			continue
		}
		v := object(s, e)
		if v == nil {
			continue
		}
		to := o.node(v)
		from := o.sources(s, n.X, 0)
		if over || len(from) == 0 {
			from = append(from, o.outside)
		}
		for _, x := range from {
			x.to[to] = true
			if shared(s.Info.TypeOf(e)) {
				to.to[x] = true
			}
		}
	}
}

func (o *origins) literal(s *load.Package, n *ast.CompositeLit) {
	t := s.Info.TypeOf(n)
	if t == nil {
		return
	}
	st, ok := deref(t).Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range n.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if id, ok := kv.Key.(*ast.Ident); ok {
				if f, ok := s.Info.Uses[id].(*types.Var); ok {
					o.converts(kv.Pos(), s.Info.TypeOf(kv.Value), f.Type())
					o.flow(s, kv.Value, 0, o.node(f))
				}
			}
		} else if i < st.NumFields() {
			o.converts(e.Pos(), s.Info.TypeOf(e), st.Field(i).Type())
			o.flow(s, e, 0, o.node(st.Field(i)))
		}
	}
}

func (o *origins) typeSwitch(s *load.Package, n *ast.TypeSwitchStmt) {
	a, ok := n.Assign.(*ast.AssignStmt)
	if !ok {
		return
	}
	x, ok := ast.Unparen(a.Rhs[0]).(*ast.TypeAssertExpr)
	if !ok {
		return
	}
	for _, c := range n.Body.List {
		if v, ok := s.Info.Implicits[c].(*types.Var); ok && o.bears(v.Type()) {
			for _, from := range o.sources(s, x.X, 0) {
				from.to[o.node(v)] = true
				o.node(v).to[from] = true
			}
		}
	}
}

// harmless are libraries that do not call methods of arrays that they find in
// what they are given.
var harmless = []string{"fmt", "log", "errors", "sort", "slices", "maps", "os", "bytes", "strings", "strconv", "math", "context", "sync", "time", load.DevicePath}

// passes follows the arguments of a call.
func (o *origins) passes(s *load.Package, fn *callgraph.Function, call *ast.CallExpr) {
	if s.Info.Types[call.Fun].IsType() {
		if len(call.Args) == 1 {
			o.converts(call.Pos(), s.Info.TypeOf(call.Args[0]), s.Info.TypeOf(call))
		}
		return
	}
	if b, ok := load.Callee(s, call).(*types.Builtin); ok {
		switch b.Name() {
		case "copy":
			o.assign(s, call.Args[0], call.Args[1], 0)
		case "append":
			for _, a := range call.Args[1:] {
				if v := object(s, call.Args[0]); v != nil {
					o.flow(s, a, 0, o.node(v))
				}
			}
		case "panic":
			o.flow(s, call.Args[0], 0, o.outside)
		}
		return
	}
	if isDeviceFunc(s, call) {
		return
	}
	t := o.d.sites[call]
	f, static := load.Callee(s, call).(*types.Func)
	if t != nil {
		for _, to := range slices.Concat(t.Callees, t.MayCall) {
			o.bind(s, call, to)
		}
		if static && f.Signature().Recv() == nil || len(t.Callees) > 0 && len(t.MayCall) == 0 {
			return
		}
	}
	for _, a := range call.Args {
		o.flow(s, a, 0, o.outside)
		if t == nil && !(static && f.Pkg() != nil && slices.Contains(harmless, f.Pkg().Path())) && o.reaches(s.Info.TypeOf(a), true) {
			o.refuse(a.Pos(), "it passes arrays to a function without source")
		}
	}
	if fn == nil {
		return
	}
	for _, t := range fn.Sites { // functions that a library may call
		if t.Call != call || t.Kind != callgraph.SyncCallback && t.Kind != callgraph.AsyncCallback && t.Kind != callgraph.GoCall && !o.d.ofLibrary(s, call) {
			continue
		}
		for _, to := range t.Callees {
			sig := signature(to)
			if sig == nil {
				continue
			}
			for v := range sig.Params().Variables() {
				if o.bears(v.Type()) {
					o.outside.to[o.node(v)] = true
					o.node(v).to[o.outside] = true
				}
			}
			for i := range sig.Results().Len() {
				o.node(resultOf{to, i}).to[o.outside] = true
			}
		}
	}
}

// bind passes the arguments of a call to the parameters of a function.
func (o *origins) bind(s *load.Package, call *ast.CallExpr, to *callgraph.Function) {
	sig := signature(to)
	if sig == nil { // the body of a loop over a function
		for _, a := range call.Args {
			o.flow(s, a, 0, o.outside)
		}
		return
	}
	args := call.Args
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && sig.Recv() != nil {
		if x := s.Info.Selections[sel]; x != nil && x.Kind() == types.MethodExpr {
			o.refuse(call.Pos(), "it calls a method by its type")
			return
		}
	}
	params := sig.Params()
	for i := range args {
		if params.Len() == 0 {
			break
		}
		v := params.At(min(i, params.Len()-1))
		if tuple, ok := s.Info.TypeOf(args[i]).(*types.Tuple); ok && len(args) == 1 {
			for j := range tuple.Len() {
				o.flow(s, args[0], j, o.node(params.At(min(j, params.Len()-1))))
			}
			continue
		}
		if t := v.Type(); !sig.Variadic() || i < params.Len()-1 {
			o.converts(args[i].Pos(), s.Info.TypeOf(args[i]), t)
		} else if !call.Ellipsis.IsValid() {
			o.converts(args[i].Pos(), s.Info.TypeOf(args[i]), elemType(t))
		}
		o.flow(s, args[i], 0, o.node(v))
	}
}
