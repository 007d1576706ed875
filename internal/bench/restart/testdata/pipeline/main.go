// Pipeline sends numbers through eight stages, over unbuffered channels.
package main

import (
	"flag"
	"fmt"
)

func stage(in <-chan int, out chan<- int, k int) {
	defer close(out)
	for v := range in {
		out <- v*3 + k
	}
}

func main() {
	rounds := flag.Int("rounds", 120_000, "numbers")
	flag.Parse()
	first := make(chan int)
	last := first
	for k := range 8 {
		next := make(chan int)
		go stage(last, next, k)
		last = next
	}
	go func() {
		defer close(first)
		for i := 0; i < *rounds; i++ {
			first <- i
		}
	}()
	sum := 0
	for v := range last {
		sum ^= v
	}
	fmt.Println(sum)
}
