// Parked has many goroutines that wait while the main one computes.
package main

import (
	"flag"
	"fmt"
)

func wait(in, out chan int, k int) { out <- <-in + k }

func main() {
	rounds := flag.Int("rounds", 60_000, "computations")
	goroutines := flag.Int("goroutines", 100_000, "goroutines")
	flag.Parse()
	if *rounds == 0 {
		*goroutines = 0
	}
	in, out := make(chan int), make(chan int, 16)
	for k := range *goroutines {
		go wait(in, out, k)
	}
	x := uint64(1)
	for i := 0; i < *rounds; i++ {
		for range 10_000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	sum := 0
	for range *goroutines {
		in <- int(x >> 60)
		sum += <-out
	}
	fmt.Println(x, sum)
}
