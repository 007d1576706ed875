// Command gocall covers go statements whose arguments are calls with loops, and
// results that come back over a channel before the next iteration.
package main

import "fmt"

func f(n int) int {
	x := n
	for k := range 2000 {
		x = (x*7 + k) % 1013
	}
	return x
}

func main() {
	sum := 0
	done := make(chan int, 2)
	for i := range 6 { //difftest:loop
		go func(n int) { done <- n + f(n) }(f(i))
		go send(done, f(sum))
		sum = (sum*3 + <-done + <-done) % 5003
		fmt.Println(i, sum, len(done))
	}
}

func send(to chan<- int, n int) { to <- n * 2 }
