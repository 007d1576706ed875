// Command godeadlock ends in a deadlock: one goroutine waits for a channel,
// one for a mutex, one for a condition, one in a select, and main for all of
// them. The Go runtime ends the program with status 2; so must Cairn.
package main

//difftest:exit 2

import (
	"fmt"
	"sync"
)

var (
	mu   sync.Mutex
	cond = sync.NewCond(new(sync.Mutex))
	wg   sync.WaitGroup
)

func work(n int) (sum int) {
	for k := range 3000 {
		sum = (sum + k*n) % 10007
	}
	return sum
}

func main() {
	c, d := make(chan int), make(chan int)
	wg.Go(func() { fmt.Println(<-c) })
	wg.Go(func() {
		select {
		case n := <-c:
			fmt.Println(n)
		case d <- 1:
		}
	})
	sum := 0
	for i := range 8 { //difftest:loop
		sum += work(i)
	}
	fmt.Println(sum)
	mu.Lock()
	wg.Go(func() {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(<-c)
	})
	wg.Go(func() {
		cond.L.Lock()
		cond.Wait()
		cond.L.Unlock()
	})
	wg.Wait()
}
