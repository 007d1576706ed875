// Command stalefields keeps what cannot be saved over a call that could have
// come to a point, and does not: at the points of later calls it is not needed.
package main

import (
	"fmt"
	"runtime"
)

func work(name string, n int) (s int) {
	for i := range n { //difftest:loop
		s = s*3 + i
		fmt.Println(name, i, s)
	}
	return s
}

// named cannot be unwound, because of its deferred call.
func named() (s int) {
	defer fmt.Println("named is over")
	pc, _, _, _ := runtime.Caller(0)
	f := runtime.FuncForPC(pc) // it belongs to the Go runtime
	s = work("none", 0)
	fmt.Println(f.Name())
	s += work("some", 4)
	return s
}

func main() {
	fmt.Println(named())
	fmt.Println(work("more", 3))
}
