// Thousand has a thousand goroutines: half of them compute, half of them wait.
package main

import (
	"flag"
	"fmt"
	"sync"
)

func compute(rounds int, x uint64) uint64 {
	for i := 0; i < rounds; i++ {
		for range 1000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	return x >> 40
}

func main() {
	rounds := flag.Int("rounds", 1000, "computations of each goroutine")
	flag.Parse()
	var wg sync.WaitGroup
	var mu sync.Mutex
	sum, start := uint64(0), make(chan uint64)
	for k := range 500 {
		wg.Add(2)
		go func() {
			defer wg.Done()
			start <- compute(*rounds, uint64(k))
		}()
		go func() {
			defer wg.Done()
			x := <-start
			mu.Lock()
			sum += x
			mu.Unlock()
		}()
	}
	wg.Wait()
	fmt.Println(sum)
}
