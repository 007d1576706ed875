package normalize

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// runtimeName is the name of the run time in files with waits.
const runtimeName = rewrite.Prefix + "go"

// LowerWaits turns operations that may block, and go statements, into calls of
// the run time, whose import path is given. A wait becomes a call that leads to
// a point: the run time unwinds there when all goroutines are to stand still.
func LowerWaits(p *rewrite.Package, runtime string) (*rewrite.Package, error) {
	text := map[string][]byte{}
	for _, f := range p.Files {
		l := &waitLowerer{p: p, marks: map[token.Pos]string{}, pairs: map[ast.Expr]bool{}}
		for _, g := range f.Comments {
			for _, c := range g.List {
				switch c.Text {
				case rewrite.ParkMark, rewrite.GoMark, rewrite.GoPointsMark, rewrite.BackgroundMark, rewrite.RebuiltMark:
					l.marks[c.Pos()] = c.Text
				}
			}
		}
		if len(l.marks) == 0 {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if len(n.Lhs) == 2 && len(n.Rhs) == 1 {
					l.pairs[ast.Unparen(n.Rhs[0])] = true
				}
			case *ast.ValueSpec:
				if len(n.Names) == 2 && len(n.Values) == 1 {
					l.pairs[ast.Unparen(n.Values[0])] = true
				}
			}
			return true
		})
		body := p.Span(f.Name.End(), f.FileEnd, f, l.put)
		s := p.Text(f.FileStart, f.Name.End()) + fmt.Sprintf("\n\nimport %s %q\n", runtimeName, runtime) + body
		text[p.FileName(f)] = []byte(s)
	}
	if len(text) == 0 {
		return p, nil
	}
	q, err := p.With(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWaits, err)
	}
	return q, nil
}

// ErrWaits says that LowerWaits has made source that is not correct.
var ErrWaits = errors.New("go statements and waits cannot be rewritten")

type waitLowerer struct {
	p     *rewrite.Package
	marks map[token.Pos]string
	pairs map[ast.Expr]bool // receives with two results
	count int
}

// text returns the text of a node below the one that is replaced.
func (l *waitLowerer) text(n ast.Node) string { return l.p.NodeText(n, l.put) }

// between returns the text from lo to hi, in which nodes of list lie.
func (l *waitLowerer) between(lo, hi token.Pos, list []ast.Stmt) string {
	var b strings.Builder
	for _, s := range list {
		b.WriteString(l.p.Text(lo, s.Pos()) + l.text(s))
		lo = s.End()
	}
	return b.String() + l.p.Text(lo, hi)
}

// name returns a new name.
func (l *waitLowerer) name(kind string) string {
	l.count++
	return fmt.Sprintf("%s%s%d", rewrite.Prefix, kind, l.count)
}

func (l *waitLowerer) call(function, args string) string {
	return fmt.Sprintf("%s.%s(%s%s)", runtimeName, function, rewrite.CallMark, args)
}

// put returns the new text of a node with a mark.
func (l *waitLowerer) put(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.UnaryExpr:
		if n.Op == token.ARROW && l.marks[n.OpPos+2] != "" {
			function := "Recv"
			if l.pairs[n] {
				function = "RecvOK"
			}
			return l.call(function, l.text(n.X)), true
		}
	case *ast.SendStmt:
		if l.marks[n.Arrow+2] != "" {
			return fmt.Sprintf("%s.To(%s).Send(%s%s)", runtimeName, l.text(n.Chan), rewrite.CallMark, l.text(n.Value)), true
		}
	case *ast.RangeStmt:
		if l.marks[n.Range+token.Pos(len("range"))] == rewrite.ParkMark {
			return l.rangeLoop(n), true
		}
	case *ast.SelectStmt:
		if l.marks[n.Select+token.Pos(len("select"))] != "" {
			return l.selectStmt(n), true
		}
	case *ast.CallExpr:
		if l.marks[n.Lparen+1] == rewrite.ParkMark {
			if len(n.Args) == 1 {
				return l.call("Sleep", l.text(n.Args[0])), true
			}
			if function, waits := rewrite.SyncCall(l.p.Info, n); waits {
				return l.call(function, l.receiver(n)), true
			} else if function != "" {
				return fmt.Sprintf("%s.%s(%s)", runtimeName, function, l.receiver(n)), true
			}
			return l.call("WaitGroup", l.receiver(n)), true
		}
	case *ast.ExprStmt:
		if c, ok := n.X.(*ast.CallExpr); ok {
			if m := l.marks[c.Lparen+1]; m != "" && m != rewrite.ParkMark {
				return l.waitGroupGo(c, m), true
			}
		}
	case *ast.GoStmt:
		if m := l.marks[n.Go+token.Pos(len("go"))]; m != "" {
			return l.goStmt(n, m), true
		}
	}
	return "", false
}

