package lower

import (
	"cmp"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// call lowers a call whose results go to dst. For a call that is only an
// expression (a conversion, most builtins, a library's function) it emits
// nothing and returns false.
func (f *fn) call(call *ast.CallExpr, dst []*ir.Var) bool { return f.callAt(call, call.Lparen, dst) }

// callAt is call, for a call that the call graph knows by the position site.
func (f *fn) callAt(call *ast.CallExpr, site token.Pos, dst []*ir.Var) bool {
	if f.s.Info.Types[call.Fun].IsType() {
		return false
	}
	at := f.pos(call.Pos())
	if exits(f.s, call) {
		n := f.callCount
		for _, e := range call.Args {
			f.value(e)
		}
		j := &ir.Jump{Pos: at, Kind: ir.Exit}
		if f.callCount == n {
			j.Reads = f.reads(call.Args...)
		}
		f.emitCall(j)
		return true
	}
	if lit, ok := ast.Unparen(call.Fun).(*ast.FuncLit); ok {
		f.callProcs(call, []*ir.Proc{f.lits[lit]}, nil, dst)
		return true
	}
	switch obj := load.Callee(f.s, call).(type) {
	case *types.Builtin, *types.TypeName:
		return false
	case *types.Func:
		if obj.Pkg() != nil {
			switch obj.Pkg().Path() {
			case load.MPIPath:
				if f.mpi(call, obj, dst) {
					for i, v := range dst {
						if v != nil && i < obj.Signature().Results().Len() && load.IsError(obj.Signature().Results().At(i).Type()) {
							f.emitUncounted(&ir.Assign{Pos: at, Dst: []*ir.Var{v}, Src: []ir.Expr{ir.Unknown{}}})
						}
					}
					return true
				}
			case load.DevicePath:
				return f.kernelLaunch(call, obj)
			case "sync", "golang.org/x/sync/errgroup":
				if f.sync(call, obj) {
					return true
				}
			}
		}
		if r := obj.Signature().Recv(); r != nil && types.IsInterface(r.Type()) {
			break
		}
		if p := f.procs[obj.Origin()]; p != nil {
			var recv ast.Expr
			if sel, ok := f.uninstantiated(call.Fun).(*ast.SelectorExpr); ok && f.s.Info.Selections[sel] != nil {
				if f.s.Info.Selections[sel].Kind() == types.MethodVal {
					recv = sel.X
				}
			}
			f.callProcs(call, []*ir.Proc{p}, recv, dst)
			return true
		}
		if obj.Pkg() == nil || f.ld.Library[obj.Pkg().Path()] {
			list := f.callbacks(call, obj)
			if name := obj.FullName(); len(list) > 0 && (name == "time.AfterFunc" || name == "context.AfterFunc") {
				for _, e := range call.Args {
					f.value(e)
				}
				f.launchProcs(at, list, nil, f.reads(call))
				return true
			}
			if len(list) == 0 {
				return false
			}
			// The library makes its results of those of the
			// callbacks, in an unknown way.
			var made []*ir.Var
			for range list[0].Results {
				made = append(made, f.temp("made"))
			}
			f.callProcs(call, list, nil, made)
			for _, v := range dst {
				if v != nil {
					f.emitUncounted(&ir.Assign{Pos: at, Dst: []*ir.Var{v}, Src: []ir.Expr{join(f.opaque(call), ir.Unknown{Vars: made})}})
				}
			}
			return true
		}
		return false // a function without a body
	}
	procs := f.dynamicCallees(call, site)
	if len(procs) == 0 {
		return false
	}
	var recv ast.Expr
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		if s := f.s.Info.Selections[sel]; s != nil && s.Kind() == types.MethodVal {
			recv = sel.X
		}
	}
	f.callProcs(call, procs, recv, dst)
	return true
}

