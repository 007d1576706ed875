package rewrite

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Made is what Closures put into a package.
type Made struct {
	Closures []Entry    // constructors: func(*environment) func(…) …
	Funcs    []Entry    // functions that capture nothing
	Refused  []*Refusal // what was to be converted, and stayed as it was
}

// Entry is something that the program has to make known when it starts.
type Entry struct {
	Name        string // the same for the same source: path.Func.func1
	Constructor string // an expression at package level
}

// env is the name of the environment in constructors.
const env = Prefix + "e"

// Closures converts func literals and method values to what can be saved: the
// variables that a literal captures become fields of a record, its environment,
// and the literal is made by a constructor from nothing but a pointer to that.
// A literal that captures nothing becomes a function. Variables are captured by
// their addresses, so all who share one go on sharing it.
//
// convert is asked for every func literal, and for every method value and method
// expression that is not called in place (*ast.SelectorExpr).
func (p *Package) Closures(convert func(n ast.Expr) bool) (*Package, *Made, error) {
	c := &closures{Package: p, convert: convert, made: new(Made), plans: map[ast.Expr]*closure{},
		taken: map[string]bool{}, consts: map[any]string{}, files: map[*ast.File]*closureFile{}}
	for _, f := range p.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				c.taken[id.Name] = true
			}
			return true
		})
	}
	var all []*closure
	inits, blanks := 0, 0
	glob := &closureOwner{name: "init", ident: "init"}
	for _, f := range p.Files {
		for _, d := range f.Decls {
			own := glob
			if d, ok := d.(*ast.FuncDecl); ok {
				own = p.owner(d)
				switch {
				case d.Recv == nil && d.Name.Name == "init":
					own.name = fmt.Sprint("init.", inits)
					inits++
				case d.Name.Name == "_":
					own.name = fmt.Sprint("_.", blanks)
					blanks++
				}
			}
			all = append(all, c.find(f, d, own)...)
		}
	}
	for _, n := range all {
		if err := c.plan(n); err != nil {
			c.made.Refused = append(c.made.Refused, err)
			continue
		}
		if !n.unused {
			c.plans[n.node] = n
		}
	}
	for _, n := range all {
		if c.plans[n.node] == n {
			c.declare(n)
		}
	}
	text := map[string][]byte{}
	for _, f := range p.Files {
		s := c.files[f]
		if s == nil || s.decls.Len() == 0 {
			continue
		}
		t := p.span(f.FileStart, f.FileEnd, f, func(n ast.Node) (string, bool) {
			if n == f.Name {
				return f.Name.Name + s.imports.String(), true
			}
			return c.put(nil, n)
		})
		b, err := formatted(p.name(f), []byte(t+"\n"+s.decls.String()))
		if err != nil {
			return nil, nil, err
		}
		text[p.name(f)] = b
	}
	if len(text) == 0 {
		return p, c.made, nil
	}
	q, err := p.With(text)
	if err != nil {
		return nil, nil, err
	}
	return q, c.made, nil
}

// closures is Closures at work.
type closures struct {
	*Package
	convert func(ast.Expr) bool
	made    *Made
	plans   map[ast.Expr]*closure // what is converted
	taken   map[string]bool       // names that occur in the package
	consts  map[any]string        // constants moved to package level: by object or expression
	files   map[*ast.File]*closureFile
	known   *instances
	recover map[string]bool // methods that call recover, by name
}

// closureFile is what is put into a file.
type closureFile struct {
	qualify types.Qualifier
	imports strings.Builder
	decls   strings.Builder
}

// closureOwner is a declaration that holds literals.
type closureOwner struct {
	name    string // as Go shows it: (*T).M
	ident   string // in identifiers: T_M
	object  types.Object
	tparams []*types.TypeParam
	lits    int // literals directly in it, so far
	values  int // method values in it, so far
	made    int // conversions in it, so far
}

// closure is a literal or method value to convert.
type closure struct {
	node    ast.Expr // *ast.FuncLit, *ast.SelectorExpr
	file    *ast.File
	owner   *closureOwner
	outer   *closure // the next one around it that is to be converted
	name    string   // within the package
	ident   string
	vars    []*types.Var // captured
	fields  []string     // types of the environment's fields
	sig     *types.Signature
	sigText string
	value   *methodValue
	tparams []*types.TypeParam // that it uses
	insts   [][]types.Type     // all there are of them
	unused  bool               // is in a generic function that nothing instantiates
}

