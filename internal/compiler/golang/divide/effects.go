package divide

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// write is an assignment, or a call of a library that may write.
type write struct {
	fn    *callgraph.Function
	lhs   ast.Expr
	obj   types.Object // the variable or field, or that whose element is written
	field bool
	elem  bool       // an element, or what a pointer points to
	of    types.Type // … of a slice, map, array or pointer of this type
	local bool       // a variable of the function itself
	fresh bool       // an element of memory that the function has allocated
}

// objects returns what the write may change, of what has a name.
func (w *write) objects() (list []types.Object) {
	add := func(o types.Object) {
		if o != nil {
			list = append(list, o)
		}
	}
	add(w.obj)
	t := w.fn.Pkg.Info.TypeOf(w.lhs)
	var fields func(t types.Type, depth int)
	fields = func(t types.Type, depth int) {
		st, ok := t.Underlying().(*types.Struct)
		if !ok || depth > 5 {
			return
		}
		for f := range st.Fields() {
			add(f.Origin())
			fields(f.Type(), depth+1)
		}
	}
	if t != nil && !w.local {
		fields(t, 0) // all of a struct
	}
	return list
}

// writes returns the writes in a part of a function, without those in function
// literals.
func writes(fn *callgraph.Function, root ast.Node) (list []*write) {
	add := func(e ast.Expr) {
		if w := newWrite(fn, e); w != nil {
			list = append(list, w)
		}
	}
	pkg := fn.Pkg
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return n.Body == fn.Body
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				add(e)
			}
		case *ast.IncDecStmt:
			add(n.X)
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if e != nil {
					add(e)
				}
			}
		case *ast.GenDecl:
			for _, spec := range n.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, id := range v.Names {
						add(id)
					}
				}
			}
		case *ast.CallExpr:
			if isBuiltin(pkg, n, "copy", "clear", "delete") {
				add(&ast.StarExpr{Star: n.Args[0].Pos(), X: n.Args[0]})
				return true
			}
			f, ok := load.Callee(pkg, n).(*types.Func)
			if !ok || f.Pkg() == nil || onlyReads(f) || pkg.Types == f.Pkg() {
				return true
			}
			args := slices.Clone(n.Args)
			if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && pkg.Info.Selections[sel] != nil {
				args = append(args, sel.X)
			}
			for _, e := range args {
				if u, ok := ast.Unparen(e).(*ast.UnaryExpr); ok && u.Op == token.AND {
					add(u.X)
				} else if t := pkg.Info.TypeOf(e); t != nil {
					switch t.Underlying().(type) {
					case *types.Slice, *types.Map, *types.Pointer:
						add(&ast.StarExpr{Star: e.Pos(), X: e})
					}
				}
			}
		}
		return true
	})
	return list
}

func newWrite(fn *callgraph.Function, e ast.Expr) *write {
	info := fn.Pkg.Info
	e = ast.Unparen(e)
	if id, ok := e.(*ast.Ident); ok && id.Name == "_" {
		return nil
	}
	w := &write{fn: fn, lhs: e, obj: object(fn.Pkg, e)}
	direct := true // the path crosses no pointer
	x := e
	for {
		switch y := ast.Unparen(x).(type) {
		case *ast.SelectorExpr:
			if info.Selections[y] == nil { // of a package
				return w
			}
			w.field = w.field || !w.elem
			direct = direct && !load.IsPointer(info.TypeOf(y.X)) && !info.Selections[y].Indirect()
			x = y.X
			continue
		case *ast.IndexExpr:
			if !w.elem && !w.field {
				w.elem, w.of = true, info.TypeOf(y.X)
			}
			if _, array := info.TypeOf(y.X).Underlying().(*types.Array); !array {
				direct = false
			}
			x = y.X
			continue
		case *ast.StarExpr:
			if !w.elem && !w.field {
				w.elem, w.of = true, info.TypeOf(y.X)
			}
			direct = false
			x = y.X
			continue
		case *ast.SliceExpr:
			x = y.X
			continue
		case *ast.Ident:
			v, ok := info.ObjectOf(y).(*types.Var)
			own := ok && !v.IsField() && fn.Node.Pos() <= v.Pos() && v.Pos() < fn.Node.End() && !fn.Parameter(v)
			w.local = direct && (own || ok && fn.Parameter(v))
			w.fresh = own && w.elem && assignedOnly(fn, v, func(e ast.Expr, _ int) bool { return makes(fn, v, e) })
		}
		return w
	}
}

