package closures

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

var litMarks = regexp.MustCompile(`^/\*cairn:lit (\d+)\*/$`)

// Lift turns marked literals into functions where that is possible: if a local
// variable always holds the literal and is only called, as is usual for local
// and recursive functions. The captured variables go into a record, the
// environment, which is an argument of each call. The variable holds the
// environment instead of the literal. Functions can unwind when a checkpoint is
// due; literals cannot.
//
// Lift also returns the names of the functions, by the numbers of the marks.
func Lift(p *rewrite.Package) (*rewrite.Package, map[string]string) {
	if rewrite.InspectsCallers(p.Info) {
		return p, nil
	}
	tried := map[string]bool{}
	names := map[string]string{}
	for {
		all := toLift(p, tried)
		if len(all) == 0 {
			return p, names
		}
		q := liftAll(p, all)
		if q == nil && len(all) > 1 { // one of them cannot be lifted: try the first alone
			first := all[0].mark
			all = toLift(p, tried)[:1]
			if all[0].mark == first {
				q = liftAll(p, all)
			}
		}
		if q != nil { // otherwise it stays a literal
			p = q
		}
		for _, l := range all {
			tried[l.mark] = true
			if q != nil {
				names[l.mark] = rewrite.Prefix + "func_" + l.ident
			}
		}
	}
}

// liftAll turns literals into functions. It returns nil if that is not
// possible.
func liftAll(p *rewrite.Package, all []*lift) *rewrite.Package {
	text := map[string][]byte{}
	outer := map[*ast.File][]rewrite.Edit{}
	for _, l := range all {
		edits, ok := l.lifted()
		if !ok {
			return nil
		}
		outer[l.file] = append(outer[l.file], edits...)
	}
	c := all[0].c
	for f, edits := range outer {
		s := c.files[f]
		t := p.Apply(f.FileStart, f.Name.End(), nil) + s.used() + p.Apply(f.Name.End(), f.FileEnd, edits) + "\n" + s.decls.String()
		b, err := rewrite.Format(p.FileName(f), []byte(t))
		if err != nil {
			return nil
		}
		text[p.FileName(f)] = b
	}
	q, err := p.With(text)
	if err != nil {
		return nil
	}
	return q
}

// lift describes how a literal becomes a function.
type lift struct {
	*closure
	c    *converter
	lit  *ast.FuncLit
	mark string
	v    *types.Var // variable that holds the literal
	made ast.Stmt   // statement that assigns it
	uses []*ast.CallExpr
	env  string // name of the environment in it
	// It may be assigned again while it runs. Its recursive calls then call the
	// new one.
	anew bool
	// captured variables that can be copied
	values rewrite.Vars
}

// toLift finds literals that can be lifted now: those that use no other literal
// that must be lifted first, and that are not inside another. If all of them
// use each other, it returns the first.
func toLift(p *rewrite.Package, tried map[string]bool) (chosen []*lift) {
	c := newClosures(p)
	var all []*lift
	for _, f := range p.Files {
		at := map[token.Pos]string{} // marks by the position before them
		for _, g := range f.Comments {
			for _, m := range g.List {
				if mark := litMarks.FindStringSubmatch(m.Text); mark != nil && !tried[mark[1]] {
					at[p.AfterText(m.Pos())] = mark[1]
				}
			}
		}
		if len(at) == 0 {
			continue
		}
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || d.Body == nil {
				continue
			}
			var changed rewrite.Vars
			ast.Inspect(d, func(n ast.Node) bool {
				lit, ok := n.(*ast.FuncLit)
				if !ok || at[lit.Body.Lbrace+1] == "" {
					return true
				}
				if changed == nil {
					changed = changedIn(p, d)
				}
				if l := canLift(p, c, f, d, lit, changed); l != nil {
					l.mark = at[lit.Body.Lbrace+1]
					all = append(all, l)
				}
				return true
			})
		}
	}
	holders := rewrite.Vars{}
	for _, l := range all {
		holders[l.v] = true
	}
	for _, l := range all {
		waits := slices.ContainsFunc(l.vars, func(v *types.Var) bool { return v != l.v && holders[v] })
		if !waits && !slices.ContainsFunc(chosen, func(m *lift) bool { return !l.apart(m) }) {
			chosen = append(chosen, l)
		}
	}
	if len(chosen) == 0 && len(all) > 0 {
		chosen = all[:1]
	}
	for _, l := range chosen {
		for n := 1; ; n++ {
			if l.ident = fmt.Sprint(l.owner.ident, "_", n); c.fresh(l.ident) == l.ident {
				break
			}
		}
	}
	return chosen
}

