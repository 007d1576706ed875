// Command sortslice does its work in a function that sort.Slice calls.
package main

//difftest:daily

import (
	"fmt"
	"sort"
)

func main() {
	h := 0
	list := []int{5, 2, 9, 1, 7, 3}
	sort.Slice(list, func(a, b int) bool {
		for i := range 4 { //difftest:loop
			for k := range 1000 {
				h = (h*31 + k + a + i) % 9001
			}
		}
		return list[a] < list[b]
	})
	fmt.Println(list, h)
}