func (f *fn) uninstantiated(e ast.Expr) ast.Expr {
	switch x := ast.Unparen(e).(type) {
	case *ast.IndexExpr:
		return ast.Unparen(x.X)
	case *ast.IndexListExpr:
		return ast.Unparen(x.X)
	}
	return ast.Unparen(e)
}

// callProcs emits a call of one of procs.
func (f *fn) callProcs(call *ast.CallExpr, procs []*ir.Proc, recv ast.Expr, dst []*ir.Var) {
	c := &ir.Call{Pos: f.pos(call.Pos()), Name: f.text(call.Fun), Procs: procs, Results: dst}
	if recv != nil {
		c.Args = append(c.Args, f.receiver(call, recv))
	} else if _, ok := ast.Unparen(call.Fun).(*ast.FuncLit); !ok && load.Callee(f.s, call) == nil {
		f.value(call.Fun)
	}
	sig, _ := f.s.Info.TypeOf(call.Fun).Underlying().(*types.Signature)
	for i, e := range call.Args {
		var as types.Type
		if sig != nil && i < sig.Params().Len() {
			as = sig.Params().At(i).Type()
		}
		x := f.copied(e, f.valueAs(e, as))
		if sig != nil && sig.Variadic() && i >= sig.Params().Len()-1 {
			if i >= sig.Params().Len() {
				last := len(c.Args) - 1
				c.Args[last] = argument(join(c.Args[last], x))
				continue
			}
			x = join(x)
		}
		c.Args = append(c.Args, argument(x))
	}
	if sig != nil && sig.Variadic() && len(call.Args) < sig.Params().Len() && len(call.Args) == sig.Params().Len()-1 {
		c.Args = append(c.Args, ir.Unknown{})
	}
	if dst == nil && len(procs) > 0 {
		c.Results = make([]*ir.Var, len(procs[0].Results))
	}
	c.Reads = f.reads(call.Args...) // they count where the call is part of a recursion
	f.emitCall(c)
}

// receiver returns the value of a method's receiver, behind embedded fields.
func (f *fn) receiver(call *ast.CallExpr, recv ast.Expr) ir.Expr {
	sel, ok := f.uninstantiated(call.Fun).(*ast.SelectorExpr)
	if !ok || f.s.Info.Selections[sel] == nil {
		return argument(f.value(recv))
	}
	s := f.s.Info.Selections[sel]
	x, key := f.path(recv, s)
	if m, ok := s.Obj().(*types.Func); ok && key != "" && !load.IsPointer(m.Signature().Recv().Type()) {
		v := f.temp("copy")
		f.emitUncounted(&ir.New{Pos: f.pos(recv.Pos()), Dst: v, Type: key, From: x})
		x = ir.Ref{Var: v}
	}
	return argument(x)
}

// argument returns x as an argument. Package commcheck assumes that the callee
// writes the variables of an argument that is Unknown; here it is known what
// the callee writes.
func argument(x ir.Expr) ir.Expr {
	if _, ok := x.(ir.Unknown); ok {
		return ir.Unary{Op: ir.Inv, X: x}
	}
	return x
}

// dynamicCallees returns the procedures that a dynamic call may lead to, none
// if it leads to libraries only.
func (f *fn) dynamicCallees(call *ast.CallExpr, site token.Pos) (procs []*ir.Proc) {
	if f.dynamic.Failed {
		return f.byType(call)
	}
	library := false
	for _, c := range f.dynamic.Sites[site] {
		p := f.lits[c.Lit]
		if c.Obj != nil {
			p = f.procs[c.Obj]
		}
		if p == nil {
			library = true
		} else if !slices.Contains(procs, p) {
			procs = append(procs, p)
		}
	}
	sortProcs(procs)
	if only := f.takeOnly(procs); len(only) > 0 {
		return only
	}
	if library && len(procs) > 0 {
		procs = append(procs, f.library)
	}
	return procs
}

// takeOnly returns those of procs that Options.Take names.
func (f *fn) takeOnly(procs []*ir.Proc) (list []*ir.Proc) {
	for _, p := range procs {
		if slices.Contains(f.ld.Options.Take, p.Name) {
			f.takeFound[p.Name] = true
			list = append(list, p)
		}
	}
	return list
}