// changedIn returns the variables of a function that are changed after their
// declaration, directly or perhaps by their addresses.
func changedIn(p *rewrite.Package, d *ast.FuncDecl) rewrite.Vars {
	changed := rewrite.Vars{}
	ast.Inspect(d, func(n ast.Node) bool {
		if n != nil {
			p.Changes(n, changed)
			if v := p.Addressed(n); v != nil {
				changed[v] = true
			}
		}
		return true
	})
	for _, r := range resultsOf(p, d) {
		changed[r] = true
	}
	return changed
}

// apart reports whether neither of two literals is inside the other, and no
// call of one is an argument of a call of the other.
func (l *lift) apart(m *lift) bool {
	in := func(n, outer ast.Node) bool { return outer.Pos() <= n.Pos() && n.End() <= outer.End() }
	if in(l.lit, m.lit) || in(m.lit, l.lit) {
		return false
	}
	return !slices.ContainsFunc(l.uses, func(c *ast.CallExpr) bool {
		return slices.ContainsFunc(m.uses, func(k *ast.CallExpr) bool { return in(c, k) || in(k, c) })
	})
}

// canLift returns how to lift a literal, or nil if it cannot be lifted.
func canLift(p *rewrite.Package, c *converter, f *ast.File, d *ast.FuncDecl, lit *ast.FuncLit, changed rewrite.Vars) *lift {
	e := p.EscapesOf(d)
	own := ownerOf(p, d)
	v := e.Holder(lit)
	if v == nil || len(own.tparams) > 0 || p.MustStay(lit.Body) {
		return nil
	}
	l := &lift{lit: lit, v: v}
	outside := false
	ok := true
	for _, id := range e.Uses[v] {
		switch up := e.Parents[id].(type) {
		case *ast.CallExpr:
			switch e.Parents[up].(type) {
			case *ast.GoStmt, *ast.DeferStmt:
				ok = false
			}
			ok = ok && ast.Unparen(up.Fun) == ast.Expr(id)
			if len(up.Args) == 1 {
				t, tuple := p.Info.TypeOf(up.Args[0]).(*types.Tuple)
				ok = ok && !(tuple && t.Len() > 1)
			}
			l.uses = append(l.uses, up)
			outside = outside || up.Pos() < lit.Pos() || up.Pos() >= lit.End()
		case *ast.AssignStmt:
			ok = ok && up.Rhs[0] == ast.Expr(lit) && len(up.Lhs) == 1
			l.made = up
		case *ast.ValueSpec:
			if len(up.Values) > 0 {
				ok = ok && len(up.Names) == 1 && up.Values[0] == ast.Expr(lit)
				l.made, _ = e.Parents[e.Parents[up]].(ast.Stmt)
			}
		default:
			ok = false
		}
	}
	if !ok || !outside || l.made == nil {
		return nil
	}
	if _, label := e.Parents[l.made].(*ast.LabeledStmt); label {
		return nil
	}
	calls := slices.ContainsFunc(l.uses, func(c *ast.CallExpr) bool { return lit.Pos() <= c.Pos() && c.End() <= lit.End() })
	for up := e.Parents[l.made]; up != nil && calls; up = e.Parents[up] {
		switch up.(type) {
		case *ast.FuncLit, *ast.ForStmt, *ast.RangeStmt:
			l.anew = l.anew || v.Pos() < up.Pos()
		}
	}
	l.c = c
	l.closure = &closure{node: lit, file: f, owner: own, name: "a function literal in " + own.name}
	if c.plan(l.closure) != nil {
		return nil
	}
	// Variables that do not change after the literal is made can be copied.
	l.env = rewrite.EnvName
	l.values = rewrite.Vars{}
	for _, v := range l.vars {
		switch v.Name() {
		case "true", "false", "len", "panic": // the generated code needs these names
			return nil
		}
		if strings.HasPrefix(v.Name(), l.env) { // the environment of a literal around it
			l.env = v.Name() + "_"
		}
		l.values[v] = !changed[v] && !p.Large(v.Type())
	}
	return l
}

