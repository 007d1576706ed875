// Command deferfall has a defer that is pending in the next case of a switch,
// if that was reached by fallthrough.
package main

//difftest:daily

import "fmt"

func falls(n int) (sum int) {
	switch n {
	case 0:
		defer func() { fmt.Println("fell", sum) }()
		fallthrough
	case 1:
		for i := range 3 { //difftest:loop
			for k := range 500 {
				sum = (sum*7 + k + i) % 1013
			}
			fmt.Println("case", n, sum)
		}
	default:
		defer fmt.Println("default")
	}
	return sum
}

// chain falls through several cases, with deferred calls in blocks and loops.
func chain(n int) {
	x := n * 10
	defer fmt.Println("outer", n)
	switch n {
	case 0:
		for i := range 2 {
			defer fmt.Println("loop", i, x)
		}
		fallthrough
	case 1:
		if y := x + 1; n == 0 || n == 1 {
			defer func() { y++; fmt.Println("block", y, x) }()
		}
		x++
		fallthrough
	case 2:
		for i := range 2 { //difftest:loop
			for k := range 500 {
				x = (x*7 + k + i) % 1013
			}
		}
		fallthrough
	case 3:
		defer fmt.Println("three", x)
		for i := range 2 { //difftest:loop
			for k := range 500 {
				x = (x*7 + k + i) % 1013
			}
		}
		fmt.Println("chain", n, x)
	}
}

func main() {
	for n := range 3 {
		fmt.Println("falls", n, falls(n))
	}
	for n := range 5 {
		chain(n)
	}
}
