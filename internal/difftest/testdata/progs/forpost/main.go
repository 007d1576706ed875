// Command forpost covers calls with points inside in the parts of a for
// statement: its init statement, its condition, and its post statement.
package main

import "fmt"

func f(n int) int {
	for i := range 2 { //difftest:loop
		for k := range 500 {
			n = (n*7 + k + i) % 13
		}
	}
	return n % 4
}

func main() {
	for i := f(1) % 2; f(i) >= 0 && i < 9; i += f(i)%2 + 1 { //difftest:loop
		if i == 2 {
			continue
		}
		fmt.Println("for", i)
		if i > 6 {
			break
		}
	}
	a, i := []int{}, 0
	for len(a) < 4 { //difftest:loop
		a, i = append(a, f(i)), i+1
		fmt.Println(a)
	}
	var at []*int
	for n := 0; n < 12; { //difftest:loop
		at = append(at, &n)
		n += f(n) % 2
		advance(&n)
		fmt.Println(n, *at[0])
	}
}

// advance changes a loop's variable.
func advance(n *int) { *n += 2 }
