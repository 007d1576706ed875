// Command iterbody has its only loop in the body of a range over a function of
// the standard library.
package main

import (
	"fmt"
	"maps"
	"slices"
)

func main() {
	weights := map[string]int{"a": 3, "b": 1, "c": 2}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		total += weights[name]
	}
	for i, w := range slices.Backward([]int{5, 6, 7, 8, 9}) { //difftest:loop
		for k := range 3000 {
			total = (total*3 + k*w + i) % 6007
		}
		fmt.Println(i, w, total)
	}
	fmt.Println(total)
}
