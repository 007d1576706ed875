package irtext

import (
	"math"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

func (p *parser) block() (body []ir.Stmt) {
	defer p.deeper()()
	p.expect("{")
	for p.skipLines(); !p.accept("}"); p.skipLines() {
		if p.tok.kind == 0 {
			p.fail("block not ended")
		}
		body = append(body, p.stmt())
		p.end()
	}
	return body
}

var comms = map[string]ir.CommKind{"send": ir.Send, "recv": ir.Recv, "isend": ir.StartSend, "irecv": ir.StartRecv,
	"wait": ir.Wait, "sendrecv": ir.Sendrecv, "collective": ir.Collective, "probe": ir.Probe}

var jumps = map[string]ir.JumpKind{"break": ir.Break, "continue": ir.Continue, "return": ir.Return,
	"goto": ir.Goto, "exit": ir.Exit}

func (p *parser) stmt() ir.Stmt {
	defer p.deeper()()
	at, word := p.tok.pos, p.tok.text
	if p.tok.kind != 'i' {
		p.fail("%q where a statement should be", word)
	}
	if !isWord(word) || word == "_" {
		return p.assignOrLabel(at)
	}
	p.next()
	switch word {
	case "var":
		return &ir.Decl{Pos: at, Vars: p.declare(p.locals, false)}
	case "call":
		return p.call(at)
	case "if":
		return p.conditional(at)
	case "switch":
		return p.choice(at)
	case "for":
		return p.loop(at, "")
	case "do":
		return p.doWhile(at, "")
	case "label":
		return &ir.Label{Pos: at, Name: p.name()}
	case "launch":
		return p.launch(at)
	case "join":
		s := &ir.Join{Pos: at}
		p.clauses(clauses{"group": func() { s.Group = p.variable() }, "reads": func() { s.Reads = p.variables() }})
		return s
	case "kernel":
		return p.kernel(at)
	case "new":
		s := &ir.New{Pos: at, Dst: p.variable()}
		s.Type = p.name()
		if p.accept("from") {
			s.From = p.expr()
		}
		return s
	case "put":
		s := &ir.Put{Pos: at}
		p.expect("(")
		s.Of = p.expr()
		p.expect(",")
		s.Field = p.variable()
		if p.accept(",") {
			s.Index = p.expr()
		}
		p.expect(")")
		if p.accept("=") {
			s.Src = p.expr()
		}
		return s
	}
	if kind, ok := comms[word]; ok {
		return p.comm(at, kind, word)
	}
	if kind, ok := jumps[word]; ok {
		return p.jump(at, kind)
	}
	p.fail("%q where a statement should be", word)
	return nil
}

// assignOrLabel reads a statement that begins with a name: an assignment, or a
// labelled loop.
func (p *parser) assignOrLabel(at ir.Pos) ir.Stmt {
	s := &ir.Assign{Pos: at}
	for {
		if p.accept("_") {
			s.Dst = append(s.Dst, nil)
		} else {
			off := p.tok
			name, known := off.text, p.locals[off.text] != nil
			v := p.variable()
			if len(s.Dst) == 0 && p.accept(":") {
				if !known {
					delete(p.locals, name) // it was a label
				}
				return p.labelled(off.pos, name)
			}
			s.Dst = append(s.Dst, v)
		}
		if !p.accept(",") {
			break
		}
	}
	p.expect("=")
	s.Src = p.exprs()
	if len(s.Src) != len(s.Dst) {
		p.fail("%d variables get %d values", len(s.Dst), len(s.Src))
	}
	s.Reads = p.reads(s.Src...)
	return s
}

func (p *parser) labelled(at ir.Pos, label string) ir.Stmt {
	if p.accept("do") {
		return p.doWhile(at, label)
	}
	p.expect("for")
	return p.loop(at, label)
}

// reads reads an optional reads clause. Without it, the reads are those of x.
func (p *parser) reads(x ...ir.Expr) []*ir.Var {
	if p.accept("reads") {
		return p.variables()
	}
	return refs(nil, x...)
}

func (p *parser) call(at ir.Pos) ir.Stmt {
	s := &ir.Call{Pos: at}
	if p.tok.kind == 's' {
		s.Name = p.tok.text
		p.next()
	}
	var names []string
	if s.Name == "" || !p.accept("?") {
		names = append(names, p.name())
		for p.accept("|") {
			names = append(names, p.name())
		}
	}
	if s.Name == "" {
		s.Name = strings.Join(names, "|")
	}
	at = p.tok.pos
	p.later = append(p.later, func() {
		for _, n := range names {
			if proc := p.procs[n]; proc != nil {
				s.Procs = append(s.Procs, proc)
			} else if len(names) > 1 {
				panic(syntax{at, "no procedure " + n})
			}
		}
	})
	p.expect("(")
	if !p.is(")") {
		s.Args = p.exprs()
	}
	p.expect(")")
	if p.accept("->") {
		for {
			if p.accept("_") {
				s.Results = append(s.Results, nil)
			} else {
				s.Results = append(s.Results, p.variable())
			}
			if !p.accept(",") {
				break
			}
		}
	}
	s.Reads = p.reads(s.Args...)
	return s
}

func (p *parser) conditional(at ir.Pos) ir.Stmt {
	s := &ir.If{Pos: at}
	if p.accept("assume") {
		s.Assume = 1
		if p.accept("-") {
			s.Assume = -1
		}
		if p.tok.text != "1" {
			p.fail("%q where 1 should be", p.tok.text)
		}
		p.next()
	}
	s.Cond = p.expr()
	s.Then = p.block()
	if p.accept("else") {
		if elseAt := p.tok.pos; p.accept("if") {
			defer p.deeper()()
			s.Else = []ir.Stmt{p.conditional(elseAt)}
		} else {
			s.Else = p.block()
		}
	}
	return s
}

func (p *parser) choice(at ir.Pos) ir.Stmt {
	s := &ir.Switch{Pos: at}
	if !p.is("{") {
		s.Tag = p.expr()
	}
	p.expect("{")
	for p.skipLines(); !p.accept("}"); p.skipLines() {
		c := ir.Case{Pos: p.tok.pos}
		if p.accept("case") {
			c.Values = p.exprs()
		} else {
			p.expect("default")
		}
		c.Body = p.block()
		s.Cases = append(s.Cases, c)
	}
	return s
}

func (p *parser) trip() int {
	if !p.accept("trip") {
		return -1
	}
	n, err := strconv.ParseInt(p.tok.text, 10, 32)
	if p.tok.kind != 'n' || err != nil {
		p.fail("%q where a number of rounds should be", p.tok.text)
	}
	p.next()
	return int(n)
}

func (p *parser) doWhile(at ir.Pos, label string) ir.Stmt {
	s := &ir.Loop{Pos: at, Label: label, AtEnd: true, Body: p.block()}
	if p.accept("while") {
		s.Cond = p.expr()
	}
	s.Trip = p.trip()
	s.Reads = p.reads(s.Cond)
	return s
}

func (p *parser) loop(at ir.Pos, label string) ir.Stmt {
	s := &ir.Loop{Pos: at, Label: label, Trip: -1}
	semicolon := func() bool {
		if p.tok.kind == ';' && p.tok.text == ";" {
			p.next()
			return true
		}
		return false
	}
	if p.is("{") {
		if s.Body = p.block(); !semicolon() {
			return s
		}
		s.Init, s.Body = s.Body, nil
	} else if !semicolon() {
		if p.is("trip") {
			s.Trip = p.trip()
			s.Body = p.block()
			return s
		}
		init := p.simpleOrExpr()
		if x, ok := init.(ir.Expr); ok {
			s.Cond, s.Trip = x, p.trip()
			s.Body = p.block()
			return s
		}
		s.Init = []ir.Stmt{init.(ir.Stmt)}
		if !semicolon() {
			p.fail("%q where ; should be", p.tok.text)
		}
	}
	if p.tok.kind != ';' {
		s.Cond = p.expr()
	}
	if !semicolon() {
		p.fail("%q where ; should be", p.tok.text)
	}
	if p.is("{") {
		s.Body = p.block()
		if s.Trip = p.trip(); s.Trip < 0 && !p.is("{") {
			return s // there was no Post
		}
		s.Post, s.Body = s.Body, nil
	} else if !p.is("trip") {
		s.Post = []ir.Stmt{p.stmt()}
		s.Trip = p.trip()
	} else {
		s.Trip = p.trip()
	}
	s.Body = p.block()
	return s
}

// simpleOrExpr reads the first part of a loop: a statement if it begins like
// one, otherwise an expression.
func (p *parser) simpleOrExpr() any {
	if p.tok.kind == 'i' && (p.is("_") || isWord(p.tok.text) && !p.is("rank") && !p.is("size")) {
		return p.stmt()
	}
	// Both may begin with a name. Look whether = or a comma follows.
	saved, locals := *p, len(p.locals)
	if p.tok.kind == 'i' && !isWord(p.tok.text) {
		name, known := p.tok.text, p.locals[p.tok.text] != nil
		p.variable()
		assign := p.is("=") || p.is(",")
		if !known && len(p.locals) > locals {
			delete(p.locals, name)
		}
		later := p.later
		*p = saved
		p.later = later
		if assign {
			return p.assignOrLabel(p.tok.pos)
		}
	}
	return p.expr()
}

func (p *parser) jump(at ir.Pos, kind ir.JumpKind) ir.Stmt {
	s := &ir.Jump{Pos: at, Kind: kind}
	stop := p.tok.kind == ';' || p.tok.kind == 0 || p.is("}") || p.is("reads")
	switch kind {
	case ir.Break, ir.Continue:
		if !stop {
			s.Label = p.name()
		}
	case ir.Goto:
		s.Label = p.name()
	case ir.Return:
		if !stop {
			s.Results = p.exprs()
		}
	}
	s.Reads = p.reads(s.Results...)
	return s
}

type clauses map[string]func()

// clauses reads clauses in any order until the end of the statement.
func (p *parser) clauses(known clauses) (seen map[string]bool) {
	seen = map[string]bool{}
	for p.tok.kind == 'i' {
		word := p.tok.text
		f := known[word]
		if f == nil || seen[word] {
			p.fail("%q does not belong here", word)
		}
		seen[word] = true
		p.next()
		f()
	}
	return seen
}

func (p *parser) quoted(otherwise string) string {
	if p.tok.kind != 's' {
		return otherwise
	}
	s := p.tok.text
	p.next()
	return s
}

func (p *parser) comm(at ir.Pos, kind ir.CommKind, word string) ir.Stmt {
	s := &ir.Comm{Pos: at, Kind: kind, Name: p.quoted(word)}
	peer := func() {
		if s.Peer != nil {
			p.fail("only one of to, from and root")
		}
		s.Peer = p.expr()
	}
	seen := p.clauses(clauses{
		"to": peer, "from": peer, "root": peer,
		"group":   func() { s.Group = p.expr() },
		"tag":     func() { s.Tag = p.expr() },
		"request": func() { s.Request = p.variable() },
		"status":  func() { s.Status = p.variables() },
		"reads":   func() { s.Reads = p.variables() },
	})
	if !seen["reads"] {
		s.Reads = commReads(s)
	}
	return s
}

func commReads(s *ir.Comm) []*ir.Var {
	vars := refs(nil, s.Group, s.Peer, s.Tag)
	if s.Kind == ir.Wait && s.Request != nil {
		vars = append(vars, s.Request)
	}
	return vars
}

func (p *parser) launch(at ir.Pos) ir.Stmt {
	s := &ir.Launch{Pos: at}
	if !p.accept("?") {
		at, name := p.tok.pos, p.name()
		p.later = append(p.later, func() {
			if s.Proc = p.procs[name]; s.Proc == nil {
				panic(syntax{at, "no procedure " + name})
			}
		})
	}
	p.clauses(clauses{"group": func() { s.Group = p.variable() }, "reads": func() { s.Reads = p.variables() }})
	return s
}

func (p *parser) kernel(at ir.Pos) ir.Stmt {
	s := &ir.Kernel{Pos: at, Name: p.quoted("")}
	seen := p.clauses(clauses{
		"in":    func() { s.In = p.variables() },
		"out":   func() { s.Out = p.variables() },
		"reads": func() { s.Reads = p.variables() },
	})
	if !seen["reads"] {
		s.Reads = append([]*ir.Var(nil), s.In...)
	}
	return s
}

func (p *parser) exprs() (list []ir.Expr) {
	for {
		list = append(list, p.expr())
		if !p.accept(",") {
			return list
		}
	}
}

// levels are the binary operators, loosest first.
var levels = []map[string]ir.Op{
	{"||": ir.OrElse},
	{"&&": ir.AndAlso},
	{"==": ir.Eq, "!=": ir.Ne, "<": ir.Lt, "<=": ir.Le, ">": ir.Gt, ">=": ir.Ge},
	{"+": ir.Add, "-": ir.Sub, "|": ir.Or, "^": ir.Xor},
	{"*": ir.Mul, "/": ir.Div, "%": ir.Rem, "<<": ir.Shl, ">>": ir.Shr, "&": ir.And},
}

var unary = map[string]ir.Op{"-": ir.Neg, "!": ir.Not, "^": ir.Inv}

func (p *parser) expr() ir.Expr { return p.level(0) }

func (p *parser) level(i int) ir.Expr {
	if i == len(levels) {
		return p.atom()
	}
	x := p.level(i + 1)
	for p.tok.kind == 'o' {
		op, ok := levels[i][p.tok.text]
		if !ok {
			break
		}
		p.next()
		x = ir.Binary{Op: op, X: x, Y: p.level(i + 1)}
	}
	return x
}

func (p *parser) atom() ir.Expr {
	defer p.deeper()()
	switch {
	case p.tok.kind == 'n':
		v, err := strconv.ParseUint(p.tok.text, 10, 64)
		if err != nil || v > math.MaxInt64 {
			p.fail("number %s is too large", p.tok.text)
		}
		p.next()
		return ir.Const{Value: int64(v)}
	case p.accept("("):
		x := p.expr()
		p.expect(")")
		return x
	case p.accept("?"):
		var u ir.Unknown
		if p.accept("(") {
			u.Vars = p.variables()
			p.expect(")")
		}
		return u
	case p.is("rank") || p.is("size"):
		size := p.is("size")
		p.next()
		var group ir.Expr
		if p.accept("(") {
			group = p.expr()
			p.expect(")")
		}
		if size {
			return ir.Size{Group: group}
		}
		return ir.Rank{Group: group}
	case p.accept("get"):
		var x ir.Field
		p.expect("(")
		x.Of = p.expr()
		p.expect(",")
		x.Var = p.variable()
		if p.accept(",") {
			x.Index = p.expr()
		}
		if p.accept("else") {
			x.Else = p.expr()
		}
		p.expect(")")
		return x
	case p.accept("len"):
		p.expect("(")
		x := p.expr()
		p.expect(")")
		return ir.Unary{Op: ir.Len, X: x}
	case p.accept("wrap"):
		p.expect("(")
		x := p.expr()
		p.expect(",")
		y := p.expr()
		p.expect(")")
		return ir.Binary{Op: ir.Wrap, X: x, Y: y}
	case p.tok.kind == 'o':
		if op, ok := unary[p.tok.text]; ok {
			p.next()
			literal := p.tok.kind == 'n'
			x := p.atom()
			if c, ok := x.(ir.Const); ok && op == ir.Neg && literal {
				return ir.Const{Value: -c.Value} // but not for -(1)
			}
			return ir.Unary{Op: op, X: x}
		}
	}
	return ir.Ref{Var: p.variable()}
}

// refs appends the variables of expressions, once for each occurrence.
func refs(vars []*ir.Var, list ...ir.Expr) []*ir.Var {
	for _, x := range list {
		switch x := x.(type) {
		case ir.Ref:
			vars = append(vars, x.Var)
		case ir.Unary:
			vars = refs(vars, x.X)
		case ir.Binary:
			vars = refs(vars, x.X, x.Y)
		case ir.Rank:
			vars = refs(vars, x.Group)
		case ir.Size:
			vars = refs(vars, x.Group)
		case ir.Field:
			vars = append(refs(vars, x.Of, x.Index, x.Else), x.Var)
		case ir.Unknown:
			vars = append(vars, x.Vars...)
		}
	}
	return vars
}
