// Package verify checks the code that continues from a frame. That code
// declares every variable that it names. Some variables get their values from
// the frame. The others have no value at first, because liveness found that
// they are assigned before they are read. verify checks this on the finished
// code, without the results of liveness and without the source: on no path may
// a variable be read that has no value yet. If one is, the point is refused, so
// that a mistake in a pass does not become a wrong result.
package verify

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Marks in the text of a continuation. Emit removes them.
const (
	NoValue   = "/*cairn:novalue*/"   // before the name of a variable that is not in the frame
	EntersNow = "/*cairn:entersnow*/" // before a loop whose condition holds at first
)

// firstNames are the names of variables that are true in the first iteration.
var firstNames = regexp.MustCompile(`^` + rewrite.Prefix + `again\d+$`)

// object is what an identifier denotes, as the parser finds it: the code of a
// continuation is checked before it has types.
type object = ast.Object //nolint:staticcheck // deprecated because it does without types

// Verifier checks the code of one continuation.
type Verifier struct {
	Saved    map[string]bool // fields of the frame
	noValue  map[token.Pos]bool
	enters   map[token.Pos]bool
	index    map[*object]int    // variables that begin without a value
	captured map[*object]bool   // variables that func literals capture
	flags    map[*object]uint64 // variables that are true in the first iteration
	results  []*object
	Recovers bool            // the function has deferred calls
	gotos    map[string]flow // flows that arrive at labels
	again    bool            // a label received more than before: check again
	targets  []*jumpTarget
	falls    flow // flow that falls through to the next clause
	bad      string
}

func New() *Verifier {
	return &Verifier{Saved: map[string]bool{rewrite.Prefix + "at": true}, index: map[*object]int{}, captured: map[*object]bool{}, flags: map[*object]uint64{}, gotos: map[string]flow{}}
}

// jumpTarget is a statement that break and continue may refer to.
type jumpTarget struct {
	label         string
	loop          bool
	breaks, conts flow
}

// flow is what is known at a place: for each set of true flags, the variables
// that may have no value. An empty flow means that control never reaches the
// place.
type flow map[uint64]bits

// bits is a set of small numbers.
type bits []uint64

func (b bits) has(i int) bool { return i/64 < len(b) && b[i/64]&(1<<(i%64)) != 0 }

func (b bits) with(i int, on bool) bits {
	if b.has(i) == on {
		return b
	}
	b = slices.Clone(b)
	for len(b) <= i/64 {
		b = append(b, 0)
	}
	b[i/64] ^= 1 << (i % 64)
	return b
}

// union returns the union of two sets. grew says that it has more than b.
func (b bits) union(c bits) (out bits, grew bool) {
	for i, x := range c {
		switch {
		case i >= len(b):
			grew = grew || x != 0
		case x&^b[i] != 0:
			grew = true
		}
	}
	if !grew {
		return b, false
	}
	out = slices.Clone(b)
	for i, x := range c {
		if i >= len(out) {
			out = append(out, x)
		} else {
			out[i] |= x
		}
	}
	return out, true
}

// join returns the flow that arrives on either of two paths.
func (f flow) join(g flow) flow {
	out, _ := f.grown(g)
	return out
}

// grown does the same as join, and reports whether more arrives than in f
// alone.
func (f flow) grown(g flow) (out flow, grew bool) {
	out = flow{}
	maps.Copy(out, f)
	for k, b := range g {
		was, had := out[k]
		sum, more := was.union(b)
		out[k] = sum
		grew = grew || more || !had
	}
	return out, grew
}

// each returns a flow with every state changed.
func (f flow) each(change func(flags uint64, b bits) (uint64, bits)) flow {
	out := flow{}
	for k, b := range f {
		k, b = change(k, b)
		sum, _ := out[k].union(b)
		out[k] = sum
	}
	return out
}

