// Command oldgoroutines has goroutines in a module of a language version without
// type parameters, in which a loop has one variable for all iterations.
package main

import (
	"fmt"
	"sync"
)

type table struct {
	sync.Mutex
	sums map[int]int
}

func (t *table) add(k, v int) {
	t.Lock()
	defer t.Unlock()
	t.sums[k] += v
}

func work(k int, t *table, in <-chan int, quit <-chan struct{}, wg *sync.WaitGroup) {
	defer wg.Done()
	for {
		select {
		case n := <-in:
			x := n
			for i := 0; i < 4; i++ { //difftest:loop
				x = (x*31 + i) % 1009
			}
			t.add(n%3, x)
		case <-quit:
			return
		}
	}
}

func main() {
	t := &table{sums: make(map[int]int)}
	in, quit := make(chan int), make(chan struct{})
	var wg sync.WaitGroup
	var once sync.Once
	var last []func() int
	for k := 0; k < 3; k++ {
		wg.Add(1)
		go work(k, t, in, quit, &wg)
		last = append(last, func() int { return k })
	}
	for n := 0; n < 12; n++ { //difftest:loop
		in <- n
		once.Do(func() { t.add(9, n) })
	}
	close(quit)
	wg.Wait()
	fmt.Println(t.sums, last[0](), last[2]())
}
