package normalize

import (
	"bytes"
	"go/ast"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// devirtualize finds the calls for ReceiverMark: those with calls in their
// arguments, whose receiver a literal assigns to. at reports whether there is
// another mark between two positions. A call that leads to a point is refused
// if the type of its receiver depends on inlining.
func devirtualize(p *rewrite.Package, at func(lo, hi token.Pos) bool) (calls []*ast.CallExpr, err error) {
	for _, f := range p.Files {
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || d.Body == nil {
				continue
			}
			var held *holds
			skip := map[*ast.CallExpr]bool{}
			ast.Inspect(d, func(n ast.Node) bool {
				var c *ast.CallExpr
				switch n := n.(type) {
				case *ast.GoStmt:
					skip[n.Call] = true
				case *ast.DeferStmt:
					skip[n.Call] = true
				case *ast.CallExpr:
					c = n
				}
				if c == nil || skip[c] || err != nil {
					return err == nil
				}
				sel, ok := ast.Unparen(c.Fun).(*ast.SelectorExpr)
				if !ok || p.Info.Selections[sel] == nil || p.Info.Selections[sel].Kind() != types.MethodVal {
					return true
				}
				id, ok := ast.Unparen(sel.X).(*ast.Ident)
				if !ok || !types.IsInterface(p.Info.TypeOf(id)) {
					return true
				}
				v, ok := p.Info.Uses[id].(*types.Var)
				w := &funcNormalizer{normalizer: &normalizer{p: p}}
				nested := false
				for _, e := range c.Args {
					nested = nested || w.calls(e)
				}
				if !ok || !nested {
					return true
				}
				if held == nil {
					held = holdsOf(p, d)
				}
				if !held.inside[v] || held.banned[v] {
					return true
				}
				switch t, sure := held.typ(v, map[*types.Var]bool{}); {
				case t == nil && sure || t != nil && !types.IsInterface(t) && w.direct(t):
				case sure:
					calls = append(calls, c)
				case at(c.Lparen, c.Rparen):
					err = p.Refuse(c.Pos(), "give the arguments to variables first", "the receiver %s is changed by a function literal, and a call among the arguments leads to a point: whether the receiver is read before or after them depends on what the compiler inlines", id.Name)
				}
				return true
			})
		}
	}
	return calls, err
}

// holds records what is assigned to the interface variables of a function.
type holds struct {
	p      *rewrite.Package
	values map[*types.Var][]ast.Expr // assigned values; nil: an unknown value
	owner  map[*types.Var]ast.Node
	inside rewrite.Vars // variables assigned in a literal that does not declare them
	banned rewrite.Vars // parameters, and variables whose addresses are taken
}

func holdsOf(p *rewrite.Package, d *ast.FuncDecl) *holds {
	h := &holds{p: p, values: map[*types.Var][]ast.Expr{}, owner: map[*types.Var]ast.Node{}, inside: rewrite.Vars{}, banned: rewrite.Vars{}}
	var look func(root ast.Node)
	look = func(root ast.Node) {
		set := func(to ast.Expr, value ast.Expr) {
			id, ok := ast.Unparen(to).(*ast.Ident)
			if !ok {
				return
			}
			v, ok := p.Info.ObjectOf(id).(*types.Var)
			if !ok || !types.IsInterface(v.Type()) {
				return
			}
			h.values[v] = append(h.values[v], value)
			if h.owner[v] != root && p.Info.Defs[id] == nil {
				h.inside[v] = true
			}
		}
		all := func(to, values []ast.Expr) {
			for i, e := range to {
				switch {
				case len(values) == len(to):
					set(e, values[i])
				case len(values) == 1: // one of several results
					set(e, &ast.BadExpr{From: token.Pos(i + 1), To: values[0].Pos()})
				}
			}
		}
		params := func(l *ast.FieldList) { p.AddFields(h.banned, l) }
		ast.Inspect(root, func(n ast.Node) bool {
			if v := p.Addressed(n); v != nil && n != nil {
				h.banned[v] = true
			}
			switch n := n.(type) {
			case *ast.FuncLit:
				if n != root {
					look(n)
					return false
				}
			case *ast.FuncDecl:
				params(n.Recv)
			case *ast.FuncType:
				params(n.Params)
				params(n.Results)
			case *ast.Ident:
				if v, ok := p.Info.Defs[n].(*types.Var); ok {
					h.owner[v] = root
				}
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, e := range n.Lhs {
						if id, ok := e.(*ast.Ident); ok {
							if v, ok := p.Info.Defs[id].(*types.Var); ok {
								h.owner[v] = root
							}
						}
					}
				}
				all(n.Lhs, n.Rhs)
			case *ast.ValueSpec:
				var to []ast.Expr
				for _, id := range n.Names {
					if v, ok := p.Info.Defs[id].(*types.Var); ok {
						h.owner[v] = root
					}
					to = append(to, id)
				}
				all(to, n.Values)
			case *ast.RangeStmt:
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if e != nil {
						set(e, nil)
					}
				}
			}
			return true
		})
	}
	look(d)
	return h
}

// typ returns the type of all values of a variable, or nil if there are several
// types or it is unknown. sure says that inlining cannot change that.
func (h *holds) typ(v *types.Var, seen map[*types.Var]bool) (types.Type, bool) {
	if seen[v] {
		return nil, true
	}
	seen[v] = true
	if h.banned[v] || h.owner[v] == nil {
		return nil, true
	}
	var typ types.Type
	sure := true
	for _, e := range h.values[v] {
		t, known, none := h.value(e, seen)
		switch {
		case none:
		case t == nil && known:
			return nil, true
		case t == nil:
			sure = false
		case typ != nil && !types.Identical(t, typ):
			return nil, true
		default:
			typ = t
		}
	}
	return typ, sure
}

// value returns the type that an expression is known to hold. none says that
// the expression holds no value, or is being analysed already.
func (h *holds) value(e ast.Expr, seen map[*types.Var]bool) (t types.Type, sure, none bool) {
	if e == nil {
		return nil, true, false
	}
	if _, ok := e.(*ast.BadExpr); ok {
		return nil, false, false
	}
	tv := h.p.Info.Types[e]
	if tv.IsNil() {
		return nil, true, true
	}
	if !types.IsInterface(tv.Type) {
		return types.Default(tv.Type), true, false
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.TypeAssertExpr:
		return h.value(e.X, seen)
	case *ast.CallExpr:
		if h.p.Info.Types[e.Fun].IsType() {
			return h.value(e.Args[0], seen)
		}
		return nil, false, false
	case *ast.Ident:
		if v, ok := h.p.Info.Uses[e].(*types.Var); ok {
			if seen[v] {
				return nil, true, true
			}
			t, sure := h.typ(v, seen)
			return t, sure, false
		}
	}
	return nil, true, false
}

// markedReceivers returns the calls with ReceiverMark, by their closing
// parentheses.
func markedReceivers(p *rewrite.Package) map[token.Pos]bool {
	at := map[token.Pos]bool{}
	for _, f := range p.Files {
		for _, g := range f.Comments {
			for _, c := range g.List {
				if c.Text == rewrite.ReceiverMark {
					text := p.Source[p.FileName(f)][p.Fset.File(f.FileStart).Offset(c.End()):]
					at[c.End()+token.Pos(len(text)-len(bytes.TrimLeft(text, " \t\r\n")))] = true
				}
			}
		}
	}
	return at
}
