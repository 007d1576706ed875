package lower

import (
	"go/ast"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// terminates reports whether a list ends by leaving the function or the
// program.
func terminates(s *load.Package, list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch last := list[len(list)-1].(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.ExprStmt:
		call, ok := last.X.(*ast.CallExpr)
		return ok && exits(s, call)
	case *ast.BlockStmt:
		return terminates(s, last.List)
	case *ast.IfStmt:
		return last.Else != nil && terminates(s, last.Body.List) && terminates(s, []ast.Stmt{last.Else})
	}
	return false
}

// fails reports whether a list ends by returning an error that is not nil, or
// by ending the program with a failure.
func (f *fn) fails(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	switch last := list[len(list)-1].(type) {
	case *ast.ReturnStmt:
		if len(last.Results) == 0 || len(last.Results) != f.sig.Results().Len() {
			return false
		}
		e := last.Results[len(last.Results)-1]
		return load.IsError(f.sig.Results().At(f.sig.Results().Len()-1).Type()) && f.isFailure(e)
	case *ast.ExprStmt:
		call, ok := last.X.(*ast.CallExpr)
		if !ok || !exits(f.s, call) {
			return false
		}
		if obj, ok := load.Callee(f.s, call).(*types.Func); ok && obj.Name() == "Exit" {
			v := f.s.Info.Types[call.Args[0]].Value
			return v != nil && v.String() != "0"
		}
		return true
	}
	return false
}

// isFailure reports whether an expression is certainly an error other than nil:
// a new one, or a package variable.
func (f *fn) isFailure(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		obj, ok := load.Callee(f.s, e).(*types.Func)
		return ok && obj.Pkg() != nil && (obj.FullName() == "fmt.Errorf" || obj.FullName() == "errors.New")
	case *ast.Ident:
		v, ok := f.s.Info.Uses[e].(*types.Var)
		return ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope()
	case *ast.SelectorExpr:
		v, ok := f.s.Info.Uses[e.Sel].(*types.Var)
		return ok && !v.IsField()
	}
	return false
}

// exits reports whether a call ends the program.
func exits(s *load.Package, call *ast.CallExpr) bool {
	switch obj := load.Callee(s, call).(type) {
	case *types.Builtin:
		return obj.Name() == "panic"
	case *types.Func:
		if obj.Pkg() == nil {
			return false
		}
		switch obj.Pkg().Path() {
		case "os":
			return obj.Name() == "Exit"
		case "log":
			return slices.Contains([]string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"}, obj.Name())
		case "runtime":
			return obj.Name() == "Goexit"
		}
	}
	return false
}

func (f *fn) returnStmt(s *ast.ReturnStmt) {
	n := f.callCount
	j := &ir.Jump{Pos: f.pos(s.Pos()), Kind: ir.Return}
	if len(s.Results) == 1 && f.sig.Results().Len() > 1 {
		if call, ok := ast.Unparen(s.Results[0]).(*ast.CallExpr); ok {
			var vars []*ir.Var
			for range f.sig.Results().Len() {
				v := f.temp("result")
				vars = append(vars, v)
				j.Results = append(j.Results, ir.Ref{Var: v})
			}
			if !f.call(call, vars) {
				for i := range j.Results {
					j.Results[i] = f.opaque(call)
				}
			}
		}
	} else {
		for i, e := range s.Results {
			if i < f.sig.Results().Len() && load.IsError(f.sig.Results().At(i).Type()) {
				j.Results = append(j.Results, f.errorValue(e))
			} else {
				var as types.Type
				if i < f.sig.Results().Len() {
					as = f.sig.Results().At(i).Type()
				}
				j.Results = append(j.Results, f.copied(e, f.valueAs(e, as)))
			}
		}
	}
	if f.callCount == n {
		j.Reads = f.reads(s.Results...)
	}
	if len(f.defers) > 0 && !f.failing {
		// The results are set before the deferred calls run.
		for i, x := range j.Results {
			if i < len(f.proc.Results) {
				f.emitUncounted(&ir.Assign{Pos: j.Pos, Dst: []*ir.Var{f.proc.Results[i]}, Src: []ir.Expr{x}})
			}
		}
		j.Results = nil
		f.runDefers()
	}
	f.emit(j)
}

func (f *fn) runDefers() {
	for i := len(f.defers) - 1; i >= 0; i-- {
		f.defers[i]()
	}
}

func (f *fn) deferStmt(s *ast.DeferStmt) {
	// Arguments are evaluated here.
	for _, e := range s.Call.Args {
		f.value(e)
	}
	f.defers = append(f.defers, func() {
		if !f.callAt(s.Call, s.Defer, nil) {
			f.emit(&ir.Call{Pos: f.pos(s.Call.Pos()), Name: f.text(s.Call.Fun), Reads: f.reads(s.Call)})
		}
	})
}

// errorValue returns the value of an error: 1 if it is certainly not nil. It
// never is 0, because branches that return errors are left out.
func (f *fn) errorValue(e ast.Expr) ir.Expr {
	x := f.value(e)
	if f.isFailure(e) {
		return ir.Const{Value: 1}
	}
	return x
}
