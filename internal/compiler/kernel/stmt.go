package kernel

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// target is a statement that break or continue leaves.
type target struct {
	label     string
	kind      byte   // 'f': for, 's': switch, 'i': loop over items, 'g': loop over groups
	end, next string // labels in C
	usesEnd   bool
	usesNext  bool
	post      bool // continue must go to the label next
}

func (f *function) block(list []ast.Stmt) {
	for _, s := range list {
		f.stmt(s, "")
	}
}

// braces translates statements as a block.
func (f *function) braces(list []ast.Stmt) {
	f.indent++
	f.block(list)
	f.indent--
}

func (f *function) stmt(s ast.Stmt, label string) {
	switch s := s.(type) {
	case *ast.EmptyStmt:
	case *ast.BlockStmt:
		f.line("{")
		f.braces(s.List)
		f.line("}")
	case *ast.LabeledStmt:
		f.stmt(s.Stmt, s.Label.Name)
	case *ast.DeclStmt:
		f.declStmt(s)
	case *ast.AssignStmt:
		f.assign(s)
	case *ast.IncDecStmt:
		op := token.ADD
		if s.Tok == token.DEC {
			op = token.SUB
		}
		t := f.Info.TypeOf(s.X)
		k, ok := number(t)
		if !ok || k.class == 'c' {
			f.refuse(s, "a kernel cannot increment a %s", t)
		}
		one := "1"
		if k.class == 'f' {
			one = "1.0f"
			if k.bits == 64 {
				one = "1.0"
			}
		}
		read := f.lvalue(s.X, false)
		f.line("%s = %s;", f.lvalue(s.X, true), f.binary(s, op, t, read, one, nil))
	case *ast.ExprStmt:
		call, ok := ast.Unparen(s.X).(*ast.CallExpr)
		if !ok {
			f.refuse(s, "a kernel cannot use this statement")
		}
		if obj, _ := f.called(call); obj == nil {
			f.expr(call) // it says why not
		}
		text, _, _ := f.own(call)
		f.line("%s;", text)
	case *ast.IfStmt:
		f.ifStmt(s)
	case *ast.ForStmt:
		f.forStmt(s, label)
	case *ast.RangeStmt:
		f.rangeStmt(s, label)
	case *ast.SwitchStmt:
		f.switchStmt(s, label)
	case *ast.ReturnStmt:
		f.returnStmt(s)
	case *ast.BranchStmt:
		f.branch(s)
	case *ast.GoStmt:
		f.refuse(s, "a kernel cannot start goroutines: work items run in parallel")
	case *ast.DeferStmt:
		f.refuse(s, "a kernel cannot defer calls")
	case *ast.SendStmt, *ast.SelectStmt:
		f.refuse(s, "a kernel cannot use channels")
	default:
		f.refuse(s, "a kernel cannot use this statement")
	}
}

func (f *function) declStmt(s *ast.DeclStmt) {
	for _, spec := range s.Decl.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			f.refuse(spec, "a kernel cannot declare types: declare %s outside of it", spec.Name.Name)
		case *ast.ValueSpec:
			if s.Decl.(*ast.GenDecl).Tok == token.CONST {
				continue
			}
			if len(spec.Values) == 0 {
				for _, id := range spec.Names {
					f.zeroVariable(id)
				}
				continue
			}
			lhs := make([]ast.Expr, len(spec.Names))
			for i, id := range spec.Names {
				lhs[i] = id
			}
			f.defineAll(spec, lhs, spec.Values)
		}
	}
}

// zeroVariable declares a variable without a value.
func (f *function) zeroVariable(id *ast.Ident) {
	obj := f.Info.Defs[id]
	if obj == nil || id.Name == "_" {
		return
	}
	if isSlice(obj.Type()) {
		f.refuse(id, "a slice in a kernel is an argument of it, or a part of one: declare %s with its value", id.Name)
	}
	name := f.define(obj)
	if _, ok := obj.Type().Underlying().(*types.Array); ok {
		f.line("%s;", f.declaration(id, obj.Type(), name))
		fmt.Fprint(&f.out, f.zeroArray(strings.Repeat("\t", f.indent), name, obj.Type(), 0, id))
		return
	}
	f.line("%s = %s;", f.declaration(id, obj.Type(), name), f.zero(id, obj.Type()))
}

