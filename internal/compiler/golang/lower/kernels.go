package lower

import (
	"go/ast"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// kernelLaunch lowers the launch of a kernel. It returns false for other calls.
func (f *fn) kernelLaunch(call *ast.CallExpr, obj *types.Func) bool {
	if obj.Name() != "Launch" || len(call.Args) < 2 || obj.Signature().Recv() == nil {
		return false
	}
	n := f.callCount
	k := &ir.Kernel{Pos: f.pos(call.Pos()), Name: f.text(call.Args[0])}
	if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
		f.value(sel.X)
	}
	for _, e := range call.Args {
		f.value(e)
		arg, ok := ast.Unparen(e).(*ast.CallExpr)
		if !ok {
			continue
		}
		mode, ok := load.Callee(f.s, arg).(*types.Func)
		if ok && f.procs[mode.Origin()] != nil {
			// A function of the program chooses the mode; assume
			// both.
			for _, a := range arg.Args {
				if t := f.s.Info.TypeOf(a); t != nil && load.IsDeviceType(t, "Array") {
					v := f.array(a)
					k.In, k.Out = append(k.In, v), append(k.Out, v)
				}
			}
		}
		if !ok || mode.Pkg() == nil || mode.Pkg().Path() != load.DevicePath || len(arg.Args) != 1 {
			continue
		}
		v := f.array(arg.Args[0])
		switch mode.Name() {
		case "In":
			k.In = append(k.In, v)
		case "Out":
			k.Out = append(k.Out, v)
		case "InOut":
			k.In, k.Out = append(k.In, v), append(k.Out, v)
		}
	}
	if f.callCount == n {
		k.Reads = f.reads(call)
	}
	if obj := named(f.s, call.Args[0]); obj != nil {
		k.Procs = f.kernels[obj]
	}
	f.emitCall(k)
	return true
}

// named returns the variable or field that an expression is, or nil.
func named(s *load.Package, e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return s.Info.ObjectOf(e)
	case *ast.SelectorExpr:
		if v, ok := s.Info.Uses[e.Sel].(*types.Var); ok {
			return v.Origin()
		}
	}
	return nil
}

// collectKernels finds the Go functions of kernels.
func (l *lowerer) collectKernels() {
	l.kernels = make(map[types.Object][]*ir.Proc)
	for _, s := range l.ld.Sources {
		if !slices.Contains(s.Imports, load.DevicePath) {
			continue
		}
		f := &fn{lowerer: l, s: s}
		note := func(to types.Object, e ast.Expr) {
			call, ok := ast.Unparen(e).(*ast.CallExpr)
			if !ok || to == nil || len(call.Args) != 3 {
				return
			}
			if obj, ok := load.Callee(s, call).(*types.Func); ok && obj.FullName() == load.DevicePath+".NewKernel" {
				l.kernels[to] = append(l.kernels[to], f.functions(call.Args[2])...)
			}
		}
		for _, file := range s.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for i, e := range n.Lhs {
						if len(n.Lhs) == len(n.Rhs) {
							note(named(s, e), n.Rhs[i])
						}
					}
				case *ast.ValueSpec:
					for i, id := range n.Names {
						if i < len(n.Values) {
							note(s.Info.Defs[id], n.Values[i])
						}
					}
				case *ast.KeyValueExpr:
					if id, ok := n.Key.(*ast.Ident); ok {
						note(s.Info.Uses[id], n.Value)
					}
				}
				return true
			})
		}
	}
}

// array returns the variable of a device array.
func (f *fn) array(e ast.Expr) *ir.Var {
	switch x := ast.Unparen(e).(type) {
	case *ast.Ident, *ast.SelectorExpr:
		if v := f.dst(x); v != nil {
			return v
		}
	case *ast.CallExpr: // x.Rows(…)
		if sel, ok := ast.Unparen(x.Fun).(*ast.SelectorExpr); ok {
			return f.array(sel.X)
		}
	case *ast.IndexExpr:
		return f.array(x.X)
	}
	return f.pointee(f.s.Info.TypeOf(e))
}
