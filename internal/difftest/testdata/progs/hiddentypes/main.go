// Command hiddentypes has variables that hide types and packages, some of which
// are not needed at all places, and names that could be those of others.
package main

import (
	"fmt"
	"time"
)

type node struct{ v int }

type a struct{}

func (a) b(n int) int { return work(n) + 1 }

func a_b(n int) int { return work(n) + 2 }

func work(n int) (s int) {
	for i := range 2 { //difftest:loop
		s += i + n
	}
	fmt.Println("work", n, s)
	return s
}

func two(node *node, other node) int {
	node.v += work(other.v)
	other.v++
	node.v += work(20 + other.v)
	return node.v + work(node.v)
}

func locals() int {
	a := node{3}
	var t time.Duration
	for range 2 {
		t += time.Duration(work(a.v))
		a.v++
	}
	node, time := 5, 7
	for range 2 {
		time += work(node)
	}
	return node + time + int(t)
}

type stack[T any] struct{ list []T }

func (s *stack[T]) each(n int) (sum int) {
	for i := range n {
		T := i
		sum += work(T) + len(s.list)
		T++
		sum += work(T)
	}
	return sum
}

func main() {
	fmt.Println((&stack[string]{make([]string, 2)}).each(2))
	n := node{1}
	fmt.Println(two(&n, node{4}), n)
	fmt.Println(locals())
	fmt.Println(a{}.b(3), a_b(3))
}
