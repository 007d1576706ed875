// Command asleep ends in a deadlock, after some work.
package main

import (
	"fmt"
	"sync"
)

func work(n int) (sum int) {
	for k := range 1000 {
		sum = (sum + k*n) % 10007
	}
	return sum
}

func main() {
	var a, b sync.Mutex
	c := make(chan int)
	sum := 0
	for i := range 1000 {
		sum += work(i)
	}
	fmt.Println(sum)
	b.Lock()
	go func() {
		a.Lock()
		defer a.Unlock()
		c <- 1
		b.Lock()
		defer b.Unlock()
	}()
	<-c
	a.Lock()
}
