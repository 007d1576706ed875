// Goroutines that begin with method values, and calls by them on the way to a
// point. Deferred calls of methods that a field of another package has.
package main

import (
	"fmt"
	"sync"
	"sync/atomic"

	"progs/govalues/pool"
)

type stream struct {
	wg    sync.WaitGroup
	queue chan chan int
	sum   int
}

func (s *stream) start(f func()) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
}

func (s *stream) collect() {
	for c := range s.queue {
		s.sum += <-c
	}
}

// drain is used as a method expression.
func (s *stream) drain(n int) int {
	got := 0
	for range n {
		got += <-<-s.queue
	}
	return got
}

type runner interface{ run(from, to int) int }

type counter struct{ step int }

func (c counter) run(from, to int) int {
	sum := 0
	//cairn:point
	for i := from; i < to; i += c.step {
		for k := range 50 {
			sum += i ^ k
		}
	}
	return sum
}

type tally struct{ total int }

func (t *tally) add(f func(from, to int) int, from, to int) (int, string) {
	n := f(from, to)
	t.total += n
	return n, fmt.Sprint(n % 7)
}

func twice(f func(f func(from, to int) int, from, to int) (int, string), r runner, at int) string {
	a, s := f(r.run, at, at+40)
	b, u := f(r.run, at+40, at+60)
	return fmt.Sprint(a+b, s, u)
}

func main() {
	s := &stream{queue: make(chan chan int, 4)}
	s.start(s.collect)
	t := new(tally)
	//cairn:point
	for i := range 30 {
		c := make(chan int, 1)
		s.queue <- c
		if i%5 == 4 {
			fmt.Println(i, twice(t.add, counter{1 + i%3}, i*100))
		}
		c <- i * i
	}
	close(s.queue)
	s.wg.Wait()
	fmt.Println(s.sum, t.total)

	e := &stream{queue: make(chan chan int, 2)}
	got := make(chan int)
	f := (*stream).drain
	go func() { got <- f(e, 20) }()
	//cairn:point
	for i := range 20 {
		c := make(chan int, 1)
		e.queue <- c
		c <- counter{2}.run(i, i+30)
	}
	fmt.Println(<-got)
	fmt.Println(pooled())
	fmt.Println(later())
}

type pair struct{ a, b int }

func later() (sum pair) {
	tasks := make([]pool.Task[pair], 5)
	for i := range tasks {
		tasks[i] = pool.Later(func() pair { return pair{i, counter{1}.run(i, i+10)} })
	}
	counts := pool.Later(func() int { return counter{2}.run(0, 50) })
	for _, t := range tasks {
		p := t.Wait()
		sum.a, sum.b = sum.a+p.a, sum.b+p.b
	}
	sum.a += counts.Wait()
	return sum
}

func pooled() int64 {
	var sum atomic.Int64
	p := pool.New("p", 2)
	defer p.Release()
	var wg sync.WaitGroup
	//cairn:point
	for i := range 12 {
		wg.Add(1)
		p.Submit(func() {
			defer wg.Done()
			sum.Add(int64(counter{1}.run(i, i+20)))
		})
		if i == 6 {
			q := pool.New("q", 1)
			defer q.Release()
		}
	}
	wg.Wait()
	return sum.Load()
}
