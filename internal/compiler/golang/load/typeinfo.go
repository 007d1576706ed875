package load

import (
	"go/ast"
	"go/types"
)

// Callee returns the object that a call names, or nil if it calls something
// else.
func Callee(s *Package, call *ast.CallExpr) types.Object {
	fun := ast.Unparen(call.Fun)
	switch x := fun.(type) {
	case *ast.IndexExpr:
		if tv := s.Info.Types[x.Index]; tv.IsType() {
			fun = x.X
		}
	case *ast.IndexListExpr:
		fun = x.X
	}
	switch x := ast.Unparen(fun).(type) {
	case *ast.Ident:
		return s.Info.Uses[x]
	case *ast.SelectorExpr:
		return s.Info.Uses[x.Sel]
	}
	return nil
}

// IsPointer reports whether t is a pointer.
func IsPointer(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}

// IsDeviceType reports whether t is the type of that name in package device, or
// a pointer to it.
func IsDeviceType(t types.Type, name string) bool {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == DevicePath
}

// IsError reports whether t is the type error.
func IsError(t types.Type) bool {
	return t != nil && types.Identical(t, types.Universe.Lookup("error").Type())
}

// CalleePackage returns the path of the package whose function a call names, or
// "len" for len and cap.
func CalleePackage(s *Package, call *ast.CallExpr) string {
	switch obj := Callee(s, call).(type) {
	case *types.Builtin:
		if obj.Name() == "len" || obj.Name() == "cap" {
			return "len"
		}
	case *types.Func:
		if obj.Pkg() != nil {
			return obj.Pkg().Path()
		}
	}
	return ""
}