func (p *Package) owner(d *ast.FuncDecl) *closureOwner {
	o := &closureOwner{name: d.Name.Name, ident: d.Name.Name}
	fn, ok := p.Info.Defs[d.Name].(*types.Func)
	if !ok {
		return o
	}
	sig := fn.Signature()
	o.object = fn
	list := sig.TypeParams()
	if r := sig.Recv(); r != nil {
		list = sig.RecvTypeParams()
		t := types.Unalias(r.Type())
		ptr, isPtr := t.(*types.Pointer)
		if isPtr {
			t = types.Unalias(ptr.Elem())
		}
		if n, ok := t.(*types.Named); ok {
			o.object = n.Origin().Obj()
			o.ident = n.Obj().Name() + "_" + d.Name.Name
			o.name = n.Obj().Name()
			if list.Len() > 0 {
				o.name += "[...]"
			}
			if isPtr {
				o.name = "(*" + o.name + ")"
			}
			o.name += "." + d.Name.Name
		}
	} else if list.Len() > 0 {
		o.name += "[...]"
	}
	for t := range list.TypeParams() {
		o.tparams = append(o.tparams, t)
	}
	return o
}

// find returns what is to be converted in a declaration, in source order.
func (c *closures) find(f *ast.File, d ast.Decl, own *closureOwner) []*closure {
	type level struct {
		name  string
		n     *int
		outer *closure
	}
	var all []*closure
	var stack []ast.Node
	levels := []level{{own.name + ".func", &own.lits, nil}}
	called := map[ast.Expr]bool{}
	add := func(n ast.Expr, name string) *closure {
		l := &closure{node: n, file: f, owner: own, name: name, outer: levels[len(levels)-1].outer}
		own.made++
		l.ident = c.fresh(fmt.Sprint(own.ident, "_", own.made))
		all = append(all, l)
		return l
	}
	ast.Inspect(d, func(n ast.Node) bool {
		if n == nil {
			if _, ok := stack[len(stack)-1].(*ast.FuncLit); ok {
				levels = levels[:len(levels)-1]
			}
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		switch n := n.(type) {
		case *ast.CallExpr:
			called[ast.Unparen(n.Fun)] = true
		case *ast.FuncLit:
			top := &levels[len(levels)-1]
			*top.n++
			in := level{fmt.Sprint(top.name, *top.n), new(int), top.outer}
			if c.convert(n) {
				in.outer = add(n, in.name)
			}
			in.name += "."
			levels = append(levels, in)
		case *ast.SelectorExpr:
			s := c.Info.Selections[n]
			if s == nil || s.Kind() == types.FieldVal || called[n] {
				break
			}
			own.values++
			if name := fmt.Sprintf("%s.%s-fm%d", own.name, n.Sel.Name, own.values); c.convert(n) {
				add(n, name)
			}
		}
		return true
	})
	return all
}

// fresh returns a name's end such that no identifier made from it occurs.
func (c *closures) fresh(s string) string {
	base := s
	for i := 2; ; i++ {
		free := true
		for _, k := range []string{"env_", "make_", "func_", "bind_", "const_"} {
			free = free && !c.taken[Prefix+k+s]
		}
		if free {
			c.taken[Prefix+"env_"+s] = true
			return s
		}
		s = fmt.Sprint(base, "_", i)
	}
}

// local says whether an object is declared in a function, outside of n.
func (c *closures) local(o types.Object, n ast.Node) bool {
	if o == nil || o.Pkg() != c.Types || o.Parent() == c.Types.Scope() {
		return false
	}
	if v, ok := o.(*types.Var); ok && v.IsField() {
		return false
	}
	return o.Pos() < n.Pos() || o.Pos() >= n.End()
}

// folded returns a constant expression in which a variable from outside of lit
// occurs, as in len(array): it has a value, but captures nothing.
func (c *closures) folded(n ast.Node, lit ast.Node) *ast.CallExpr {
	call, ok := n.(*ast.CallExpr)
	if !ok || c.Info.Types[call].Value == nil {
		return nil
	}
	found := false
	ast.Inspect(call, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			v, ok := c.Info.Uses[id].(*types.Var)
			found = found || ok && c.local(v, lit)
		}
		return !found
	})
	if !found {
		return nil
	}
	return call
}

