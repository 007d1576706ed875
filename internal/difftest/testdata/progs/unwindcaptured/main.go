// Command unwindcaptured covers variables that a literal shares with a function
// that has a point: on a goroutine that may be alive there, and on one that is
// waited for in each iteration.
package main

import (
	"fmt"
	"sync"
)

// work may start a goroutine, which adds to its variable.
func work(n int, async bool) int {
	sum := 0
	c, done := make(chan int), make(chan bool)
	if async {
		go func() {
			for v := range c {
				sum += v
			}
			done <- true
		}()
	}
	for i := 0; i < n; i++ { //difftest:loop
		if async {
			c <- i
		} else {
			sum += i
		}
	}
	if async {
		close(c)
		<-done
	}
	return sum
}

func compute(k int) (s int) {
	for i := range 5 { //difftest:loop
		s += i * k
	}
	return s
}

// fetches fetches what comes next while it computes.
func fetches(n int) int {
	next, total := 0, 0
	var wg sync.WaitGroup
	fetch := func(k int) {
		next = k * 3
		wg.Done()
	}
	for i := range n {
		wg.Add(1)
		go fetch(i)
		total += compute(i)
		wg.Wait()
		total += next
		wg.Go(func() { next = i })
		total += compute(i + 1)
		wg.Wait()
		total += next
	}
	return total
}

// later waits for a goroutine before its points.
func later(wg *sync.WaitGroup, k int) (s int) {
	wg.Wait()
	for i := range 20 { //difftest:loop
		for j := range 2000 {
			s = (s*7 + i*j + k) % 1013
		}
	}
	return s
}

// changes waits in a call while a goroutine changes its variable.
func changes(n int) (total int) {
	next := 0
	for i := range n {
		var wg sync.WaitGroup
		wg.Add(1)
		go func() {
			next = i*3 + 1
			wg.Done()
		}()
		total += later(&wg, i)
		total += next
	}
	return total
}

func main() {
	fmt.Println(changes(4))
	fmt.Println(work(20, false), work(40, true), work(3, false))
	fmt.Println(fetches(6))
}
