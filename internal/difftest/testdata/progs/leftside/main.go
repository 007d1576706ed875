// Command leftside covers assignments whose left side reads a variable that it
// also gives a value.
package main

import "fmt"

type node struct {
	v    int
	next *node
}

func pair(n int) (int, int) {
	s := 0
	for k := range 500 {
		s += k % (n + 2)
	}
	return s, n
}

func main() {
	var a [6]int
	x := 5
	for i := 0; i < 4; i++ { //difftest:loop
		s, _ := pair(i)
		a[x], x = s, i
	}
	fmt.Println(a, x)
	head := &node{v: -1}
	tail := head
	for i := 0; i < 4; i++ { //difftest:loop
		s, _ := pair(i)
		n := &node{v: s}
		tail.next, tail = n, n
	}
	for n := head; n != nil; n = n.next {
		fmt.Print(n.v, " ")
	}
	fmt.Println()
}
