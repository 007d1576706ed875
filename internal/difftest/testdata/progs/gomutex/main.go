// Command gomutex has goroutines that write to a map under a mutex, read it
// under one for reading, and count with atomic variables.
package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

type table struct {
	sync.RWMutex
	m map[string]int
}

func (t *table) add(k string, n int) {
	t.Lock()
	defer t.Unlock()
	t.m[k] += n
}

func (t *table) get(k string) int {
	t.RLock()
	defer t.RUnlock()
	return t.m[k]
}

type group struct {
	sync.WaitGroup
	calls atomic.Int64
}

func main() {
	t := &table{m: map[string]int{}}
	var g group
	for w := range 4 {
		g.Add(1)
		go func() {
			defer g.Done()
			for i := range 6 { //difftest:loop
				t.add(fmt.Sprint("key ", (w*6+i)%5), i)
				g.calls.Add(1)
				if t.get("no such key") != 0 {
					panic("it is there")
				}
			}
		}()
	}
	g.Wait()
	for _, k := range slices.Sorted(maps.Keys(t.m)) {
		fmt.Println(k, t.m[k])
	}
	fmt.Println(g.calls.Load())
}
