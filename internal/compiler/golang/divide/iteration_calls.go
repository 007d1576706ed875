package divide

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// eval follows an expression, and returns what is known of its value.
func (x *iteration) eval(e ast.Expr, st *state) value {
	if e == nil {
		return value{}
	}
	info := x.pkg().Info
	if tv, ok := info.Types[e]; ok && tv.Value != nil {
		return value{kind: aConstant, c: tv.Value}
	} else if ok && tv.IsNil() {
		return value{kind: isNil}
	} else if ok && tv.IsType() {
		return value{}
	}
	switch e := e.(type) {
	case *ast.ParenExpr:
		return x.eval(e.X, st)
	case *ast.Ident:
		return x.ident(e, st)
	case *ast.SelectorExpr:
		return x.selector(e, st)
	case *ast.IndexExpr:
		base, i := x.eval(e.X, st), x.eval(e.Index, st)
		return x.element(base, x.typeOf(e.X), i)
	case *ast.StarExpr:
		return x.eval(e.X, st)
	case *ast.UnaryExpr:
		v := x.eval(e.X, st)
		if e.Op == token.AND && v.kind == aPath {
			if _, ok := x.typeOf(e.X).Underlying().(*types.Struct); ok {
				return v
			}
		}
		return value{}
	case *ast.BinaryExpr:
		if e.Op == token.EQL || e.Op == token.NEQ || e.Op == token.LAND || e.Op == token.LOR {
			yes, no := x.cond(e, st.clone())
			x.eval(e.X, st)
			x.eval(e.Y, st)
			switch {
			case len(no) == 0 && len(yes) > 0:
				return value{kind: aConstant, c: constant.MakeBool(true)}
			case len(yes) == 0 && len(no) > 0:
				return value{kind: aConstant, c: constant.MakeBool(false)}
			}
			return value{}
		}
		x.eval(e.X, st)
		x.eval(e.Y, st)
		return value{}
	case *ast.CallExpr:
		list := x.outcomes(e, st)
		if len(list) == 0 { // it never returns
			return value{}
		}
		first := list[0].st
		v := value{}
		if len(list[0].values) > 0 {
			v = list[0].values[0]
		}
		for _, o := range list[1:] {
			first.join(o.st)
			if len(o.values) == 0 || o.values[0] != v {
				v = value{}
			}
		}
		*st = *first
		return v
	case *ast.FuncLit:
		// It may be called at any time from now on.
		x.opaque(e, st)
		return value{kind: notNil}
	case *ast.CompositeLit:
		for _, y := range e.Elts {
			if kv, ok := y.(*ast.KeyValueExpr); ok {
				if _, field := kv.Key.(*ast.Ident); !field {
					x.eval(kv.Key, st)
				}
				y = kv.Value
			}
			x.eval(y, st)
		}
		return value{}
	}
	x.opaque(e, st)
	return value{}
}

func (x *iteration) ident(e *ast.Ident, st *state) value {
	v, ok := x.pkg().Info.ObjectOf(e).(*types.Var)
	if !ok {
		return value{}
	}
	if val, ok := st.env[v]; ok {
		return val
	}
	shared := v.Parent() == x.pkg().Types.Scope()
	own := x.c.decl.Pos() <= v.Pos() && v.Pos() < x.c.body.Lbrace && !(x.c.loop.Pos() <= v.Pos())
	if (shared || own) && !x.changed[v] && !x.pointed[v] {
		return value{kind: aPath, path: path{root: v, last: v}}
	}
	return value{}
}

