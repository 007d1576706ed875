package rewrite

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// ResumablePath is where a package's functions may unwind and resume.
type ResumablePath struct {
	Calls  map[*ast.CallExpr]bool // calls on the way to a point
	Points map[ast.Stmt]bool      // *ast.ForStmt, *ast.RangeStmt: at the top of their body; others: directly before them
	Funcs  map[ast.Node]bool      // functions to rewrite: *ast.FuncDecl, *ast.FuncLit
}

// InspectOwn walks a node without the function literals in it.
func InspectOwn(m ast.Node, f func(ast.Node) bool) {
	if m == nil {
		return
	}
	ast.Inspect(m, func(k ast.Node) bool {
		if _, ok := k.(*ast.FuncLit); ok && k != m {
			return false
		}
		return k == nil || f(k)
	})
}

// IsFuncLit reports whether an expression is a function literal.
func IsFuncLit(e ast.Expr) bool {
	_, ok := ast.Unparen(e).(*ast.FuncLit)
	return ok
}

// Functions returns the functions to rewrite, in the order of the source.
func (s ResumablePath) Functions() []ast.Node {
	var list []ast.Node
	for fn, is := range s.Funcs {
		if is {
			list = append(list, fn)
		}
	}
	slices.SortFunc(list, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })
	return list
}

// CoreType returns a type's core type: its underlying type or, for a type
// parameter, the type that all its type arguments share.
func CoreType(t types.Type) types.Type {
	if t == nil {
		return nil
	}
	tp, ok := types.Unalias(t).(*types.TypeParam)
	if !ok {
		return t.Underlying()
	}
	var core types.Type
	iface := tp.Underlying().(*types.Interface)
	for e := range iface.EmbeddedTypes() {
		terms := []types.Type{e}
		if u, ok := e.(*types.Union); ok {
			terms = nil
			for term := range u.Terms() {
				terms = append(terms, term.Type())
			}
		}
		for _, x := range terms {
			if core == nil {
				core = x.Underlying()
			} else if !types.Identical(core, x.Underlying()) {
				return iface
			}
		}
	}
	if core == nil {
		return iface
	}
	if i, ok := core.(*types.Interface); ok && i != iface {
		for e := range i.EmbeddedTypes() {
			if u, ok := e.(*types.Union); ok && u.Len() == 1 {
				return u.Term(0).Type().Underlying()
			} else if !ok {
				return e.Underlying()
			}
		}
	}
	return core
}

// Vars is a set of a function's variables.
type Vars map[*types.Var]bool

// Addressed returns the variable whose address a node takes.
func (p *Package) Addressed(n ast.Node) *types.Var {
	switch n := n.(type) {
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return p.Root(n.X)
		}
	case *ast.SliceExpr:
		if t := p.Info.TypeOf(n.X); t != nil {
			if _, ok := CoreType(t).(*types.Array); ok {
				return p.Root(n.X)
			}
		}
	case *ast.SelectorExpr:
		s := p.Info.Selections[n]
		if s == nil || s.Kind() != types.MethodVal {
			return nil
		}
		f := s.Obj().(*types.Func)
		recv := f.Signature().Recv()
		if _, ptr := recv.Type().Underlying().(*types.Pointer); !ptr {
			return nil
		}
		if s.Indirect() || types.IsInterface(s.Recv()) {
			return nil
		}
		if _, ptr := s.Recv().Underlying().(*types.Pointer); ptr {
			return nil
		}
		return p.Root(n.X)
	}
	return nil
}

// Root returns the variable that contains an addressable expression, nil if the
// expression follows a pointer.
func (p *Package) Root(e ast.Expr) *types.Var {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.Ident:
			v, _ := p.Info.ObjectOf(x).(*types.Var)
			return v
		case *ast.SelectorExpr:
			s := p.Info.Selections[x]
			if s == nil || s.Kind() != types.FieldVal || s.Indirect() {
				return nil
			}
			if _, ptr := s.Recv().Underlying().(*types.Pointer); ptr {
				return nil
			}
			e = x.X
		case *ast.IndexExpr:
			t := p.Info.TypeOf(x.X)
			if t == nil {
				return nil
			}
			if _, ok := CoreType(t).(*types.Array); !ok {
				return nil
			}
			e = x.X
		default:
			return nil
		}
	}
}

// Large reports whether copies of a value would cost too much.
func (p *Package) Large(t types.Type) bool {
	if _, ok := t.(*types.TypeParam); ok {
		return false
	}
	switch t.Underlying().(type) {
	case *types.Array, *types.Struct:
	default:
		return false
	}
	s := p.Sizes
	if s == nil {
		s = types.SizesFor("gc", "amd64")
	}
	return !HasTypeParam(t) && s.Sizeof(t) > 256
}

func HasTypeParam(t types.Type) bool {
	switch t := t.(type) {
	case *types.TypeParam:
		return true
	case *types.Array:
		return HasTypeParam(t.Elem())
	case *types.Named:
		for a := range t.TypeArgs().Types() {
			if HasTypeParam(a) {
				return true
			}
		}
	case *types.Struct:
		for f := range t.Fields() {
			if HasTypeParam(f.Type()) {
				return true
			}
		}
	}
	return false
}

// Captures calls f with the variables that a literal uses and does not declare.
func (p *Package) Captures(lit *ast.FuncLit, f func(*types.Var)) {
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if v, ok := p.Info.Uses[id].(*types.Var); ok && !(lit.Pos() <= v.Pos() && v.Pos() < lit.End()) {
				f(v)
			}
		}
		return true
	})
}

// Changes adds the variables that a statement assigns. (Before Go 1.22 all
// iterations of a loop share their variables.)
func (p *Package) Changes(n ast.Node, out Vars) {
	var list []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		for _, x := range n.Lhs {
			if id, ok := x.(*ast.Ident); !ok || p.Info.Defs[id] == nil {
				list = append(list, x)
			}
		}
	case *ast.IncDecStmt:
		list = append(list, n.X)
	case *ast.RangeStmt:
		list = append(list, n.Key, n.Value)
	}
	for _, x := range list {
		if x == nil {
			continue
		}
		if v := p.Root(x); v != nil {
			out[v] = true
		}
	}
}

// FallsThrough reports whether a list ends in a fallthrough.
func FallsThrough(list []ast.Stmt) bool {
	if len(list) == 0 {
		return false
	}
	b, ok := list[len(list)-1].(*ast.BranchStmt)
	return ok && b.Tok == token.FALLTHROUGH
}

// StmtList returns the statements of a node that has some.
func StmtList(n ast.Node) *[]ast.Stmt {
	switch n := n.(type) {
	case *ast.BlockStmt:
		return &n.List
	case *ast.CaseClause:
		return &n.Body
	case *ast.CommClause:
		return &n.Body
	}
	return nil
}

// LoopBody returns the body of a loop.
func LoopBody(s ast.Stmt) *ast.BlockStmt {
	switch s := s.(type) {
	case *ast.ForStmt:
		return s.Body
	case *ast.RangeStmt:
		return s.Body
	}
	return nil
}
