// Command gocond has producers and consumers of a bounded queue that wait with
// sync.Cond, and a barrier.
package main

import (
	"fmt"
	"sync"
)

type queue struct {
	mu               sync.Mutex
	notFull, notNull *sync.Cond
	items            []int
	closed           bool
}

func newQueue() *queue {
	q := &queue{}
	q.notFull, q.notNull = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

func (q *queue) put(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 3 {
		q.notFull.Wait()
	}
	q.items = append(q.items, n)
	q.notNull.Signal()
}

func (q *queue) get() (int, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.notNull.Wait()
	}
	if len(q.items) == 0 {
		return 0, false
	}
	n := q.items[0]
	q.items = q.items[1:]
	q.notFull.Signal()
	return n, true
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.notNull.Broadcast()
}

// barrier lets goroutines continue when all have come.
type barrier struct {
	sync.Cond
	n, come, round int
}

func (b *barrier) wait() {
	b.L.Lock()
	defer b.L.Unlock()
	round := b.round
	if b.come++; b.come == b.n {
		b.come = 0
		b.round++
		b.Broadcast()
		return
	}
	for b.round == round {
		b.Wait()
	}
}

func main() {
	q := newQueue()
	var producers, consumers sync.WaitGroup
	sums := make([]int, 3)
	for w := range sums {
		consumers.Add(1)
		go func() {
			defer consumers.Done()
			for { //difftest:loop
				n, ok := q.get()
				if !ok {
					return
				}
				sums[w] += n * n
			}
		}()
	}
	for w := range 2 {
		producers.Add(1)
		go func() {
			defer producers.Done()
			for i := range 12 { //difftest:loop
				q.put(w*12 + i)
			}
		}()
	}
	producers.Wait()
	q.close()
	consumers.Wait()
	fmt.Println("sum of squares", sums[0]+sums[1]+sums[2])

	b := &barrier{Cond: sync.Cond{L: new(sync.Mutex)}, n: 4}
	cells := make([]int, b.n)
	var wg sync.WaitGroup
	for w := range b.n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 6 { //difftest:loop
				next := cells[(w+1)%b.n] + w
				b.wait()
				cells[w] += next
				b.wait()
			}
		}()
	}
	wg.Wait()
	fmt.Println(cells)
}
