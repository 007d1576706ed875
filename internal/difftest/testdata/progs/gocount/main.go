// Gocount waits until its goroutines have ended by counting them.
package main

import (
	"fmt"
	"runtime"
	"time"
)

func main() {
	fmt.Println(runtime.NumGoroutine())
	total := 0
	for round := range 6 { //difftest:loop
		sums := make(chan int, 4)
		for k := range 4 {
			go func() {
				n := 0
				for i := range 5000 {
					n = (n*7 + i + k + round) % 10007
				}
				sums <- n
			}()
		}
		for runtime.NumGoroutine() > 1 {
			time.Sleep(time.Millisecond)
		}
		for range 4 {
			total += <-sums
		}
		fmt.Println(round, total, runtime.NumGoroutine())
	}
}
