// Command casecalls has calls with points inside among the expressions of a
// case, which are evaluated one after the other until one fits, and in map
// literals, whose entries are stored one after the other.
package main

import "fmt"

var calls int

func f(n int) int {
	calls++
	for i := range 2 { //difftest:loop
		for k := range 500 {
			n = (n*7 + k + i) % 13
		}
	}
	return n % 4
}

func main() {
	for i := range 3 {
		switch f(i) + 1 {
		case f(2), f(3) + 7:
			fmt.Println("first", calls)
		case f(4) + 1, 1, 2, 3, 4:
			fmt.Println("second", f(5), calls)
		}
		switch {
		case f(i) > 2, f(i+1) > 2:
			fmt.Println("third", calls)
		default:
			fmt.Println("none", calls)
		}
		key := calls
		m := map[int][]int{key: {calls, i}, f(i) + 100: {f(i + 1), calls}, calls: {-calls}}
		fmt.Println(len(m), m[key], m[calls])
	}
}
