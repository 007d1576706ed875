// Command shadow covers shadowed variables, also of predeclared names, with
// several of them live at once.
package main

import "fmt"

func main() {
	x, len := 1, 100
	new := func(n int) int { return n + len }
	for x := x; x < 8; x++ { //difftest:loop
		y := x
		x := x * 2
		if x := new(x); x%3 != 0 {
			len += x
			for x := range 2000 {
				y = (y + x) % 997
			}
			{
				x := y
				y := x + 1
				len -= x - y
			}
		} else {
			y, len := x, y
			y += len
			fmt.Println("else", x, y, len)
		}
		var string, true = fmt.Sprint(x, y), x > 5
		fmt.Println(x, y, len, string, true)
	}
	fmt.Println(x, len, new(1))
}
