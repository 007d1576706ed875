// Command module covers a module of its own with a replaced dependency, whose
// loop calls a closure of main.
package main

import (
	"fmt"

	"example.org/dep"
)

func main() {
	total := 1
	done := dep.Iterate(9, func(i int) bool {
		for k := range 3000 {
			total = (total*11 + k ^ i) % 30011
		}
		fmt.Println(i, total)
		return i < 7
	})
	fmt.Println(done, total)
}
