package instrument

import (
	"go/ast"
	"go/token"
	"go/types"
)

// reassigned reports whether a field of a struct may change after the struct
// was made: something assigns to the field or to a whole struct that has it, or
// takes the field's address, or its source is not known.
func (in *instrumenter) reassigned(f *types.Var) bool {
	in.fieldsOnce.Do(func() {
		in.fields = map[*types.Var]bool{}
		for _, s := range in.p.Source.Sources {
			for _, file := range s.Files {
				for n := range ast.Preorder(file) {
					in.noteAssigned(s.Info, n)
				}
			}
		}
	})
	return in.fields[f.Origin()] || in.p.Source.ByPath[f.Pkg().Path()] == nil
}

// noteAssigned notes the fields that a statement or expression may change.
func (in *instrumenter) noteAssigned(info *types.Info, n ast.Node) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, e := range n.Lhs {
				in.noteChanged(info, e)
			}
		}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if e != nil {
					in.noteChanged(info, e)
				}
			}
		}
	case *ast.IncDecStmt:
		in.noteChanged(info, n.X)
	case *ast.UnaryExpr:
		if sel, ok := ast.Unparen(n.X).(*ast.SelectorExpr); ok && n.Op == token.AND {
			in.noteField(info, sel)
		}
	case *ast.CallExpr:
		id, ok := ast.Unparen(n.Fun).(*ast.Ident)
		if !ok {
			return
		}
		if b, ok := info.Uses[id].(*types.Builtin); ok && (b.Name() == "copy" || b.Name() == "clear") {
			if s, ok := info.TypeOf(n.Args[0]).Underlying().(*types.Slice); ok {
				in.noteStruct(s.Elem())
			}
		}
	}
}

// noteChanged notes the fields that an assignment to e changes.
func (in *instrumenter) noteChanged(info *types.Info, e ast.Expr) {
	e = ast.Unparen(e)
	if sel, ok := e.(*ast.SelectorExpr); ok {
		in.noteField(info, sel)
	}
	if t := info.TypeOf(e); t != nil { // not the blank identifier
		in.noteStruct(t)
	}
}

func (in *instrumenter) noteField(info *types.Info, sel *ast.SelectorExpr) {
	if s := info.Selections[sel]; s != nil && s.Kind() == types.FieldVal {
		in.fields[s.Obj().(*types.Var).Origin()] = true
	}
}

// noteStruct notes all fields of a struct, and of structs and arrays in it.
func (in *instrumenter) noteStruct(t types.Type) {
	switch u := t.Underlying().(type) {
	case *types.Array:
		in.noteStruct(u.Elem())
	case *types.Struct:
		for f := range u.Fields() {
			if f = f.Origin(); !in.fields[f] {
				in.fields[f] = true
				in.noteStruct(f.Type())
			}
		}
	}
}
