// Command capturedchanges covers variables that change while others use them: a
// literal with points changes one of the function that waits for it, and a
// goroutine reads one that the function changes.
package main

import "fmt"

// direct calls a literal that has points, and changes its variable.
func direct(n int) (total int) {
	x := n
	func() {
		x++
		for i := range n { //difftest:loop
			x += i
		}
		total += x
	}()
	return total*100 + x
}

// watched may start a goroutine, which reads its variable.
func watched(n int, async bool) (total int) {
	level := 0
	ask, answer := make(chan bool), make(chan int)
	if async {
		go func() {
			for range ask {
				answer <- level
			}
			close(answer)
		}()
	}
	for i := 0; i < n; i++ { //difftest:loop
		level = i * i
		if async {
			ask <- true
			total += <-answer
		} else {
			total += level
		}
	}
	if async {
		close(ask)
		<-answer
	}
	return total
}

func main() {
	for n := range 6 {
		fmt.Println(direct(n))
	}
	fmt.Println(watched(5, false), watched(20, true))
}