// makes reports whether an expression allocates the memory that v is given.
func makes(fn *callgraph.Function, v *types.Var, e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		return true
	case *ast.Ident:
		return e.Name == "nil"
	case *ast.CallExpr:
		if isBuiltin(fn.Pkg, e, "make", "new") {
			return true
		}
		return isBuiltin(fn.Pkg, e, "append") && object(fn.Pkg, e.Args[0]) == v
	}
	return false
}

// assignedOnly reports whether a function gives one of its variables only
// certain values: result i of an expression, or a single value.
func assignedOnly(fn *callgraph.Function, v *types.Var, certain func(e ast.Expr, i int) bool) bool {
	info := fn.Pkg.Info
	ok, found := true, false
	list := func(i, n int, values []ast.Expr) {
		found = true
		switch {
		case len(values) == n:
			ok = ok && certain(values[i], 0)
		case len(values) == 1:
			ok = ok && certain(values[0], i)
		}
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, e := range n.Lhs {
				if id, is := ast.Unparen(e).(*ast.Ident); is && info.ObjectOf(id) == v {
					list(i, len(n.Lhs), n.Rhs)
				}
			}
		case *ast.ValueSpec:
			for i, id := range n.Names {
				if info.Defs[id] == v {
					list(i, len(n.Names), n.Values)
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, is := e.(*ast.Ident); is && info.ObjectOf(id) == v {
					ok = false
				}
			}
		case *ast.UnaryExpr:
			ok = ok && (n.Op != token.AND || !isVar(info, n.X, v))
		}
		return true
	})
	return ok && found
}

func isVar(info *types.Info, e ast.Expr, v *types.Var) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && info.ObjectOf(id) == v
}

// effects returns the writes of a statement and of what it calls.
func (c *candidate) effects(s ast.Stmt) []*write {
	list := writes(c.fn, s)
	for _, fn := range c.d.reach(c.d.called(s)) {
		list = append(list, writes(fn, fn.Body)...)
	}
	return list
}

// pureDevice are the functions of package device that change nothing but where
// arrays are kept.
var pureDevice = []string{"New", "NewConstant", "Rows", "Prefer", "Dims", "Len", "Info", "String", "Read", "Free", "Err", "In", "Out", "InOut", "Local", "Devices", "Moved"}

// pureLibrary are packages without side effects.
var pureLibrary = []string{"errors", "math", "math/bits", "math/cmplx", "slices", "strconv", "strings"}

// impurity says what a statement does besides setting variables that depend on
// the devices, if anything.
func (d *dependence) impurity(fn *callgraph.Function, s ast.Stmt) *Cause {
	for _, w := range writes(fn, s) { // variables of the loop's function live on
		if w.local && w.obj != nil && !load.IsError(w.obj.Type()) {
			_, assigns := s.(*ast.AssignStmt)
			_, declares := s.(*ast.DeclStmt)
			if _, on := d.cause(w.obj); !on && (assigns || declares || w.obj.Pos() < s.Pos() || w.obj.Pos() >= s.End()) {
				return &Cause{w.lhs.Pos(), "it sets " + w.obj.Name()}
			}
		}
	}
	if p := d.impure(fn, s); p != nil {
		return p
	}
	for _, to := range d.reach(d.called(s)) {
		if p := d.impure(to, to.Body); p != nil {
			return p
		}
	}
	return nil
}

