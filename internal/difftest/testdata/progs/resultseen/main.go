// Command resultseen covers calls whose result goes to a variable that the
// called function reads while it runs: by a pointer, and by a literal.
package main

import "fmt"

var seen *int

// sum reads what its caller assigns the result to.
func sum(n int) (s int) {
	for i := 0; i < n; i++ { //difftest:loop
		s = (s*7 + *seen + i) % 1013
	}
	return s
}

// pointer gives its variable's address to others.
func pointer(n int) int {
	x := 5
	seen = &x
	x = sum(n)
	x += sum(n + 1)
	return x
}

type reader struct{ read func() int }

func (r *reader) sum(n int) (s int) {
	for i := 0; i < n; i++ { //difftest:loop
		s = (s*5 + r.read() + i) % 1009
	}
	return s
}

// literal gives others a function that reads its variable.
func literal(n int) int {
	x := 7
	r := &reader{func() int { return x }}
	x = r.sum(n)
	x = r.sum(n) + 1
	return x
}

// first returns from a loop without points, by a call that has some.
func first(n int) int {
	x := n
	seen = &x
	for i := range n {
		if i == n/2 {
			return sum(i + 3)
		}
	}
	return 0
}

func main() {
	fmt.Println(first(4))
	for n := 3; n < 9; n++ {
		fmt.Println(n, pointer(n), literal(n))
	}
}
