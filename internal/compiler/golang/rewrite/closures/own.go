package closures

import (
	"go/ast"
	"go/token"
	"go/types"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// own finds the variables that nothing else uses after the literal is made, and
// those that never change. They become fields of its environment instead of
// pointers in it, which saves an allocation, and an indirection at each use.
func (c *converter) own(l *closure) {
	lit, ok := l.node.(*ast.FuncLit)
	if !ok || l.open || len(l.tparams) > 0 {
		return
	}
	decl := l.declaration()
	if decl == nil {
		return
	}
	holds := func(n ast.Node) bool { return n.Pos() <= lit.Pos() && lit.End() <= n.End() }
	var made ast.Stmt     // the innermost statement that contains the literal
	var scopes []ast.Node // loop bodies and literals around it: each iteration or call makes another one
	bad := rewrite.Vars{}
	jumps := false
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
			return true
		case *ast.BranchStmt:
			jumps = jumps || n.Tok == token.GOTO
		case *ast.ForStmt:
			if holds(n) {
				scopes = append(scopes, n.Body)
			}
		case *ast.RangeStmt:
			if holds(n) {
				scopes = append(scopes, n.Body)
			}
		case *ast.FuncLit:
			if n != lit && holds(n) {
				scopes = append(scopes, n)
			}
		case *ast.FuncType:
			if n.Results != nil {
				for _, f := range n.Results.List {
					for _, id := range f.Names {
						c.ban(bad, id) // it is read when the function returns
					}
				}
			}
		}
		if s, ok := n.(ast.Stmt); ok && n != nil && holds(n) {
			made = s
		}
		return true
	})
	l.owned = rewrite.Vars{}
	changed := c.changedIn(decl)
	for _, v := range l.vars {
		if !changed[v] && !c.Large(v.Type()) {
			l.owned[v] = true
		}
	}
	if made == nil || jumps {
		return
	}
	for _, v := range l.vars {
		for _, s := range scopes {
			if v.Pos() < s.Pos() || v.Pos() >= s.End() {
				bad[v] = true
			}
		}
	}
	var look func(root ast.Node, inside, other bool)
	look = func(root ast.Node, inside, other bool) {
		ast.Inspect(root, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncLit); ok && n != root {
				look(f, inside || f == lit, other || inside || f != lit && !holds(f))
				return false
			}
			if n != nil && !inside {
				if v := c.Addressed(n); v != nil {
					bad[v] = true
				}
			}
			if id, ok := n.(*ast.Ident); ok && (other || !inside && id.Pos() >= made.Pos()) {
				c.ban(bad, id)
			}
			return true
		})
	}
	look(decl, false, false)
	for _, v := range l.vars {
		if !bad[v] {
			l.owned[v] = true
		}
	}
}

// changedIn returns the variables of a function that change: see changedIn.
func (c *converter) changedIn(d *ast.FuncDecl) rewrite.Vars {
	if c.changed[d] == nil {
		c.changed[d] = changedIn(c.Package, d)
	}
	return c.changed[d]
}

// ban adds the variable that an identifier names.
func (c *converter) ban(bad rewrite.Vars, id *ast.Ident) {
	if v, ok := c.Info.ObjectOf(id).(*types.Var); ok {
		bad[v] = true
	}
}

// declaration returns the function that contains a closure, or nil.
func (l *closure) declaration() *ast.FuncDecl {
	for _, d := range l.file.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Pos() <= l.node.Pos() && l.node.End() <= d.End() {
			return d
		}
	}
	return nil
}
