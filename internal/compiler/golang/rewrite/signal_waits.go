package rewrite

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strconv"
)

// A goroutine that only waits for signals can be started again after a restart:
// while it waits, it still has its initial state. The run time starts it, and
// knows the line at which it waits.

// WaitMark returns the mark after go, with that line.
func WaitMark(line int) string { return fmt.Sprintf(" /*cairn:wait %d*/ ", line) }

var waitMark = regexp.MustCompile(`^\s*/\*cairn:wait (\d+)\*/\s*$`)

// Waits returns the statement at which a goroutine waits for signals, if it
// does nothing before that: it is a literal without parameters that begins with
// a receive from a channel of os.Signal, or a select of such, or a loop of
// these. It must not wait for anything else on that line, since the run time
// could not tell the two apart.
func Waits(fset *token.FileSet, info *types.Info, s *ast.GoStmt) ast.Stmt {
	at := waitsFirst(info, s)
	if at == nil {
		return nil
	}
	line := func(n ast.Node) int { return fset.Position(n.Pos()).Line }
	own := map[ast.Node]bool{}
	note := func(n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool { own[n] = true; return true })
	}
	switch at := at.(type) {
	case *ast.RangeStmt:
		own[at] = true
	case *ast.SelectStmt:
		own[at] = true
		for _, c := range at.Body.List {
			note(c.(*ast.CommClause).Comm)
		}
	default:
		note(at)
	}
	alone := true
	ast.Inspect(s.Call.Fun, func(n ast.Node) bool {
		switch u := n.(type) {
		case *ast.UnaryExpr:
			alone = alone && (u.Op != token.ARROW || own[n] || line(n) != line(at))
		case *ast.SendStmt, *ast.SelectStmt, *ast.RangeStmt:
			alone = alone && (own[n] || line(n) != line(at))
		}
		return true
	})
	if !alone {
		return nil
	}
	return at
}

func waitsFirst(info *types.Info, s *ast.GoStmt) ast.Stmt {
	lit, ok := s.Call.Fun.(*ast.FuncLit)
	if !ok || len(s.Call.Args) > 0 || len(lit.Body.List) == 0 {
		return nil
	}
	first := lit.Body.List[0]
	if loop, ok := first.(*ast.ForStmt); ok && loop.Init == nil && loop.Cond == nil && loop.Post == nil && len(loop.Body.List) > 0 {
		first = loop.Body.List[0]
	}
	switch first := first.(type) {
	case *ast.RangeStmt:
		if signals(info, first.X) && first.Tok != token.ASSIGN {
			return first
		}
	case *ast.SelectStmt:
		for _, c := range first.Body.List {
			if !receives(info, c.(*ast.CommClause).Comm) {
				return nil
			}
		}
		if len(first.Body.List) > 0 {
			return first
		}
	default:
		if receives(info, first) {
			return first
		}
	}
	return nil
}

// receives reports whether a statement is a receive from a channel of signals.
func receives(info *types.Info, s ast.Stmt) bool {
	var x ast.Expr
	switch s := s.(type) {
	case *ast.ExprStmt:
		x = s.X
	case *ast.AssignStmt:
		if len(s.Rhs) != 1 || s.Tok != token.DEFINE {
			return false
		}
		x = s.Rhs[0]
	}
	u, ok := ast.Unparen(x).(*ast.UnaryExpr)
	return ok && u.Op == token.ARROW && signals(info, u.X)
}

// signals reports whether an expression is a variable that holds a channel of
// os.Signal.
func signals(info *types.Info, x ast.Expr) bool {
	if id, ok := ast.Unparen(x).(*ast.Ident); !ok || info.Uses[id] == nil {
		return false
	}
	ch, ok := info.TypeOf(x).Underlying().(*types.Chan)
	if !ok {
		return false
	}
	n, ok := types.Unalias(ch.Elem()).(*types.Named)
	return ok && n.Obj().Name() == "Signal" && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == "os"
}

// WaitLine returns the line in the mark of a go statement.
func (p *Package) WaitLine(s *ast.GoStmt) (int, bool) {
	for _, f := range p.Files {
		if f.FileStart <= s.Pos() && s.Pos() < f.FileEnd {
			text, base := p.Source[p.FileName(f)], p.Fset.File(f.FileStart)
			lo, hi := base.Offset(s.Go)+len("go"), base.Offset(s.Call.Pos())
			if lo < hi && hi <= len(text) {
				if m := waitMark.FindSubmatch(text[lo:hi]); m != nil {
					n, err := strconv.Atoi(string(m[1]))
					return n, err == nil
				}
			}
		}
	}
	return 0, false
}

// waits reports whether lit is the function of such a goroutine.
func (p *Package) waits(lit *ast.FuncLit) (is bool) {
	for _, f := range p.Files {
		if f.FileStart <= lit.Pos() && lit.Pos() < f.FileEnd {
			ast.Inspect(f, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok && g.Call.Fun == lit {
					_, is = p.WaitLine(g)
				}
				return !is && n != nil && n.Pos() <= lit.Pos() && lit.End() <= n.End()
			})
		}
	}
	return is
}
