// Vm interprets the code of a small machine.
package main

import (
	"flag"
	"fmt"
	"os"
)

type op byte

const (
	push op = iota
	load
	store
	add
	mul
	mod
	less
	jumpIf
	jump
	halt
)

type instr struct {
	op  op
	arg int
}

type machine struct {
	code  []instr
	stack []int
	vars  [8]int
	steps int
}

func (m *machine) pop() int {
	x := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return x
}

func (m *machine) run() error {
	pc := 0
	for {
		in := m.code[pc]
		pc++
		m.steps++
		switch in.op {
		case push:
			m.stack = append(m.stack, in.arg)
		case load:
			m.stack = append(m.stack, m.vars[in.arg])
		case store:
			m.vars[in.arg] = m.pop()
		case add:
			b, a := m.pop(), m.pop()
			m.stack = append(m.stack, a+b)
		case mul:
			b, a := m.pop(), m.pop()
			m.stack = append(m.stack, a*b)
		case mod:
			b, a := m.pop(), m.pop()
			if b == 0 {
				return fmt.Errorf("division by zero at %d", pc-1)
			}
			m.stack = append(m.stack, a%b)
		case less:
			b, a := m.pop(), m.pop()
			if a < b {
				m.stack = append(m.stack, 1)
			} else {
				m.stack = append(m.stack, 0)
			}
		case jumpIf:
			if m.pop() != 0 {
				pc = in.arg
			}
		case jump:
			pc = in.arg
		case halt:
			return nil
		default:
			return fmt.Errorf("unknown instruction %d", in.op)
		}
	}
}

func main() {
	rounds := flag.Int("rounds", 8_000_000, "rounds of the program's loop")
	flag.Parse()
	m := &machine{code: []instr{
		{push, 0}, {store, 0}, {push, 1}, {store, 1},
		{load, 1}, {push, 1103515245}, {mul, 0}, {push, 12345}, {add, 0}, {push, 1 << 31}, {mod, 0}, {store, 1},
		{load, 0}, {push, 1}, {add, 0}, {store, 0},
		{load, 0}, {push, *rounds}, {less, 0}, {jumpIf, 4}, {halt, 0},
	}}
	if err := m.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(m.vars[1], m.steps)
}
