// Package irtext is a textual form of package ir, for tests. Parse reads it.
//
//	global step, shared total          variables of the program
//	global shared low of grid          Type: a field of objects of type grid
//	extern dgemm(a, b) (c)             a procedure whose source is not known
//
//	proc main(n) (code) {              parameters and results
//	    var i, shared x                Decl; "shared" sets Var.Shared
//	    i, x = 0, n + 1                Assign
//	    _ = ?(a, b)                    no plain variable gets an unknown value of a and b
//	    call f(i, n*2) -> x            Call; without a proc or extern f it is a library's
//	    call "op.Run" f|g(i)           a dynamic call, with the name it has in the source
//	    call "f" ?(i)                  a library's function of any name
//	    if rank == 0 { … } else { … }
//	    if a < b { … } else if c { … } else { … }
//	    if assume 1 ?(x) { … }         Assume: 1 or -1
//	    switch i { case 1, 2 { … } default { … } }
//	    for { … }                      Loop for ever
//	    for i < n { … }
//	    for i = 0; i < 10; i = i + 1 trip 10 { … }
//	    L: for i = 0; i < n; i = i + 1 { … }
//	    for { call a() }; i < n; { call b() } { … }    Init and Post of several statements
//	    do { … } while i < n           AtEnd; "trip 3" may follow
//	    break; break L; continue; continue L; return; return i, x; goto M; exit
//	    label M
//	    send to rank + 1 tag 3         Comm
//	    recv from ? tag 3 status src   …
//	    recv                           from any rank, with any tag
//	    isend to 1 tag 3 request q     StartSend; irecv is StartRecv
//	    wait request q; wait; wait group c
//	    sendrecv to 1 tag 2; probe from 1
//	    collective "bcast" root 0 group c
//	    launch f group wg; launch ?    Launch; ? is an unknown procedure
//	    join group wg; join            Join
//	    new g grid; new h grid from g  New
//	    put(g, low) = 1                Put; put(g, low, i) writes an element
//	    kernel "saxpy" in a, b out b   Kernel
//	}
//
// Expressions are Go's, with rank, size, rank(c), size(c), ? (Unknown) and ?(a,
// b) (Unknown, made of a and b) beside numbers and names, len(x) (Len) and
// wrap(x, -32) (Wrap), and get(g, low), get(g, low, i), get(g, low else ?(g))
// (Field). Quoted names have no quotes and newlines in them.
//
// A name after Comm's word, in quotes, is its Name, which else is the word
// itself. The clauses of Comm, Launch, Join and Kernel may come in any order.
// Newlines and semicolons end statements, # begins a comment.
//
// Reads are by default every variable in a statement's expressions, once for
// each time: of an Assign its sources, of a Call its arguments, of a Jump its
// results, of a do-while its condition, of a Comm its group, peer, tag and, if
// it is a Wait, its request; of a Kernel its In; none of Launch and Join. Every
// statement that has Reads may end in "reads a, b" (or "reads" alone) instead.
//
// A name that nothing declares is a variable of its procedure. Main is the
// procedure called main, else the first. Positions are those of the text; the
// words of the statements above cannot be names of variables.
package irtext

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// ErrSyntax is in every error of Parse.
var ErrSyntax = errors.New("irtext: syntax error")

// maxDepth bounds how deep blocks and expressions may be nested.
const maxDepth = 2000

// Parse reads a program. The name of the file is for positions only.
func Parse(file, text string) (prog *ir.Program, err error) {
	p := &parser{file: file, src: text, line: 1, col: 1,
		prog: &ir.Program{}, procs: map[string]*ir.Proc{}, globals: map[string]*ir.Var{}}
	defer func() {
		if e := recover(); e != nil {
			s, ok := e.(syntax)
			if !ok {
				panic(e)
			}
			prog, err = nil, fmt.Errorf("%w: %s:%d:%d: %s", ErrSyntax, file, s.at.Line, s.at.Col, s.what)
		}
	}()
	p.next()
	p.program()
	return p.prog, nil
}

