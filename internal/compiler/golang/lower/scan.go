package lower

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// usage is what the uses of a variable show.
type usage struct {
	writes   int
	address  bool
	escapes  bool // its address is taken, and not only for a library
	captured []*ast.FuncLit
	looped   bool // declared in a loop
	fresh    int  // writes of values that nothing else refers to
	plain    int  // uses as x[i], range x, len(x), or as a buffer of a communication
	uses     int
	calls    int // uses as x(…)
}

// scan finds how a file uses variables and functions.
func (l *lowerer) scan(s *load.Package, f *ast.File) {
	var stack []ast.Node
	parent := func(i int) ast.Node {
		if i < len(stack) {
			return stack[len(stack)-1-i]
		}
		return nil
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		switch n := n.(type) {
		case *ast.Ident:
			l.ident(s, n, parent, stack)
		case *ast.StarExpr:
			if tv := s.Info.Types[n]; !tv.IsType() && tv.Type != nil {
				if _, ok := types.Unalias(tv.Type).(*types.TypeParam); ok {
					l.derefs["any type"] = true
				}
				l.derefs[types.TypeString(tv.Type, nil)] = true
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				l.address(s, n, parent(0))
			}
		case *ast.BranchStmt:
			if n.Tok == token.GOTO {
				l.gotos[s.Info.Uses[n.Label]] = true
			}
		case *ast.FuncLit:
			p := l.lits[n]
			if call, ok := parent(0).(*ast.CallExpr); ok && call.Fun == n {
				l.local[n] = true
			} else {
				l.addFuncValue(s.Info.TypeOf(n), p)
			}
			if a, ok := parent(0).(*ast.AssignStmt); ok && len(a.Lhs) == 1 && a.Tok == token.DEFINE {
				if id, ok := a.Lhs[0].(*ast.Ident); ok {
					l.named[n] = s.Info.Defs[id]
				}
			}
		}
		stack = append(stack, n)
		return true
	})
}

// address records that the address of a field or an element is taken.
func (l *lowerer) address(s *load.Package, n *ast.UnaryExpr, parent ast.Node) {
	switch x := ast.Unparen(n.X).(type) {
	case *ast.SelectorExpr:
		if v, ok := s.Info.Uses[x.Sel].(*types.Var); ok {
			u := l.usage(v.Origin())
			u.address = true
			u.escapes = u.escapes || !l.forLibrary(s, parent)
		}
	case *ast.IndexExpr:
		if t := s.Info.TypeOf(x); !l.forLibrary(s, parent) {
			l.merged[types.TypeString(t, nil)] = true
		}
	}
}

// forLibrary reports whether a node is a call of a library's function.
func (l *lowerer) forLibrary(s *load.Package, n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	return ok && l.ld.Library[load.CalleePackage(s, call)]
}

// addFuncValue records that a function is used as a value.
func (l *lowerer) addFuncValue(t types.Type, p *ir.Proc) {
	if sig, ok := t.Underlying().(*types.Signature); ok && p != nil {
		key := signature(sig)
		if !slices.Contains(l.funcValues[key], p) {
			l.funcValues[key] = append(l.funcValues[key], p)
		}
	}
}

func signature(sig *types.Signature) string {
	return types.TypeString(types.NewSignatureType(nil, nil, nil, sig.Params(), sig.Results(), sig.Variadic()), nil)
}

// enclosing returns the innermost literal of a stack of nodes.
func enclosing(stack []ast.Node) *ast.FuncLit {
	for i := len(stack) - 1; i >= 0; i-- {
		if lit, ok := stack[i].(*ast.FuncLit); ok {
			return lit
		}
	}
	return nil
}

func (l *lowerer) usage(obj types.Object) *usage {
	u := l.use[obj]
	if u == nil {
		u = new(usage)
		l.use[obj] = u
	}
	return u
}