func (f *function) assign(s *ast.AssignStmt) {
	switch s.Tok {
	case token.DEFINE:
		f.defineAll(s, s.Lhs, s.Rhs)
		return
	case token.ASSIGN:
		f.assignAll(s, s.Lhs, s.Rhs)
		return
	}
	op := map[token.Token]token.Token{token.ADD_ASSIGN: token.ADD, token.SUB_ASSIGN: token.SUB, token.MUL_ASSIGN: token.MUL,
		token.QUO_ASSIGN: token.QUO, token.REM_ASSIGN: token.REM, token.AND_ASSIGN: token.AND, token.OR_ASSIGN: token.OR,
		token.XOR_ASSIGN: token.XOR, token.AND_NOT_ASSIGN: token.AND_NOT, token.SHL_ASSIGN: token.SHL, token.SHR_ASSIGN: token.SHR}[s.Tok]
	l, r := s.Lhs[0], s.Rhs[0]
	t, by := f.Info.TypeOf(l), f.Info.Types[r].Value
	read, b := f.lvalue(l, false), f.expr(r)
	var value string
	if op == token.SHL || op == token.SHR {
		value = f.shift(s, op, t, read, b, by)
	} else {
		value = f.binary(s, op, t, read, b, by)
	}
	f.line("%s = %s;", f.lvalue(l, true), value)
}

// value translates the only expression of a statement.
func (f *function) value(x ast.Expr) string {
	f.effects = true
	defer func() { f.effects = false }()
	if call, ok := ast.Unparen(x).(*ast.CallExpr); ok {
		return f.expr(call)
	}
	f.effects = false
	return f.expr(x)
}

// defineAll translates a, b := x, y and var a, b = x, y.
func (f *function) defineAll(n ast.Node, lhs, rhs []ast.Expr) {
	if f.kernel != nil && f.workDefine(n, lhs, rhs) {
		return
	}
	mixed := false // some variables exist
	for _, l := range lhs {
		id := l.(*ast.Ident)
		mixed = mixed || id.Name != "_" && f.Info.Defs[id] == nil
	}
	if len(rhs) != len(lhs) {
		f.unpack(lhs, rhs)
		return
	}
	if mixed {
		f.assignAll(n, lhs, rhs)
		return
	}
	for i, l := range lhs {
		f.defineOne(l.(*ast.Ident), rhs[i], len(lhs) == 1)
	}
}

func (f *function) defineOne(id *ast.Ident, x ast.Expr, only bool) {
	obj := f.Info.Defs[id]
	if id.Name == "_" || obj == nil {
		f.expr(x)
		return
	}
	if isSlice(obj.Type()) {
		if f.sum.assigned[obj] {
			f.refuse(id, "a kernel cannot assign to %s again, a slice: declare another variable, or use an index", id.Name)
		}
		s := *f.slice(x)
		ptr := f.fresh(cName(id.Name))
		f.line("%s %s*%s = %s;", s.space, f.elemType(id, s.elem, f.rootWrites(obj)), ptr, s.ptr)
		s.ptr = ptr
		if f.sum.lens[obj] {
			length := f.fresh("len_" + ptr)
			f.line("long %s = %s;", length, f.lenOf(x, &s))
			s.len = length
		}
		f.slices[obj] = &s
		return
	}
	if lit, ok := ast.Unparen(x).(*ast.CompositeLit); ok {
		if a, ok := obj.Type().Underlying().(*types.Array); ok {
			f.arrayLiteral(id, obj, a, lit)
			return
		}
	}
	var value string
	if only {
		value = f.value(x)
	} else {
		value = f.expr(x)
	}
	if !f.sum.assigned[obj] {
		if q := f.poly(x); q != nil {
			f.polys[obj] = q
		}
	}
	name := f.define(obj)
	f.line("%s = %s;", f.declaration(id, obj.Type(), name), value)
}

func (f *function) arrayLiteral(id *ast.Ident, obj types.Object, a *types.Array, lit *ast.CompositeLit) {
	values := make([]string, len(lit.Elts))
	for i, e := range lit.Elts {
		if _, ok := e.(*ast.KeyValueExpr); ok {
			f.refuse(e, "a kernel cannot use an array literal with indexes: list all elements from the first on")
		}
		values[i] = f.expr(e)
	}
	name := f.define(obj)
	f.line("%s;", f.declaration(id, obj.Type(), name))
	if len(values) < int(a.Len()) {
		fmt.Fprint(&f.out, f.zeroArray(strings.Repeat("\t", f.indent), name, obj.Type(), 0, id))
	}
	for i, v := range values {
		f.line("%s[%d] = %s;", name, i, v)
	}
}

