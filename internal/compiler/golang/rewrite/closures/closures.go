// Package closures turns func values into what can be saved. Lift makes
// functions of literals that are only called. Convert makes records of the
// others that may be part of the state when a checkpoint is taken.
package closures

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Converted is what Convert put into a package.
type Converted struct {
	Closures []Entry            // constructors of type func(*environment) func(…) …
	Generic  []GenericClosure   // constructors for closures of generic functions
	Funcs    []Entry            // functions that capture nothing
	Refused  []*rewrite.Refusal // reasons why some literals stayed unchanged
	Places   []token.Position   // where each of these literals begins
	Forward  map[string]string  // functions that literals with a mark forward to, by the numbers of the marks
	Exprs    map[string]string  // methods that functions for method expressions call, by the names of these functions
	Stuck    *rewrite.Refusal   // the first of Refused with a point, or with a call that leads to one
}

// Entry is a function that the program must register when it starts.
type Entry struct {
	Name        string // stable for the same source: path.Func.func1
	Constructor string // an expression at package level
}

// Convert turns func literals and method values into a form that can be saved.
// The variables that a literal captures become fields of a record, its
// environment. A constructor makes the literal from a pointer to the
// environment. A literal that captures nothing becomes a function. Variables
// are captured by address, so that they stay shared, unless one literal alone
// uses them.
//
// convert is called for every func literal, and for every method value and
// method expression that is not called in place (*ast.SelectorExpr). It reports
// whether to convert it.
func Convert(p *rewrite.Package, convert func(n ast.Expr) bool) (*rewrite.Package, *Converted, error) {
	want := map[ast.Expr]bool{}
	ask := func(n ast.Expr) bool {
		w, ok := want[n]
		if !ok {
			w = convert(n)
			want[n] = w
		}
		return w
	}
	bad := map[ast.Expr]string{}
	for {
		q, c, err := convertWithout(p, ask, bad)
		if err == nil {
			return q, c.made, nil
		}
		l, why := c.blame(q, err)
		if l == nil || bad[l.node] != "" {
			return nil, nil, err
		}
		bad[l.node] = why
	}
}

// convertWithout is Convert without the closures in bad. It returns the package
// even if the package has a type error.
func convertWithout(p *rewrite.Package, convert func(ast.Expr) bool, bad map[ast.Expr]string) (*rewrite.Package, *converter, error) {
	c := newClosures(p)
	c.convert, c.bad = convert, bad
	var all []*closure
	inits, blanks := 0, 0
	glob := &closureOwner{name: "init", ident: "init"}
	for _, f := range p.Files {
		for _, d := range f.Decls {
			own := glob
			if d, ok := d.(*ast.FuncDecl); ok {
				own = ownerOf(p, d)
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
	c.resumable = p.ResumablePath()
	c.findMarks()
	for _, n := range all {
		if err := c.plan(n); err != nil {
			c.made.Refused = append(c.made.Refused, err)
			c.made.Places = append(c.made.Places, p.Fset.Position(n.node.Pos()))
			if c.made.Stuck == nil && c.resumable.Funcs[n.node] {
				c.made.Stuck = err
			}
			continue
		}
		if c.own(n); !n.unused {
			c.planForward(n)
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
		t := p.Span(f.FileStart, f.FileEnd, f, func(n ast.Node) (string, bool) {
			if n == f.Name {
				return f.Name.Name + s.used(), true
			}
			return c.put(nil, n)
		})
		b, err := rewrite.Format(p.FileName(f), []byte(t+"\n"+s.decls.String()))
		if err != nil {
			return nil, c, err
		}
		text[p.FileName(f)] = b
	}
	if len(text) == 0 {
		return p, c, nil
	}
	q, err := p.With(text)
	return q, c, err
}

func newClosures(p *rewrite.Package) *converter {
	c := &converter{Package: p, made: new(Converted), plans: map[ast.Expr]*closure{}, taken: map[string]bool{}, consts: map[*types.Const]string{},
		files: map[*ast.File]*closureFile{}, declared: map[string]*closure{}, changed: map[*ast.FuncDecl]rewrite.Vars{}, marks: map[token.Pos]string{}}
	for _, f := range p.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				c.taken[id.Name] = true
			}
			return true
		})
	}
	return c
}

// blame returns the closure whose declarations have a type error, if there is
// one. Code that is correct for a type parameter can be wrong for a type.
func (c *converter) blame(q *rewrite.Package, err error) (*closure, string) {
	var e types.Error
	if q == nil || !errors.As(err, &e) {
		return nil, ""
	}
	for _, f := range q.Files {
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok || e.Pos < d.Pos() || e.Pos >= d.End() {
				continue
			}
			return c.declared[d.Name.Name], e.Msg
		}
	}
	return nil, ""
}

