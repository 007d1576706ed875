// Command mutual covers mutual recursion with points on both sides.
package main

import "fmt"

type expr struct {
	op   byte
	n    int
	args []*expr
}

var evals int

func eval(e *expr, env map[string]int) int {
	evals++
	if e.op == 'n' {
		return e.n
	}
	return apply(e.op, e.args, env)
}

func apply(op byte, args []*expr, env map[string]int) int {
	acc := 0
	if op == '*' {
		acc = 1
	}
	for i, a := range args { //difftest:loop
		v := eval(a, env)
		for k := range 1000 {
			v = (v*3 + k) % 10007
		}
		switch op {
		case '+':
			acc += v
		case '*':
			acc = acc * v % 65537
		case '-':
			if i == 0 {
				acc = v
			} else {
				acc -= v
			}
		}
		env[string(op)] = acc
		fmt.Printf("%c %d %d\n", op, i, acc)
	}
	return acc
}

func num(n int) *expr                   { return &expr{op: 'n', n: n} }
func node(op byte, args ...*expr) *expr { return &expr{op: op, args: args} }

func main() {
	shared := node('+', num(1), num(2))
	e := node('-', node('*', shared, num(7)), shared, node('+', node('-', num(9), shared)))
	env := map[string]int{}
	fmt.Println(eval(e, env), env, evals)
}