// rangeLoop turns a loop over a channel into one that receives.
func (l *waitLowerer) rangeLoop(n *ast.RangeStmt) string {
	c, v, ok := l.name("r"), l.name("v"), l.name("ok")
	key, tok := "_", ""
	if id, is := n.Key.(*ast.Ident); n.Key != nil && (!is || id.Name != "_") {
		key, tok = l.text(n.Key), n.Tok.String()
	}
	head := fmt.Sprintf("for %s := %s.Ranged(%s); ; {", c, runtimeName, l.text(n.X))
	if tok == ":=" && !(&normalizer{p: l.p, file: l.fileOf(n)}).perIteration() {
		head = fmt.Sprintf("for %s, %s := %s.RangedOld(%s); ; {", c, key, runtimeName, l.text(n.X))
		tok = "="
	}
	lo := n.Body.Lbrace + 1
	if hi := lo + token.Pos(len(rewrite.PointMark)); hi <= n.Body.Rbrace && l.p.Text(lo, hi) == rewrite.PointMark {
		head += rewrite.PointMark
		lo = hi
	}
	if tok == "" {
		head += fmt.Sprintf(" _, %s := %s; if !%s { break };", ok, l.call("RecvOK", c), ok)
	} else {
		head += fmt.Sprintf(" %s, %s := %s; if !%s { break }; %s %s %s;", v, ok, l.call("RecvOK", c), ok, key, tok, v)
	}
	return head + l.between(lo, n.Body.Rbrace, n.Body.List) + "}"
}

func (l *waitLowerer) fileOf(n ast.Node) *ast.File {
	for _, f := range l.p.Files {
		if f.FileStart <= n.Pos() && n.Pos() < f.FileEnd {
			return f
		}
	}
	return nil
}

// selectStmt turns a select statement without a default into a switch.
func (l *waitLowerer) selectStmt(n *ast.SelectStmt) string {
	if len(n.Body.List) == 0 {
		return fmt.Sprintf("{ %s; select {} }", l.call("Select", ""))
	}
	var cases, clauses strings.Builder
	var names []string
	chosen, selected, used := l.name("chosen"), l.name("selected"), false
	for i, s := range n.Body.List {
		c := s.(*ast.CommClause)
		name := l.name("case")
		names = append(names, name)
		begin := ""
		switch op := rewrite.CaseOperation(c).(type) {
		case *ast.SendStmt:
			fmt.Fprintf(&cases, "%s := %s.To(%s).Case(%s); ", name, runtimeName, l.text(op.Chan), l.text(op.Value))
		case *ast.UnaryExpr:
			fmt.Fprintf(&cases, "%s := %s.CaseRecv(%s); ", name, runtimeName, l.text(op.X))
			if a, ok := c.Comm.(*ast.AssignStmt); ok {
				value := "Received"
				if len(a.Lhs) == 2 {
					value = "ReceivedOK"
				}
				var lhs []string
				for _, x := range a.Lhs {
					lhs = append(lhs, l.text(x))
				}
				begin = fmt.Sprintf(" %s %s %s.%s(%s, %s);", strings.Join(lhs, ", "), a.Tok, runtimeName, value, selected, name)
				used = true
			}
		}
		head := fmt.Sprintf("case %d:", i)
		hi := n.Body.Rbrace
		if i+1 < len(n.Body.List) {
			hi = n.Body.List[i+1].Pos()
		} else {
			head = "default:" // so that the statement ends the function if all of its clauses do
		}
		clauses.WriteString(head + begin + l.between(c.Colon+1, hi, c.Body))
	}
	if !used {
		selected = "_"
	}
	return fmt.Sprintf("{ %s%s, %s := %s; switch %s {\n%s} }", cases.String(), chosen, selected, l.call("Select", strings.Join(names, ", ")), chosen, clauses.String())
}

