// Command callback does its work inside a callback of the standard library,
// whose frames are not the program's own.
package main

//difftest:daily
//difftest:refuse (?i)callback|called from|outside|foreign|does not call

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
