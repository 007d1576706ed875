// Command selectcall has a call with a point inside in a communication of a
// select.
package main

import "fmt"

func f(n int) int {
	for i := range 3 { //trial:loop
		for k := range 500 {
			n = (n*7 + k + i) % 13
		}
	}
	return n % 4
}

func main() {
	c := make(chan int, 4)
	for i := range 5 {
		select {
		case c <- f(i):
			fmt.Println("sent", i, f(i+1))
		default:
			fmt.Println("full", <-c)
		}
	}
}