// resultsOf returns the named results of a function and of the literals in it.
func resultsOf(p *rewrite.Package, d *ast.FuncDecl) (list []*types.Var) {
	ast.Inspect(d, func(n ast.Node) bool {
		if t, ok := n.(*ast.FuncType); ok && t.Results != nil {
			for _, f := range t.Results.List {
				for _, id := range f.Names {
					if v, ok := p.Info.Defs[id].(*types.Var); ok {
						list = append(list, v)
					}
				}
			}
		}
		return true
	})
	return list
}

// lifted writes the function, and returns the edits at the literal's place. It
// returns false if the literal cannot be lifted.
func (l *lift) lifted() ([]rewrite.Edit, bool) {
	p := l.c.Package
	s := l.c.files[l.file]
	holder := fmt.Sprintf("%senv%s", rewrite.Prefix, strings.TrimPrefix(l.ident, l.owner.ident))
	for i := 2; l.c.taken[holder]; i++ {
		holder = fmt.Sprintf("%senv%s_%d", rewrite.Prefix, strings.TrimPrefix(l.ident, l.owner.ident), i)
	}
	envType, fn := rewrite.Prefix+"env_"+l.ident, rewrite.Prefix+"func_"+l.ident
	fmt.Fprintf(&s.decls, "\n// %s is what %s captures.\ntype %s struct {\n", envType, l.name, envType)
	var fields, locals, froms []string
	for i, v := range l.vars {
		if v == l.v {
			continue
		}
		local := v.Name()
		if l.values[v] {
			fmt.Fprintf(&s.decls, "%s %s\n", v.Name(), l.fields[i])
			fields = append(fields, v.Name()+": "+v.Name())
		} else {
			local = rewrite.SharedVar + local
			fmt.Fprintf(&s.decls, "%s *%s\n", v.Name(), paren(l.fields[i]))
			fields = append(fields, v.Name()+": &"+v.Name())
		}
		locals = append(locals, local)
		froms = append(froms, l.env+"."+v.Name())
	}
	self := l.env
	if l.anew {
		self = "(*" + rewrite.SharedVar + holder + ")"
		fmt.Fprintf(&s.decls, "%s **%s\n", holder, envType)
		fields = append(fields, holder+": &"+holder)
		locals = append(locals, rewrite.SharedVar+holder)
		froms = append(froms, l.env+"."+holder)
	}
	if len(fields) == 0 {
		fmt.Fprintf(&s.decls, "%snone byte\n", rewrite.Prefix) // so that each environment has an address of its own
	}
	s.decls.WriteString("}\n")

	// First, the function.
	var inner, outer []rewrite.Edit
	call := func(c *ast.CallExpr, e string) []rewrite.Edit {
		at := c.Rparen
		if len(c.Args) > 0 {
			at, e = c.Args[0].Pos(), e+", "
		}
		return []rewrite.Edit{{Lo: c.Fun.Pos(), Hi: c.Fun.End(), Text: fn}, {Lo: at, Hi: at, Text: e}}
	}
	within := func(n ast.Node) bool { return l.lit.Pos() <= n.Pos() && n.End() <= l.lit.End() }
	for _, c := range l.uses {
		if within(c) {
			inner = append(inner, call(c, self)...)
		} else {
			outer = append(outer, call(c, holder)...)
		}
	}
	ast.Inspect(l.lit, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, v := l.c.pointed(n); v != nil && l.captures(v) && v != l.v && !l.values[v] {
				inner = append(inner, rewrite.Edit{Lo: x.Pos(), Hi: x.End(), Text: rewrite.SharedVar + v.Name()})
				return false
			}
		case *ast.UnaryExpr:
			id, ok := ast.Unparen(n.X).(*ast.Ident)
			if !ok || n.Op != token.AND {
				break
			}
			if v, ok := p.Info.Uses[id].(*types.Var); ok && l.captures(v) && v != l.v {
				inner = append(inner, rewrite.Edit{Lo: n.Pos(), Hi: n.End(), Text: rewrite.SharedVar + v.Name()})
				return false
			}
		case *ast.Ident:
			switch o := p.Info.Uses[n].(type) {
			case *types.Var:
				if l.captures(o) && o != l.v && !l.values[o] {
					inner = append(inner, rewrite.Edit{Lo: n.Pos(), Hi: n.End(), Text: "(*" + rewrite.SharedVar + o.Name() + ")"})
				}
			case *types.Const:
				if l.c.local(o, l.lit) {
					inner = append(inner, rewrite.Edit{Lo: n.Pos(), Hi: n.End(), Text: l.c.consts[o]})
				}
			}
		}
		return true
	})
	part := func(lo, hi token.Pos) string { return p.Apply(lo, hi, inner) }
	fmt.Fprintf(&s.decls, "\n// %s is %s.\nfunc %s(%s *%s", fn, l.name, fn, l.env, envType)
	for _, f := range l.lit.Type.Params.List {
		var names []string
		for _, id := range f.Names {
			names = append(names, id.Name)
		}
		if len(names) == 0 {
			names = []string{"_"}
		}
		fmt.Fprintf(&s.decls, ", %s %s", strings.Join(names, ", "), part(f.Type.Pos(), f.Type.End()))
	}
	s.decls.WriteString(")")
	if r := l.lit.Type.Results; r != nil {
		s.decls.WriteString(" " + part(r.Pos(), r.End()))
	}
	// As with a literal, the captured values are in variables.
	s.decls.WriteString(" {\n")
	if len(locals) > 0 {
		fmt.Fprintf(&s.decls, "%s%s := %s\n", p.LineComment(l.lit.Pos()), strings.Join(locals, ", "), strings.Join(froms, ", "))
	}
	if len(locals) == 0 { // so that a call of a nil variable panics, as in the source
		fmt.Fprintf(&s.decls, "_ = *%s\n", l.env)
	}
	if body := part(l.lit.Body.Lbrace+1, l.lit.Body.Rbrace); l.hides() {
		s.decls.WriteString("{\n" + body + "}\n}\n")
	} else {
		s.decls.WriteString(body + "}\n")
	}

	// Then, the edits at its place.
	made := fmt.Sprintf("%s = &%s{%s}", holder, envType, strings.Join(fields, ", "))
	switch m := l.made.(type) {
	case *ast.AssignStmt:
		if m.Tok == token.DEFINE {
			made = strings.Replace(made, "=", ":=", 1)
		}
	default:
		made = "var " + made
	}
	outer = append(outer, rewrite.Edit{Lo: l.made.Pos(), Hi: l.made.End(), Text: made})
	declared := false
	ast.Inspect(l.file, func(n ast.Node) bool {
		d, ok := n.(*ast.DeclStmt)
		if !ok || d == l.made {
			return true
		}
		for _, sp := range d.Decl.(*ast.GenDecl).Specs {
			sp, ok := sp.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for _, id := range sp.Names {
				if p.Info.Defs[id] == l.v {
					outer = append(outer, rewrite.Edit{Lo: d.End(), Hi: d.End(), Text: fmt.Sprintf("\nvar %s *%s\n_ = %s\n", holder, envType, id.Name)})
					declared = true
				}
			}
		}
		return true
	})
	a, ok := l.made.(*ast.AssignStmt)
	return outer, !(ok && a.Tok != token.DEFINE && !declared)
}

// hides reports whether the body of the literal declares variables with the
// names of captured ones.
func (l *lift) hides() bool {
	scope := l.c.Info.Scopes[l.lit.Type]
	return scope != nil && slices.ContainsFunc(scope.Names(), func(name string) bool {
		for v := range l.values {
			if v.Name() == name {
				return true
			}
		}
		return false
	})
}
