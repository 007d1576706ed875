package irtext

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Format writes a program in a form from which Parse makes the same program,
// except for positions. Different variables of one procedure must have
// different names, and so must procedures. A name that Parse does not accept is
// written unchanged.
func Format(prog *ir.Program) string {
	f := new(formatter).init()
	for _, proc := range prog.Procs {
		f.procs[proc.Name] = true
	}
	for _, proc := range prog.Procs {
		f.proc(proc)
	}
	var head []string
	for _, v := range f.order {
		head = append(head, "global "+declared(v)+"\n")
	}
	return strings.Join(head, "") + f.out.String()
}

type formatter struct {
	out     strings.Builder
	depth   int
	procs   map[string]bool
	globals map[*ir.Var]bool
	order   []*ir.Var
}

func declared(v *ir.Var) string {
	s := v.Name
	if v.Shared {
		s = "shared " + s
	}
	if v.Type != "" {
		s += " of " + v.Type
	}
	return s
}

func (f *formatter) proc(p *ir.Proc) {
	word := "proc"
	if !p.Known {
		word = "extern"
	}
	fmt.Fprintf(&f.out, "%s %s(%s)", word, p.Name, join(p.Params, declared))
	if len(p.Results) > 0 {
		fmt.Fprintf(&f.out, " (%s)", join(p.Results, declared))
	}
	if p.Known {
		f.out.WriteString(" ")
		f.block(p.Body)
	}
	f.out.WriteString("\n")
}

func join[T any](list []T, str func(T) string) string {
	parts := make([]string, len(list))
	for i, x := range list {
		parts[i] = str(x)
	}
	return strings.Join(parts, ", ")
}

func (f *formatter) block(body []ir.Stmt) {
	f.out.WriteString("{\n")
	f.depth++
	for _, s := range body {
		f.indent()
		f.stmt(s)
		f.out.WriteString("\n")
	}
	f.depth--
	f.indent()
	f.out.WriteString("}")
}

func (f *formatter) indent() { f.out.WriteString(strings.Repeat("\t", f.depth)) }

func (f *formatter) variable(v *ir.Var) string {
	if v == nil {
		return "_"
	}
	if v.Global && !f.globals[v] {
		f.globals[v] = true
		f.order = append(f.order, v)
	}
	return v.Name
}

func (f *formatter) vars(list []*ir.Var) string { return join(list, f.variable) }

func (f *formatter) exprs(list []ir.Expr) string {
	return join(list, func(x ir.Expr) string { return f.expr(x) })
}

// reads writes Reads if they differ from those that Parse assumes.
func (f *formatter) reads(got, assumed []*ir.Var) {
	if !slices.Equal(got, assumed) {
		f.out.WriteString(strings.TrimRight(" reads "+f.vars(got), " "))
	}
}

func (f *formatter) clause(word, text string) {
	if text != "" {
		f.out.WriteString(" " + word + " " + text)
	}
}

