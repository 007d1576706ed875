// Command mutexes covers mutexes in structs that are free at points, RWMutex,
// atomic counters, sync.Once, sync.Map and sync.Pool kept across points.
package main

import (
	"fmt"
	"sync"
	"sync/atomic"
)

type cache struct {
	mu    sync.RWMutex
	items map[int]int
	hits  atomic.Int64
	miss  int64
}

func (c *cache) get(k int, fill func(int) int) int {
	c.mu.RLock()
	v, ok := c.items[k]
	c.mu.RUnlock()
	if ok {
		c.hits.Add(1)
		return v
	}
	atomic.AddInt64(&c.miss, 1)
	v = fill(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.items[k] = v
	return v
}

var setup sync.Once
var names sync.Map
var flagged atomic.Bool
var buffers = sync.Pool{New: func() any { return new([64]int) }}

func main() {
	c := &cache{items: map[int]int{}}
	var top atomic.Pointer[string]
	sum := 0
	for i := range 7 { //difftest:loop
		setup.Do(func() { fmt.Println("set up once") })
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				for k := range 100 {
					if k%3 == w {
						c.get(k%(10+i*3), func(k int) int { return k * k })
					}
				}
			})
		}
		wg.Wait()
		b := buffers.Get().(*[64]int)
		for k := range b {
			b[k] = k * i
			sum += b[k] % 7
		}
		buffers.Put(b)
		name := fmt.Sprint("step ", i)
		names.Store(i%3, name)
		if i%2 == 0 {
			top.Store(&name)
			flagged.Store(!flagged.Load())
		}
		v, _ := names.Load(0)
		fmt.Println(i, len(c.items), sum, v, *top.Load(), flagged.Load(), c.hits.Load()+c.miss)
	}
}
