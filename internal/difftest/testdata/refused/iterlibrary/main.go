// Command iterlibrary has its only loop in the body of a range over a function
// of a library, which cannot be entered again in the middle.
package main

//difftest:refuse (?i)range over a function that is not the program's own

import (
	"fmt"
	"slices"
)

func main() {
	total := 0
	seq := slices.Values([]int{5, 6, 7, 8, 9})
	for w := range seq { //difftest:loop
		for k := range 3000 {
			total = (total*3 + k*w) % 6007
		}
		fmt.Println(w, total)
	}
	fmt.Println(total)
}
