// Mutex has four goroutines that update a table under one lock.
package main

import (
	"flag"
	"fmt"
	"sync"
)

type table struct {
	mu    sync.Mutex
	count [64]uint64
}

func (t *table) add(key, n uint64) {
	t.mu.Lock()
	t.count[key%64] += n
	t.mu.Unlock()
}

func main() {
	rounds := flag.Int("rounds", 1_500_000, "updates of each goroutine")
	flag.Parse()
	var t table
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			x := uint64(w + 1)
			for i := 0; i < *rounds; i++ {
				x = x*6364136223846793005 + 1442695040888963407
				t.add(x>>58, 1)
			}
		}()
	}
	wg.Wait()
	var sum uint64
	for i, n := range t.count {
		sum += n * uint64(i+1)
	}
	fmt.Println(sum)
}
