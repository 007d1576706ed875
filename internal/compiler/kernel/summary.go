package kernel

import (
	"go/ast"
	"go/token"
	"go/types"
)

// summary is what is known of a function before it is translated.
type summary struct {
	assigned map[types.Object]bool         // variables that are assigned after their declaration
	source   map[types.Object]types.Object // slice variables: the variable that they are a part of
	writes   map[types.Object]bool         // slice variables whose elements the function writes
	lens     map[types.Object]bool         // slice variables whose length it uses
}

// summary returns that of a function of this package.
func (p *program) summary(obj types.Object) *summary {
	if s := p.summaries[obj]; s != nil {
		return s
	}
	s := &summary{make(map[types.Object]bool), make(map[types.Object]types.Object), make(map[types.Object]bool), make(map[types.Object]bool)}
	p.summaries[obj] = s // recursion is refused later
	d := p.funcs[obj]
	ast.Inspect(d.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, l := range n.Lhs {
				id, ok := l.(*ast.Ident)
				if ok && n.Tok == token.DEFINE && p.Info.Defs[id] != nil {
					if len(n.Rhs) == len(n.Lhs) {
						s.alias(p, p.Info.Defs[id], n.Rhs[i])
					}
					continue
				}
				s.assign(p, l)
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if len(n.Values) == len(n.Names) {
					s.alias(p, p.Info.Defs[id], n.Values[i])
				}
			}
		case *ast.IncDecStmt:
			s.assign(p, n.X)
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				for _, x := range []ast.Expr{n.Key, n.Value} {
					if x != nil {
						s.assign(p, x)
					}
				}
			}
			s.useLen(p, n.X)
		case *ast.SliceExpr:
			// The length of s[a:] depends on that of s; see close.
		case *ast.CallExpr:
			if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok {
				if b, ok := p.Info.Uses[id].(*types.Builtin); ok && b.Name() == "len" && len(n.Args) == 1 {
					s.useLen(p, n.Args[0])
				}
			}
			if f, args := p.called(n); f != nil {
				sub, params := p.summary(f), parameters(f)
				for i, a := range args {
					if i < len(params) {
						if sub.writes[params[i]] {
							s.write(p, a)
						}
						if sub.lens[params[i]] {
							s.useLen(p, a)
						}
					}
				}
			}
		}
		return true
	})
	// A part s[a:] needs the length of s if its own is needed. Sources are
	// declared before their parts, so a few iterations are enough.
	for changed := true; changed; {
		changed = false
		for v, of := range s.source {
			if s.writes[v] && !s.writes[of] {
				s.writes[of], changed = true, true
			}
			if s.lens[v] && !s.lens[of] {
				s.lens[of], changed = true, true
			}
		}
	}
	return s
}

// called returns the function of this package that a call calls, and the
// arguments, with the receiver first.
func (p *program) called(call *ast.CallExpr) (types.Object, []ast.Expr) {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		if obj := p.Info.Uses[f]; p.funcs[obj] != nil {
			return obj, call.Args
		}
	case *ast.SelectorExpr:
		if obj := p.Info.Uses[f.Sel]; p.funcs[obj] != nil {
			return obj, append([]ast.Expr{f.X}, call.Args...)
		}
	}
	return nil, nil
}

// parameters returns a function's parameters, the receiver first.
func parameters(f types.Object) (list []types.Object) {
	sig := f.Type().(*types.Signature)
	if sig.Recv() != nil {
		list = append(list, sig.Recv())
	}
	for v := range sig.Params().Variables() {
		list = append(list, v)
	}
	return list
}

// sliceVar returns the variable that an expression of a slice type is a part
// of, or nil.
func (p *program) sliceVar(x ast.Expr) types.Object {
	for {
		switch y := ast.Unparen(x).(type) {
		case *ast.SliceExpr:
			x = y.X
		case *ast.Ident:
			if obj := p.Info.Uses[y]; obj != nil && isSlice(obj.Type()) {
				return obj
			}
			return nil
		default:
			return nil
		}
	}
}

func isSlice(t types.Type) bool {
	_, ok := t.Underlying().(*types.Slice)
	return ok
}

// alias notes that a new variable is a part of another one.
func (s *summary) alias(p *program, v types.Object, x ast.Expr) {
	if v == nil || !isSlice(v.Type()) {
		return
	}
	if of := p.sliceVar(x); of != nil {
		s.source[v] = of
	}
}

// assign notes an assignment to a variable, or to an element.
func (s *summary) assign(p *program, x ast.Expr) {
	for {
		switch y := ast.Unparen(x).(type) {
		case *ast.Ident:
			if obj := p.Info.ObjectOf(y); obj != nil {
				s.assigned[obj] = true
			}
			return
		case *ast.SelectorExpr:
			x = y.X
		case *ast.IndexExpr:
			if isSlice(p.Info.TypeOf(y.X)) {
				s.write(p, y.X)
				return
			}
			x = y.X
		default:
			return
		}
	}
}

func (s *summary) write(p *program, x ast.Expr) {
	if v := p.sliceVar(x); v != nil {
		s.writes[v] = true
	}
}

func (s *summary) useLen(p *program, x ast.Expr) {
	if v := p.sliceVar(x); v != nil {
		s.lens[v] = true
	}
}
