// Command itergoroutine has a goroutine that is alive in all of a range over a
// function of its own: in the loop of that function, in the body and in the loops
// inside that.
package main

//difftest:daily
//difftest:refuse goroutine

import "fmt"

func count(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n { //difftest:loop
			if !yield(i) {
				return
			}
		}
	}
}

func step(x int) int {
	for k := range 200 {
		x = (x*5 + k) % 7919
	}
	return x
}

func main() {
	ticks, done := make(chan int), make(chan int)
	go func() {
		n := 0
		for t := range ticks {
			n += t
		}
		done <- n
	}()
	x := 1
	for i := range count(6) { //difftest:loop
		for range 100 { //difftest:loop
			x = step(x)
		}
		ticks <- x
		fmt.Println(i, x)
	}
	close(ticks)
	fmt.Println(<-done)
}
