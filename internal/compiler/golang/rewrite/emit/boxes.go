package emit

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"go/version"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// A variable that is saved, and that other variables may point to, is boxed: it
// has memory of its own, and the emitted code accesses it through a pointer.

// box returns the name of a boxed variable's pointer.
func box(v *types.Var) string { return rewrite.Prefix + "b_" + v.Name() }

// boxedIn returns the boxed variable that an identifier names.
func (e *emitter) boxedIn(x ast.Expr) *types.Var {
	id, ok := x.(*ast.Ident)
	if !ok {
		return nil
	}
	v, ok := e.w.p.Info.ObjectOf(id).(*types.Var)
	if !ok {
		return nil
	}
	for fn := e.fn; fn != nil; fn = fn.outer {
		if fn.boxed[v] {
			return v
		}
	}
	return nil
}

// boxes reports whether a statement declares a boxed variable.
func (e *emitter) boxes(s ast.Stmt) bool {
	if s == nil {
		return false
	}
	for _, v := range e.w.defined(s) {
		for fn := e.fn; fn != nil; fn = fn.outer {
			if fn.boxed[v] {
				return true
			}
		}
	}
	return false
}

// boxedFor writes the head of a loop with boxed variables, and the beginning of
// its body. Each iteration has its own copies of them, and the post statement
// works on the copies for the next iteration; before Go 1.22 all iterations
// share them. values, if not empty, are the initial values; more is another
// variable to declare; before returns the text that goes before a variable's
// name.
func (e *emitter) boxedFor(n *ast.ForStmt, values, more string, before func(*types.Var) string) (head, begin string) {
	w := e.w
	init := n.Init.(*ast.AssignStmt)
	var names, firsts, copies, boxes []string
	for i, x := range init.Lhs {
		id := x.(*ast.Ident)
		v, _ := w.p.Info.Defs[id].(*types.Var)
		if v == nil {
			e.fail(x.Pos(), "declare it before the loop", "a loop whose variable's address is taken declares no other")
			return
		}
		var first string
		if len(init.Rhs) == len(init.Lhs) {
			first = e.region(init.Rhs[i].Pos(), init.Rhs[i].End(), init.Rhs[i])
		} else {
			e.fail(init.Pos(), "declare them before the loop", "a loop whose variable's address is taken gets its variables from one call")
		}
		if e.boxedIn(x) == nil {
			names, firsts = append(names, before(v)+id.Name), append(firsts, first)
			continue
		}
		names = append(names, before(v)+box(v))
		firsts = append(firsts, rewrite.Prefix+".New("+first+")")
		boxes = append(boxes, box(v))
		copies = append(copies, rewrite.Prefix+".New(*"+box(v)+")")
	}
	if values == "" {
		values = strings.Join(firsts, ", ")
	}
	if n.Post != nil {
		started := rewrite.Prefix + "started"
		names, values = append(names, started), fmt.Sprintf("%s, %v", values, more != "")
		begin = fmt.Sprintf("if %s {\n%s\n}\n%s = true\n", started, e.region(n.Post.Pos(), n.Post.End(), n.Post), started)
	}
	if more != "" {
		names, values = append(names, more), values+", true"
	}
	post := ""
	if w.perIteration(n) {
		post = strings.Join(boxes, ", ") + " = " + strings.Join(copies, ", ")
	}
	head = fmt.Sprintf("for %s := %s; ; %s", strings.Join(names, ", "), values, post)
	if n.Cond != nil {
		begin += fmt.Sprintf("if !(%s) {\nbreak\n}\n", e.region(n.Cond.Pos(), n.Cond.End(), n.Cond))
	}
	return head, begin
}

// perIteration reports whether each iteration of a loop has its own variables.
func (w *generator) perIteration(n ast.Node) bool {
	v := w.p.GoVersion
	if fv := w.p.Info.FileVersions[w.file]; fv != "" {
		v = fv
	}
	return v == "" || version.Compare(v, "go1.22") >= 0
}

