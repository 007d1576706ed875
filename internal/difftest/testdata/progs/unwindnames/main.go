// Command unwindnames covers names that what is written for functions with points
// could run into: numbers at the end, types that parameters hide.
package main

import "fmt"

func step(n int) int {
	s := 0
	for i := 0; i < n; i++ { //difftest:loop
		s += i
	}
	return s
}

func step_1(n int) int {
	s := 0
	for i := 0; i < n; i++ { //difftest:loop
		s += step(i)
	}
	return s
}

type grid struct{ a []int }

func (*grid) step(grid []int) int {
	s := 0
	for i := range grid { //difftest:loop
		s += grid[i] * i
	}
	return s
}

func (g *grid) step_1(_, _ int) (s int) {
	for _, x := range g.a { //difftest:loop
		s += step_1(x)
	}
	return s
}

func three(_ *grid, grid int) (s int) {
	for i := range grid { //difftest:loop
		s += i
	}
	return s
}

func main() {
	g := &grid{[]int{3, 4}}
	fmt.Println(step_1(6), g.step(g.a), g.step_1(1, 2), three(g, 5))
}
