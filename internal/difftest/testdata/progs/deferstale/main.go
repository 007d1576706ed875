// Command deferstale defers a function that has points, after a call that could
// have led to points and did not.
package main

import "fmt"

type stepper interface{ step(x int) int }

type slow struct{}

type quick struct{}

func (slow) step(x int) int {
	//cairn:point
	for i := 0; i < 2; i++ {
		fmt.Println("slow", x, i)
		x++
	}
	return x
}

func (quick) step(x int) int { return x + 1 }

func later(n *int) {
	//cairn:point
	for i := 0; i < 3; i++ { //difftest:loop
		fmt.Println("later", i, *n)
		*n++
	}
}

func run(l []stepper, n *int) (s int) {
	defer later(n)
	for _, a := range l {
		s += a.step(1)
	}
	fmt.Println("sum", s)
	return s
}

func inner(l []stepper) (s int) {
	for _, a := range l {
		s += a.step(10)
	}
	return s
}

func outer(l []stepper, n *int) (s int) {
	defer later(n)
	s = inner(l)
	fmt.Println("outer", s)
	return s
}

func main() {
	n := 5
	s0 := outer([]stepper{slow{}, quick{}}, &n)
	fmt.Println(s0)
	s := run([]stepper{slow{}, quick{}}, &n)
	later(&n)
	fmt.Println(s, n)
}
