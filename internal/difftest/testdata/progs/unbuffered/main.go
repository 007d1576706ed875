// Command unbuffered keeps an unbuffered channel in its state, with a sender
// that waits in it at every point.
package main

import "fmt"

func squares() <-chan int {
	out := make(chan int)
	go func() {
		for i := 0; ; i++ {
			out <- i * i
		}
	}()
	return out
}

func main() {
	next := squares()
	sum := 0
	for i := range 7 { //difftest:loop
		v := <-next
		for k := range 3000 {
			sum = (sum + k*v) % 10007
		}
		fmt.Println(i, v, sum)
	}
}
