// Command shortcircuit covers && and || whose operands are calls with points
// inside, in if, for and return, where the order and number of calls shows.
package main

import "fmt"

var calls []string

func check(name string, n int) bool {
	h := len(name)
	for i := range 2 { //difftest:loop
		for k := range 3000 {
			h = (h*33 + k*n + i) % 509
		}
	}
	calls = append(calls, fmt.Sprint(name, n, h%2 == 0))
	return h%2 == 0
}

func both(n int) bool { return check("p", n) && !check("q", n) || check("r", n) }

func main() {
	yes := 0
	for n := 0; n < 5 && (check("loop", n) || check("else", n) || n < 4); n++ {
		if both(n) && (n == 1 || check("s", n)) {
			yes++
		} else if check("t", n) || yes > 1 {
			yes += 10
		}
		x := n > 1 && check("u", n)
		fmt.Println(n, yes, x, len(calls))
	}
	for _, c := range calls {
		fmt.Println(c)
	}
}
