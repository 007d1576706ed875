package divide

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// path is a variable, and a way from it to a value by fields and elements,
// which no iteration changes: the text .slabs[#3].space is field space of an
// element of field slabs, that of iteration #3 of a loop over all elements. [?]
// is some element.
type path struct {
	root *types.Var
	text string
	last *types.Var // the last field, or root
}

// all returns the text with [*] for all elements.
func (p path) all() string {
	var b strings.Builder
	for i, s := range strings.Split(p.text, "[") {
		if i > 0 {
			_, after, _ := strings.Cut(s, "]")
			s = "[*]" + after
		}
		b.WriteString(s)
	}
	return b.String()
}

func (p path) key() string { return fmt.Sprint(p.root.Pos(), p.text) }

// value is what is known of a value at some place in an iteration.
type value struct {
	kind valueKind
	path path           // of aPath
	part bool           // it is a view of the array at the path
	c    constant.Value // of aConstant
	mode string         // of anArgument: In, Out or InOut
	loop string         // an index: of an element of this path …
	step string         // … in this step
}

type valueKind int

const (
	unknownValue valueKind = iota
	aPath
	aConstant
	nonZero
	isNil
	notNil
	freshArray
	anArgument // of an array at path, or of one that is fresh
	freshArgument
)

// state is what is known at some place in an iteration.
type state struct {
	env     map[types.Object]value
	written map[string]bool // paths whose arrays were overwritten
}

func (s *state) clone() *state { return &state{maps.Clone(s.env), maps.Clone(s.written)} }

// outcome is how a call ends.
type outcome struct {
	st     *state
	values []value
}

// assumption is that all pointers at a path are nil, or that none is.
type assumption struct {
	path  path
	isNil bool
}

// iteration follows one iteration of a loop.
type iteration struct {
	c       *candidate
	d       *dependence
	o       *origins
	v       *variant
	changed map[types.Object]bool // variables and fields that the loop may set
	elems   map[string]bool       // types of elements that it may set
	pointed map[types.Object]bool // variables whose address is taken

	assumed    map[string]assumption
	needed     map[*ast.CallExpr]token.Pos // arrays that it may read before it overwrites them
	overwrites []overwriting

	stack []*frame
	over  []string // paths that loops range over now
	steps int
	ids   int
}

// overwriting is a launch that overwrites an array.
type overwriting struct {
	path path
	at   token.Pos
}

// frame is a function that the iteration is in.
type frame struct {
	fn      *callgraph.Function
	returns []outcome
	loops   []*loopExits
}

// loopExits are the states at the break and continue statements of a loop or
// switch.
type loopExits struct {
	isSwitch          bool
	breaks, continues []*state
}

// fork asks for two analyses, one for each assumption about a path.
type fork struct{ p path }

// tooLong ends an analysis.
type tooLong struct{}

const (
	mostAssumptions = 4
	mostSteps       = 20_000
	mostCalls       = 16
)

// iterations follows an iteration of the candidate's loop under all assumptions
// that matter. It returns nil if that takes too long.
func iterations(c *candidate, o *origins, v *variant) (list []*iteration) {
	base := iteration{c: c, d: c.d, o: o, v: v, changed: map[types.Object]bool{}, elems: map[string]bool{}, pointed: map[types.Object]bool{}}
	base.findChanged()
	defer func() {
		if e := recover(); e != nil {
			if _, ok := e.(tooLong); !ok {
				panic(e)
			}
			list = nil
		}
	}()
	var try func(assumed map[string]assumption)
	try = func(assumed map[string]assumption) {
		x := base
		x.assumed, x.needed = assumed, map[*ast.CallExpr]token.Pos{}
		if p := x.run(); p != nil {
			for _, isNil := range []bool{true, false} {
				more := maps.Clone(assumed)
				more[fmt.Sprint(p.root.Pos(), p.all())] = assumption{*p, isNil}
				try(more)
			}
			return
		}
		list = append(list, &x)
	}
	try(map[string]assumption{})
	return list
}

