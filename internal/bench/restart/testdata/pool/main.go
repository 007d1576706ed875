// Pool has four workers that take units of work of about 10 µs from a channel.
package main

import (
	"flag"
	"fmt"
	"sync"
)

func work(n uint64) uint64 {
	x := n + 88172645463325252
	for range 7000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

func main() {
	rounds := flag.Int("rounds", 30_000, "units of work")
	flag.Parse()
	units, results := make(chan int), make(chan uint64, 16)
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for u := range units {
				results <- work(uint64(u))
			}
		}()
	}
	go func() {
		for i := 0; i < *rounds; i++ {
			units <- i
		}
		close(units)
		wg.Wait()
		close(results)
	}()
	var sum uint64
	for r := range results {
		sum += r
	}
	fmt.Println(sum)
}
