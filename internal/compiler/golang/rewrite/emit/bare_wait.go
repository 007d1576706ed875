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

// bareWaits are the functions of the run time that have a bare form.
var bareWaits = []string{"Recv", "RecvOK", "Send", "Select", "Lock", "LockRW", "RLock", "LockAny"}

// bareWait returns the name of the run time's function in the call of a mark,
// if it has a bare form that can be used there. It cannot if the statement
// assigns to variables that exist before it: an interrupted wait would change
// them.
func (e *emitter) bareWait(m *mark) *ast.Ident {
	if e.plain || !m.call {
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
	if !ok || f.Pkg() == nil || f.Pkg().Path() != e.w.runtime || !slices.Contains(bareWaits, f.Name()) {
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
	return sel.Sel
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