// run follows the iteration. It returns a path if it needs an assumption.
func (x *iteration) run() (asks *path) {
	defer func() {
		if e := recover(); e != nil {
			f, ok := e.(fork)
			if !ok {
				panic(e)
			}
			asks = &f.p
		}
	}()
	f := &frame{fn: x.c.fn, loops: []*loopExits{{}}}
	x.stack = []*frame{f}
	x.block(x.c.body.List, []*state{{map[types.Object]value{}, map[string]bool{}}})
	return nil
}

// findChanged finds what the loop may set.
func (x *iteration) findChanged() {
	d := x.d
	add := func(fn *callgraph.Function, root ast.Node) {
		for _, w := range writes(fn, root) {
			for _, o := range w.objects() {
				x.changed[o] = true
			}
			t := fn.Pkg.Info.TypeOf(w.lhs)
			if star, ok := w.lhs.(*ast.StarExpr); ok {
				if t == nil { // made up: what a library writes to
					t = fn.Pkg.Info.TypeOf(star.X)
					if t != nil {
						x.elems[typeKey(elemType(t))] = true
						t = elemType(t)
					}
				}
				for _, o := range d.addressed[typeKey(t)] {
					x.changed[o] = true
				}
			}
			if t == nil || w.local || w.fresh && fn != x.c.fn {
				continue
			}
			_, elem := ast.Unparen(w.lhs).(*ast.IndexExpr)
			_, all := t.Underlying().(*types.Struct)
			if elem || all {
				x.elems[typeKey(t)] = true
			}
		}
		ast.Inspect(root, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isBuiltin(fn.Pkg, call, "append") && len(call.Args) > 0 {
				x.elems[typeKey(elemType(fn.Pkg.Info.TypeOf(call.Args[0])))] = true
			}
			return true
		})
	}
	add(x.c.fn, x.c.loop)
	for _, fn := range d.reach(x.called(x.c.fn, x.c.loop)) {
		add(fn, fn.Body)
	}
	for fn := range d.kernels {
		add(fn, fn.Body)
	}
	for _, list := range d.addressed {
		for _, o := range list {
			x.point(o)
		}
	}
	for _, fn := range d.g.All {
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if e, ok := n.(*ast.SelectorExpr); ok {
				sel := fn.Pkg.Info.Selections[e]
				if sel != nil && sel.Kind() == types.MethodVal && !load.IsPointer(sel.Recv()) {
					if f, ok := sel.Obj().(*types.Func); ok && f.Signature().Recv() != nil && load.IsPointer(f.Signature().Recv().Type()) {
						x.point(object(fn.Pkg, e.X))
					}
				}
			}
			return true
		})
	}
}

// point notes that a variable's address is taken. Structs do not matter,
// because their fields are looked at one by one.
func (x *iteration) point(o types.Object) {
	if o == nil {
		return
	}
	if _, ok := o.Type().Underlying().(*types.Struct); !ok {
		x.pointed[o] = true
	}
}

// elemType returns the type of the elements of t, or of what it points to.
func elemType(t types.Type) types.Type {
	switch u := t.Underlying().(type) {
	case *types.Pointer:
		if a, ok := u.Elem().Underlying().(*types.Array); ok {
			return a.Elem()
		}
		return u.Elem()
	case interface{ Elem() types.Type }:
		return u.Elem()
	}
	return t
}

// called returns the functions that a part of a function may call.
func (x *iteration) called(fn *callgraph.Function, n ast.Node) []*callgraph.Function {
	return x.d.calledIn(fn, n)
}

// calledIn is called, with functions that libraries may call.
func (d *dependence) calledIn(fn *callgraph.Function, n ast.Node) []*callgraph.Function {
	list := d.called(n)
	for _, t := range fn.Sites {
		if n.Pos() <= t.At() && t.At() < n.End() && (t.Call == nil || !isDeviceFunc(fn.Pkg, t.Call, "NewKernel")) {
			t = d.site(t)
			list = append(append(list, t.Callees...), t.MayCall...)
		}
	}
	return list
}

