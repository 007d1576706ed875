// Command gorendezvous passes a ball between goroutines over channels without
// buffers, and keeps them in step with a barrier.
package main

import (
	"fmt"
	"sync"
)

type barrier struct{ in, out chan struct{} }

func (b barrier) wait() {
	b.in <- struct{}{}
	<-b.out
}

func main() {
	ping, pong := make(chan int), make(chan int)
	go func() {
		defer close(pong)
		for n := range ping {
			pong <- n + 1
		}
	}()
	n := 0
	for n < 20 { //difftest:loop
		ping <- n
		n = <-pong
	}
	close(ping)
	_, open := <-pong
	fmt.Println(n, open)

	b := barrier{make(chan struct{}), make(chan struct{})}
	const workers = 3
	cells := make([][]int, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for step := range 4 { //difftest:loop
				cells[w] = append(cells[w], step*workers+w)
				b.wait()
			}
		})
	}
	for step := range 4 {
		for range workers {
			<-b.in
		}
		for w := range workers {
			if len(cells[w]) != step+1 {
				panic("out of step")
			}
		}
		for range workers {
			b.out <- struct{}{}
		}
	}
	wg.Wait()
	fmt.Println(cells)
}