func (f *formatter) stmt(s ir.Stmt) {
	w := &f.out
	switch s := s.(type) {
	case *ir.Decl:
		w.WriteString("var " + join(s.Vars, declared))
	case *ir.Assign:
		dst := append([]*ir.Var(nil), s.Dst...)
		src := append([]ir.Expr(nil), s.Src...)
		for len(dst) < max(len(src), 1) {
			dst = append(dst, nil)
		}
		for len(src) < len(dst) {
			src = append(src, ir.Unknown{})
		}
		w.WriteString(f.vars(dst) + " = " + f.exprs(src))
		f.reads(s.Reads, refs(nil, src...))
	case *ir.Call:
		f.call(s)
	case *ir.New:
		w.WriteString("new " + f.variable(s.Dst) + " " + s.Type)
		if s.From != nil {
			w.WriteString(" from " + f.expr(s.From))
		}
	case *ir.Put:
		w.WriteString("put(" + f.expr(s.Of) + ", " + f.variable(s.Field))
		if s.Index != nil {
			w.WriteString(", " + f.expr(s.Index))
		}
		w.WriteString(")")
		if s.Src != nil {
			w.WriteString(" = " + f.expr(s.Src))
		}
	case *ir.If:
		w.WriteString("if ")
		if s.Assume != 0 {
			fmt.Fprintf(w, "assume %d ", s.Assume)
		}
		w.WriteString(f.expr(s.Cond) + " ")
		f.block(s.Then)
		if len(s.Else) > 0 {
			w.WriteString(" else ")
			f.block(s.Else)
		}
	case *ir.Switch:
		w.WriteString("switch ")
		if s.Tag != nil {
			w.WriteString(f.expr(s.Tag) + " ")
		}
		w.WriteString("{\n")
		for _, c := range s.Cases {
			f.indent()
			if len(c.Values) == 0 {
				w.WriteString("default ")
			} else {
				w.WriteString("case " + f.exprs(c.Values) + " ")
			}
			f.block(c.Body)
			w.WriteString("\n")
		}
		f.indent()
		w.WriteString("}")
	case *ir.Loop:
		f.loop(s)
	case *ir.Jump:
		for word, kind := range jumps {
			if kind == s.Kind {
				w.WriteString(word)
			}
		}
		if s.Label != "" {
			w.WriteString(" " + s.Label)
		}
		if len(s.Results) > 0 {
			w.WriteString(" " + f.exprs(s.Results))
		}
		f.reads(s.Reads, refs(nil, s.Results...))
	case *ir.Label:
		w.WriteString("label " + s.Name)
	case *ir.Comm:
		f.comm(s)
	case *ir.Launch:
		w.WriteString("launch ")
		if s.Proc == nil {
			w.WriteString("?")
		} else {
			w.WriteString(s.Proc.Name)
		}
		f.group(s.Group)
		f.reads(s.Reads, nil)
	case *ir.Join:
		w.WriteString("join")
		f.group(s.Group)
		f.reads(s.Reads, nil)
	case *ir.Kernel:
		w.WriteString("kernel")
		if s.Name != "" {
			w.WriteString(` "` + s.Name + `"`)
		}
		f.clause("in", f.vars(s.In))
		f.clause("out", f.vars(s.Out))
		f.reads(s.Reads, s.In)
	default:
		panic(fmt.Sprintf("irtext: a statement of type %T", s))
	}
}

func (f *formatter) group(v *ir.Var) {
	if v != nil {
		f.clause("group", f.variable(v))
	}
}

func (f *formatter) call(s *ir.Call) {
	w := &f.out
	w.WriteString("call ")
	var names []string
	for _, p := range s.Procs {
		names = append(names, p.Name)
	}
	callee := strings.Join(names, "|")
	if callee == "" {
		if callee = s.Name; !isName(s.Name) || f.procs[s.Name] {
			callee = "?"
		}
	}
	if callee != s.Name {
		w.WriteString(`"` + s.Name + `" `)
	}
	w.WriteString(callee + "(" + f.exprs(s.Args) + ")")
	if len(s.Results) > 0 {
		w.WriteString(" -> " + f.vars(s.Results))
	}
	f.reads(s.Reads, refs(nil, s.Args...))
}

// isName reports whether Parse reads a word as a name.
func isName(s string) bool {
	m := lexeme.FindStringSubmatch(s)
	return m != nil && m[2] == s && !isWord(s)
}

func (f *formatter) loop(s *ir.Loop) {
	w := &f.out
	if s.Label != "" {
		w.WriteString(s.Label + ": ")
	}
	trip := func() {
		if s.Trip >= 0 {
			fmt.Fprintf(w, " trip %d", s.Trip)
		}
	}
	if s.AtEnd {
		w.WriteString("do ")
		f.block(s.Body)
		if s.Cond != nil {
			w.WriteString(" while " + f.expr(s.Cond))
		}
		trip()
		f.reads(s.Reads, refs(nil, s.Cond))
		return
	}
	w.WriteString("for")
	if len(s.Init) > 0 || len(s.Post) > 0 {
		if len(s.Init) > 0 {
			w.WriteString(" ")
			f.simple(s.Init)
		}
		w.WriteString("; ")
		if s.Cond != nil {
			w.WriteString(f.expr(s.Cond))
		}
		w.WriteString("; ")
		if len(s.Post) > 0 {
			f.simple(s.Post)
		}
	} else if s.Cond != nil {
		w.WriteString(" " + f.expr(s.Cond))
	}
	trip()
	w.WriteString(" ")
	f.block(s.Body)
}