// converter is the state of Convert.
type converter struct {
	*rewrite.Package
	convert   func(ast.Expr) bool
	bad       map[ast.Expr]string // closures that are not converted, with the reason
	made      *Converted
	plans     map[ast.Expr]*closure   // closures that are converted
	taken     map[string]bool         // names that occur in the package
	consts    map[*types.Const]string // constants moved to package level
	files     map[*ast.File]*closureFile
	known     *instances
	resumable rewrite.ResumablePath
	recover   map[string]bool                // methods that call recover, by name
	declared  map[string]*closure            // constructors and functions
	changed   map[*ast.FuncDecl]rewrite.Vars // see changedIn
	marks     map[token.Pos]string           // numbers of the marks of literals, by the position before them
}

// closureFile is what Convert adds to a file.
type closureFile struct {
	qualify types.Qualifier
	imports [][2]string // names and paths of imports that may be needed
	decls   strings.Builder
}

// used returns the imports that the added declarations need.
func (s *closureFile) used() string {
	var b strings.Builder
	for _, i := range s.imports {
		if strings.Contains(s.decls.String(), i[0]+".") {
			fmt.Fprintf(&b, "; import %s %q", i[0], i[1])
		}
	}
	return b.String()
}

// closureOwner is a declaration that holds literals.
type closureOwner struct {
	name    string // as Go shows it: (*T).M
	ident   string // in identifiers: T_M
	object  types.Object
	tparams []*types.TypeParam
	lits    int // number of literals directly in it, so far
	values  int // number of method values in it, so far
	made    int // number of conversions in it, so far
}

// closure is a literal or method value to convert.
type closure struct {
	node    ast.Expr // *ast.FuncLit, *ast.SelectorExpr
	file    *ast.File
	owner   *closureOwner
	outer   *closure // the innermost converted closure around it
	name    string   // name in the package
	ident   string
	vars    []*types.Var // captured variables
	owned   rewrite.Vars // captured variables that nothing else uses, or that do not change: the environment has copies
	forward bool         // it calls a function that has its body: see forward.go
	locals  rewrite.Vars // captured variables that this function has in variables of its own
	fields  []string     // types of the environment's fields
	sig     *types.Signature
	sigText string
	value   *methodValue
	tparams []*types.TypeParam // type parameters that it uses
	insts   [][]types.Type     // all lists of type arguments for these
	unused  bool               // it is in a generic function that is never instantiated
	open    bool               // it is in a generic function that other packages may instantiate
	used    []int              // if open: which type parameters of the function it uses
}

func ownerOf(p *rewrite.Package, d *ast.FuncDecl) *closureOwner {
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

// find returns the closures to convert in a declaration, in source order.
func (c *converter) find(f *ast.File, d ast.Decl, own *closureOwner) []*closure {
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
		kind := ""
		if sel, ok := n.(*ast.SelectorExpr); ok {
			kind = rewrite.MethodValueKind
			if c.Info.Selections[sel].Kind() == types.MethodExpr {
				kind = rewrite.MethodExprKind
			}
		}
		l.ident = c.fresh(fmt.Sprint(kind, own.ident, "_", own.made))
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

// fresh returns a suffix that no identifier of the package has.
func (c *converter) fresh(s string) string {
	base := s
	for i := 2; ; i++ {
		free := true
		for _, k := range []string{"env_", "make_", "func_", "forward_", "bind_", "const_"} {
			free = free && !c.taken[rewrite.Prefix+k+s] && !c.taken[exported+k+s]
		}
		if free {
			c.taken[rewrite.Prefix+"env_"+s] = true
			return s
		}
		s = fmt.Sprint(base, "_", i)
	}
}

// local reports whether an object is declared in a function, outside of n.
func (c *converter) local(o types.Object, n ast.Node) bool {
	if o == nil || o.Pkg() != c.Types || o.Parent() == c.Types.Scope() {
		return false
	}
	if v, ok := o.(*types.Var); ok && v.IsField() {
		return false
	}
	return o.Pos() < n.Pos() || o.Pos() >= n.End()
}

// plan finds what a closure captures, and refuses it if that cannot be written
// at package level.
func (c *converter) plan(l *closure) *rewrite.Refusal {
	if c.files[l.file] == nil {
		c.files[l.file] = c.newFile(l.file)
	}
	if why := c.bad[l.node]; why != "" {
		return c.no(l.node.Pos(), "move it into a function that is not generic", "a closure that is part of the state cannot stand alone: %s", why)
	}
	w := &typeWriter{converter: c, file: l.file, owner: l.owner}
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
	var err *rewrite.Refusal
	ast.Inspect(l.node, func(n ast.Node) bool {
		if err != nil {
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
			err = c.constant(l, w, o, id.Pos())
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

func (c *converter) no(at token.Pos, remedy, reason string, args ...any) *rewrite.Refusal {
	return c.Refuse(at, remedy, reason, args...).(*rewrite.Refusal)
}
