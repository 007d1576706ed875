package emit

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Bare waits. Most waits are not interrupted by a checkpoint. So a function
// first waits without its frame: that costs little more than the operation
// itself. If it is interrupted, it stores its frame, or announces the call, and
// waits again, for the same operands, which the run time has kept:
//
//	v, ok := RecvOK(c)      v, ok := BareRecvOK(c)
//	                        if Interrupted() {
//	                                store the frame
//	                                v, ok = RecvOK[T](nil)
//	                                …
//	                        }
//
// A select is written as the program's own statement: see resume/bare.go.

// bareWaits are the functions of the run time that have a bare form.
var bareWaits = []string{"Recv", "RecvOK", "Send", "Select", "Lock", "LockRW", "RLock", "LockAny", "CondWait"}

// bareWait returns the name of the run time's function in the call of a mark,
// if it has a bare form that can be used there. It cannot if the statement
// assigns to variables that exist before it: an interrupted wait would change
// them.
func (e *emitter) bareWait(m *mark) *ast.Ident {
	name := e.waitName(m)
	if e.plain || name == nil || !slices.Contains(bareWaits, name.Name) {
		return nil
	}
	if a, ok := m.stmt().(*ast.AssignStmt); ok {
		for _, x := range a.Lhs {
			id, ok := x.(*ast.Ident)
			if !ok || a.Tok != token.DEFINE || id.Name != "_" && e.w.p.Info.Defs[id] == nil || e.boxedIn(x) != nil || e.outside(x) {
				return nil
			}
		}
	}
	return name
}

// waitName returns the name of the run time's function in the call of a mark, or
// nil.
func (e *emitter) waitName(m *mark) *ast.Ident {
	if !m.call {
		return nil
	}
	call := resumableCall(m.stmt())
	if call == nil {
		return nil
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	f, ok := e.w.p.Info.Uses[sel.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != e.w.runtime {
		return nil
	}
	return sel.Sel
}

// ownSelect writes a select statement for a mark whose call stands for one: a
// bare wait, or that of a function that is not saved. It returns "" for other
// marks.
func (e *emitter) ownSelect(m *mark) string {
	name := e.waitName(m)
	if name == nil || name.Name != "Select" || !e.plain && e.bareWait(m) == nil {
		return ""
	}
	a, ok := m.stmt().(*ast.AssignStmt)
	if !ok || a.Tok != token.DEFINE {
		return ""
	}
	chosen, selected := a.Lhs[0].(*ast.Ident).Name, a.Lhs[1].(*ast.Ident).Name
	var cases strings.Builder
	var names, sends, receives []string
	for i, x := range resumableCall(a).Args {
		c := x.(*ast.Ident).Name
		names = append(names, c)
		if e.w.p.Info.TypeOf(x).(*types.Named).Obj().Name() == "SendCase" {
			sends = append(sends, c+".Channel()")
			fmt.Fprintf(&cases, "case %[1]s.C <- %[1]s.V:\n", c)
		} else {
			receives = append(receives, c+".Channel()")
			fmt.Fprintf(&cases, "case %[1]s.V, %[1]s.OK = <-%[1]s.C:\n", c)
		}
		if i > 0 {
			fmt.Fprintf(&cases, "%s = %d\n", chosen, i)
		}
	}
	both := chosen + ", " + selected
	list, line := strings.Join(names, ", "), e.w.lineAt(m)
	wait := fmt.Sprintf("%sselect {\n%s}\n", line, cases.String())
	if e.plain {
		return fmt.Sprintf("%[1]s := 0, %[2]s.Selected{}\nif %[2]s.Alone() {\n%[3]s} else {\n%[4]s%[1]s = %[2]s.Select(%[5]s)\n}",
			both, rewrite.Prefix, wait, line, list)
	}
	return fmt.Sprintf("%[1]s := 0, %[2]s.Selected{}\nif %[2]sg, %[2]sok := %[2]s.Selecting(%[3]d, %[4]s); !%[2]sok {\n%[5]s%[1]s = %[2]s.BareSelect(%[6]s)\n} else {\n%[7]sif %[2]sg.Woken() {\n%[2]s.InterruptSelect(%[6]s)\n}\n}",
		both, rewrite.Prefix, len(sends), strings.Join(append(sends, receives...), ", "), line, list, wait)
}

// afterBareWait writes the code after the bare wait of a mark.
func (e *emitter) afterBareWait(m *mark) string {
	c := &continuation{emitter: *e, m: m}
	again := c.callAgain(resumableCall(m.stmt()))
	if a, ok := m.stmt().(*ast.AssignStmt); ok {
		var names []string
		for _, x := range a.Lhs {
			names = append(names, x.(*ast.Ident).Name)
		}
		again = strings.Join(names, ", ") + " = " + again
	}
	return fmt.Sprintf("\nif %s.Interrupted() {\n%s\n%s%s%s\n}", rewrite.Prefix, e.save(m), e.w.lineAt(m), again, e.afterCall(m))
}
