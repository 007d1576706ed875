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
	"regexp"
	"slices"
	"strings"
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
	src       string // what is left
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

var (
	blank  = regexp.MustCompile(`^(?:[ \t\r]|#[^\n]*)+`)
	lexeme = regexp.MustCompile(`^(?:([\n;])|([\pL_][\pL_0-9.]*)|([0-9]+)|"([^"\n]*)"|(->|&&|\|\||[=!<>]=|<<|>>|[-{}(),=<>+*/%&|^!:?]))`)
)

// skip moves on by n bytes.
func (p *parser) skip(n int) {
	text := p.src[:n]
	p.src = p.src[n:]
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		p.line, p.col, text = p.line+strings.Count(text, "\n"), 1, text[i+1:]
	}
	p.col += utf8.RuneCountInString(text)
}

// next reads a token into p.tok.
func (p *parser) next() {
	p.skip(len(blank.FindString(p.src)))
	p.tok = token{pos: ir.Pos{File: p.file, Line: p.line, Col: p.col}}
	if p.src == "" {
		return
	}
	m := lexeme.FindStringSubmatchIndex(p.src)
	switch {
	case m == nil && p.src[0] == '"':
		p.fail("string not ended")
	case m == nil:
		r, _ := utf8.DecodeRuneInString(p.src)
		p.fail("unexpected %q", r)
	}
	for i, kind := range ";inso" {
		if from, to := m[2*i+2], m[2*i+3]; from >= 0 {
			p.tok.kind, p.tok.text = kind, p.src[from:to]
		}
	}
	p.skip(m[1])
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
var words = strings.Fields(`proc extern global var call if else switch case default for do while break continue return goto exit label send recv isend irecv wait sendrecv
	collective probe launch join kernel reads trip rank size shared _ assume len wrap new put get of to from root tag group request status in out`)

func isWord(s string) bool { return slices.Contains(words, s) }

func (p *parser) name() string {
	if p.tok.kind != 'i' || isWord(p.tok.text) {
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
	if p.tok.kind != 'i' || isWord(p.tok.text) {
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
