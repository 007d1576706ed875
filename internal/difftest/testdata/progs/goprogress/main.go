// Command goprogress has a goroutine that reports progress with a ticker until
// it is told to stop, and a rate limit.
package main

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

func main() {
	var steps atomic.Int64
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		t := time.NewTicker(time.Millisecond)
		defer t.Stop()
		n := 0
		for {
			select {
			case <-t.C:
				fmt.Fprintln(os.Stderr, "at", steps.Load())
				n++
			case <-stop:
				stopped <- n
				return
			}
		}
	}()
	limit := time.Tick(100 * time.Microsecond)
	sum := 0
	for i := range 20 { //difftest:loop
		<-limit
		for k := range 1000 {
			sum = (sum*7 + k + i) % 10007
		}
		steps.Add(1)
		if i%5 == 0 {
			time.Sleep(time.Millisecond)
		}
		fmt.Println(i, sum)
	}
	close(stop)
	if n := <-stopped; n < 0 {
		fmt.Println("impossible")
	}
	fmt.Println(steps.Load())
}