// plan finds out what a closure captures, and whether all that can be written
// at package level.
func (c *closures) plan(l *closure) *Refusal {
	if c.files[l.file] == nil {
		c.files[l.file] = c.newFile(l.file)
	}
	w := &typeWriter{closures: c, file: l.file, owner: l.owner}
	if sel, ok := l.node.(*ast.SelectorExpr); ok {
		if err := c.planValue(l, sel, w); err != nil {
			return err
		}
		return c.planParams(l, w)
	}
	l.sig, _ = types.Unalias(c.Info.TypeOf(l.node)).(*types.Signature)
	if l.sig == nil {
		return c.no(l.node.Pos(), "", "a func literal without a type")
	}
	var err *Refusal
	ast.Inspect(l.node, func(n ast.Node) bool {
		if err != nil {
			return false
		}
		if call := c.folded(n, l.node); call != nil {
			err = c.constant(l, w, call, call.Pos(), "", c.Info.Types[call])
			return false
		}
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		o := c.Info.Uses[id]
		if !c.local(o, l.node) {
			return true
		}
		switch o := o.(type) {
		case *types.Var:
			if !slices.Contains(l.vars, o) {
				l.vars = append(l.vars, o)
			}
		case *types.Const:
			err = c.constant(l, w, o, id.Pos(), o.Name(), types.TypeAndValue{Type: o.Type(), Value: o.Val()})
		case *types.TypeName:
			if _, ok := o.Type().(*types.TypeParam); ok {
				_, err = w.text(o.Type(), id.Pos())
			} else {
				err = c.no(id.Pos(), remedyLocal, "a closure that is part of the state uses the type %s, which is declared in a function", o.Name())
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, v := range l.vars {
		t, err := w.text(v.Type(), l.node.Pos())
		if err != nil {
			err.Reason = fmt.Sprintf("a closure that is part of the state captures %s: %s", v.Name(), err.Reason)
			return err
		}
		l.fields = append(l.fields, t)
	}
	if l.sigText, err = w.text(l.sig, l.node.Pos()); err != nil {
		return err
	}
	return c.planParams(l, w)
}

const remedyLocal = "declare it at package level"

func (c *closures) no(at token.Pos, remedy, reason string, args ...any) *Refusal {
	return c.refuse(at, remedy, reason, args...).(*Refusal)
}

// put is what stands for a node in the text of in, or nil: of the file.
func (c *closures) put(in *closure, n ast.Node) (string, bool) {
	if e, ok := n.(ast.Expr); ok {
		if l := c.plans[e]; l != nil && l != in {
			return c.place(l, in), true
		}
	}
	if in == nil {
		return "", false
	}
	if call := c.folded(n, in.node); call != nil {
		return c.consts[call], true
	}
	id, ok := n.(*ast.Ident)
	if !ok {
		return "", false
	}
	switch o := c.Info.Uses[id].(type) {
	case *types.Var:
		if in.captures(o) {
			return "(*" + env + "." + o.Name() + ")", true
		}
	case *types.Const:
		if c.local(o, in.node) {
			return c.consts[o], true
		}
	}
	return "", false
}

func (l *closure) captures(v *types.Var) bool { return slices.Contains(l.vars, v) }

// place is what stands where a closure was, in the text of in.
func (c *closures) place(l, in *closure) string {
	args := l.typeArgs()
	if l.value == nil && len(l.vars) == 0 || l.value != nil && l.value.expr {
		if args != "" {
			return Prefix + "func_" + l.ident + args + "()"
		}
		return Prefix + "func_" + l.ident
	}
	var list []string
	if l.value != nil {
		sel := l.node.(*ast.SelectorExpr)
		x := l.value.op + c.text(sel.X, func(n ast.Node) (string, bool) { return c.put(in, n) }) + l.value.path
		if l.value.bind {
			return Prefix + "make_" + l.ident + "(" + Prefix + "bind_" + l.ident + args + "(" + x + "))"
		}
		list = []string{x}
	}
	for _, v := range l.vars {
		if in != nil && in.captures(v) {
			list = append(list, env+"."+v.Name())
		} else {
			list = append(list, "&"+v.Name())
		}
	}
	return Prefix + "make_" + l.ident + "(&" + Prefix + "env_" + l.ident + args + "{" + strings.Join(list, ", ") + "})"
}

// typeArgs are the type parameters that a closure uses, as arguments.
func (l *closure) typeArgs() string {
	if len(l.tparams) == 0 {
		return ""
	}
	var names []string
	for _, t := range l.tparams {
		names = append(names, t.Obj().Name())
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// literal is a closure's func literal, as a constructor returns it.
func (c *closures) literal(l *closure) string {
	if l.value != nil {
		return "func" + c.forward(l)
	}
	lit := l.node.(*ast.FuncLit)
	put := func(n ast.Node) (string, bool) { return c.put(l, n) }
	if len(l.vars) == 0 || c.surely(l, lit.Body) {
		return c.text(lit, put)
	}
	lo := lit.Body.Lbrace + 1
	return c.span(lit.Pos(), lo, lit, put) + "\n_ = " + env + " // captured even if all uses of it are dead code\n" + c.span(lo, lit.End(), lit, put)
}

// surely says whether a compiler can't find out that nothing of the environment
// is ever used: then it would not be captured.
func (c *closures) surely(l *closure, body *ast.BlockStmt) bool {
	for _, s := range body.List {
		found := false
		ast.Inspect(s, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause, *ast.FuncLit:
				return false
			case *ast.IfStmt:
				return n.Init == nil
			case *ast.BinaryExpr:
				return n.Op != token.LAND && n.Op != token.LOR
			case *ast.CallExpr:
				return c.folded(n, l.node) == nil
			case *ast.Ident:
				v, ok := c.Info.Uses[n].(*types.Var)
				found = found || ok && l.captures(v)
			}
			return true
		})
		if found {
			return true
		}
		switch s := s.(type) {
		case *ast.AssignStmt, *ast.DeclStmt, *ast.IncDecStmt, *ast.SendStmt:
		case *ast.ExprStmt:
			call, ok := s.X.(*ast.CallExpr)
			if !ok {
				return false
			}
			if id, ok := ast.Unparen(call.Fun).(*ast.Ident); ok {
				if _, ok := c.Info.Uses[id].(*types.Builtin); ok {
					return false
				}
			}
		default:
			return false
		}
	}
	return false
}

// declare writes a closure's declarations.
func (c *closures) declare(l *closure) {
	b := &c.files[l.file].decls
	free := l.value == nil && len(l.vars) == 0 || l.value != nil && l.value.expr
	path := c.Types.Path() + "."
	if len(l.tparams) > 0 {
		c.declareGeneric(l, free)
		return
	}
	if free {
		fmt.Fprintf(b, "\n// %s\nfunc %sfunc_%s", l.name, Prefix, l.ident)
		if l.value != nil {
			b.WriteString(c.forward(l))
		} else {
			lit := l.node.(*ast.FuncLit)
			b.WriteString(c.span(lit.Type.Params.Pos(), lit.End(), lit, func(n ast.Node) (string, bool) { return c.put(l, n) }))
		}
		b.WriteString("\n")
		c.made.Funcs = append(c.made.Funcs, Entry{path + l.name, Prefix + "func_" + l.ident})
		return
	}
	c.declareEnv(l, "", "")
	fmt.Fprintf(b, "\n//go:noinline\nfunc %smake_%s(%s *%[1]senv_%[2]s) %[4]s {\nreturn %[5]s\n}\n", Prefix, l.ident, env, l.sigText, c.literal(l))
	c.made.Closures = append(c.made.Closures, Entry{path + l.name, Prefix + "make_" + l.ident})
}

// declareEnv writes the type of an environment, and what binds an interface.
func (c *closures) declareEnv(l *closure, params, args string) {
	b := &c.files[l.file].decls
	fmt.Fprintf(b, "\n// %s\ntype %senv_%s%s struct {\n", l.name, Prefix, l.ident, params)
	if l.value != nil {
		fmt.Fprintf(b, "x %s\n", l.fields[0])
	}
	for i, v := range l.vars {
		fmt.Fprintf(b, "%s *%s\n", v.Name(), paren(l.fields[i]))
	}
	b.WriteString("}\n")
	if l.value != nil && l.value.bind {
		fmt.Fprintf(b, "\nfunc %sbind_%s%s(x %s) *%[1]senv_%[2]s%[5]s {\n_ = x.%[6]s // panics if there is none\nreturn &%[1]senv_%[2]s%[5]s{x}\n}\n",
			Prefix, l.ident, params, l.fields[0], args, l.node.(*ast.SelectorExpr).Sel.Name)
	}
}

// paren puts a type into parentheses where a star before it would be misread.
func paren(t string) string {
	if strings.HasPrefix(t, "<-") {
		return "(" + t + ")"
	}
	return t
}
