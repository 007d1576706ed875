// Command oldtimers waits for time.After and time.Tick in a module of a language
// version in which channels do not know their timers.
package main

import (
	"fmt"
	"time"
)

func produce(out chan<- int, late <-chan time.Time) {
	for i := 0; i < 6; i++ { //difftest:loop
		select {
		case out <- i * i:
		case <-late:
			panic("late")
		}
	}
	close(out)
}

func main() {
	late, soon := time.After(time.Hour), time.After(time.Millisecond)
	tick := time.Tick(2 * time.Millisecond)
	in := make(chan int)
	go produce(in, late)
	sum, ticks := 0, 0
	for v := range in { //difftest:loop
		<-tick
		ticks++
		sum = sum*7 + v
	}
	<-soon
	select {
	case <-soon:
		fmt.Println("twice")
	case <-time.After(time.Millisecond):
	}
	for i := 0; i < 3; i++ { //difftest:loop
		<-tick
		ticks++
	}
	fmt.Println(sum, ticks)
}
