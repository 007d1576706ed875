package lower

import (
	"go/ast"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// sync lowers waits, and what wait groups start. It returns false for other
// calls.
func (f *fn) sync(call *ast.CallExpr, obj *types.Func) bool {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || obj.Signature().Recv() == nil {
		return false
	}
	t := obj.Signature().Recv().Type()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Name() != "WaitGroup" && named.Obj().Name() != "Group" {
		return false
	}
	at := f.pos(call.Pos())
	switch obj.Name() {
	case "Wait":
		f.value(sel.X)
		f.emitCall(&ir.Join{Pos: at, Group: f.group(sel.X), Reads: f.reads(sel.X)})
		return true
	case "Go", "TryGo":
		f.launchProcs(at, f.functions(call.Args[0]), f.group(sel.X), f.reads(call))
		return true
	}
	return false
}

// group returns the variable of a wait group.
func (f *fn) group(e ast.Expr) *ir.Var {
	e = ast.Unparen(e)
	if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.AND {
		e = ast.Unparen(u.X)
	}
	switch x := e.(type) {
	case *ast.Ident:
		if v, ok := f.s.Info.ObjectOf(x).(*types.Var); ok {
			return f.variable(v)
		}
	case *ast.SelectorExpr:
		root := x.X
		for {
			s, ok := ast.Unparen(root).(*ast.SelectorExpr)
			if !ok {
				break
			}
			root = s.X
		}
		if id, ok := ast.Unparen(root).(*ast.Ident); ok {
			if v, ok := f.s.Info.ObjectOf(id).(*types.Var); ok {
				key := f.ld.Fset.Position(v.Pos()).String() + " " + f.text(x)
				g := f.groups[key]
				if g == nil {
					g = &ir.Var{Name: f.text(x), Global: true}
					f.groups[key] = g
				}
				return g
			}
		}
	}
	return nil
}

// goStmt lowers a go statement.
func (f *fn) goStmt(s *ast.GoStmt) {
	at := f.pos(s.Pos())
	call := s.Call
	for _, e := range call.Args {
		f.value(e)
	}
	var procs []*ir.Proc
	var group *ir.Var
	if lit, ok := ast.Unparen(call.Fun).(*ast.FuncLit); ok {
		procs = []*ir.Proc{f.lits[lit]}
		group = f.doneGroup(lit)
	} else if obj, ok := load.Callee(f.s, call).(*types.Func); ok && f.procs[obj.Origin()] != nil {
		procs = []*ir.Proc{f.procs[obj.Origin()]}
	} else if ok && obj.Pkg() != nil && f.ld.Library[obj.Pkg().Path()] && !types.IsInterface(recvType(obj)) {
		procs = append(f.callbacks(call, obj), f.library)
	} else {
		procs = f.dynamicCallees(call, s.Go)
		if len(procs) == 0 {
			procs = []*ir.Proc{f.library}
		}
	}
	for _, e := range call.Args {
		if t, ok := f.s.Info.TypeOf(e).(*types.Pointer); ok && group == nil && types.TypeString(t.Elem(), nil) == "sync.WaitGroup" {
			group = f.group(e)
		}
	}
	f.launchProcs(at, procs, group, f.reads(call))
}

func recvType(obj *types.Func) types.Type {
	if r := obj.Signature().Recv(); r != nil {
		return r.Type()
	}
	return types.Typ[types.Int]
}

func (f *fn) launchProcs(at ir.Pos, procs []*ir.Proc, group *ir.Var, reads []*ir.Var) {
	l := &ir.Launch{Pos: at, Group: group, Reads: reads}
	switch len(procs) {
	case 0:
	case 1:
		l.Proc = procs[0]
	default:
		l.Proc = &ir.Proc{Name: "one of several functions", Pos: at, Known: true,
			Body: []ir.Stmt{&ir.Call{Pos: at, Name: "go", Procs: procs}}}
	}
	f.emitCall(l)
}

// doneGroup returns the wait group whose Done a literal calls, or the channel
// that it closes at its end.
func (f *fn) doneGroup(lit *ast.FuncLit) (group *ir.Var) {
	ast.Inspect(lit.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || group != nil {
			return group == nil
		}
		if obj, ok := load.Callee(f.s, call).(*types.Func); ok && obj.Name() == "Done" && obj.Pkg() != nil && obj.Pkg().Path() == "sync" {
			if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok {
				group = f.group(sel.X)
			}
		}
		return true
	})
	if group != nil || f.loops > 0 {
		return group
	}
	for i, s := range lit.Body.List {
		var call *ast.CallExpr
		switch s := s.(type) {
		case *ast.DeferStmt:
			if i == 0 {
				call = s.Call
			}
		case *ast.ExprStmt:
			if i == len(lit.Body.List)-1 {
				call, _ = s.X.(*ast.CallExpr)
			}
		}
		if call == nil || len(call.Args) != 1 {
			continue
		}
		if b, ok := load.Callee(f.s, call).(*types.Builtin); ok && b.Name() == "close" {
			if id, ok := ast.Unparen(call.Args[0]).(*ast.Ident); ok {
				if v, ok := f.s.Info.Uses[id].(*types.Var); ok {
					if f.closed == nil {
						f.closed = make(map[types.Object]bool)
					}
					f.closed[v] = true
					return f.variable(v)
				}
			}
		}
	}
	return nil
}

// joinReceive lowers a receive that waits for the end of a goroutine of this
// function.
func (f *fn) joinReceive(e *ast.UnaryExpr) {
	id, ok := ast.Unparen(e.X).(*ast.Ident)
	if !ok {
		return
	}
	if v, ok := f.s.Info.Uses[id].(*types.Var); ok && f.closed[v] {
		f.emitCall(&ir.Join{Pos: f.pos(e.Pos()), Group: f.variable(v), Reads: f.reads(e.X)})
	}
}