func (l *lowerer) ident(s *load.Package, id *ast.Ident, parent func(int) ast.Node, stack []ast.Node) {
	if obj, ok := s.Info.Uses[id].(*types.Func); ok {
		if obj.Name() == "Split" && obj.Pkg() != nil && obj.Pkg().Path() == load.MPIPath {
			l.splits = true
		}
		// A function that is not called here is a value.
		i := 0
		var at ast.Expr = id
		if sel, ok := parent(0).(*ast.SelectorExpr); ok && sel.Sel == id {
			at, i = sel, 1
		}
		switch p := parent(i).(type) {
		case *ast.IndexExpr, *ast.IndexListExpr:
			at, i = p.(ast.Expr), i+1
		}
		if call, ok := parent(i).(*ast.CallExpr); !ok || call.Fun != at {
			l.addFuncValue(s.Info.TypeOf(at), l.procs[obj.Origin()])
		}
		return
	}
	obj := s.Info.Defs[id]
	if v, ok := obj.(*types.Var); ok && !v.IsField() {
		u := l.usage(v)
		for i := len(stack) - 1; i >= 0; i-- {
			switch stack[i].(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				u.looped = true
			case *ast.FuncLit, *ast.FuncDecl:
				i = 0
			}
		}
		u.writes++
		if fresh(s, id, parent(0), v.Type()) {
			u.fresh++
		}
		return
	}
	v, ok := s.Info.Uses[id].(*types.Var)
	if !ok || v.IsField() {
		return
	}
	u := l.usage(v)
	u.uses++
	if lit := enclosing(stack); lit != nil && v.Parent() != s.Types.Scope() && (v.Pos() < lit.Pos() || v.Pos() >= lit.End()) && !slices.Contains(u.captured, lit) {
		u.captured = append(u.captured, lit)
	}
	// Look outwards through parentheses, fields and array elements.
	var at ast.Expr = id
	i := 0
	direct := true
	for {
		switch p := parent(i).(type) {
		case *ast.ParenExpr:
			at, i = p, i+1
			continue
		case *ast.SelectorExpr:
			if p.X == at && !load.IsPointer(s.Info.TypeOf(at)) {
				if sel := s.Info.Selections[p]; sel != nil && sel.Kind() == types.MethodVal {
					if load.IsPointer(sel.Obj().(*types.Func).Signature().Recv().Type()) {
						u.address = true
					}
					return
				}
				at, i, direct = p, i+1, false
				continue
			}
		case *ast.IndexExpr:
			if p.X == at {
				u.plain++
				if _, ok := s.Info.TypeOf(at).Underlying().(*types.Array); ok {
					at, i, direct = p, i+1, false
					continue
				}
			}
		}
		break
	}
	switch p := parent(i).(type) {
	case *ast.UnaryExpr:
		if p.Op == token.AND {
			u.address = true
			u.escapes = u.escapes || direct && !l.forLibrary(s, parent(i+1))
		}
	case *ast.SliceExpr:
		if p.X == at {
			if _, ok := s.Info.TypeOf(at).Underlying().(*types.Array); ok {
				u.address = true
			}
			if call, ok := parent(i + 1).(*ast.CallExpr); ok && direct && load.CalleePackage(s, call) == load.MPIPath {
				u.plain++
			}
		}
	case *ast.IncDecStmt:
		if direct {
			u.writes++
		}
	case *ast.AssignStmt:
		if direct && slices.Contains(p.Lhs, at) {
			u.writes++
			if fresh(s, at, p, v.Type()) {
				u.fresh++
			}
		}
	case *ast.RangeStmt:
		if direct && (p.Key == at || p.Value == at) {
			u.writes++
		} else if p.X == at && direct {
			u.plain++
		}
	case *ast.CallExpr:
		if p.Fun == at {
			u.calls++
		} else if direct {
			if path := load.CalleePackage(s, p); path == load.MPIPath || path == "len" {
				u.plain++
			}
		}
	}
}

// fresh reports whether the value that a statement or declaration assigns to
// the variable at is reached through it alone: new memory, or a copy.
func fresh(s *load.Package, at ast.Expr, parent ast.Node, t types.Type) bool {
	if _, ok := t.Underlying().(*types.Array); ok {
		return true
	}
	var lhs, rhs []ast.Expr
	switch p := parent.(type) {
	case *ast.AssignStmt:
		lhs, rhs = p.Lhs, p.Rhs
	case *ast.ValueSpec:
		for _, id := range p.Names {
			lhs = append(lhs, id)
		}
		if rhs = p.Values; len(rhs) == 0 {
			return true
		}
	}
	i := slices.Index(lhs, at)
	if i < 0 || len(lhs) != len(rhs) {
		return false
	}
	switch x := ast.Unparen(rhs[i]).(type) {
	case *ast.CompositeLit:
		return true
	case *ast.CallExpr:
		b, ok := load.Callee(s, x).(*types.Builtin)
		return ok && b.Name() == "make"
	}
	return s.Info.Types[rhs[i]].IsNil()
}

// classifyVars decides which variables are shared and which are tracked. All
// uses and all owners must be known.
func (l *lowerer) classifyVars() {
	for lit, obj := range l.named {
		if u := l.use[obj]; u != nil && u.writes == 1 && u.uses == u.calls {
			l.local[lit] = true
		}
	}
	for obj, u := range l.use {
		v := l.vars[obj]
		if v == nil {
			continue
		}
		if w, ok := obj.(*types.Var); u.address && !(ok && l.isValue(w.Type()) && l.refers(w)) {
			v.Shared = true
		}
		if len(u.captured) == 0 {
			continue
		}
		// A captured variable can be tracked if its value does not
		// change and the literals are called only while it exists.
		quiet := u.writes == 1 && !u.looped && !u.address
		for _, lit := range u.captured {
			quiet = quiet && l.local[lit]
		}
		if owner := l.owners[v]; !quiet || owner == nil || recursive(owner) {
			v.Shared = true
		} else {
			v.Global = true
		}
	}
}
