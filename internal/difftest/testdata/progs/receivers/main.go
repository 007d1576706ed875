// Command receivers covers methods on slices, maps, functions, arrays, basic
// types and on types with type parameters, with points inside.
package main

import (
	"fmt"
	"strings"
)

type ints []int
type bag map[string]int
type op func(int) int
type grid [3]int
type id string
type stack[T any] []T

func (l ints) total() (s int) {
	for i, v := range l { //difftest:loop
		for k := range 700 {
			s = (s + v*k) % 977
		}
		l[i] = s
	}
	return s
}

func (l *ints) grow(n int) {
	for range n { //difftest:loop
		*l = append(*l, len(*l)*3)
	}
}

func (b bag) count(words string) bag {
	for _, w := range strings.Fields(words) { //difftest:loop
		b[w]++
	}
	return b
}

func (o op) twice(n int) int { return o(o(n)) }

func (g grid) turned() grid {
	for i := range 4 { //difftest:loop
		g[0], g[1], g[2] = g[1]+i, g[2], g[0]
	}
	return g
}

func (g *grid) turn() { *g = g.turned() }

func (i id) repeat(n int) (s id) {
	for range n { //difftest:loop
		s += i
	}
	return s
}

func (s *stack[T]) push(vs ...T) *stack[T] {
	for _, v := range vs { //difftest:loop
		*s = append(*s, v)
	}
	return s
}

func main() {
	l := ints{1, 2, 3}
	g := grid{1, 2, 3}
	old := g
	b := bag{}
	var st stack[id]
	for round := range 2 {
		l.grow(2)
		n := op(func(n int) int { return n + l.total() }).twice(round)
		g.turn()
		b.count("x y x").count("z")
		st.push("a", id("b").repeat(2)).push(id(fmt.Sprint(n)))
		fmt.Println(round, l, n, g, old, b, st)
	}
}
