// Cond has a queue with a bound, which goroutines fill and empty, with two
// sync.Conds.
package main

import (
	"flag"
	"fmt"
	"sync"
)

type queue struct {
	mu              sync.Mutex
	notEmpty, space sync.Cond
	list            []int
}

func (q *queue) put(v int) {
	q.mu.Lock()
	for len(q.list) == cap(q.list) {
		q.space.Wait()
	}
	q.list = append(q.list, v)
	q.notEmpty.Signal()
	q.mu.Unlock()
}

func (q *queue) get() int {
	q.mu.Lock()
	for len(q.list) == 0 {
		q.notEmpty.Wait()
	}
	n := len(q.list) - 1
	v := q.list[n]
	q.list = q.list[:n]
	q.space.Signal()
	q.mu.Unlock()
	return v
}

func main() {
	rounds := flag.Int("rounds", 1_000_000, "values of each goroutine")
	flag.Parse()
	q := &queue{list: make([]int, 0, 16)}
	q.notEmpty.L, q.space.L = &q.mu, &q.mu
	for range 2 {
		go func() {
			for i := 0; i < *rounds; i++ {
				q.put(i)
			}
		}()
	}
	sum := 0
	for i := 0; i < 2**rounds; i++ {
		sum += q.get()
	}
	fmt.Println(sum)
}
