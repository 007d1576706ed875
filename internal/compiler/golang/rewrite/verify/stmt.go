package verify

import (
	"go/ast"
	"go/token"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// list interprets statements.
func (v *Verifier) list(list []ast.Stmt, in flow) flow {
	for _, s := range list {
		in = v.stmt(s, in, "")
	}
	return in
}

// stmt interprets a statement, and returns the flow after it.
func (v *Verifier) stmt(s ast.Stmt, in flow, label string) flow {
	if v.bad != "" {
		return in
	}
	switch s := s.(type) {
	case *ast.LabeledStmt:
		return v.stmt(s.Stmt, in.join(v.gotos[s.Label.Name]), s.Label.Name)
	case *ast.BlockStmt:
		return v.list(s.List, in)
	case *ast.ExprStmt:
		v.expr(s.X, in)
	case *ast.SendStmt:
		v.expr(s.Chan, in)
		v.expr(s.Value, in)
	case *ast.GoStmt:
		v.expr(s.Call, in)
	case *ast.DeferStmt:
		v.expr(s.Call.Fun, in)
		for _, x := range s.Call.Args {
			v.expr(x, in)
		}
	case *ast.IncDecStmt:
		v.expr(s.X, in)
	case *ast.AssignStmt:
		return v.assignment(s, in)
	case *ast.DeclStmt:
		return v.declaration(s, in)
	case *ast.ReturnStmt:
		for _, x := range s.Results {
			v.expr(x, in)
		}
		if len(s.Results) == 0 {
			for _, o := range v.results {
				v.read(&ast.Ident{Name: o.Name, Obj: o}, in)
			}
		}
		return flow{}
	case *ast.BranchStmt:
		v.branch(s, in)
		return flow{}
	case *ast.IfStmt:
		if s.Init != nil {
			in = v.stmt(s.Init, in, "")
		}
		t, f := v.cond(s.Cond, in)
		t = v.stmt(s.Body, t, "")
		if s.Else != nil {
			f = v.stmt(s.Else, f, "")
		}
		return t.join(f)
	case *ast.ForStmt:
		return v.forLoop(s, in, label)
	case *ast.RangeStmt:
		return v.rangeLoop(s, in, label)
	case *ast.SwitchStmt:
		return v.switches(s, in, label)
	case *ast.TypeSwitchStmt:
		if s.Init != nil {
			in = v.stmt(s.Init, in, "")
		}
		in = v.stmt(s.Assign, in, "")
		return v.clauses(s.Body, in, label, nil)
	case *ast.SelectStmt:
		return v.selects(s, in, label)
	}
	return in
}

// assignment interprets an assignment.
func (v *Verifier) assignment(s *ast.AssignStmt, in flow) flow {
	if s.Tok != token.ASSIGN && s.Tok != token.DEFINE {
		for _, x := range append(s.Lhs[:len(s.Lhs):len(s.Lhs)], s.Rhs...) {
			v.expr(x, in)
		}
		return in
	}
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 { // _ = x only uses x
		to, ok := s.Lhs[0].(*ast.Ident)
		if _, is := s.Rhs[0].(*ast.Ident); ok && is && to.Name == "_" {
			return in
		}
	}
	v.places(s.Lhs, in)
	for _, x := range s.Rhs {
		v.expr(x, in)
	}
	return v.assign(s.Lhs, s.Rhs, in)
}

// declaration interprets a declaration of variables.
func (v *Verifier) declaration(s *ast.DeclStmt, in flow) flow {
	for _, spec := range s.Decl.(*ast.GenDecl).Specs {
		spec, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		for _, x := range spec.Values {
			v.expr(x, in)
		}
		for _, id := range spec.Names {
			in = v.give(id, nil, in)
		}
	}
	return in
}

// branch adds a flow to the target of a jump.
func (v *Verifier) branch(s *ast.BranchStmt, in flow) {
	switch s.Tok {
	case token.GOTO:
		more, grew := v.gotos[s.Label.Name].grown(in)
		if grew {
			v.gotos[s.Label.Name], v.again = more, true
		}
		return
	case token.FALLTHROUGH:
		v.falls = in
		return
	}
	for i := len(v.targets) - 1; i >= 0; i-- {
		t := v.targets[i]
		if s.Label != nil && s.Label.Name != t.label || s.Tok == token.CONTINUE && !t.loop {
			continue
		}
		if s.Tok == token.BREAK {
			t.breaks = t.breaks.join(in)
		} else {
			t.conts = t.conts.join(in)
		}
		return
	}
	v.bad = s.Tok.String() + " leads nowhere"
}

// enter adds a statement that break and continue may refer to.
func (v *Verifier) enter(label string, loop bool) *jumpTarget {
	t := &jumpTarget{label: label, loop: loop}
	v.targets = append(v.targets, t)
	return t
}

func (v *Verifier) exit() { v.targets = v.targets[:len(v.targets)-1] }

// forLoop interprets a loop until the flow into its body does not change.
func (v *Verifier) forLoop(s *ast.ForStmt, in flow, label string) flow {
	if s.Init != nil {
		in = v.stmt(s.Init, in, "")
	}
	first := v.firstOf(s.Init)
	test := func(in flow) (t, f flow) {
		if s.Cond == nil {
			return in, flow{}
		}
		t, f = v.cond(s.Cond, in)
		if first != 0 { // the first iteration begins whatever the condition is
			f = f.where(first, false)
		}
		return t, f
	}
	t := v.enter(label, true)
	defer v.exit()
	body, out := test(in)
	if v.enters[s.For] {
		out = flow{}
	}
	for grew := true; grew && v.bad == ""; {
		t.conts = flow{}
		end := v.stmt(s.Body, body, "").join(t.conts)
		if s.Post != nil {
			end = v.stmt(s.Post, end, "")
		}
		more, ends := test(end)
		out = out.join(ends)
		body, grew = body.grown(more)
	}
	return out.join(t.breaks)
}

// firstOf returns the flag that a loop sets when it begins.
func (v *Verifier) firstOf(init ast.Stmt) uint64 {
	if a, ok := init.(*ast.AssignStmt); ok {
		for _, x := range a.Lhs {
			if id, ok := x.(*ast.Ident); ok && firstNames.MatchString(id.Name) {
				return v.flags[id.Obj]
			}
		}
	}
	return 0
}

// rangeLoop interprets a range loop until the flow into its body does not
// change.
func (v *Verifier) rangeLoop(s *ast.RangeStmt, in flow, label string) flow {
	v.expr(s.X, in)
	t := v.enter(label, true)
	defer v.exit()
	var vars []ast.Expr
	for _, x := range []ast.Expr{s.Key, s.Value} {
		if x != nil {
			vars = append(vars, x)
		}
	}
	// The loop over the rest of a string is entered, and its offset is 0 at
	// first.
	out, body := in, in
	offset, _ := s.Key.(*ast.Ident)
	if offset != nil && strings.HasPrefix(offset.Name, rewrite.Prefix+"j") && offset.Obj != nil {
		out, body = flow{}, v.raise(offset.Obj, true, in)
	} else {
		offset = nil
	}
	for grew := true; grew && v.bad == ""; {
		t.conts = flow{}
		v.places(vars, body)
		end := v.stmt(s.Body, v.assign(vars, nil, body), "").join(t.conts)
		if offset != nil {
			end = v.raise(offset.Obj, false, end)
		}
		out = out.join(end)
		body, grew = body.grown(end)
	}
	return out.join(t.breaks)
}

// switches interprets a switch.
func (v *Verifier) switches(s *ast.SwitchStmt, in flow, label string) flow {
	if s.Init != nil {
		in = v.stmt(s.Init, in, "")
	}
	v.expr(s.Tag, in)
	tag, _ := s.Tag.(*ast.BasicLit) // switch 0 { case 0: is entered there
	return v.clauses(s.Body, in, label, tag)
}

// clauses interprets the clauses of a switch. With a constant tag the first
// one is taken.
func (v *Verifier) clauses(body *ast.BlockStmt, in flow, label string, tag *ast.BasicLit) flow {
	t := v.enter(label, false)
	defer v.exit()
	// The expressions of cases are evaluated in order. A default clause is
	// taken last.
	at := in
	begins := make([]flow, len(body.List))
	last := -1
	for i, c := range body.List {
		c := c.(*ast.CaseClause)
		if c.List == nil {
			last = i
			continue
		}
		for _, x := range c.List {
			v.expr(x, at)
		}
		begins[i] = at
		if tag != nil && i == 0 {
			at = flow{}
		}
	}
	if last >= 0 {
		begins[last], at = at, flow{}
	}
	out := at
	var fell flow
	for i, c := range body.List {
		v.falls = flow{}
		out = out.join(v.list(c.(*ast.CaseClause).Body, begins[i].join(fell)))
		fell = v.falls
	}
	return out.join(t.breaks)
}

// selects interprets a select: all channels and values are evaluated first.
func (v *Verifier) selects(s *ast.SelectStmt, in flow, label string) flow {
	t := v.enter(label, false)
	defer v.exit()
	for _, c := range s.Body.List {
		switch comm := c.(*ast.CommClause).Comm.(type) {
		case *ast.SendStmt:
			v.expr(comm.Chan, in)
			v.expr(comm.Value, in)
		case *ast.ExprStmt:
			v.expr(comm.X, in)
		case *ast.AssignStmt:
			v.expr(comm.Rhs[0], in)
		}
	}
	out := flow{}
	for _, c := range s.Body.List {
		c := c.(*ast.CommClause)
		at := in
		if a, ok := c.Comm.(*ast.AssignStmt); ok {
			v.places(a.Lhs, at)
			at = v.assign(a.Lhs, nil, at)
		}
		out = out.join(v.list(c.Body, at))
	}
	return out.join(t.breaks)
}
