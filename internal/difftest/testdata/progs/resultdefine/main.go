// Command resultdefine covers := that assigns to a named result or a parameter
// after a point, which a deferred function then sees.
package main

import (
	"errors"
	"fmt"
)

func g(n int) (int, error) { return n, errors.New("from g") }

func f(n int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Println("recovered", r, err, n)
		}
	}()
	s := 0
	for i := 0; i < 6; i++ { //difftest:loop
		for j := 0; j < 1000; j++ {
			s += i * j
		}
	}
	x, err := g(s)
	n, y := x+1, 7
	fmt.Println(x, y, err)
	panic("boom")
}

func main() {
	fmt.Println(f(10))
}
