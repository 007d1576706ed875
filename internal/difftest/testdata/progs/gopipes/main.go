// Command gopipes has pipelines with stages of several kinds that are alive
// all the time: buffered and not, with a select that merges, closed channels
// and a loop that is left early.
package main

import "fmt"

func source(n int) <-chan int {
	out := make(chan int)
	go func() {
		defer close(out)
		for i := range n { //difftest:loop
			out <- i
		}
	}()
	return out
}

func stage(in <-chan int, f func(int) int) <-chan int {
	out := make(chan int, 2)
	go func() {
		for v := range in {
			out <- f(v)
		}
		close(out)
	}()
	return out
}

func merge(a, b <-chan int) <-chan int {
	out := make(chan int)
	go func() {
		defer close(out)
		for a != nil || b != nil { //difftest:loop
			select {
			case v, ok := <-a:
				if !ok {
					a = nil
					break
				}
				out <- v
			case v, ok := <-b:
				if !ok {
					b = nil
					continue
				}
				out <- v
			}
		}
	}()
	return out
}

type request struct {
	n     int
	reply chan<- int
}

func server(requests <-chan request, quit <-chan struct{}) (served int) {
	for {
		select {
		case r := <-requests:
			r.reply <- r.n * r.n
			served++
		case <-quit:
			return served
		}
	}
}

func main() {
	odd := stage(stage(source(9), func(n int) int { return 2*n + 1 }), func(n int) int { return n * n })
	even := stage(source(7), func(n int) int { return 2 * n })
	seen := map[int]int{}
	for v := range merge(odd, even) {
		seen[v]++
	}
	sum := 0
	for v, n := range seen {
		sum += v * n
	}
	fmt.Println(len(seen), sum)

	requests, quit, served := make(chan request), make(chan struct{}), make(chan int)
	go func() { served <- server(requests, quit) }()
	for i := range 6 { //difftest:loop
		reply := make(chan int)
		requests <- request{i, reply}
		fmt.Println(i, <-reply)
	}
	close(quit)
	fmt.Println(<-served)

	names := make(chan error, 1)
	go func() { names <- fmt.Errorf("%d", <-source(1)) }()
	if err, ok := <-names; ok {
		fmt.Println(err)
	}
}
