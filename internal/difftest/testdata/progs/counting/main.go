// Command counting has a goroutine that is alive at every point, as it counts in
// the background for the whole run.
package main

import "fmt"

func main() {
	ticks, done := make(chan int), make(chan int)
	go func() {
		n := 0
		for t := range ticks {
			n += t
		}
		done <- n
	}()
	sum := 0
	for i := range 6 { //difftest:loop
		for k := range 3000 {
			sum = (sum*5 + k + i) % 7919
		}
		ticks <- sum
		fmt.Println(i, sum)
	}
	close(ticks)
	fmt.Println(<-done)
}