func (x *iteration) top() *frame                  { return x.stack[len(x.stack)-1] }
func (x *iteration) pkg() *load.Package           { return x.top().fn.Pkg }
func (x *iteration) typeOf(e ast.Expr) types.Type { return x.pkg().Info.TypeOf(e) }

// opaque follows a node without regard to the order of its parts.
func (x *iteration) opaque(n ast.Node, st *state) {
	fn := x.top().fn
	x.o.reads(fn.Pkg, n, x.needed)
	forget := func(fn *callgraph.Function, root ast.Node) {
		for _, w := range writes(fn, root) {
			if w.obj != nil {
				st.env[w.obj] = value{}
			}
		}
	}
	forget(fn, n)
	for _, to := range x.d.reach(x.called(fn, n)) {
		x.o.reads(to.Pkg, to.Body, x.needed)
		forget(to, to.Body)
	}
}

// opaqueStmt is opaque for a statement, which may also return.
func (x *iteration) opaqueStmt(n ast.Stmt, st *state) []*state {
	x.opaque(n, st)
	ast.Inspect(n, func(m ast.Node) bool {
		switch m := m.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ReturnStmt:
			x.top().returns = append(x.top().returns, outcome{st: st.clone()})
		case *ast.BranchStmt:
			for _, l := range x.top().loops { // it may end any of them
				if m.Label != nil || m.Tok == token.CONTINUE || m.Tok == token.BREAK {
					l.breaks = append(l.breaks, st.clone())
					l.continues = append(l.continues, st.clone())
				}
			}
		}
		return true
	})
	return []*state{st}
}

func (x *iteration) block(list []ast.Stmt, sts []*state) []*state {
	for _, s := range list {
		var out []*state
		for _, st := range sts {
			if x.steps++; x.steps > mostSteps {
				panic(tooLong{})
			}
			out = append(out, x.stmt(s, st)...)
		}
		sts = merge(out)
	}
	return sts
}

// merge joins states that agree on which errors are nil.
func merge(sts []*state) (out []*state) {
	if len(sts) < 2 {
		return sts
	}
	at := map[string]*state{}
	for _, st := range sts {
		var errs []string
		for o, v := range st.env {
			if (v.kind == isNil || v.kind == notNil) && load.IsError(o.Type()) {
				errs = append(errs, fmt.Sprint(o.Pos(), v.kind))
			}
		}
		slices.Sort(errs)
		key := strings.Join(errs, " ")
		if len(at) >= 8 {
			key = "" // too many to keep apart
		}
		first := at[key]
		if first == nil {
			at[key] = st
			out = append(out, st)
			continue
		}
		first.join(st)
	}
	return out
}

// join keeps what holds in both states.
func (s *state) join(t *state) {
	for o, v := range s.env {
		if w, ok := t.env[o]; !ok || v != w {
			s.env[o] = value{}
		}
	}
	for o := range t.env {
		if _, ok := s.env[o]; !ok {
			s.env[o] = value{}
		}
	}
	maps.DeleteFunc(s.written, func(k string, _ bool) bool { return !t.written[k] })
}