func (x *iteration) selector(e *ast.SelectorExpr, st *state) value {
	info := x.pkg().Info
	sel := info.Selections[e]
	if sel == nil { // of a package
		v, ok := info.Uses[e.Sel].(*types.Var)
		if ok && !x.changed[v] && !x.pointed[v] {
			return value{kind: aPath, path: path{root: v, last: v}}
		}
		return value{}
	}
	base := x.eval(e.X, st)
	if sel.Kind() != types.FieldVal {
		if f, ok := sel.Obj().(*types.Func); ok && f.Pkg() != nil && f.Pkg().Path() == load.DevicePath {
			x.o.reads(x.pkg(), e, x.needed) // a method as a value
		}
		return value{}
	}
	return x.fields(base, sel.Recv(), sel.Index())
}

// fields returns a field of a value, by way of embedded ones.
func (x *iteration) fields(base value, t types.Type, index []int) value {
	if base.kind != aPath || base.part {
		return value{}
	}
	p := base.path
	if x.v != nil && p.root == x.v.of && p.text == "" {
		t = x.v.as.Type()
	}
	for _, i := range index {
		s, ok := deref(t).Underlying().(*types.Struct)
		if !ok {
			return value{}
		}
		f := s.Field(i).Origin()
		if x.changed[f] || x.pointed[f] {
			return value{}
		}
		p.text += "." + f.Name()
		p.last = f
		t = s.Field(i).Type()
	}
	return value{kind: aPath, path: p}
}

// element returns an element of a value.
func (x *iteration) element(base value, t types.Type, i value) value {
	if base.kind != aPath || base.part || t == nil {
		return value{}
	}
	switch deref(t).Underlying().(type) {
	case *types.Slice, *types.Array, *types.Map:
	default:
		return value{}
	}
	if x.elems[typeKey(elemType(deref(t)))] {
		return value{}
	}
	p := base.path
	if i.step != "" && i.loop == p.key() {
		p.text += i.step
	} else {
		p.text += "[?]"
	}
	return value{kind: aPath, path: p}
}

// outcomes follows an expression that may be a call, and returns how it ends.
func (x *iteration) outcomes(e ast.Expr, st *state) []outcome {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return []outcome{{st, []value{x.eval(e, st)}}}
	}
	if x.steps++; x.steps > mostSteps {
		panic(tooLong{})
	}
	info := x.pkg().Info
	if info.Types[call.Fun].IsType() {
		v := x.eval(call.Args[0], st)
		if types.IsInterface(x.typeOf(call)) {
			v = value{}
		}
		return []outcome{{st, []value{v}}}
	}
	if b, ok := load.Callee(x.pkg(), call).(*types.Builtin); ok {
		for _, a := range call.Args {
			x.eval(a, st)
		}
		if b.Name() == "panic" {
			return nil
		}
		return []outcome{{st, []value{{}}}}
	}
	if isDeviceFunc(x.pkg(), call) {
		return x.device(call, st)
	}
	if fn := x.only(call); fn != nil {
		return x.inline(call, fn, st)
	}
	if x.d.sites[call] == nil { // a library's
		if f, ok := load.Callee(x.pkg(), call).(*types.Func); ok {
			switch f.FullName() {
			case "fmt.Errorf", "errors.New":
				for _, a := range call.Args {
					x.eval(a, st)
				}
				return []outcome{{st, []value{{kind: notNil}}}}
			case "os.Exit", "log.Fatal", "log.Fatalf", "log.Fatalln":
				for _, a := range call.Args {
					x.eval(a, st)
				}
				return nil
			}
		}
	}
	x.opaque(call, st)
	return []outcome{{st, nil}}
}

// only returns the function that a call calls, if it is known and can be
// followed.
func (x *iteration) only(call *ast.CallExpr) *callgraph.Function {
	t := x.d.sites[call]
	if t == nil || t.Kind != callgraph.PlainCall || len(t.Callees) != 1 {
		return nil
	}
	fn := t.Callees[0]
	if slices.ContainsFunc(t.MayCall, func(f *callgraph.Function) bool { return f != fn }) || len(x.stack) > mostCalls {
		return nil
	}
	if slices.ContainsFunc(x.stack, func(f *frame) bool { return f.fn == fn }) {
		return nil
	}
	if _, ok := fn.Node.(*ast.FuncDecl); !ok || jumps(fn) {
		return nil
	}
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		if s := x.pkg().Info.Selections[sel]; s != nil && s.Kind() == types.MethodExpr {
			return nil
		}
	}
	return fn
}

