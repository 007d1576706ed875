package closures

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// put returns the replacement of a node in the text of closure in, or of the
// file if in is nil.
func (c *converter) put(in *closure, n ast.Node) (string, bool) {
	if e, ok := n.(ast.Expr); ok {
		if l := c.plans[e]; l != nil && l != in {
			return c.place(l, in), true
		}
	}
	if in == nil {
		return "", false
	}
	if x, v := c.pointed(n); v != nil && in.captures(v) && !in.owned[v] {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			return in.pointer(v) + c.Text(x.End(), sel.End()), true
		}
		return in.pointer(v), true
	}
	id, ok := n.(*ast.Ident)
	if !ok {
		return "", false
	}
	switch o := c.Info.Uses[id].(type) {
	case *types.Var:
		if in.captures(o) {
			return in.captured(o), true
		}
	case *types.Const:
		if c.local(o, in.node) {
			return c.consts[o], true
		}
	}
	return "", false
}

// pointed returns the variable whose address is the value of &x, or the
// receiver of the method x.M, and x. Code that has its address already uses
// that: from (*p).M, the Go compiler would make code that tests p.
func (c *converter) pointed(n ast.Node) (*ast.Ident, *types.Var) {
	var x ast.Expr
	switch n := n.(type) {
	case *ast.UnaryExpr:
		x = n.X
	case *ast.SelectorExpr:
		x = n.X
	}
	id, ok := x.(*ast.Ident)
	if !ok || c.Addressed(n) == nil {
		return nil, nil
	}
	v, _ := c.Info.Uses[id].(*types.Var)
	return id, v
}

func (l *closure) captures(v *types.Var) bool { return slices.Contains(l.vars, v) }

// place returns the replacement of a closure in the text of in.
func (c *converter) place(l, in *closure) string {
	args, mk := l.typeArgs(), rewrite.Prefix+"make_"
	if l.open {
		mk = exported + "make_"
	}
	if l.free() && l.open {
		return mk + l.ident + "(&" + rewrite.Prefix + "env_" + l.ident + args + "{})"
	}
	if l.free() {
		if args != "" {
			return rewrite.Prefix + "func_" + l.ident + args + "()"
		}
		return rewrite.Prefix + "func_" + l.ident
	}
	var list []string
	if l.value != nil {
		sel := l.node.(*ast.SelectorExpr)
		x := l.value.op + c.NodeText(sel.X, func(n ast.Node) (string, bool) { return c.put(in, n) }) + l.value.path
		if l.value.bind {
			return mk + l.ident + "(" + rewrite.Prefix + "bind_" + l.ident + args + "(" + x + "))"
		}
		list = []string{x}
	}
	for _, v := range l.vars {
		if l.owned[v] {
			list = append(list, c.value(v, in))
		} else {
			list = append(list, c.address(v, in))
		}
	}
	if l.forward {
		mk = rewrite.Prefix + "forward_"
	}
	return mk + l.ident + "(&" + rewrite.Prefix + "env_" + l.ident + args + "{" + strings.Join(list, ", ") + "})"
}

// free reports whether a closure captures nothing.
func (l *closure) free() bool {
	if l.value != nil {
		return l.value.expr
	}
	return len(l.vars) == 0
}

// captured returns a captured variable, in the text of the closure.
func (l *closure) captured(v *types.Var) string {
	switch {
	case !l.owned[v]:
		return "(*" + l.pointer(v) + ")"
	case l.locals[v]:
		return v.Name()
	}
	return "(" + rewrite.EnvName + "." + v.Name() + ")"
}

// pointer returns the address of a captured variable that is not copied, in the
// text of the closure.
func (l *closure) pointer(v *types.Var) string {
	if l.locals[v] {
		return rewrite.SharedVar + v.Name()
	}
	return rewrite.EnvName + "." + v.Name()
}

// address returns the address of a variable, in the text of in.
func (c *converter) address(v *types.Var, in *closure) string {
	if in != nil && in.captures(v) {
		return in.pointer(v)
	}
	return "&" + v.Name()
}

// value returns the value of a variable, in the text of in.
func (c *converter) value(v *types.Var, in *closure) string {
	if in != nil && in.captures(v) {
		return in.captured(v)
	}
	return v.Name()
}

// typeArgs returns the type parameters that a closure uses, as arguments.
func (l *closure) typeArgs() string { return rewrite.TypeArgs(l.tparams) }

// literal returns a closure's func literal, as a constructor returns it.
func (c *converter) literal(l *closure) string {
	if l.value != nil {
		return "func" + c.forward(l)
	}
	lit := l.node.(*ast.FuncLit)
	put := func(n ast.Node) (string, bool) { return c.put(l, n) }
	lo := lit.Body.Lbrace + 1
	if l.open {
		return c.Span(lit.Pos(), lo, lit, put) + "\n" + guard + "\n" + c.Span(lo, lit.End(), lit, put)
	}
	if len(l.vars) == 0 || c.surely(l, lit.Body) {
		return c.NodeText(lit, put)
	}
	return c.Span(lit.Pos(), lo, lit, put) + "\n_ = " + rewrite.EnvName + " // captured even if all uses of it are dead code\n" + c.Span(lo, lit.End(), lit, put)
}

