package emit

import (
	"fmt"
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// record is a deferred call in a loop. The program appends it to a list before
// it defers it.
type record struct {
	list   *ast.Ident
	n      string
	fields []string
	loop   ast.Stmt // the outermost loop around it
}

var listName = regexp.MustCompile(`^` + rewrite.Prefix + `l\d+$`)

// records finds a function's deferred calls in loops.
func (w *generator) records(fn *function) {
	fn.records = map[*ast.DeferStmt]*record{}
	var walk func(m ast.Node, loop ast.Stmt)
	walk = func(m ast.Node, loop ast.Stmt) {
		rewrite.InspectOwn(m, func(k ast.Node) bool {
			if l := rewrite.StmtList(k); l != nil {
				for i, s := range *l {
					d, ok := s.(*ast.DeferStmt)
					if ok && i > 0 {
						if r := recordOf((*l)[i-1]); r != nil {
							r.loop = loop
							fn.records[d] = r
						}
					}
				}
			}
			if s, ok := k.(ast.Stmt); ok && loop == nil {
				if b := rewrite.LoopBody(s); b != nil {
					walk(b, s)
					return false
				}
			}
			return true
		})
	}
	walk(fn.body, nil)
}

// recordOf parses the statement that appends a deferred call to a list.
func recordOf(s ast.Stmt) *record {
	a, ok := s.(*ast.AssignStmt)
	if !ok || len(a.Lhs) != 1 || len(a.Rhs) != 1 {
		return nil
	}
	id, ok := a.Lhs[0].(*ast.Ident)
	if !ok || !listName.MatchString(id.Name) {
		return nil
	}
	c, ok := a.Rhs[0].(*ast.CallExpr)
	if !ok || len(c.Args) != 2 {
		return nil
	}
	lit, ok := c.Args[1].(*ast.CompositeLit)
	if !ok {
		return nil
	}
	r := &record{list: id}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return nil
		}
		switch name := kv.Key.(*ast.Ident).Name; name {
		case rewrite.Prefix + "n":
			r.n = kv.Value.(*ast.BasicLit).Value
		default:
			r.fields = append(r.fields, name)
		}
	}
	return r
}

// reissued writes code that issues the deferred calls of a loop again, as often
// as they were issued.
func (e *continuation) reissued(loop ast.Stmt) string {
	var b strings.Builder
	rewrite.InspectOwn(loop, func(m ast.Node) bool {
		d, ok := m.(*ast.DeferStmt)
		r := e.fn.records[d]
		if !ok || r == nil || r.loop != loop {
			return true
		}
		if b.Len() == 0 {
			fmt.Fprintf(&b, "for _, %sx := range %s {\nswitch %sx.%sn {\n", rewrite.Prefix, r.list.Name, rewrite.Prefix, rewrite.Prefix)
		}
		fmt.Fprintf(&b, "case %s:\n", r.n)
		if len(r.fields) > 0 {
			var values []string
			for _, f := range r.fields {
				values = append(values, rewrite.Prefix+"x."+f)
			}
			fmt.Fprintf(&b, "%s := %s\n", strings.Join(r.fields, ", "), strings.Join(values, ", "))
		}
		ast.Inspect(d, func(k ast.Node) bool {
			if id, ok := k.(*ast.Ident); ok && e.boxedIn(id) != nil && strings.HasPrefix(id.Name, rewrite.Prefix+"t") {
				e.fail(d.Pos(), "move the loop's body, or the loop, into a function of its own", "a deferred call in a loop, before a point, is given a large value")
			}
			return true
		})
		b.WriteString(e.region(d.Pos(), d.End(), d) + "\n")
		return true
	})
	if b.Len() > 0 {
		b.WriteString("}\n}\n")
	}
	return b.String()
}

