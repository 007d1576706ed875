// Rwmutex has four goroutines that read a table under an RWMutex, and now and
// then write to it.
package main

import (
	"flag"
	"fmt"
	"sync"
)

type table struct {
	mu    sync.RWMutex
	value [64]uint64
}

func (t *table) get(key uint64) uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.value[key%64]
}

func (t *table) add(key uint64) {
	t.mu.Lock()
	t.value[key%64]++
	t.mu.Unlock()
}

func main() {
	rounds := flag.Int("rounds", 1_000_000, "accesses of each goroutine")
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
				if i%100 == 0 {
					t.add(x >> 58)
				} else {
					x += t.get(x>>58) & 1 >> 1
				}
			}
		}()
	}
	wg.Wait()
	var sum uint64
	for i, n := range t.value {
		sum += n * uint64(i+1)
	}
	fmt.Println(sum)
}