func (x *iteration) stmt(s ast.Stmt, st *state) []*state {
	one := []*state{st}
	switch s := s.(type) {
	case nil, *ast.EmptyStmt:
		return one
	case *ast.BlockStmt:
		return x.block(s.List, one)
	case *ast.ExprStmt:
		return x.states(x.outcomes(s.X, st))
	case *ast.AssignStmt:
		return x.assignStmt(s, st)
	case *ast.IncDecStmt:
		x.eval(s.X, st)
		x.set(s.X, value{}, st)
		return one
	case *ast.DeclStmt:
		return x.declStmt(s, st)
	case *ast.ReturnStmt:
		x.returnStmt(s, st)
		return nil
	case *ast.IfStmt:
		out := one
		if s.Init != nil {
			out = merge(x.stmt(s.Init, st))
		}
		var end []*state
		for _, st := range out {
			yes, no := x.cond(s.Cond, st)
			end = append(end, x.block(s.Body.List, merge(yes))...)
			if no = merge(no); s.Else != nil {
				for _, st := range no {
					end = append(end, x.stmt(s.Else, st)...)
				}
			} else {
				end = append(end, no...)
			}
		}
		return merge(end)
	case *ast.BranchStmt:
		loops := x.top().loops
		if s.Label == nil {
			for i := len(loops) - 1; i >= 0; i-- {
				switch {
				case s.Tok == token.BREAK:
					loops[i].breaks = append(loops[i].breaks, st)
					return nil
				case s.Tok == token.CONTINUE && !loops[i].isSwitch:
					loops[i].continues = append(loops[i].continues, st)
					return nil
				}
			}
		}
		return x.opaqueStmt(s, st)
	case *ast.RangeStmt:
		return x.rangeStmt(s, st)
	case *ast.ForStmt:
		return x.forStmt(s, st)
	case *ast.SwitchStmt:
		return x.switchStmt(s, st)
	}
	return x.opaqueStmt(s, st)
}

func (x *iteration) states(list []outcome) (out []*state) {
	for _, o := range list {
		out = append(out, o.st)
	}
	return merge(out)
}

func (x *iteration) assignStmt(s *ast.AssignStmt, st *state) []*state {
	if s.Tok != token.ASSIGN && s.Tok != token.DEFINE {
		x.eval(s.Rhs[0], st)
		x.eval(s.Lhs[0], st)
		x.set(s.Lhs[0], value{}, st)
		return []*state{st}
	}
	if len(s.Rhs) == 1 {
		var out []*state
		for _, o := range x.outcomes(s.Rhs[0], st) {
			for i, e := range s.Lhs {
				v := value{}
				if i < len(o.values) {
					v = o.values[i]
				}
				x.target(e, o.st)
				x.set(e, v, o.st)
			}
			out = append(out, o.st)
		}
		return merge(out)
	}
	var values []value
	for _, e := range s.Rhs {
		values = append(values, x.eval(e, st))
	}
	for i, e := range s.Lhs {
		x.target(e, st)
		x.set(e, values[i], st)
	}
	return []*state{st}
}

// target follows the calls in the left side of an assignment.
func (x *iteration) target(e ast.Expr, st *state) {
	if _, ok := ast.Unparen(e).(*ast.Ident); !ok {
		x.eval(e, st)
	}
}

// set gives a variable a value.
func (x *iteration) set(e ast.Expr, v value, st *state) {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok || id.Name == "_" {
		return
	}
	if o, ok := x.pkg().Info.ObjectOf(id).(*types.Var); ok {
		x.bindVar(o, v, st)
	}
}

func (x *iteration) bindVar(o types.Object, v value, st *state) {
	if x.pointed[o] {
		v = value{}
	}
	if v.kind == aPath && types.IsInterface(o.Type()) {
		v = value{}
	}
	st.env[o] = v
}

func (x *iteration) declStmt(s *ast.DeclStmt, st *state) []*state {
	g, ok := s.Decl.(*ast.GenDecl)
	if !ok || g.Tok != token.VAR {
		return []*state{st}
	}
	for _, spec := range g.Specs {
		v := spec.(*ast.ValueSpec)
		for i, id := range v.Names {
			val := value{}
			switch {
			case len(v.Values) == len(v.Names):
				val = x.eval(v.Values[i], st)
			case len(v.Values) == 1 && i == 0:
				x.eval(v.Values[0], st)
			case len(v.Values) == 0:
				switch x.pkg().Info.TypeOf(id).Underlying().(type) {
				case *types.Pointer, *types.Interface:
					val = value{kind: isNil}
				}
			}
			x.set(id, val, st)
		}
	}
	return []*state{st}
}

func (x *iteration) returnStmt(s *ast.ReturnStmt, st *state) {
	f := x.top()
	if len(s.Results) == 1 {
		f.returns = append(f.returns, x.outcomes(s.Results[0], st)...)
		return
	}
	var values []value
	for _, e := range s.Results {
		values = append(values, x.eval(e, st))
	}
	if len(s.Results) == 0 {
		if sig := signature(f.fn); sig != nil {
			for v := range sig.Results().Variables() {
				values = append(values, st.env[v])
			}
		}
	}
	f.returns = append(f.returns, outcome{st, values})
}