// unpack translates an assignment of the results of one call.
func (f *function) unpack(lhs, rhs []ast.Expr) {
	call, ok := ast.Unparen(rhs[0]).(*ast.CallExpr)
	if !ok {
		f.refuse(rhs[0], "a kernel cannot use this form of assignment")
	}
	text, sig, _ := f.own(call)
	t := f.fresh("t")
	f.line("%s %s = %s;", "cairn_results_"+text[:strings.IndexByte(text, '(')], t, text)
	for i, l := range lhs {
		f.store(l, fmt.Sprintf("%s.r%d", t, i), sig.Results().At(i).Type())
	}
}

// store assigns a value to a variable that may be new.
func (f *function) store(l ast.Expr, value string, t types.Type) {
	if id, ok := l.(*ast.Ident); ok {
		if id.Name == "_" {
			return
		}
		if obj := f.Info.Defs[id]; obj != nil {
			f.line("%s = %s;", f.declaration(l, t, f.define(obj)), value)
			return
		}
	}
	f.line("%s = %s;", f.lvalue(l, true), value)
}

func (f *function) assignAll(n ast.Node, lhs, rhs []ast.Expr) {
	if len(rhs) != len(lhs) {
		f.unpack(lhs, rhs)
		return
	}
	used := slices.ContainsFunc(lhs, func(l ast.Expr) bool {
		id, ok := l.(*ast.Ident)
		return !ok || id.Name != "_"
	})
	if !used {
		for _, r := range rhs {
			switch {
			case f.kernel != nil && f.isSliceCall(r):
				f.sliceCall(ast.Unparen(r).(*ast.CallExpr), "unused")
			case isSlice(f.Info.TypeOf(r)):
				f.slice(r)
			default:
				f.expr(r)
			}
		}
		return
	}
	if len(lhs) == 1 {
		if isSlice(f.Info.TypeOf(lhs[0])) {
			f.refuse(n, "a kernel cannot assign to a slice again: declare another variable, or use an index")
		}
		if _, ok := f.Info.TypeOf(lhs[0]).Underlying().(*types.Array); ok {
			f.typ(n, f.Info.TypeOf(lhs[0]))
		}
		value := f.value(rhs[0])
		f.line("%s = %s;", f.lvalue(lhs[0], true), value)
		return
	}
	// All values and all indexes are computed before anything is assigned.
	values := make([]string, len(lhs))
	for i, r := range rhs {
		t := f.Info.TypeOf(lhs[i])
		if id, ok := lhs[i].(*ast.Ident); ok && id.Name == "_" {
			t = f.Info.TypeOf(r)
		}
		if isSlice(t) {
			f.refuse(n, "a kernel cannot assign to a slice again: declare another variable, or use an index")
		}
		values[i] = f.fresh("t")
		f.line("%s = %s;", f.declaration(r, t, values[i]), f.expr(r))
	}
	places := make([]func(), len(lhs))
	for i, l := range lhs {
		places[i] = f.place(l, values[i])
	}
	for _, put := range places {
		put()
	}
}

// place prepares an assignment: the indexes of an element are computed now.
func (f *function) place(l ast.Expr, value string) func() {
	switch ast.Unparen(l).(type) {
	case *ast.IndexExpr, *ast.SelectorExpr:
		simple := true
		ast.Inspect(l, func(n ast.Node) bool {
			if x, ok := n.(*ast.IndexExpr); ok {
				ast.Inspect(x.Index, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.IndexExpr:
						simple = false
					case *ast.Ident:
						if v, ok := f.Info.Uses[n].(*types.Var); ok && f.sum.assigned[v] {
							simple = false
						}
					}
					return true
				})
			}
			return true
		})
		if !simple {
			return f.placeIndexed(l, value)
		}
	}
	t := f.Info.TypeOf(l)
	return func() { f.store(l, value, t) }
}

