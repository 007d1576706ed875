package normalize

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// LowerGotos returns the package with backward jumps over calls and points of
// in written as loops: L: a; b; goto L becomes for { a; b; continue }. Other
// backward jumps stay, and Functions refuses them.
func LowerGotos(p *rewrite.Package, in func(*rewrite.Package) rewrite.ResumablePath) (*rewrite.Package, error) {
	for {
		s := in(p)
		edits := gotoEdits(p, s)
		if len(edits) == 0 {
			return p, nil
		}
		text := map[string][]byte{}
		for _, f := range p.Files {
			t := p.Apply(f.FileStart, f.FileEnd, slices.Clone(edits))
			if t == string(p.Source[p.FileName(f)]) {
				continue
			}
			b, err := rewrite.Format(p.FileName(f), []byte(t))
			if err != nil {
				return nil, err
			}
			text[p.FileName(f)] = b
		}
		var err error
		if p, err = p.With(text); err != nil {
			return nil, err
		}
	}
}

// gotoEdits returns the edits for one label that needs some.
func gotoEdits(p *rewrite.Package, in rewrite.ResumablePath) []rewrite.Edit {
	for _, fn := range in.Functions() {
		j := jumpsOf(p, fn, in)
		for _, l := range j.labels {
			if e := j.loop(l); e != nil {
				return e
			}
			if e := j.apart(l); e != nil {
				return e
			}
		}
	}
	return nil
}

// label is a label of a function, and the list of statements that contains it.
type label struct {
	s    *ast.LabeledStmt
	list []ast.Stmt
	i    int
	from []*ast.BranchStmt // gotos that name it
	used bool              // a break or continue names it
}

// jumps holds a function's labels and gotos.
type jumps struct {
	p      *rewrite.Package
	body   *ast.BlockStmt
	labels []*label
	marks  []token.Pos
	defers []token.Pos
}

// jumpsOf finds a function's labels, gotos and marks.
func jumpsOf(p *rewrite.Package, fn ast.Node, in rewrite.ResumablePath) *jumps {
	j := &jumps{p: p}
	switch fn := fn.(type) {
	case *ast.FuncDecl:
		j.body = fn.Body
	case *ast.FuncLit:
		j.body = fn.Body
	}
	if j.body == nil {
		return j
	}
	byName := map[string]*label{}
	rewrite.InspectOwn(j.body, func(m ast.Node) bool {
		if l := rewrite.StmtList(m); l != nil {
			for i, s := range *l {
				for {
					ls, ok := s.(*ast.LabeledStmt)
					if !ok {
						break
					}
					la := &label{s: ls, list: *l, i: i}
					j.labels = append(j.labels, la)
					byName[ls.Label.Name] = la
					s = ls.Stmt
				}
			}
		}
		if s, ok := m.(ast.Stmt); ok && in.Points[s] {
			at := s.Pos()
			if b := rewrite.LoopBody(s); b != nil {
				at = b.Lbrace + 1
			}
			j.marks = append(j.marks, at)
		}
		switch m := m.(type) {
		case *ast.CallExpr:
			if in.Calls[m] {
				j.marks = append(j.marks, m.Pos())
			}
		case *ast.DeferStmt:
			j.defers = append(j.defers, m.Pos())
		}
		return true
	})
	rewrite.InspectOwn(j.body, func(m ast.Node) bool {
		if b, ok := m.(*ast.BranchStmt); ok && b.Label != nil && byName[b.Label.Name] != nil {
			if l := byName[b.Label.Name]; b.Tok == token.GOTO {
				l.from = append(l.from, b)
			} else {
				l.used = true
			}
		}
		return true
	})
	return j
}

// between reports whether one of the positions in list is between a and b.
func between(list []token.Pos, a, b token.Pos) bool {
	return slices.ContainsFunc(list, func(m token.Pos) bool { return min(a, b) <= m && m < max(a, b) })
}

// back reports whether a goto jumps back over a mark or a deferred call.
func (j *jumps) back(l *label, g *ast.BranchStmt) bool {
	return g.Pos() > l.s.Pos() && (between(j.marks, l.s.Pos(), g.Pos()) || between(j.defers, l.s.Pos(), g.Pos()))
}

// loop writes backward jumps as a loop.
func (j *jumps) loop(l *label) []rewrite.Edit {
	ahead := false
	needed := false
	for _, g := range l.from {
		ahead = ahead || g.Pos() < l.s.Pos()
		needed = needed || j.back(l, g)
	}
	if !needed || len(j.marks) == 0 || ahead && l.used || !j.closed(l) {
		return nil
	}
	last := l.list[len(l.list)-1]
	name := rewrite.Prefix + "goto_" + l.s.Label.Name
	head := name + ": for { "
	switch {
	case ahead:
		head = l.s.Label.Name + ": " + head
	case l.used:
		head += l.s.Label.Name + ": "
	}
	edits := []rewrite.Edit{{Lo: l.s.Pos(), Hi: l.s.Stmt.Pos(), Text: head}}
	if _, ok := l.s.Stmt.(*ast.EmptyStmt); ok && l.i == len(l.list)-1 {
		edits[0].Hi = l.s.Colon + 1
	}
	end := "\n}\n"
	if !terminates(last) {
		end = "\nbreak " + name + end
	}
	edits = append(edits, rewrite.Edit{Lo: last.End(), Hi: last.End(), Text: end})
	for _, g := range l.from {
		if g.Pos() > l.s.Pos() {
			edits = append(edits, rewrite.Edit{Lo: g.Pos(), Hi: g.End(), Text: "continue " + name})
		}
	}
	return edits
}