// cond follows a condition. It returns the states in which it holds, and those
// in which it does not.
func (x *iteration) cond(e ast.Expr, st *state) (yes, no []*state) {
	both := func() ([]*state, []*state) { return []*state{st}, []*state{st.clone()} }
	decide := func(b bool) ([]*state, []*state) {
		if b {
			return []*state{st}, nil
		}
		return nil, []*state{st}
	}
	switch e := ast.Unparen(e).(type) {
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			no, yes = x.cond(e.X, st)
			return yes, no
		}
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND:
			a, b := x.cond(e.X, st)
			for _, st := range a {
				y, n := x.cond(e.Y, st)
				yes, b = append(yes, y...), append(b, n...)
			}
			return yes, b
		case token.LOR:
			a, b := x.cond(e.X, st)
			for _, st := range b {
				y, n := x.cond(e.Y, st)
				a, no = append(a, y...), append(no, n...)
			}
			return a, no
		case token.EQL, token.NEQ, token.GTR, token.LSS, token.GEQ, token.LEQ:
			if _, call := ast.Unparen(e.X).(*ast.CallExpr); call && x.pkg().Info.Types[e.Y].IsNil() {
				for _, o := range x.outcomes(e.X, st) {
					v := value{}
					if len(o.values) > 0 {
						v = o.values[0]
					}
					eq, ne := x.testNil(e.X, v, o.st)
					yes, no = append(yes, eq...), append(no, ne...)
				}
				if e.Op == token.NEQ {
					yes, no = no, yes
				}
				return yes, no
			}
			a, b := x.eval(e.X, st), x.eval(e.Y, st)
			if a.kind == isNil && b.kind != isNil {
				a, b, e = b, a, &ast.BinaryExpr{X: e.Y, Op: e.Op, Y: e.X}
			}
			if b.kind == isNil && (e.Op == token.EQL || e.Op == token.NEQ) {
				eq, ne := x.testNil(e.X, a, st)
				if e.Op == token.NEQ {
					eq, ne = ne, eq
				}
				return eq, ne
			}
			if a.kind == aConstant && b.kind == aConstant && a.c.Kind() == b.c.Kind() {
				return decide(constant.Compare(a.c, e.Op, b.c))
			}
			if a.kind == nonZero && b.kind == aConstant && b.c.Kind() == constant.Int && constant.Sign(b.c) == 0 {
				switch e.Op {
				case token.EQL:
					return decide(false)
				case token.NEQ:
					return decide(true)
				}
			}
			return both()
		}
	}
	v := x.eval(e, st)
	if v.kind == aConstant && v.c.Kind() == constant.Bool {
		return decide(constant.BoolVal(v.c))
	}
	return both()
}

// testNil follows a comparison of e, which has value v, with nil.
func (x *iteration) testNil(e ast.Expr, v value, st *state) (eq, ne []*state) {
	switch v.kind {
	case isNil:
		return []*state{st}, nil
	case notNil, freshArray:
		return nil, []*state{st}
	case aPath:
		if v.part {
			return nil, []*state{st}
		}
		if _, ok := x.typeOf(e).Underlying().(*types.Pointer); ok {
			a, known := x.assumed[fmt.Sprint(v.path.root.Pos(), v.path.all())]
			if !known && len(x.assumed) < mostAssumptions && x.c.fn != nil {
				panic(fork{v.path})
			}
			if known && a.isNil {
				return []*state{st}, nil
			}
			if known {
				return nil, []*state{st}
			}
		}
	}
	other := st.clone()
	if id, ok := ast.Unparen(e).(*ast.Ident); ok && v.kind == unknownValue {
		x.set(id, value{kind: isNil}, st)
		x.set(id, value{kind: notNil}, other)
	}
	return []*state{st}, []*state{other}
}