// simple writes a loop's Init or Post.
func (f *formatter) simple(list []ir.Stmt) {
	if a, ok := list[0].(*ir.Assign); ok && len(list) == 1 {
		f.stmt(a)
		return
	}
	f.block(list)
}

func (f *formatter) comm(s *ir.Comm) {
	word, peer := "", "to"
	for name, kind := range comms {
		if kind == s.Kind {
			word = name
		}
	}
	f.out.WriteString(word)
	if s.Name != word {
		f.out.WriteString(` "` + s.Name + `"`)
	}
	switch s.Kind {
	case ir.Recv, ir.StartRecv, ir.Probe:
		peer = "from"
	case ir.Collective:
		peer = "root"
	}
	for _, c := range []struct {
		word string
		x    ir.Expr
	}{{peer, s.Peer}, {"tag", s.Tag}, {"group", s.Group}} {
		if c.x != nil {
			f.clause(c.word, f.expr(c.x))
		}
	}
	if s.Request != nil {
		f.clause("request", f.variable(s.Request))
	}
	f.clause("status", f.vars(s.Status))
	f.reads(s.Reads, commReads(s))
}

// symbol returns the text of an operator and its precedence.
func symbol(op ir.Op) (text string, level int) {
	for i, l := range levels {
		for s, o := range l {
			if o == op {
				return s, i
			}
		}
	}
	return "", -1
}

// String writes an expression.
func String(x ir.Expr) string { return new(formatter).init().expr(x) }

func (f *formatter) init() *formatter {
	f.procs, f.globals = map[string]bool{}, map[*ir.Var]bool{}
	return f
}

func (f *formatter) expr(x ir.Expr) string { return f.prec(x, 0) }

// prec writes an expression in a place where operators of at least this level
// may stand.
func (f *formatter) prec(x ir.Expr, level int) string {
	of := func(word string, group ir.Expr) string {
		if group == nil {
			return word
		}
		return word + "(" + f.expr(group) + ")"
	}
	switch x := x.(type) {
	case ir.Const:
		return fmt.Sprint(x.Value)
	case ir.Ref:
		return f.variable(x.Var)
	case ir.Rank:
		return of("rank", x.Group)
	case ir.Size:
		return of("size", x.Group)
	case ir.Field:
		s := "get(" + f.expr(x.Of) + ", " + f.variable(x.Var)
		if x.Index != nil {
			s += ", " + f.expr(x.Index)
		}
		if x.Else != nil {
			s += " else " + f.expr(x.Else)
		}
		return s + ")"
	case ir.Unknown:
		if len(x.Vars) == 0 {
			return "?"
		}
		return "?(" + f.vars(x.Vars) + ")"
	case ir.Unary:
		if x.Op == ir.Len {
			return "len(" + f.prec(x.X, 0) + ")"
		}
		for s, op := range unary {
			if op != x.Op {
				continue
			}
			inner := f.prec(x.X, len(levels))
			if _, ok := x.X.(ir.Const); ok {
				inner = "(" + inner + ")"
			}
			return s + inner
		}
	case ir.Binary:
		if x.Op == ir.Wrap {
			return "wrap(" + f.prec(x.X, 0) + ", " + f.prec(x.Y, 0) + ")"
		}
		s, l := symbol(x.Op)
		text := f.prec(x.X, l) + " " + s + " " + f.prec(x.Y, l+1)
		if l < level {
			text = "(" + text + ")"
		}
		return text
	case nil:
		return "?"
	}
	return fmt.Sprintf("<%T>", x)
}