func (d *dependence) impure(fn *callgraph.Function, root ast.Node) (found *Cause) {
	pkg := fn.Pkg
	bad := func(n ast.Node, text string) {
		if found == nil {
			found = &Cause{n.Pos(), text}
		}
	}
	for _, w := range writes(fn, root) {
		if w.local || w.fresh {
			continue
		}
		if w.obj != nil {
			if _, on := d.cause(w.obj); on || load.IsError(w.obj.Type()) {
				continue
			}
			bad(w.lhs, "it sets "+w.obj.Name())
		} else {
			bad(w.lhs, "it writes to memory")
		}
	}
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			if n.Body != fn.Body {
				bad(n, "it makes a function")
				return false
			}
		case *ast.GoStmt, *ast.DeferStmt, *ast.SendStmt, *ast.SelectStmt:
			bad(n, "it does more than compute")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				bad(n, "it receives from a channel")
			}
		case *ast.RangeStmt:
			if _, ok := pkg.Info.TypeOf(n.X).Underlying().(*types.Map); ok {
				bad(n, "it ranges over a map")
			}
		case *ast.CallExpr:
			if d.sites[n] != nil || pkg.Info.Types[n.Fun].IsType() || pkg.Info.Types[n.Fun].IsBuiltin() {
				return true
			}
			f, ok := load.Callee(pkg, n).(*types.Func)
			switch {
			case !ok || f.Pkg() == nil:
				if !ok || f.FullName() != "(error).Error" {
					bad(n, "it calls a function that is not known")
				}
			case f.Pkg().Path() == load.DevicePath:
				if !slices.Contains(pureDevice, f.Name()) {
					bad(n, "it calls "+f.Name()+" of package device")
				} else if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && f.Name() == "Free" {
					if _, on := d.expr(pkg, sel.X); !on {
						bad(n, "it frees an array")
					}
				}
			case f.FullName() == "fmt.Errorf" || f.FullName() == "fmt.Sprintf" || f.FullName() == "fmt.Sprint":
			case slices.Contains(pureLibrary, f.Pkg().Path()) && f.Signature().Recv() == nil, strings.HasPrefix(f.FullName(), "sort.Search"):
			default:
				bad(n, "it calls "+f.FullName())
			}
		}
		return true
	})
	return found
}

// stable refuses if the loop, or a statement before it that is not repeated,
// changes what the work's division follows from, or the division itself.
func (c *candidate) stable(everything *reach, stmts []ast.Stmt, start int) *Refusal {
	d := c.d
	inputs, contents, shown := c.inputs(stmts)
	watched := func(o types.Object) (Cause, string, bool) {
		if load.IsError(o.Type()) {
			return Cause{}, "", false
		}
		if at, ok := inputs[o]; ok {
			return Cause{at, "the division follows from it"}, "and it changes while the loop runs", true
		}
		if _, ok := everything.found[o]; ok {
			if x, on := d.cause(o); on {
				return x, "and the loop changes it", true
			}
		}
		return Cause{}, "", false
	}
	check := func(w *write) *Refusal {
		refuse := func(o types.Object) *Refusal {
			if x, why, ok := watched(o); ok {
				return &Refusal{Variable: Variable{o.Name(), w.lhs.Pos(), Cause{x.At, x.Text + ", " + why}}}
			}
			return nil
		}
		if w.local && w.obj != nil {
			if o := w.obj; !w.field && c.decl.Pos() <= o.Pos() && o.Pos() < c.body.Lbrace { // of the loop's function
				return refuse(o)
			}
			return nil
		}
		for _, o := range w.objects() {
			if w.fresh {
				break
			}
			if r := refuse(o); r != nil {
				return r
			}
		}
		if w.elem && !w.fresh && w.of != nil { // another variable may share the memory
			for o := range everything.found {
				if typeKey(o.Type()) == typeKey(w.of) {
					if r := refuse(o); r != nil {
						return r
					}
				}
			}
			for _, o := range d.addressed[typeKey(deref(w.of))] {
				if r := refuse(o); r != nil {
					return r
				}
			}
		}
		return nil
	}
	list := writes(c.fn, c.loop)
	for _, fn := range c.inLoop {
		list = append(list, writes(fn, fn.Body)...)
	}
	for i, s := range c.before {
		if i > start && !slices.Contains(stmts, s) {
			list = append(list, c.effects(s)...)
		}
	}
	for _, w := range list {
		if r := check(w); r != nil {
			return r
		}
	}
	if r := c.constants(contents); r != nil {
		return r
	}
	return c.shadowed(shown)
}