func sortProcs(list []*ir.Proc) {
	slices.SortFunc(list, func(a, b *ir.Proc) int {
		return cmp.Or(strings.Compare(a.Pos.File, b.Pos.File), cmp.Compare(a.Pos.Line, b.Pos.Line), cmp.Compare(a.Pos.Col, b.Pos.Col))
	})
}

// byType returns what a dynamic call may lead to, judged by its type alone.
func (f *fn) byType(call *ast.CallExpr) (procs []*ir.Proc) {
	obj, ok := load.Callee(f.s, call).(*types.Func)
	if !ok {
		if sig, ok := f.s.Info.TypeOf(call.Fun).Underlying().(*types.Signature); ok {
			procs = append(procs, f.funcValues[signature(sig)]...)
		}
	} else if in, ok := obj.Signature().Recv().Type().Underlying().(*types.Interface); ok {
		for m, p := range f.procs {
			if r := m.Signature().Recv(); r != nil && m.Name() == obj.Name() && types.Implements(r.Type(), in) {
				procs = append(procs, p)
			}
		}
	}
	sortProcs(procs)
	if len(procs) > 0 {
		procs = append(procs, f.library)
	}
	return procs
}

// callbacks returns the functions that a library is given to call: function
// values, and methods of interfaces.
func (f *fn) callbacks(call *ast.CallExpr, obj *types.Func) (procs []*ir.Proc) {
	sig := obj.Signature()
	for i, e := range call.Args {
		procs = append(procs, f.functions(e)...)
		if i >= sig.Params().Len() {
			continue
		}
		in, ok := sig.Params().At(i).Type().Underlying().(*types.Interface)
		t := f.s.Info.TypeOf(e)
		if !ok || in.NumMethods() == 0 || t == nil || types.IsInterface(t) || load.IsError(sig.Params().At(i).Type()) {
			continue
		}
		set := types.NewMethodSet(t)
		for m := range in.Methods() {
			if s := set.Lookup(m.Pkg(), m.Name()); s != nil {
				if p := f.procs[s.Obj().(*types.Func).Origin()]; p != nil && !slices.Contains(procs, p) {
					procs = append(procs, p)
				}
			}
		}
	}
	return procs
}

// functions returns what a value of function type may be. It returns none for
// other values and for a library's functions.
func (f *fn) functions(e ast.Expr) []*ir.Proc {
	e = ast.Unparen(e)
	if lit, ok := e.(*ast.FuncLit); ok {
		return []*ir.Proc{f.lits[lit]}
	}
	t := f.s.Info.TypeOf(e)
	if t == nil {
		return nil
	}
	sig, ok := t.Underlying().(*types.Signature)
	if !ok {
		return nil
	}
	var obj types.Object
	switch x := f.uninstantiated(e).(type) {
	case *ast.Ident:
		obj = f.s.Info.Uses[x]
	case *ast.SelectorExpr:
		obj = f.s.Info.Uses[x.Sel]
	}
	if fun, ok := obj.(*types.Func); ok {
		if p := f.procs[fun.Origin()]; p != nil {
			return []*ir.Proc{p}
		}
		return nil
	}
	return f.funcValues[signature(sig)]
}

