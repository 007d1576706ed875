// Selecting merges two channels with a select statement.
package main

import (
	"flag"
	"fmt"
)

func produce(n int, out chan<- int) {
	for i := 0; i < n; i++ {
		out <- i
	}
	close(out)
}

func main() {
	rounds := flag.Int("rounds", 400_000, "numbers of each channel")
	flag.Parse()
	a, b := make(chan int), make(chan int)
	go produce(*rounds, a)
	go produce(*rounds, b)
	sum := 0
	for a != nil || b != nil {
		select {
		case v, ok := <-a:
			if !ok {
				a = nil
			}
			sum += v
		case v, ok := <-b:
			if !ok {
				b = nil
			}
			sum += 2 * v
		}
	}
	fmt.Println(sum)
}