// closed reports whether the statements after a label can be the body of a
// loop: nothing outside jumps into them, and they have no break, continue or
// fallthrough that refers to a statement around them.
func (j *jumps) closed(l *label) bool {
	rest := l.list[l.i:]
	if rewrite.FallsThrough(rest) {
		return false
	}
	lo, hi := l.s.Pos(), rest[len(rest)-1].End()
	for _, o := range j.labels {
		if o == l || o.s.Pos() < lo || o.s.Pos() >= hi {
			continue
		}
		for _, g := range o.from {
			if g.Pos() < lo || g.Pos() >= hi {
				return false
			}
		}
	}
	ok := true
	var walk func(m ast.Node, brk, cont bool)
	walk = func(m ast.Node, brk, cont bool) {
		ast.Inspect(m, func(k ast.Node) bool {
			switch k := k.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ForStmt, *ast.RangeStmt:
				walk(rewrite.LoopBody(k.(ast.Stmt)), true, true)
				return false
			case *ast.SwitchStmt:
				walk(k.Body, true, cont)
				return false
			case *ast.TypeSwitchStmt:
				walk(k.Body, true, cont)
				return false
			case *ast.SelectStmt:
				walk(k.Body, true, cont)
				return false
			case *ast.BranchStmt:
				if k.Label == nil {
					ok = ok && (k.Tok != token.BREAK || brk) && (k.Tok != token.CONTINUE || cont)
				}
			}
			return true
		})
	}
	for _, s := range rest {
		walk(s, false, false)
	}
	return ok
}

// apart puts the label of a statement with marks on a separate empty statement,
// if a goto names it. Code that is inserted before the statement then comes
// after the label.
func (j *jumps) apart(l *label) []rewrite.Edit {
	if len(l.from) == 0 || !between(j.marks, l.s.Pos(), l.s.End()) {
		return nil
	}
	if !l.used {
		return []rewrite.Edit{{Lo: l.s.Colon + 1, Hi: l.s.Colon + 1, Text: " {\n}\n"}}
	}
	name := rewrite.Prefix + "to_" + l.s.Label.Name
	edits := []rewrite.Edit{{Lo: l.s.Pos(), Hi: l.s.Pos(), Text: name + ": {\n}\n"}}
	for _, g := range l.from {
		edits = append(edits, rewrite.Edit{Lo: g.Label.Pos(), Hi: g.Label.End(), Text: name})
	}
	return edits
}

// terminates reports whether a statement is terminating, as defined by the Go
// specification.
func terminates(s ast.Stmt) bool {
	all := func(list []ast.Stmt) bool {
		for len(list) > 0 {
			if _, ok := list[len(list)-1].(*ast.EmptyStmt); !ok {
				break
			}
			list = list[:len(list)-1]
		}
		return len(list) > 0 && (terminates(list[len(list)-1]) || rewrite.FallsThrough(list))
	}
	clauses := func(b *ast.BlockStmt) bool {
		last := false
		for _, c := range b.List {
			switch c := c.(type) {
			case *ast.CaseClause:
				last = last || c.List == nil
				if !all(c.Body) {
					return false
				}
			case *ast.CommClause:
				last = true
				if !all(c.Body) {
					return false
				}
			}
		}
		return last && !breaks(b)
	}
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return true
	case *ast.BranchStmt:
		return s.Tok == token.GOTO || s.Tok == token.CONTINUE && s.Label != nil && strings.HasPrefix(s.Label.Name, rewrite.Prefix)
	case *ast.ExprStmt:
		c, ok := ast.Unparen(s.X).(*ast.CallExpr)
		if !ok {
			return false
		}
		id, ok := ast.Unparen(c.Fun).(*ast.Ident)
		return ok && id.Name == "panic"
	case *ast.BlockStmt:
		return all(s.List)
	case *ast.IfStmt:
		return s.Else != nil && all(s.Body.List) && terminates(s.Else)
	case *ast.ForStmt:
		return s.Cond == nil && !breaks(s.Body)
	case *ast.LabeledStmt:
		if breaksTo(s.Stmt, s.Label.Name) {
			return false
		}
		return terminates(s.Stmt)
	case *ast.SwitchStmt:
		return clauses(s.Body)
	case *ast.TypeSwitchStmt:
		return clauses(s.Body)
	case *ast.SelectStmt:
		return clauses(s.Body)
	}
	return false
}

// breaks reports whether a body has a break without a label that refers to its
// statement.
func breaks(b *ast.BlockStmt) bool {
	found := false
	for _, s := range b.List {
		ast.Inspect(s, func(m ast.Node) bool {
			switch m := m.(type) {
			case *ast.FuncLit, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
				return false
			case *ast.BranchStmt:
				found = found || m.Tok == token.BREAK && m.Label == nil
			}
			return !found
		})
	}
	return found
}

// breaksTo reports whether a statement has a break with a label.
func breaksTo(s ast.Stmt, name string) bool {
	found := false
	ast.Inspect(s, func(m ast.Node) bool {
		if b, ok := m.(*ast.BranchStmt); ok && b.Tok == token.BREAK && b.Label != nil && b.Label.Name == name {
			found = true
		}
		return !found
	})
	return found
}

// crossed reports whether a goto may pass over a statement of the same list as
// the goto's label.
func (j *jumps) crossed(s ast.Stmt) bool {
	for _, l := range j.labels {
		i := slices.Index(l.list, s)
		if i < 0 || i >= l.i {
			continue
		}
		for _, g := range l.from {
			if g.End() <= s.Pos() {
				return true
			}
		}
	}
	return false
}