// callValue returns the value of a call in an expression.
func (f *fn) callValue(call *ast.CallExpr) ir.Expr {
	t := f.s.Info.TypeOf(call)
	if f.s.Info.Types[call.Fun].IsType() && len(call.Args) == 1 {
		x := f.value(call.Args[0])
		if from := f.s.Info.TypeOf(call.Args[0]); from != nil && tracked(from) && !load.IsError(from) {
			if exact(t) {
				return x
			}
			if n := wrapSize(t); n != 0 {
				return ir.Binary{Op: ir.Wrap, X: x, Y: ir.Const{Value: n}}
			}
		}
		return join(x)
	}
	obj, _ := load.Callee(f.s, call).(*types.Func)
	if obj != nil && obj.Pkg() != nil {
		if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && f.s.Info.Selections[sel] != nil {
			switch path := obj.Pkg().Path(); {
			case path == load.MPIPath && obj.Name() == "Rank" && isComm(f.s.Info.TypeOf(sel.X)):
				return ir.Rank{Group: f.value(sel.X)}
			case path == load.MPIPath && obj.Name() == "Size" && isComm(f.s.Info.TypeOf(sel.X)):
				return ir.Size{Group: f.value(sel.X)}
			case path == load.CairnPath && obj.Name() == "World":
				return ir.Const{} // the world communicator
			}
		}
		if obj.Pkg().Path() == "math/bits" && strings.HasPrefix(obj.Name(), "Len") && len(call.Args) == 1 {
			return ir.Unary{Op: ir.Len, X: f.value(call.Args[0])}
		}
	}
	if b, ok := load.Callee(f.s, call).(*types.Builtin); ok && b.Name() == "new" && f.structOf(t) != "" && f.s.Info.Types[call.Args[0]].IsType() {
		return f.zero(f.pos(call.Pos()), f.s.Info.TypeOf(call.Args[0]))
	}
	v := f.temp("value")
	if f.call(call, []*ir.Var{v}) {
		if t != nil && (tracked(t) || f.refType(t) != "") {
			return ir.Ref{Var: v}
		}
		return ir.Unknown{Vars: []*ir.Var{v}}
	}
	var list []ir.Expr
	if sel, ok := f.uninstantiated(call.Fun).(*ast.SelectorExpr); ok && f.s.Info.Selections[sel] != nil {
		list = append(list, f.value(sel.X))
	} else if load.Callee(f.s, call) == nil {
		list = append(list, f.value(call.Fun))
	}
	for _, e := range call.Args {
		list = append(list, f.value(e))
	}
	if obj != nil && variesByRank(obj) {
		list = append(list, rankDependent())
	}
	x := join(list...)
	for _, v := range f.libraryWrites(call) {
		f.emitUncounted(&ir.Assign{Pos: f.pos(call.Pos()), Dst: []*ir.Var{v}, Src: []ir.Expr{x}})
	}
	return x
}

// variesByRank reports whether a library's function returns a different value
// on every rank.
func variesByRank(obj *types.Func) bool {
	if obj.Pkg() == nil || obj.Signature().Recv() != nil {
		return false
	}
	switch obj.Pkg().Path() {
	case "time":
		return obj.Name() == "Now" || obj.Name() == "Since" || obj.Name() == "Until"
	case "math/rand", "math/rand/v2":
		return !strings.HasPrefix(obj.Name(), "New")
	case "crypto/rand":
		return true
	case "os":
		return obj.Name() == "Hostname" || obj.Name() == "Getpid"
	case "runtime":
		return strings.HasPrefix(obj.Name(), "Num")
	}
	return false
}

// libraryWrites returns what a library's function may write: variables whose
// address it is given, and elements of slices.
func (f *fn) libraryWrites(call *ast.CallExpr) (list []*ir.Var) {
	slices := !slices.Contains([]string{"fmt", "math", "strings", "errors", "log", "strconv", "time"}, load.CalleePackage(f.s, call))
	if b, ok := load.Callee(f.s, call).(*types.Builtin); ok {
		if b.Name() != "copy" {
			return nil
		}
		return []*ir.Var{f.written(call.Args[0])}
	}
	for _, e := range call.Args {
		e = ast.Unparen(e)
		if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.AND {
			if v := f.dst(u.X); v != nil {
				list = append(list, v)
			}
		} else if t := f.s.Info.TypeOf(e); t != nil && slices {
			if _, ok := t.Underlying().(*types.Slice); ok {
				list = append(list, f.written(e))
			}
		}
	}
	return list
}