// inputs returns what the statements use that does not depend on the devices,
// the arrays whose values they read, and the names in their own text.
func (c *candidate) inputs(stmts []ast.Stmt) (used map[types.Object]token.Pos, contents map[types.Object]token.Pos, names map[string]token.Pos) {
	used, contents, names = map[types.Object]token.Pos{}, map[types.Object]token.Pos{}, map[string]token.Pos{}
	note := func(s *load.Package, n ast.Node, own bool) {
		ast.Inspect(n, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if own {
					names[n.Name] = n.Pos()
				}
				x, ok := s.Info.Uses[n].(*types.Var)
				if !ok || !x.IsField() && x.Parent() != s.Types.Scope() && !own {
					return true
				}
				if _, on := c.d.cause(x); !on {
					used[x.Origin()] = n.Pos()
				}
			case *ast.CallExpr:
				if sel, ok := ast.Unparen(n.Fun).(*ast.SelectorExpr); ok && isDeviceFunc(s, n, "Read") {
					if o := object(s, sel.X); o != nil {
						contents[o] = n.Pos()
					}
				}
			}
			return true
		})
	}
	for _, s := range stmts {
		note(c.fn.Pkg, s, true)
		for _, fn := range c.d.reach(c.d.called(s)) {
			note(fn.Pkg, fn.Body, false)
		}
		for o := range c.assigned(s) {
			delete(used, o)
		}
	}
	return used, contents, names
}

// constants refuses if the values of an array that the division follows from
// may change: if it was not made with NewConstant, or if the loop writes to
// such arrays on the host.
func (c *candidate) constants(contents map[types.Object]token.Pos) *Refusal {
	for o, at := range contents {
		no := &Refusal{Variable: Variable{o.Name(), at, Cause{o.Pos(), "the division follows from its values, which may change"}}}
		if !o.(*types.Var).IsField() {
			return no
		}
		for _, s := range c.d.ld.Sources {
			for _, f := range s.Files {
				ok := true
				ast.Inspect(f, func(n ast.Node) bool {
					constant := func(e ast.Expr) bool {
						call, is := ast.Unparen(e).(*ast.CallExpr)
						return is && isDeviceFunc(s, call, "NewConstant")
					}
					switch n := n.(type) {
					case *ast.AssignStmt:
						for i, e := range n.Lhs {
							if _, is := ast.Unparen(e).(*ast.SelectorExpr); is && object(s, e) == o {
								ok = ok && len(n.Lhs) == len(n.Rhs) && constant(n.Rhs[i])
							}
						}
					case *ast.KeyValueExpr:
						if id, is := n.Key.(*ast.Ident); is && s.Info.Uses[id] == o {
							ok = ok && constant(n.Value)
						}
					case *ast.UnaryExpr:
						ok = ok && (n.Op != token.AND || object(s, n.X) != o)
					}
					return true
				})
				if !ok {
					return no
				}
			}
		}
		for _, fn := range c.inLoop {
			if writesHost(fn.Pkg, fn.Body, o.Type()) {
				return no
			}
		}
		if writesHost(c.fn.Pkg, c.loop, o.Type()) {
			return no
		}
	}
	return nil
}

// writesHost reports whether a node writes to arrays of a type on the host.
func writesHost(s *load.Package, n ast.Node, t types.Type) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && isDeviceFunc(s, call, "Data", "Update") {
			if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && typeKey(s.Info.TypeOf(sel.X)) == typeKey(t) {
				found = true
			}
		}
		return !found
	})
	return found
}

// shadowed refuses if the loop declares a name that the statements use.
func (c *candidate) shadowed(names map[string]token.Pos) *Refusal {
	var list []ast.Expr
	switch s := c.loop.(type) {
	case *ast.RangeStmt:
		if s.Tok == token.DEFINE {
			list = []ast.Expr{s.Key, s.Value}
		}
	case *ast.ForStmt:
		if a, ok := s.Init.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			list = a.Lhs
		}
	}
	for _, e := range list {
		if id, ok := e.(*ast.Ident); ok {
			if at, ok := names[id.Name]; ok && id.Name != "_" {
				return &Refusal{Variable: Variable{id.Name, id.Pos(), Cause{at, "the loop's variable has the name of one that divides the work"}}}
			}
		}
	}
	return nil
}

// kernelReads refuses if a kernel on the host uses a variable or field that
// depends on the devices.
func (d *dependence) kernelReads(fn *callgraph.Function) (found *Refusal) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok || found != nil {
			return found == nil
		}
		v, ok := fn.Pkg.Info.Uses[id].(*types.Var)
		if !ok || !v.IsField() && fn.Node.Pos() <= v.Pos() && v.Pos() < fn.Node.End() {
			return true
		}
		if _, on := d.cause(v); on {
			found = &Refusal{Variable: Variable{v.Name(), id.Pos(), Cause{v.Pos(), "a kernel uses it"}}}
		}
		return true
	})
	return found
}

func isFloat(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsFloat|types.IsComplex) != 0
}
