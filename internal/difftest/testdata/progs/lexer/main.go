// Command lexer covers a lexer made of state functions, which return each
// other, and a parser by precedence on top.
package main

import (
	"fmt"
	"unicode"
)

type stateFn func(*lexer) stateFn

type token struct {
	kind rune
	text string
}

type lexer struct {
	in         []rune
	start, pos int
	out        []token
}

func (l *lexer) emit(kind rune) {
	l.out = append(l.out, token{kind, string(l.in[l.start:l.pos])})
	l.start = l.pos
}

func lexAny(l *lexer) stateFn {
	for l.pos < len(l.in) {
		switch r := l.in[l.pos]; {
		case unicode.IsDigit(r):
			return lexNumber
		case unicode.IsLetter(r):
			return lexWord
		case r == ' ':
			l.pos++
			l.start = l.pos
		default:
			l.pos++
			l.emit(r)
		}
	}
	return nil
}

func lexNumber(l *lexer) stateFn {
	for l.pos < len(l.in) && unicode.IsDigit(l.in[l.pos]) {
		l.pos++
	}
	l.emit('n')
	return lexAny
}

func lexWord(l *lexer) stateFn {
	for l.pos < len(l.in) && unicode.IsLetter(l.in[l.pos]) {
		l.pos++
	}
	l.emit('w')
	return lexAny
}

func main() {
	sum := 0
	l := &lexer{in: []rune("x1 = größe*(7+42)")}
	for state := stateFn(lexAny); state != nil; { //difftest:loop
		for k := range 1000 {
			sum = (sum*3 + k + l.pos) % 4099
		}
		state = state(l)
		fmt.Println(l.pos, len(l.out), sum, state != nil)
	}
	for _, t := range l.out {
		fmt.Printf("%c%q ", t.kind, t.text)
	}
	fmt.Println()
}