// embedded returns the text and the type of the operand of a selector, with the
// embedded fields that lead to what it selects.
func (l *waitLowerer) embedded(sel *ast.SelectorExpr) (text string, t types.Type) {
	text, t = l.text(sel.X), l.p.Info.TypeOf(sel.X)
	if s := l.p.Info.Selections[sel]; s != nil {
		for _, i := range s.Index()[:len(s.Index())-1] {
			if q, ok := t.Underlying().(*types.Pointer); ok {
				t = q.Elem()
			}
			f := t.Underlying().(*types.Struct).Field(i)
			text, t = text+"."+f.Name(), f.Type()
		}
	}
	return text, t
}

// receiver returns the address of the value whose method a call names.
func (l *waitLowerer) receiver(c *ast.CallExpr) string {
	text, t := l.embedded(ast.Unparen(c.Fun).(*ast.SelectorExpr))
	if _, ok := t.Underlying().(*types.Pointer); !ok && !types.IsInterface(t) {
		text = "&" + text
	}
	return text
}

// start returns a call that starts a goroutine.
func (l *waitLowerer) start(n ast.Node, mark, f string) string {
	function := "Start"
	switch mark {
	case rewrite.GoMark:
		function = "StartWhole"
	case rewrite.BackgroundMark:
		function = "StartBackground"
	case rewrite.RebuiltMark:
		function = "StartRebuilt"
	}
	at := l.p.Fset.Position(n.Pos())
	name := filepath.Base(at.Filename)
	if l.p.Types.Name() != "main" {
		name = l.p.Path + "/" + name
	}
	return fmt.Sprintf("%s.%s(%q, %s)", runtimeName, function, fmt.Sprintf("%s:%d", name, at.Line), f)
}

// goStmt turns a go statement into a call.
func (l *waitLowerer) goStmt(n *ast.GoStmt, mark string) string {
	c := n.Call
	if lit, ok := ast.Unparen(c.Fun).(*ast.FuncLit); ok {
		body := l.between(lit.Body.Lbrace, lit.Body.Rbrace, lit.Body.List) + "}"
		if lit.Type.Params.NumFields() == 0 {
			return l.start(n, mark, "func() "+body)
		}
		// The arguments are evaluated now.
		maker := fmt.Sprintf("func%s func() { return func() %s }%s", l.p.Text(lit.Type.Params.Pos(), lit.Type.Params.End()), body, l.arguments(c))
		return l.start(n, mark, maker)
	}
	var before, args strings.Builder
	keep := func(text string) string {
		name := l.name("go")
		fmt.Fprintf(&before, "%s := %s; ", name, text)
		return name
	}
	fun, rest := l.operand(c, keep)
	for i, a := range rest {
		if i > 0 {
			args.WriteString(", ")
		}
		if tv := l.p.Info.Types[a]; tv.Value != nil || tv.IsNil() {
			args.WriteString(l.text(a))
		} else {
			args.WriteString(keep(l.text(a)))
		}
	}
	if c.Ellipsis.IsValid() {
		args.WriteString("...")
	}
	call := ""
	if mark == rewrite.GoPointsMark {
		call = rewrite.CallMark
	}
	return "{ " + before.String() + l.start(n, mark, fmt.Sprintf("func() { %s%s(%s%s) }", l.p.LineComment(n.Pos()), fun, call, args.String())) + " }"
}

