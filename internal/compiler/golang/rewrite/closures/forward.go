package closures

import (
	"fmt"
	"go/ast"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// A literal on the resumable path that captures variables becomes a function,
// which has the environment as a parameter, and a literal that only calls it.
// Functions can unwind when a checkpoint is due, and continue in functions of
// their own; literals cannot. Package resume knows the literal by its name.

// findMarks finds the marks of literals.
func (c *converter) findMarks() {
	if rewrite.InspectsCallers(c.Info) {
		return
	}
	for _, f := range c.Files {
		for _, g := range f.Comments {
			for _, m := range g.List {
				if mark := litMarks.FindStringSubmatch(m.Text); mark != nil {
					c.marks[c.AfterText(m.Pos())] = mark[1]
				}
			}
		}
	}
}

// planForward decides whether a closure only calls a function that has its
// body.
func (c *converter) planForward(l *closure) {
	lit, ok := l.node.(*ast.FuncLit)
	if !ok || l.open || l.free() || len(l.tparams) > 0 || l.declaration() == nil || c.marks[lit.Body.Lbrace+1] == "" ||
		!c.resumable.Funcs[lit] || c.MustStay(lit.Body) {
		return
	}
	l.forward = true
	changed := c.changedIn(l.declaration())
	scope := c.Info.Scopes[lit.Type]
	l.locals = rewrite.Vars{}
	for _, v := range l.vars {
		switch {
		case strings.HasPrefix(v.Name(), rewrite.EnvName): // the environment of a function around it
		case !l.owned[v]:
			l.locals[v] = true
		default:
			l.locals[v] = !changed[v] && scope != nil && scope.Lookup(v.Name()) == nil
		}
	}
	if c.made.Forward == nil {
		c.made.Forward = map[string]string{}
	}
	c.made.Forward[c.marks[lit.Body.Lbrace+1]] = rewrite.Prefix + "func_" + l.ident
}

// declareForward writes the constructor of a closure that calls a function, and
// the function.
func (c *converter) declareForward(l *closure) {
	b := &c.files[l.file].decls
	lit := l.node.(*ast.FuncLit)
	fn, line := rewrite.Prefix+"func_"+l.ident, c.LineComment(lit.Pos())
	env := rewrite.EnvName + " *" + rewrite.Prefix + "env_" + l.ident
	head, args := c.params(l)
	ret := ""
	if l.sig.Results().Len() > 0 {
		ret = "return "
	}
	fmt.Fprintf(b, "\n//go:noinline\nfunc %sforward_%s(%s) %s {\nreturn func%s {\n%s%s%s(%s)\n}\n}\n",
		rewrite.Prefix, l.ident, env, l.sigText, head, line, ret, fn, strings.Join(append([]string{rewrite.EnvName}, args...), ", "))
	c.made.Closures = append(c.made.Closures, Entry{c.Types.Path() + "." + l.name, rewrite.Prefix + "forward_" + l.ident})

	text := func(n ast.Node) string {
		return c.NodeText(n, func(n ast.Node) (string, bool) { return c.put(l, n) })
	}
	fmt.Fprintf(b, "\n// %s is %s.\n//\n//go:noinline\nfunc %s(%s", fn, l.name, fn, env)
	for _, f := range lit.Type.Params.List {
		var names []string
		for _, id := range f.Names {
			names = append(names, id.Name)
		}
		if len(names) == 0 {
			names = []string{"_"}
		}
		fmt.Fprintf(b, ", %s %s", strings.Join(names, ", "), text(f.Type))
	}
	b.WriteString(")")
	if r := lit.Type.Results; r != nil {
		b.WriteString(" " + text(r))
	}
	b.WriteString(" {\n")
	// As in a literal, what is captured is in variables.
	var locals, from []string
	for _, v := range l.vars {
		if !l.locals[v] {
			continue
		}
		name := v.Name()
		if !l.owned[v] {
			name = rewrite.SharedVar + name
		}
		locals, from = append(locals, name), append(from, rewrite.EnvName+"."+v.Name())
	}
	if len(locals) > 0 {
		fmt.Fprintf(b, "%s%s := %s\n", line, strings.Join(locals, ", "), strings.Join(from, ", "))
	}
	b.WriteString(c.Span(lit.Body.Lbrace+1, lit.End(), lit.Body, func(n ast.Node) (string, bool) { return c.put(l, n) }) + "\n")
}