// outside reports whether a variable on the left of := is a parameter or result
// of the function. A copy of the body is a separate block, in which := would
// declare another variable.
func (e *emitter) outside(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	if !ok || e.labels == nil || e.fn == nil {
		return false
	}
	v, ok := e.w.p.Info.Uses[id].(*types.Var)
	return ok && (slices.Contains(e.fn.params, v) || slices.Contains(e.fn.results, v))
}

// define writes a := with boxed variables on its left side.
func (e *emitter) define(lhs []ast.Expr, rhs string) string {
	var names, after []string
	fresh := false
	for i, x := range lhs {
		id := x.(*ast.Ident)
		v := e.boxedIn(x)
		if v == nil && e.outside(x) {
			tmp := fmt.Sprintf("%sv%d_%s", rewrite.Prefix, i, id.Name)
			names, after, fresh = append(names, tmp), append(after, id.Name+" = "+tmp), true
			continue
		}
		if v == nil {
			names = append(names, id.Name)
			fresh = fresh || e.w.p.Info.Defs[id] != nil
			continue
		}
		tmp := fmt.Sprintf("%sv%d_%s", rewrite.Prefix, i, id.Name)
		names = append(names, tmp)
		fresh = true
		if e.w.p.Info.Defs[id] != nil {
			after = append(after, fmt.Sprintf("%s := %s.New(%s)\n_ = %s", box(v), rewrite.Prefix, tmp, box(v)))
		} else {
			after = append(after, fmt.Sprintf("*%s = %s", box(v), tmp))
		}
	}
	op := ":="
	if !fresh {
		op = "="
	}
	if len(lhs) == 1 && len(after) == 1 && e.w.p.Info.Defs[lhs[0].(*ast.Ident)] != nil {
		v := e.boxedIn(lhs[0])
		return fmt.Sprintf("%s := %s.New(%s)\n_ = %s", box(v), rewrite.Prefix, rhs, box(v))
	}
	return strings.Join(names, ", ") + " " + op + " " + rhs + "\n" + strings.Join(after, "\n")
}

// declare writes a declaration of variables some of which are boxed.
func (e *emitter) declare(n *ast.DeclStmt) (string, bool) {
	d := n.Decl.(*ast.GenDecl)
	if d.Tok != token.VAR || !e.boxes(n) {
		return "", false
	}
	var b strings.Builder
	for _, sp := range d.Specs {
		s := sp.(*ast.ValueSpec)
		if len(s.Values) == 0 {
			for _, id := range s.Names {
				v, _ := e.w.p.Info.Defs[id].(*types.Var)
				if e.boxedIn(id) != nil {
					fmt.Fprintf(&b, "%s := %s.New(%s.Zero[%s]())\n_ = %s\n", box(v), rewrite.Prefix, rewrite.Prefix, e.w.typ(v.Type(), v.Pos()), box(v))
				} else {
					fmt.Fprintf(&b, "var %s %s\n", id.Name, e.w.p.Text(s.Type.Pos(), s.Type.End()))
				}
			}
			continue
		}
		var values []string
		for _, x := range s.Values {
			values = append(values, e.region(x.Pos(), x.End(), x))
		}
		for i, id := range s.Names {
			v, _ := e.w.p.Info.Defs[id].(*types.Var)
			if i > 0 {
				b.WriteString(", ")
			} else {
				b.WriteString("var ")
			}
			if v != nil && e.boxedIn(id) != nil {
				fmt.Fprintf(&b, "%sv%d_%s", rewrite.Prefix, i, id.Name)
			} else {
				b.WriteString(id.Name)
			}
		}
		if s.Type != nil {
			b.WriteString(" " + e.w.p.Text(s.Type.Pos(), s.Type.End()))
		}
		b.WriteString(" = " + strings.Join(values, ", ") + "\n")
		for i, id := range s.Names {
			if v, _ := e.w.p.Info.Defs[id].(*types.Var); v != nil && e.boxedIn(id) != nil {
				fmt.Fprintf(&b, "%s := %s.New(%sv%d_%s)\n_ = %s\n", box(v), rewrite.Prefix, rewrite.Prefix, i, id.Name, box(v))
			}
		}
	}
	return strings.TrimRight(b.String(), "\n"), true
}
