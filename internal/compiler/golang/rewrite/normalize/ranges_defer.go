package normalize

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// deferStmt appends a deferred call to a list. The call belongs to the function
// around the loop, and runs when that function ends.
func (b *loopBody) deferStmt(d *ast.DeferStmt) string {
	c := d.Call
	if why := b.recovers(c); why != "" {
		b.refuse(d.Pos(), "defer a func literal that calls it", "in the body of a loop over a function, on the way to a point, a call is deferred %s", why)
	}
	b.predeclared("append", d.Pos())
	if b.deferred == "" {
		b.deferred = fmt.Sprintf("%slate%d", rewrite.Prefix, b.count["loop"])
		b.decls = append(b.decls, b.deferred+" := &[]func(){}", "defer "+rewrite.Prefix+"runDeferred("+b.deferred+")")
	}
	if lit, ok := ast.Unparen(c.Fun).(*ast.FuncLit); ok && len(c.Args) == 0 && (lit.Type.Results == nil || len(lit.Type.Results.List) == 0) {
		return fmt.Sprintf("*%s = append(*%s, %s)", b.deferred, b.deferred, b.p.NodeText(lit, nil))
	}
	var o lines
	keep := func(text string) string {
		name := b.name("late_")
		o.add(name + " := " + text)
		return name
	}
	w := &funcNormalizer{normalizer: b.normalizer}
	fun := b.p.NodeText(c.Fun, nil)
	switch kind, _ := w.callee(c); {
	case rewrite.IsFuncLit(c.Fun), kind == staticMethod, kind == ifaceMethod, kind == dynamic:
		fun = keep(fun)
	}
	var args []string
	for _, e := range c.Args {
		tv := b.p.Info.Types[e]
		if t, ok := tv.Type.(*types.Tuple); ok {
			var names []string
			for range t.Len() {
				names = append(names, b.name("late_"))
			}
			o.add(strings.Join(names, ", ") + " := " + b.p.NodeText(e, nil))
			args = append(args, names...)
			continue
		}
		text := b.p.NodeText(e, nil)
		if tv.Value == nil && !tv.IsNil() && !tv.IsType() {
			if w.depends(e) {
				text = b.typ(tv.Type, e.Pos(), e.Pos()) + "(" + text + ")"
			}
			text = keep(text)
		}
		args = append(args, text)
	}
	dots := ""
	if c.Ellipsis.IsValid() {
		dots = "..."
	}
	o.add(fmt.Sprintf("*%s = append(*%s, func() { %s(%s%s) })", b.deferred, b.deferred, fun, strings.Join(args, ", "), dots))
	return "{\n" + o.String() + "\n}"
}

// recovers returns why a deferred call may itself call recover, or "". recover
// works only if the runtime calls the function.
func (b *loopBody) recovers(c *ast.CallExpr) string {
	calls := func(body ast.Node) bool {
		found := false
		rewrite.InspectOwn(body, func(m ast.Node) bool {
			if id, ok := m.(*ast.Ident); ok {
				if f, ok := b.p.Info.Uses[id].(*types.Builtin); ok && f.Name() == "recover" {
					found = true
				}
			}
			return !found
		})
		return found
	}
	if lit, ok := ast.Unparen(c.Fun).(*ast.FuncLit); ok {
		if calls(lit.Body) {
			return "that calls recover"
		}
		return ""
	}
	var f *types.Func
	switch x := ast.Unparen(c.Fun).(type) {
	case *ast.Ident:
		if u, ok := b.p.Info.Uses[x].(*types.Builtin); ok {
			if u.Name() == "recover" {
				return "that is recover"
			}
			return ""
		}
		f, _ = b.p.Info.Uses[x].(*types.Func)
	case *ast.SelectorExpr:
		if id, ok := x.X.(*ast.Ident); ok && id.Name == runtimeName { // an unlock
			return ""
		}
		f, _ = b.p.Info.Uses[x.Sel].(*types.Func)
	}
	const unknown = "of which it is not known whether it calls recover"
	if f == nil {
		return unknown
	}
	f = f.Origin()
	if r := f.Signature().Recv(); r != nil && types.IsInterface(r.Type()) {
		return unknown
	}
	if f.Pkg() != nil && plainDefers[f.Pkg().Path()] {
		return ""
	}
	for _, file := range b.p.Files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && b.p.Info.Defs[d.Name] == types.Object(f) && d.Body != nil {
				if calls(d.Body) {
					return "that calls recover"
				}
				return ""
			}
		}
	}
	return unknown
}

// plainDefers are packages whose functions do not recover.
var plainDefers = map[string]bool{"bufio": true, "bytes": true, "fmt": true, "io": true, "log": true, "os": true, "strings": true, "sync": true, "sync/atomic": true, "time": true}

// declareHelper declares a function that loops over functions call. Go panics
// if an iterator continues to call the body when it must not; the helper
// produces these panics.
func (r *ranges) declareHelper() {
	if r.names[rewrite.Prefix+"badRange"] {
		return
	}
	r.names[rewrite.Prefix+"badRange"] = true
	r.decls = append(r.decls, strings.ReplaceAll(rangeHelper, "cairn_", rewrite.Prefix))
}

const rangeHelper = `

// cairn_badRange panics as Go does when a function that a loop ranges over
// continues when it must not, or hides a panic.
func cairn_badRange(state int) {
	switch state {
	case 0:
		for range func(yield func() bool) { yield(); yield() } {
			break
		}
	case 2:
		for range func(yield func() bool) {
			func() {
				defer func() { recover() }()
				yield()
			}()
			yield()
		} {
			panic(0)
		}
	case 3:
		var again func() bool
		for range func(yield func() bool) { again = yield } {
		}
		again()
	default:
		for range func(yield func() bool) {
			defer func() { recover() }()
			yield()
		} {
			panic(0)
		}
	}
}

// cairn_runDeferred runs what was deferred in a loop over a function.
func cairn_runDeferred(list *[]func()) {
	for _, f := range *list {
		defer f()
	}
}
`