// needRecords forces the variables that are needed to issue the deferred calls
// of loops before or around a mark again.
func (w *generator) needRecords(fn *function, m *mark, force func(ast.Expr)) {
	for d, r := range fn.records {
		if m.comment.Pos() < r.loop.Pos() {
			continue
		}
		force(r.list)
		ast.Inspect(d, func(k ast.Node) bool {
			if id, ok := k.(*ast.Ident); ok {
				if o := w.p.Info.ObjectOf(id); o != nil && (o.Pos() < r.loop.Pos() || o.Pos() >= r.loop.End()) {
					force(id)
				}
			}
			return true
		})
	}
}

// deferFlag returns the variable that says whether a conditional defer was
// executed.
func (w *generator) deferFlag(fn *function, d *ast.DeferStmt) *ast.Ident {
	n, ok := w.deferNumber(fn, d)
	if !ok {
		return nil
	}
	var flag *ast.Ident
	want := fmt.Sprintf("%sd%d", rewrite.Prefix, n)
	ast.Inspect(fn.body, func(k ast.Node) bool {
		if id, ok := k.(*ast.Ident); ok && flag == nil && id.Name == want && w.p.Info.Defs[id] != nil {
			flag = id
		}
		return flag == nil
	})
	return flag
}

// Guarded deferred calls. If a function with deferred calls unwinds, they are
// not to be made: its continuation defers them again. So they are guarded:
//
//	defer g.Done()      defer func() {
//	                            if !Unwinding() {
//	                                    g.Done()
//	                            }
//	                    }()
//
// At a point where such a function cannot unwind, it continues itself: another
// function would defer the calls again.

// canGuardDefers reports whether all deferred calls of a function that may be
// pending at a mark can be guarded.
func (w *generator) canGuardDefers(fn *function) bool {
	ok := true
	w.records(fn)
	rewrite.InspectOwn(fn.body, func(n ast.Node) bool {
		if d, is := n.(*ast.DeferStmt); is {
			if _, pending := w.deferNumber(fn, d); pending {
				ok = ok && fn.records[d] == nil && w.canGuard(d.Call)
			}
		}
		return ok
	})
	return ok
}

// unrecovering are packages whose functions do not call recover for their
// callers, as a function that is deferred may.
var unrecovering = []string{"bufio", "bytes", "compress/gzip", "context", "fmt", "io", "os", "runtime/pprof", "runtime/trace", "strings", "sync", "sync/atomic", "time"}

// canGuard reports whether a deferred call can be made by a func literal: it
// must certainly not call recover.
func (w *generator) canGuard(c *ast.CallExpr) bool {
	var id *ast.Ident
	switch f := ast.Unparen(c.Fun).(type) {
	case *ast.FuncLit: // a function with recover stays as it is
		return f.Type.Results == nil
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && x.Name == rewrite.Prefix+"go" { // the run time
			return true
		}
		id = f.Sel
	default:
		return false
	}
	switch o := w.p.Info.Uses[id].(type) {
	case *types.Builtin:
		return slices.Contains([]string{"close", "delete", "print", "println"}, o.Name())
	case *types.Func:
		r := o.Signature().Recv()
		if o.Pkg() == nil || r != nil && types.IsInterface(r.Type()) {
			return false
		}
		return slices.Contains(unrecovering, o.Pkg().Path()) || o.Pkg() == w.p.Types && w.p.NeverRecovers(o)
	}
	return false
}

// guards reports whether a deferred call is guarded.
func (e *emitter) guards(d *ast.DeferStmt) bool {
	if e.plain || e.fn == nil || !e.fn.fast {
		return false
	}
	_, pending := e.w.deferNumber(e.fn, d)
	return pending
}

// unwindAt writes the code that unwinds at a point. A function with deferred
// calls tests whether it can. Others are continued by another function if they
// cannot. The test is a statement of its own: with a condition of two parts,
// the Go compiler makes a loop longer.
func (e *emitter) unwindAt(m *mark) string {
	if !e.fn.recovers {
		return e.unwind(m)
	}
	return fmt.Sprintf("if %s.CanUnwind() {\n%s\n}", rewrite.Prefix, e.unwind(m))
}
