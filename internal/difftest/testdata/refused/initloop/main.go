// Command initloop works while packages are initialised, before main begins.
package main

//difftest:refuse (?i)init

import "fmt"

var table = fill(6)

func fill(n int) (list []int) {
	x := 1
	for i := range n { //difftest:loop
		for k := range 3000 {
			x = (x*7 + k + i) % 4001
		}
		list = append(list, x)
	}
	return list
}

func main() {
	fmt.Println(table)
}