// surely reports whether the Go compiler cannot prove that the environment is
// unused. If it could, the literal would not capture the environment.
func (c *converter) surely(l *closure, body *ast.BlockStmt) bool {
	uses := func(n ast.Node) (found bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.BinaryExpr:
				return n.Op != token.LAND && n.Op != token.LOR
			case *ast.CallExpr:
				return c.Info.Types[n].Value == nil // len of an array does not evaluate the array
			case *ast.Ident:
				v, ok := c.Info.Uses[n].(*types.Var)
				found = found || ok && l.captures(v)
			}
			return !found
		})
		return found
	}
	for _, s := range body.List {
		switch s := s.(type) {
		case *ast.AssignStmt, *ast.IncDecStmt, *ast.SendStmt:
			if uses(s) {
				return true
			}
		case *ast.ExprStmt:
			if uses(s) {
				return true
			}
			call, ok := s.X.(*ast.CallExpr)
			if !ok {
				return false
			}
			if id, ok := ast.Unparen(call.Fun).(*ast.Ident); ok {
				if _, ok := c.Info.Uses[id].(*types.Builtin); ok {
					return false // it may be panic
				}
			}
		case *ast.ReturnStmt, *ast.DeferStmt, *ast.GoStmt:
			return uses(s)
		case *ast.IfStmt:
			return s.Init == nil && uses(s.Cond)
		case *ast.RangeStmt:
			return uses(s.X)
		default:
			return false
		}
	}
	return false
}

// declare writes a closure's declarations.
func (c *converter) declare(l *closure) {
	b := &c.files[l.file].decls
	free := l.free()
	path := c.Types.Path() + "."
	for _, k := range []string{"func_", "make_", "forward_", "bind_"} {
		c.declared[rewrite.Prefix+k+l.ident] = l
	}
	if l.value != nil && l.value.expr {
		if c.made.Exprs == nil {
			c.made.Exprs = map[string]string{}
		}
		c.made.Exprs[rewrite.Prefix+"func_"+l.ident] = l.node.(*ast.SelectorExpr).Sel.Name
	}
	if len(l.tparams) > 0 {
		c.declareGeneric(l, free)
		return
	}
	if free {
		fmt.Fprintf(b, "\n// %s\nfunc %sfunc_%s", l.name, rewrite.Prefix, l.ident)
		if l.value != nil {
			b.WriteString(c.forward(l))
		} else {
			lit := l.node.(*ast.FuncLit)
			b.WriteString(c.Span(lit.Type.Params.Pos(), lit.End(), lit, func(n ast.Node) (string, bool) { return c.put(l, n) }))
		}
		b.WriteString("\n")
		c.made.Funcs = append(c.made.Funcs, Entry{path + l.name, rewrite.Prefix + "func_" + l.ident})
		return
	}
	c.declareEnv(l, "", "")
	if l.forward {
		c.declareForward(l)
		return
	}
	fmt.Fprintf(b, "\n//go:noinline\nfunc %smake_%s(%s *%[1]senv_%[2]s) %[4]s {\nreturn %[5]s\n}\n", rewrite.Prefix, l.ident, rewrite.EnvName, l.sigText, c.literal(l))
	c.made.Closures = append(c.made.Closures, Entry{path + l.name, rewrite.Prefix + "make_" + l.ident})
}

// declareEnv writes the type of an environment, and the function that binds an
// interface.
func (c *converter) declareEnv(l *closure, params, args string) {
	b := &c.files[l.file].decls
	fmt.Fprintf(b, "\n// %s\ntype %senv_%s%s struct {\n", l.name, rewrite.Prefix, l.ident, params)
	if l.value != nil && !l.value.expr {
		fmt.Fprintf(b, "x %s\n", l.fields[0])
	}
	for i, v := range l.vars {
		if l.owned[v] {
			fmt.Fprintf(b, "%s %s\n", v.Name(), l.fields[i])
		} else {
			fmt.Fprintf(b, "%s *%s\n", v.Name(), paren(l.fields[i]))
		}
	}
	if l.open && l.free() {
		b.WriteString("_ [1]struct{ _ *struct{} }\n") // so that each environment has an address of its own
	}
	b.WriteString("}\n")
	if l.value != nil && l.value.bind {
		fmt.Fprintf(b, "\nfunc %sbind_%s%s(x %s) *%[1]senv_%[2]s%[5]s {\n_ = x.%[6]s // panics if there is none\nreturn &%[1]senv_%[2]s%[5]s{x}\n}\n",
			rewrite.Prefix, l.ident, params, l.fields[0], args, l.node.(*ast.SelectorExpr).Sel.Name)
	}
}

// paren puts a type into parentheses if a star before it would be misread.
func paren(t string) string {
	if strings.HasPrefix(t, "<-") {
		return "(" + t + ")"
	}
	return t
}
