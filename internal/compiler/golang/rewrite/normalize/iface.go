package normalize

import (
	"go/ast"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// earlyCopies finds the expressions of a function that the compiler copies to
// memory in order, because they become part of an interface. It reads other
// expressions after all calls of the statement.
func (w *funcNormalizer) earlyCopies() map[ast.Expr]bool {
	out := map[ast.Expr]bool{}
	info := w.p.Info
	to := func(e ast.Expr, t types.Type) {
		if e == nil || t == nil || !types.IsInterface(t) || isTypeParam(t) {
			return
		}
		tv := info.Types[e]
		if tv.Type == nil || tv.Value != nil || tv.IsNil() || tv.IsType() || tv.Addressable() ||
			types.IsInterface(tv.Type) && !isTypeParam(tv.Type) {
			return
		}
		if unsized(tv.Type) {
			w.doubtful[e] = true
			return
		}
		if _, ok := tv.Type.(*types.Tuple); !ok && w.byAddress(types.Default(tv.Type)) {
			out[e] = true
		}
	}
	results := func() *types.Tuple {
		switch n := w.node.(type) {
		case *ast.FuncDecl:
			return info.Defs[n.Name].(*types.Func).Signature().Results()
		case *ast.FuncLit:
			return info.TypeOf(n).(*types.Signature).Results()
		}
		return nil
	}()
	rewrite.InspectOwn(w.body, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.CallExpr:
			if info.Types[m.Fun].IsType() {
				to(m.Args[0], info.TypeOf(m.Fun))
				break
			}
			sig, ok := rewrite.CoreType(info.TypeOf(m.Fun)).(*types.Signature)
			if !ok {
				break
			}
			if kind, x := w.callee(m); kind == ifaceMethod {
				if w.receivers[m.Rparen] {
					out[x] = true
				} else if t := w.concrete(x); t != nil && !types.IsInterface(t) && !unsized(t) && !w.direct(t) {
					out[x] = true
				}
			}
			n := sig.Params().Len()
			for i, e := range m.Args {
				switch {
				case sig.Variadic() && i >= n-1 && !m.Ellipsis.IsValid():
					if s, ok := sig.Params().At(n - 1).Type().(*types.Slice); ok {
						to(e, s.Elem())
					}
				case i < n:
					to(e, sig.Params().At(i).Type())
				}
			}
		case *ast.CompositeLit:
			var key, elem types.Type
			var fields *types.Struct
			t := info.TypeOf(m)
			if q, ok := t.Underlying().(*types.Pointer); ok {
				t = q.Elem()
			}
			switch t := rewrite.CoreType(t).(type) {
			case *types.Map:
				key, elem = t.Key(), t.Elem()
			case *types.Slice:
				elem = t.Elem()
			case *types.Array:
				elem = t.Elem()
			case *types.Struct:
				fields = t
			}
			for i, e := range m.Elts {
				kv, ok := e.(*ast.KeyValueExpr)
				switch {
				case fields == nil && ok:
					to(kv.Key, key)
					to(kv.Value, elem)
				case fields == nil:
					to(e, elem)
				case ok:
					to(kv.Value, info.TypeOf(kv.Key))
				default:
					to(e, fields.Field(i).Type())
				}
			}
		case *ast.ReturnStmt:
			for i, e := range m.Results {
				if results != nil && len(m.Results) == results.Len() {
					to(e, results.At(i).Type())
				}
			}
		case *ast.ValueSpec:
			for i, e := range m.Values {
				if m.Type != nil && len(m.Names) == len(m.Values) {
					to(e, info.TypeOf(m.Names[i]))
				}
			}
		case *ast.SendStmt:
			if c, ok := rewrite.CoreType(info.TypeOf(m.Chan)).(*types.Chan); ok {
				to(m.Value, c.Elem())
			}
		case *ast.BinaryExpr:
			if m.Op == token.EQL || m.Op == token.NEQ {
				to(m.X, info.TypeOf(m.Y))
				to(m.Y, info.TypeOf(m.X))
			}
		case *ast.AssignStmt:
			for i, e := range m.Rhs {
				if m.Tok == token.ASSIGN && len(m.Lhs) == len(m.Rhs) {
					to(e, info.TypeOf(m.Lhs[i]))
				}
			}
		}
		return true
	})
	return out
}

// isTypeParam reports whether a type is a type parameter.
func isTypeParam(t types.Type) bool {
	_, ok := types.Unalias(t).(*types.TypeParam)
	return ok
}

// unsized reports whether the size of a type depends on type parameters.
func unsized(t types.Type) bool {
	if isTypeParam(t) {
		return true
	}
	switch u := t.Underlying().(type) {
	case *types.Array:
		return unsized(u.Elem())
	case *types.Struct:
		for f := range u.Fields() {
			if unsized(f.Type()) {
				return true
			}
		}
	}
	return false
}

// byAddress reports whether a value of a type is put into an interface from
// memory.
func (w *funcNormalizer) byAddress(t types.Type) bool {
	size, align := w.sizes().Sizeof(t), w.sizes().Alignof(t)
	if size == 2 && align == 2 || (size == 4 || size == 8) && align == size && !holdsPointers(t) {
		return false
	}
	for {
		switch u := t.Underlying().(type) {
		case *types.Struct:
			if u.NumFields() != 1 {
				return true
			}
			t = u.Field(0).Type()
		case *types.Array:
			if u.Len() != 1 {
				return true
			}
			t = u.Elem()
		case *types.Slice:
			return false
		case *types.Basic:
			return u.Info()&types.IsString == 0
		default:
			return true
		}
	}
}

// holdsPointers reports whether values of a type have pointers in them.
func holdsPointers(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return u.Info()&types.IsString != 0 || u.Kind() == types.UnsafePointer
	case *types.Array:
		return u.Len() > 0 && holdsPointers(u.Elem())
	case *types.Struct:
		for f := range u.Fields() {
			if holdsPointers(f.Type()) {
				return true
			}
		}
		return false
	}
	return true
}
