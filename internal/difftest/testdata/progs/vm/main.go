// Command vm covers a lexer and an interpreter: a loop over instructions with
// a switch, a stack, variables in a map, and output.
package main

import (
	"fmt"
	"strconv"
	"strings"
)

type instr struct {
	op  string
	arg string
}

type machine struct {
	code  []instr
	pc    int
	stack []int
	vars  map[string]int
	steps int
}

func parse(text string) (code []instr) {
	for _, line := range strings.Split(text, "\n") {
		op, arg, _ := strings.Cut(strings.TrimSpace(line), " ")
		if op != "" {
			code = append(code, instr{op, arg})
		}
	}
	return code
}

func (m *machine) pop() int {
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v
}

func (m *machine) run() {
	for m.pc < len(m.code) { //difftest:loop
		in := m.code[m.pc]
		m.pc++
		m.steps++
		switch in.op {
		case "push":
			n, err := strconv.Atoi(in.arg)
			if err != nil {
				n = m.vars[in.arg]
			}
			m.stack = append(m.stack, n)
		case "set":
			m.vars[in.arg] = m.pop()
		case "add":
			m.stack = append(m.stack, m.pop()+m.pop())
		case "mul":
			m.stack = append(m.stack, m.pop()*m.pop()%10007)
		case "print":
			fmt.Println(in.arg, m.vars[in.arg])
		case "jump":
			m.pc, _ = strconv.Atoi(in.arg)
		case "jz":
			if m.pop() == 0 {
				m.pc, _ = strconv.Atoi(in.arg)
			}
		}
	}
}

func main() {
	m := &machine{vars: map[string]int{}, code: parse(`
		push 4
		set n
		push 1
		set f
		push n
		jz 16
		push n
		push f
		mul
		set f
		print f
		push n
		push -1
		add
		set n
		jump 4`)}
	m.run()
	fmt.Println(m.vars, m.steps, len(m.stack))
}