// where returns the part of a flow in which a flag is true, or false.
func (f flow) where(flag uint64, on bool) flow {
	out := flow{}
	for k, b := range f {
		if (k&flag != 0) == on {
			out[k] = b
		}
	}
	return out
}

// Check parses a continuation, and interprets it until no flow changes.
func (v *Verifier) Check(params, results []string, text string) error {
	var b strings.Builder
	b.WriteString("package p\nfunc _() {\n")
	for _, p := range params {
		fmt.Fprintf(&b, "var %s int\n", p)
	}
	for _, r := range results {
		fmt.Fprintf(&b, "var %s int\n", r)
	}
	b.WriteString("{\n" + text + "}\n}\n")
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "", b.String(), parser.ParseComments)
	if err != nil {
		return err
	}
	v.noValue, v.enters = map[token.Pos]bool{}, map[token.Pos]bool{}
	for _, g := range f.Comments {
		for _, c := range g.List {
			switch c.Text {
			case NoValue:
				v.noValue[c.End()] = true
			case EntersNow:
				v.enters[c.End()] = true
			}
		}
	}
	body := f.Decls[0].(*ast.FuncDecl).Body
	for i, s := range body.List[:len(body.List)-1] {
		if i >= len(params) {
			o := s.(*ast.DeclStmt).Decl.(*ast.GenDecl).Specs[0].(*ast.ValueSpec).Names[0].Obj
			v.results = append(v.results, o)
			v.captured[o] = v.Recovers // after a panic, the function returns their current values
		}
	}
	v.captures(body)
	for v.again = true; v.again && v.bad == ""; {
		v.again = false
		v.list(body.List, flow{0: nil})
	}
	if v.bad != "" {
		return fmt.Errorf("%s", v.bad)
	}
	return nil
}

// captures finds the variables that func literals capture.
func (v *Verifier) captures(body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		lit, ok := n.(*ast.FuncLit)
		if !ok {
			return true
		}
		fields := map[*ast.Ident]bool{} // the parser resolves names of fields like variables
		ast.Inspect(lit.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				for _, e := range n.Elts {
					if id := fieldOf(n, e); id != nil {
						fields[id] = true
					}
				}
			case *ast.Ident:
				if n.Obj != nil && n.Obj.Pos() < lit.Pos() && !fields[n] {
					v.captured[n.Obj] = true
				}
			}
			return true
		})
		return true
	})
}

// fieldOf returns the field name of an element of a composite literal, if it
// may be one.
func fieldOf(lit *ast.CompositeLit, e ast.Expr) *ast.Ident {
	kv, ok := e.(*ast.KeyValueExpr)
	if _, isMap := lit.Type.(*ast.MapType); !ok || isMap {
		return nil
	}
	id, _ := kv.Key.(*ast.Ident)
	return id
}

// read checks that a variable may be read.
func (v *Verifier) read(id *ast.Ident, in flow) {
	i, known := v.index[id.Obj]
	if id.Obj == nil || !known || v.bad != "" {
		return
	}
	for _, b := range in {
		if b.has(i) {
			v.bad = fmt.Sprintf("%s is read before it has a value", id.Name)
			return
		}
	}
}

// give records that a variable is given a value, or declared without one.
func (v *Verifier) give(id *ast.Ident, value ast.Expr, in flow) flow {
	if id.Obj == nil {
		return in
	}
	if v.noValue[id.Pos()] {
		if _, ok := v.index[id.Obj]; !ok {
			v.index[id.Obj] = len(v.index)
		}
	}
	if firstNames.MatchString(id.Name) {
		on, ok := value.(*ast.Ident)
		if !ok || on.Name != "true" && on.Name != "false" {
			v.bad = id.Name + " is not constant"
			return in
		}
		return v.raise(id.Obj, on.Name == "true", in)
	}
	i, known := v.index[id.Obj]
	if !known {
		return in
	}
	return in.each(func(k uint64, b bits) (uint64, bits) { return k, b.with(i, v.noValue[id.Pos()]) })
}