// jumps reports whether a function may leave out statements in ways that are
// not followed: by goto, or because a deferred call recovers from a panic.
func jumps(fn *callgraph.Function) (found bool) {
	fn.Walk(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.DeferStmt:
			found = true
		case *ast.BranchStmt:
			found = found || n.Tok == token.GOTO
		}
		return true
	})
	return found
}

// inline follows a call into the function.
func (x *iteration) inline(call *ast.CallExpr, fn *callgraph.Function, st *state) []outcome {
	sig := signature(fn)
	if sig == nil {
		x.opaque(call, st)
		return []outcome{{st, nil}}
	}
	var recv value
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		if s := x.pkg().Info.Selections[sel]; s != nil {
			recv = x.eval(sel.X, st)
			if n := len(s.Index()); n > 1 { // of an embedded field
				recv = x.fields(recv, s.Recv(), s.Index()[:n-1])
			}
		}
	}
	var values []value
	for _, a := range call.Args {
		values = append(values, x.eval(a, st))
	}
	params := sig.Params()
	tuple := len(call.Args) == 1 && params.Len() > 1
	for i := range params.Len() {
		v := value{}
		if i < len(values) && !tuple && !(sig.Variadic() && i >= params.Len()-1) {
			v = values[i]
		}
		x.bindVar(params.At(i), v, st)
	}
	if r := sig.Recv(); r != nil {
		if recv.kind == aPath && !recv.part {
			st.env[r] = recv
		} else {
			st.env[r] = value{}
		}
		if x.pointed[r] {
			st.env[r] = value{}
		}
	}
	for v := range sig.Results().Variables() {
		st.env[v] = value{}
	}
	f := &frame{fn: fn}
	x.stack = append(x.stack, f)
	for _, st := range x.block(fn.Body.List, []*state{st}) {
		f.returns = append(f.returns, outcome{st, nil})
	}
	x.stack = x.stack[:len(x.stack)-1]
	// Join the outcomes that agree on whether the error is nil.
	var out []outcome
	n := sig.Results().Len()
	for _, o := range f.returns {
		if len(o.values) != n {
			o.values = make([]value, n)
		}
		maps.DeleteFunc(o.st.env, func(v types.Object, _ value) bool { return fn.Node.Pos() <= v.Pos() && v.Pos() < fn.Node.End() })
		i := slices.IndexFunc(out, func(q outcome) bool { return n == 0 || nilness(q.values[n-1]) == nilness(o.values[n-1]) })
		if i < 0 {
			out = append(out, o)
			continue
		}
		out[i].st.join(o.st)
		for j := range out[i].values {
			if out[i].values[j] != o.values[j] {
				out[i].values[j] = value{}
			}
		}
	}
	for i := range out {
		for j := range out[i].values { // results of an interface type hide what they are
			if v := &out[i].values[j]; v.kind == aPath && types.IsInterface(sig.Results().At(j).Type()) {
				*v = value{}
			}
		}
	}
	return out
}

func nilness(v value) valueKind {
	if v.kind == isNil || v.kind == notNil {
		return v.kind
	}
	return unknownValue
}