// MustParse is Parse for tests; it panics.
func MustParse(text string) *ir.Program {
	p, err := Parse("test", text)
	if err != nil {
		panic(err)
	}
	return p
}

// syntax is what the parser panics with. Parse recovers it.
type syntax struct {
	at   ir.Pos
	what string
}

type token struct {
	kind rune // 'i'dentifier, 'n'umber, 's'tring, 'o'perator, ';', 0 at the end
	text string
	pos  ir.Pos
}

type parser struct {
	file      string
	src       string
	off       int
	line, col int
	tok       token
	depth     int

	prog    *ir.Program
	procs   map[string]*ir.Proc
	globals map[string]*ir.Var
	locals  map[string]*ir.Var
	later   []func() // work that needs all procedures
}

func (p *parser) fail(format string, args ...any) {
	panic(syntax{p.tok.pos, fmt.Sprintf(format, args...)})
}

func (p *parser) peekRune() rune {
	if p.off >= len(p.src) {
		return -1
	}
	r, _ := utf8.DecodeRuneInString(p.src[p.off:])
	return r
}

func (p *parser) advance() {
	r, n := utf8.DecodeRuneInString(p.src[p.off:])
	p.off += n
	if r == '\n' {
		p.line, p.col = p.line+1, 1
	} else {
		p.col++
	}
}

func isLetter(r rune) bool { return r == '_' || unicode.IsLetter(r) }
func isDigit(r rune) bool  { return r >= '0' && r <= '9' }

var operators = []string{"->", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>",
	"{", "}", "(", ")", ",", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "!", ":", "?"}

// next reads a token into p.tok.
func (p *parser) next() {
	for r := p.peekRune(); r == ' ' || r == '\t' || r == '\r' || r == '#'; r = p.peekRune() {
		if r == '#' {
			for r = p.peekRune(); r != '\n' && r != -1; r = p.peekRune() {
				p.advance()
			}
			continue
		}
		p.advance()
	}
	p.tok = token{pos: ir.Pos{File: p.file, Line: p.line, Col: p.col}}
	start, r := p.off, p.peekRune()
	switch {
	case r == -1:
		return
	case r == '\n' || r == ';':
		p.advance()
		p.tok.kind, p.tok.text = ';', string(r)
		return
	case isLetter(r):
		for r = p.peekRune(); isLetter(r) || isDigit(r) || r == '.'; r = p.peekRune() {
			p.advance()
		}
		p.tok.kind = 'i'
	case isDigit(r):
		for isDigit(p.peekRune()) {
			p.advance()
		}
		p.tok.kind = 'n'
	case r == '"':
		p.advance()
		for r = p.peekRune(); r != '"'; r = p.peekRune() {
			if r == -1 || r == '\n' {
				p.fail("string not ended")
			}
			p.advance()
		}
		p.advance()
		p.tok.kind, p.tok.text = 's', p.src[start+1:p.off-1]
		return
	default:
		for _, op := range operators {
			if strings.HasPrefix(p.src[p.off:], op) {
				for range op {
					p.advance()
				}
				p.tok.kind, p.tok.text = 'o', op
				return
			}
		}
		p.fail("unexpected %q", r)
	}
	p.tok.text = p.src[start:p.off]
}

func (p *parser) is(text string) bool {
	return (p.tok.kind == 'o' || p.tok.kind == 'i') && p.tok.text == text
}

func (p *parser) accept(text string) bool {
	if p.is(text) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(text string) {
	if !p.accept(text) {
		p.fail("%q where %q should be", p.tok.text, text)
	}
}

func (p *parser) skipLines() {
	for p.tok.kind == ';' {
		p.next()
	}
}

// deeper limits a recursion. The returned function ends it.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > maxDepth {
		p.fail("nested too deeply")
	}
	return func() { p.depth-- }
}

