// Command deferfall has a defer that is pending in the next case of a switch,
// if that was reached by fallthrough.
package main

//trial:refuse fallthrough

import "fmt"

func falls(n int) (sum int) {
	switch n {
	case 0:
		defer func() { fmt.Println("fell", sum) }()
		fallthrough
	case 1:
		for i := range 3 { //trial:loop
			for k := range 500 {
				sum = (sum*7 + k + i) % 1013
			}
			fmt.Println("case", n, sum)
		}
	default:
		defer fmt.Println("default")
	}
	return sum
}

func main() {
	for n := range 3 {
		fmt.Println("falls", n, falls(n))
	}
}