// device follows a call of package device.
func (x *iteration) device(call *ast.CallExpr, st *state) []outcome {
	f := load.Callee(x.pkg(), call).(*types.Func)
	sel, _ := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	one := func(v ...value) []outcome { return []outcome{{st, v}} }
	method := f.Signature().Recv() != nil
	var recv value
	if method && sel != nil {
		recv = x.eval(sel.X, st)
		if s := x.pkg().Info.Selections[sel]; s != nil && len(s.Index()) > 1 {
			recv = x.fields(recv, s.Recv(), s.Index()[:len(s.Index())-1])
		}
	}
	var values []value
	for _, a := range call.Args {
		values = append(values, x.eval(a, st))
	}
	switch {
	case !method && (f.Name() == "New" || f.Name() == "NewConstant"):
		return one(value{kind: freshArray})
	case !method && (f.Name() == "In" || f.Name() == "Out" || f.Name() == "InOut"):
		switch v := values[0]; v.kind {
		case aPath:
			return one(value{kind: anArgument, path: v.path, part: v.part, mode: f.Name()})
		case freshArray:
			return one(value{kind: freshArgument})
		}
		return one(value{})
	case method && f.Name() == "Launch":
		return x.launch(call, values, st)
	case method && f.Name() == "Rows":
		if recv.kind == aPath {
			recv.part = true
			return one(recv)
		}
		if recv.kind == freshArray {
			return one(recv)
		}
		return one(value{})
	case method && (f.Name() == "Data" || f.Name() == "Read" || f.Name() == "Update"):
		if sel != nil {
			x.reads(recv, sel.X, sel, st)
		} else {
			x.opaque(call, st)
		}
		if f.Name() == "Update" {
			x.opaque(call, st)
		}
		return one(value{}, value{})
	}
	return one()
}

// launch follows a launch. If it fails, it may not have written anything.
func (x *iteration) launch(call *ast.CallExpr, values []value, st *state) []outcome {
	var writes []value
	if call.Ellipsis.IsValid() {
		x.opaque(call, st)
		return []outcome{{st, nil}}
	}
	for i, a := range call.Args {
		if i < 2 {
			continue
		}
		v := values[i]
		switch v.kind {
		case anArgument:
			if v.mode != "Out" {
				x.reads(value{kind: aPath, path: v.path, part: v.part}, a, nil, st)
			}
			if v.mode != "In" && !v.part && !strings.Contains(v.path.text, "[?]") {
				writes = append(writes, v)
			}
		case freshArgument:
		default:
			if direct, ok := ast.Unparen(a).(*ast.CallExpr); ok && isDeviceFunc(x.pkg(), direct, "Out") {
				break // of an unknown array: what it overwrites is not known
			}
			for c := range x.o.made(x.pkg(), a) {
				x.needed[c] = a.Pos()
			}
		}
	}
	failed := st.clone()
	for _, v := range writes {
		st.written[v.path.key()] = true
		if v.mode == "Out" {
			x.overwrites = append(x.overwrites, overwriting{v.path, call.Pos()})
		}
	}
	return []outcome{{st, []value{{kind: isNil}}}, {failed, []value{{kind: notNil}}}}
}

// reads notes that the array of an expression is read. sel is the method of the
// array that reads it, if there is one.
func (x *iteration) reads(v value, e ast.Expr, sel *ast.SelectorExpr, st *state) {
	switch v.kind {
	case freshArray:
		return
	case aPath:
		if covered(st.written, v.path) {
			return
		}
		for c := range x.o.node(v.path.last).made {
			x.needed[c] = e.Pos()
		}
		return
	}
	if sel != nil {
		x.o.reads(x.pkg(), sel, x.needed)
		return
	}
	for c := range x.o.made(x.pkg(), e) {
		x.needed[c] = e.Pos()
	}
}

// covered reports whether the array at a path was overwritten, or all of the
// list that it is in.
func covered(written map[string]bool, p path) bool {
	parts := strings.SplitAfter(p.key(), "]")
	var try func(i int, text string) bool
	try = func(i int, text string) bool {
		if i == len(parts) {
			return written[text]
		}
		if !strings.Contains(parts[i], "[?]") && try(i+1, text+parts[i]) {
			return true
		}
		at := strings.LastIndex(parts[i], "[")
		return at >= 0 && strings.HasSuffix(parts[i], "]") && try(i+1, text+parts[i][:at]+"[*]")
	}
	return try(0, "")
}
