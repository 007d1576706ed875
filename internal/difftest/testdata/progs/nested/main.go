// Command nested covers nested loops with a condition that the body changes,
// and if/else-if chains with init statements.
package main

import "fmt"

func main() {
	limit := 5
	total := 0
	for i := 0; i < limit; i++ { //difftest:loop
		row := 0
		for j := 0; j <= i*100; j++ {
			for k := j; k > 0; k /= 2 {
				row += k & 1
			}
		}
		if r := row % 7; r == 0 {
			total += 1
		} else if s := r * row; s%2 == 0 {
			total += s
			limit++ // the loop grows while it runs
		} else if r > 5 {
			total -= r
		} else {
			total ^= s + r
		}
		if limit > 9 {
			limit = 9
		}
		fmt.Println("row", i, row, total, limit)
	}
	fmt.Println("total", total, limit)
}
