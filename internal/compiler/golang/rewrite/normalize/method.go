package normalize

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// closures.Convert has replaced method values by calls of constructors. The
// compiler makes calls in order, but reads the operand of a method value after
// all calls of the statement. So the calls after such a constructor are made
// before the statement, and the call of the constructor stays in it.

// makesValue reports whether a call makes a closure, or binds an interface for
// one.
func makesValue(c *ast.CallExpr) bool {
	id, ok := ast.Unparen(c.Fun).(*ast.Ident)
	return ok && (strings.HasPrefix(id.Name, rewrite.Prefix+"make_") || strings.HasPrefix(id.Name, rewrite.Prefix+"forward_") || strings.HasPrefix(id.Name, rewrite.Prefix+"bind_"))
}

// methodOperand returns the operand of the method value that a call makes, or
// nil if it makes another closure.
func methodOperand(c *ast.CallExpr) ast.Expr {
	if !makesValue(c) || len(c.Args) != 1 {
		return nil
	}
	if b, ok := c.Args[0].(*ast.CallExpr); ok && makesValue(b) && len(b.Args) == 1 {
		return b.Args[0]
	}
	u, ok := c.Args[0].(*ast.UnaryExpr)
	if !ok {
		return nil
	}
	l, ok := u.X.(*ast.CompositeLit)
	if !ok || len(l.Elts) != 1 {
		return nil
	}
	return l.Elts[0]
}

// late finds the calls that must be made before the method values and captured
// variables that stand before them in a statement, or after receivers that are
// read early. It also finds the functions with such calls.
func (n *normalizer) late() {
	n.before = map[*ast.CallExpr]bool{}
	n.values = map[*ast.CallExpr]bool{}
	n.receivers = markedReceivers(n.p)
	funcs := maps.Clone(n.in.Funcs)
	for _, f := range n.p.Files {
		for _, d := range f.Decls {
			n.top, n.uses = d, nil
			var stack []ast.Node
			seen := map[ast.Node][]*ast.CallExpr{} // method values, by their statements
			ast.Inspect(d, func(m ast.Node) bool {
				if m == nil {
					stack = stack[:len(stack)-1]
					return true
				}
				stack = append(stack, m)
				stmt, fn := around(stack)
				if stmt == nil || fn == nil {
					return true
				}
				first := func(list ...ast.Expr) {
					for _, e := range list {
						rewrite.InspectOwn(e, func(m ast.Node) bool {
							if k, ok := m.(*ast.CallExpr); ok && n.isCall(k) && !makesValue(k) {
								n.before[k] = true
								funcs[fn] = true
							}
							return true
						})
					}
				}
				first(n.afterCaptured(m)...)
				c, ok := m.(*ast.CallExpr)
				if !ok {
					return true
				}
				if x := methodOperand(c); x != nil {
					if !n.unchanging(x) {
						n.values[c] = true
						if b, ok := c.Args[0].(*ast.CallExpr); ok {
							n.values[b] = true
						}
						seen[stmt] = append(seen[stmt], c)
					}
					return true
				}
				if n.receivers[c.Rparen] {
					first(c.Args...)
				}
				if makesValue(c) || !n.isCall(c) {
					return true
				}
				for _, v := range seen[stmt] {
					if c.Pos() > v.Pos() && c.Pos() >= v.End() {
						n.before[c] = true
						funcs[fn] = true
					}
				}
				return true
			})
		}
	}
	n.top, n.uses = nil, nil
	n.in.Funcs = funcs
}

// afterCaptured returns the operands whose calls must be made first, because a
// captured variable stands before them. The compiler reads a variable after the
// calls, but copies a field of an environment before them.
func (n *normalizer) afterCaptured(m ast.Node) (list []ast.Expr) {
	w := &funcNormalizer{normalizer: n}
	captured := func(e ast.Expr) bool {
		if e == nil {
			return false
		}
		_, plain := ast.Unparen(e).(*ast.Ident)
		return !plain && w.variable(e)
	}
	switch m := m.(type) {
	case *ast.SliceExpr:
		for _, e := range []ast.Expr{m.Max, m.High, m.Low} { // from the last one to the first
			if captured(e) {
				break
			}
			if e != nil {
				list = append(list, e)
			}
		}
		if !captured(m.Low) && !captured(m.High) {
			return nil
		}
	case *ast.AssignStmt:
		if to, c := w.appended(m); to != nil && (captured(to.X) || captured(to.Index)) {
			return c.Args[1:]
		}
	}
	return list
}

// around returns the innermost statement and function around the last node of a
// stack.
func around(stack []ast.Node) (stmt, fn ast.Node) {
	for i := len(stack) - 1; i >= 0; i-- {
		switch m := stack[i].(type) {
		case *ast.FuncLit, *ast.FuncDecl:
			return stmt, m
		case ast.Stmt:
			if stmt == nil {
				stmt = m
			}
		}
	}
	return stmt, nil
}

// unchanging reports whether an operand of a method value is the same whenever
// it is read: the address of a variable, or a variable that no call can change.
func (n *normalizer) unchanging(x ast.Expr) bool {
	w := &funcNormalizer{normalizer: n}
	x = ast.Unparen(x)
	if u, ok := x.(*ast.UnaryExpr); ok && u.Op == token.AND {
		for y := ast.Unparen(u.X); ; {
			switch z := y.(type) {
			case *ast.Ident:
				return true
			case *ast.SelectorExpr:
				s := n.p.Info.Selections[z]
				if s == nil {
					return true
				}
				if s.Indirect() || pointerTo(n.p.Info.TypeOf(z.X)) {
					return false
				}
				y = ast.Unparen(z.X)
				continue
			}
			return false
		}
	}
	return n.p.Info.Types[x].Value != nil || w.steady(x)
}

func pointerTo(t types.Type) bool {
	_, ok := t.Underlying().(*types.Pointer)
	return ok
}