// placeIndexed keeps the index of an element in a variable.
func (f *function) placeIndexed(l ast.Expr, value string) func() {
	x, ok := ast.Unparen(l).(*ast.IndexExpr)
	if !ok || !isSlice(f.Info.TypeOf(x.X)) {
		f.refuse(l, "a kernel cannot assign to this together with other variables: use a statement of its own")
	}
	at := f.fresh("i")
	f.line("long %s = %s;", at, f.convert(l, types.Typ[types.Int], f.Info.TypeOf(x.Index), f.expr(x.Index)))
	form := f.poly(x.Index)
	return func() {
		f.line("%s = %s;", f.element(x, f.slice(x.X), at, form, true), value)
	}
}

func (f *function) ifStmt(s *ast.IfStmt) {
	if s.Init != nil {
		f.line("{")
		f.indent++
		f.stmt(s.Init, "")
	}
	f.line("if (%s) {", f.expr(s.Cond))
	f.braces(s.Body.List)
	switch e := s.Else.(type) {
	case nil:
		f.line("}")
	case *ast.BlockStmt:
		f.line("} else {")
		f.braces(e.List)
		f.line("}")
	default:
		f.line("} else {")
		f.braces([]ast.Stmt{e})
		f.line("}")
	}
	if s.Init != nil {
		f.indent--
		f.line("}")
	}
}

func (f *function) switchStmt(s *ast.SwitchStmt, label string) {
	f.line("{")
	f.indent++
	if s.Init != nil {
		f.stmt(s.Init, "")
	}
	tag := ""
	var t types.Type
	if s.Tag != nil {
		t = f.Info.TypeOf(s.Tag)
		if k, ok := number(t); !ok || k.class == 'c' {
			f.refuse(s.Tag, "a kernel cannot switch on a %s", t)
		}
		tag = f.fresh("tag")
		f.line("%s = %s;", f.declaration(s, t, tag), f.expr(s.Tag))
	}
	at := f.push(label, 's')
	var other *ast.CaseClause
	word := "if"
	for _, c := range s.Body.List {
		c := c.(*ast.CaseClause)
		if c.List == nil {
			other = c
			continue
		}
		var conds []string
		for _, x := range c.List {
			if tag == "" {
				conds = append(conds, f.expr(x))
			} else {
				conds = append(conds, fmt.Sprintf("%s == %s", tag, f.expr(x)))
			}
		}
		f.line("%s (%s) {", word, strings.Join(conds, " || "))
		f.braces(c.Body)
		word = "} else if"
	}
	switch {
	case other != nil && word == "if":
		f.line("{")
		f.braces(other.Body)
		f.line("}")
	case other != nil:
		f.line("} else {")
		f.braces(other.Body)
		f.line("}")
	case word != "if":
		f.line("}")
	}
	f.pop(at)
	f.indent--
	f.line("}")
}

func (f *function) returnStmt(s *ast.ReturnStmt) {
	if f.kernel != nil {
		f.kernelReturn(s)
		return
	}
	switch {
	case len(f.results) == 0:
		f.line("return;")
	case len(s.Results) == 0:
		f.returnValues(func(i int) string { return f.names[f.results[i]] })
	case len(s.Results) == 1 && len(f.results) == 1:
		f.line("return %s;", f.value(s.Results[0]))
	case len(s.Results) != len(f.results):
		call, _ := ast.Unparen(s.Results[0]).(*ast.CallExpr)
		text, _, _ := f.own(call)
		t := f.fresh("t")
		f.line("%s %s = %s;", "cairn_results_"+text[:strings.IndexByte(text, '(')], t, text)
		f.returnValues(func(i int) string { return fmt.Sprintf("%s.r%d", t, i) })
	default:
		values := make([]string, len(s.Results))
		for i, r := range s.Results {
			values[i] = f.expr(r)
		}
		f.returnValues(func(i int) string { return values[i] })
	}
}

func (f *function) returnValues(value func(i int) string) {
	if len(f.results) == 1 {
		f.line("return %s;", value(0))
		return
	}
	f.line("{")
	f.indent++
	r := f.fresh("r")
	f.line("%s %s;", f.record, r)
	for i := range f.results {
		f.line("%s.r%d = %s;", r, i, value(i))
	}
	f.line("return %s;", r)
	f.indent--
	f.line("}")
}