// raise sets or clears a flag.
func (v *Verifier) raise(o *object, on bool, in flow) flow {
	flag := v.flags[o]
	if flag == 0 {
		if len(v.flags) == 64 {
			v.bad = "loops are nested too deep"
			return in
		}
		flag = 1 << len(v.flags)
		v.flags[o] = flag
	}
	return in.each(func(k uint64, b bits) (uint64, bits) {
		if on {
			return k | flag, b
		}
		return k &^ flag, b
	})
}

// expr interprets an expression, which reads all its variables.
func (v *Verifier) expr(x ast.Expr, in flow) {
	if x == nil || len(in) == 0 {
		return
	}
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				t, f := v.cond(n.X, in)
				if n.Op == token.LOR {
					t = f
				}
				v.expr(n.Y, t)
				return false
			}
		case *ast.CompositeLit:
			v.expr(n.Type, in)
			for _, e := range n.Elts {
				if fieldOf(n, e) != nil {
					e = e.(*ast.KeyValueExpr).Value
				}
				v.expr(e, in)
			}
			return false
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && id.Obj == nil && id.Name == rewrite.Prefix+"s" && !v.Saved[n.Sel.Name] && v.bad == "" {
				v.bad = n.Sel.Name + " is not in the frame"
			}
		case *ast.FuncLit: // its captured variables are read when it is called
			return false
		case *ast.CallExpr:
			v.call(in)
		case *ast.Ident:
			v.read(n, in)
		}
		return true
	})
}

// call records that func literals may run.
func (v *Verifier) call(in flow) {
	for o, is := range v.captured {
		if !is {
			continue
		}
		v.read(&ast.Ident{Name: o.Name, Obj: o}, in)
	}
}

// cond interprets a condition, and returns the flows for true and false.
func (v *Verifier) cond(x ast.Expr, in flow) (t, f flow) {
	switch n := ast.Unparen(x).(type) {
	case *ast.Ident:
		if flag := v.flags[n.Obj]; n.Obj != nil && flag != 0 {
			return in.where(flag, true), in.where(flag, false)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			t, f = v.cond(n.X, in)
			return f, t
		}
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LAND:
			t, f = v.cond(n.X, in)
			t, g := v.cond(n.Y, t)
			return t, f.join(g)
		case token.LOR:
			t, f = v.cond(n.X, in)
			u, f := v.cond(n.Y, f)
			return t.join(u), f
		case token.EQL: // in a loop over a string: the offset in the rest of it
			if id, ok := n.X.(*ast.Ident); ok && id.Obj != nil && v.flags[id.Obj] != 0 {
				flag := v.flags[id.Obj]
				return in.where(flag, true), in.where(flag, false)
			}
		}
	}
	v.expr(x, in)
	return in, in
}

// boxOf returns the name of the box in *box.
func boxOf(x ast.Expr) *ast.Ident {
	if s, ok := ast.Unparen(x).(*ast.StarExpr); ok {
		if id, ok := ast.Unparen(s.X).(*ast.Ident); ok && strings.HasPrefix(id.Name, rewrite.Prefix+"b_") {
			return id
		}
	}
	return nil
}

// places interprets the expressions on the left side of an assignment that
// determine its targets.
func (v *Verifier) places(lhs []ast.Expr, in flow) {
	for _, x := range lhs {
		if _, ok := ast.Unparen(x).(*ast.Ident); !ok && boxOf(x) == nil {
			v.expr(x, in)
		}
	}
}

// assign gives the variables on a left side their values.
func (v *Verifier) assign(lhs, rhs []ast.Expr, in flow) flow {
	for i, x := range lhs {
		id, ok := ast.Unparen(x).(*ast.Ident)
		if !ok {
			id = boxOf(x)
		}
		if id == nil {
			continue
		}
		var value ast.Expr
		if len(rhs) == len(lhs) {
			value = rhs[i]
		}
		in = v.give(id, value, in)
	}
	return in
}
