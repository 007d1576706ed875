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
// A mutex is tried first in the function's own code. A select is written as the
// program's own statement: see resume/bare.go. So are sends and receives in
// functions with a loop that has one. These look up the goroutine's control
// block when they begin; without a loop, that would cost more than it saves.

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

// waitName returns the name of the run time's function in the call of a mark,
// or nil.
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
	lookUp, selects := "", "Selects"
	if !e.fn.waiter {
		lookUp = fmt.Sprintf("%[1]sw := %[1]s.Waiter(); ", rewrite.Prefix)
	}
	if len(names) == 2 {
		selects = "SelectsTwo"
	}
	return fmt.Sprintf("%[1]s := 0, %[2]s.Selected{}\nif %[8]s!%[2]sw.%[9]s(%[3]d, %[4]s) {\n%[5]s%[1]s = %[2]s.BareSelect(%[6]s)\n} else {\n%[7]sif %[2]sw.Woken() {\n%[2]s.InterruptSelect(%[6]s)\n}\n}",
		both, rewrite.Prefix, len(sends), strings.Join(append(sends, receives...), ", "), line, list, wait, lookUp, selects)
}

// waitsInLoop reports whether a function sends, receives or selects in a loop.
func (e *emitter) waitsInLoop() bool {
	return slices.ContainsFunc(e.fn.marks, func(m *mark) bool {
		name := e.waitName(m)
		return name != nil && slices.Contains([]string{"Recv", "RecvOK", "Send", "Select"}, name.Name) && slices.ContainsFunc(m.path[:len(m.path)-1], func(st step) bool {
			switch unlabelled(st.list[st.i]).(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				return true
			}
			return false
		})
	})
}

// lookUpWaiter declares the control block in a function that needs it.
func (fn *function) lookUpWaiter() string {
	if !fn.waiter {
		return ""
	}
	return fmt.Sprintf("%[1]sw := %[1]s.Waiter()\n_ = %[1]sw\n", rewrite.Prefix)
}

// bareStatement writes the statement of a mark with a bare wait; "": it has
// none.
func (e *emitter) bareStatement(m *mark) string {
	if text := e.ownSelect(m); text != "" {
		if !e.plain {
			text += e.ifInterrupted(m, "")
		}
		return text
	}
	name := e.bareWait(m)
	if name == nil {
		return ""
	}
	call := resumableCall(m.stmt())
	on := call.Fun.(*ast.SelectorExpr).X
	args := ""
	if len(call.Args) == 1 {
		args = e.region(call.Args[0].Pos(), call.Args[0].End(), call.Args[0])
	}
	results := ""
	if a, ok := m.stmt().(*ast.AssignStmt); ok {
		results = strings.Join(names(a), ", ")
	}
	line := e.w.lineAt(m)
	if e.fn.waiter {
		switch name.Name {
		case "Recv", "RecvOK":
			c := fmt.Sprintf("%schan%d", rewrite.Prefix, m.n)
			text := fmt.Sprintf("%s := %s.Channel(%s)\n", c, rewrite.Prefix, args)
			bare, own := fmt.Sprintf("%s.Bare%s(%s)", rewrite.Prefix, name.Name, c), line+"<-"+c
			if results != "" {
				function := "Receiving"
				if name.Name == "RecvOK" {
					function = "ReceivingOK"
				}
				text = fmt.Sprintf("%s, %s := %s.%s(%s)\n", results, c, rewrite.Prefix, function, args)
				bare, own = results+" = "+bare, line+results+" = <-"+c
			}
			return text + fmt.Sprintf("if !%[1]sw.Waits(%[1]s.Address(%[2]s)) {\n%[3]s%[4]s\n} else {\n%[5]s\nif %[1]sw.Waited() {\n%[1]s.InterruptRecv(%[2]s)\n}\n}", rewrite.Prefix, c, line, bare, own) +
				e.ifInterrupted(m, "")
		case "Send":
			if id, ok := on.(*ast.Ident); ok && e.boxedIn(id) == nil {
				v, cut := fmt.Sprintf("%svalue%d", rewrite.Prefix, m.n), fmt.Sprintf("%scut%d", rewrite.Prefix, m.n)
				return fmt.Sprintf("%[3]s, %[4]s := %[2]s.Value(%[5]s)\nif !%[1]sw.Waits(%[2]s.Channel()) {\n%[6]s%[4]s = %[2]s.BareSend(%[3]s)\n} else {\n%[6]s%[2]s.C <- %[3]s\nif %[1]sw.Waited() {\n%[4]s = %[2]s.InterruptSend(%[3]s)\n}\n}\n",
					rewrite.Prefix, id.Name, v, cut, args, line) + e.ifInterrupted(m, cut)
			}
		}
	}
	if name.Name == "Lock" {
		lock := fmt.Sprintf("%slock%d", rewrite.Prefix, m.n)
		return fmt.Sprintf("%s := %s\n", lock, args) +
			e.ifInterrupted(m, fmt.Sprintf("(!%[1]s.Barging() || !%[1]s.TryLock(%[2]s)) && %[1]s.BareLock(%[2]s)", rewrite.Prefix, lock))
	}
	text := fmt.Sprintf("%s.Bare%s(%s)", e.region(on.Pos(), on.End(), on), name.Name, args)
	if name.Name == "Recv" || name.Name == "RecvOK" {
		if results != "" {
			text = results + " := " + text
		}
		return text + e.ifInterrupted(m, "")
	}
	return e.ifInterrupted(m, text)
}

func names(a *ast.AssignStmt) (list []string) {
	for _, x := range a.Lhs {
		list = append(list, x.(*ast.Ident).Name)
	}
	return list
}

// ifInterrupted writes the code for a bare wait that was interrupted. call is
// the bare wait, if it reports that.
func (e *emitter) ifInterrupted(m *mark, call string) string {
	c := &continuation{emitter: *e, m: m}
	again := c.callAgain(resumableCall(m.stmt()))
	if a, ok := m.stmt().(*ast.AssignStmt); ok {
		again = strings.Join(names(a), ", ") + " = " + again
	}
	if call == "" {
		call = fmt.Sprintf("\nif %s.Interrupted()", rewrite.Prefix)
	} else {
		call = "if " + call
	}
	return fmt.Sprintf("%s {\n%s\n%s%s%s\n}", call, e.save(m), e.w.lineAt(m), again, e.afterCall(m))
}