// words begin statements or clauses and cannot be names of variables.
var words = map[string]bool{"proc": true, "extern": true, "global": true, "var": true, "call": true, "if": true,
	"else": true, "switch": true, "case": true, "default": true, "for": true, "do": true, "while": true, "break": true,
	"continue": true, "return": true, "goto": true, "exit": true, "label": true, "send": true, "recv": true,
	"isend": true, "irecv": true, "wait": true, "sendrecv": true, "collective": true, "probe": true, "launch": true,
	"join": true, "kernel": true, "reads": true, "trip": true, "rank": true, "size": true, "shared": true, "_": true, "assume": true, "len": true, "wrap": true,
	"new": true, "put": true, "get": true, "of": true,
	"to": true, "from": true, "root": true, "tag": true, "group": true, "request": true, "status": true, "in": true, "out": true}

func (p *parser) name() string {
	if p.tok.kind != 'i' || words[p.tok.text] {
		p.fail("%q where a name should be", p.tok.text)
	}
	s := p.tok.text
	p.next()
	return s
}

func (p *parser) variable() *ir.Var {
	s := p.name()
	if v := p.locals[s]; v != nil {
		return v
	}
	if v := p.globals[s]; v != nil {
		return v
	}
	if p.locals == nil {
		p.fail("variable %s outside a procedure", s)
	}
	v := &ir.Var{Name: s}
	p.locals[s] = v
	return v
}

// variables reads a list, which may be empty.
func (p *parser) variables() (vars []*ir.Var) {
	if p.tok.kind != 'i' || words[p.tok.text] {
		return nil
	}
	for {
		vars = append(vars, p.variable())
		if !p.accept(",") {
			return vars
		}
	}
}

// declare reads names of new variables into a scope.
func (p *parser) declare(scope map[string]*ir.Var, global bool) (vars []*ir.Var) {
	for {
		v := &ir.Var{Global: global, Shared: p.accept("shared")}
		v.Name = p.name()
		if p.accept("of") {
			v.Type = p.name()
		}
		if scope[v.Name] != nil {
			p.fail("%s is declared twice", v.Name)
		}
		scope[v.Name] = v
		vars = append(vars, v)
		if !p.accept(",") {
			return vars
		}
	}
}

func (p *parser) program() {
	for p.skipLines(); p.tok.kind != 0; p.skipLines() {
		switch at := p.tok.pos; {
		case p.accept("global"):
			p.declare(p.globals, true)
			p.end()
		case p.accept("extern"):
			p.header(at)
			p.end()
		case p.accept("proc"):
			proc := p.header(at)
			proc.Known = true
			proc.Body = p.block()
			p.end()
		default:
			p.fail("%q where proc, extern or global should be", p.tok.text)
		}
	}
	for _, f := range p.later {
		f()
	}
	if p.prog.Main = p.procs["main"]; p.prog.Main == nil && len(p.prog.Procs) > 0 {
		p.prog.Main = p.prog.Procs[0]
	}
}

func (p *parser) header(at ir.Pos) *ir.Proc {
	proc := &ir.Proc{Pos: at, Name: p.name()}
	if p.procs[proc.Name] != nil {
		p.fail("procedure %s is there twice", proc.Name)
	}
	p.procs[proc.Name] = proc
	p.prog.Procs = append(p.prog.Procs, proc)
	p.locals = map[string]*ir.Var{}
	list := func() (vars []*ir.Var) {
		if !p.accept("(") || p.accept(")") {
			return nil
		}
		vars = p.declare(p.locals, false)
		p.expect(")")
		return vars
	}
	proc.Params, proc.Results = list(), list()
	return proc
}

// end reads the end of a statement: a newline, a semicolon, or the position
// before a brace.
func (p *parser) end() {
	if p.tok.kind == ';' {
		p.next()
		return
	}
	if p.tok.kind != 0 && !p.is("}") {
		p.fail("%q where the statement should end", p.tok.text)
	}
}