func (l *waitLowerer) arguments(c *ast.CallExpr) string {
	var list []string
	for _, a := range c.Args {
		list = append(list, l.text(a))
	}
	s := strings.Join(list, ", ")
	if c.Ellipsis.IsValid() {
		s += "..."
	}
	return "(" + s + ")"
}

// operand returns the function of a call whose operands are evaluated now, and
// the other arguments.
func (l *waitLowerer) operand(c *ast.CallExpr, keep func(string) string) (fun string, args []ast.Expr) {
	info := l.p.Info
	whole := ast.Unparen(c.Fun)
	base := whole
	switch x := whole.(type) {
	case *ast.IndexExpr:
		base = x.X
	case *ast.IndexListExpr:
		base = x.X
	}
	switch f := ast.Unparen(base).(type) {
	case *ast.Ident:
		if _, ok := info.Uses[f].(*types.Func); ok {
			return l.text(whole), c.Args
		}
	case *ast.SelectorExpr:
		s := info.Selections[f]
		if s == nil { // of another package
			if _, ok := info.Uses[f.Sel].(*types.Func); ok {
				return l.text(whole), c.Args
			}
			break
		}
		if s.Kind() == types.MethodExpr {
			if types.IsInterface(s.Obj().(*types.Func).Signature().Recv().Type()) {
				return keep("("+l.text(f.X)+")("+l.text(c.Args[0])+")") + "." + f.Sel.Name, c.Args[1:]
			}
			return l.text(whole), c.Args
		}
		if s.Kind() == types.MethodVal {
			if !rewrite.CanName(info, c) {
				return keep(l.text(f.X)) + "." + f.Sel.Name, c.Args
			}
			// The receiver is the value itself, or its address, even if what
			// leads to it changes before the goroutine begins.
			text, t := l.embedded(f)
			recv := s.Obj().(*types.Func).Signature().Recv().Type()
			_, byPointer := recv.Underlying().(*types.Pointer)
			_, isPointer := t.Underlying().(*types.Pointer)
			switch {
			case types.IsInterface(recv) || byPointer == isPointer:
				return keep(text) + "." + f.Sel.Name, c.Args
			case byPointer:
				return "(" + keep("&"+text) + ")." + f.Sel.Name, c.Args
			default:
				return keep("*"+text) + "." + f.Sel.Name, c.Args
			}
		}
	}
	return keep(l.text(c.Fun)), c.Args
}

// waitGroupGo turns a call of WaitGroup.Go into what it does.
func (l *waitLowerer) waitGroupGo(c *ast.CallExpr, mark string) string {
	group := l.name("go")
	before := fmt.Sprintf("%s := %s; ", group, l.receiver(c))
	line := l.p.LineComment(c.Pos())
	var f string
	if lit, ok := ast.Unparen(c.Args[0]).(*ast.FuncLit); ok {
		lo := lit.Body.Lbrace + 1
		begin := "{"
		if text := l.p.Text(lo, lit.Body.Rbrace); strings.HasPrefix(text, "/*cairn:lit ") {
			hi := lo + token.Pos(strings.Index(text, "*/")+2)
			begin += l.p.Text(lo, hi)
			lo = hi
		}
		f = fmt.Sprintf("func() %s %sdefer %s.Done();%s}", begin, line, group, l.between(lo, lit.Body.Rbrace, lit.Body.List))
	} else {
		call := ""
		if mark == rewrite.GoPointsMark {
			call = rewrite.CallMark
		}
		v := l.name("go")
		before += fmt.Sprintf("%s := %s; ", v, l.text(c.Args[0]))
		f = fmt.Sprintf("func() { %sdefer %s.Done(); %[1]s%[3]s(%[4]s) }", line, group, v, call)
	}
	return fmt.Sprintf("{ %s%s.Add(1); %s }", before, group, l.start(c, mark, f))
}
