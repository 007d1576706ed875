// Command initgoroutines has goroutines that init starts: one that works for
// main, one that waits for signals, and one that init itself waits for.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

type job struct {
	n     int
	reply chan<- int
}

var (
	jobs  = make(chan job)
	sigs  = make(chan os.Signal, 1)
	table []int
	calls int
)

func init() {
	signal.Notify(sigs, syscall.SIGUSR1)
	go func() {
		for {
			fmt.Println(<-sigs)
		}
	}()
	done := make(chan bool)
	go func() {
		for i := 0; i < 5; i++ {
			table = append(table, i*i+1)
		}
		done <- true
	}()
	<-done
}

func init() { go serve(jobs) }

func serve(jobs <-chan job) {
	sum := 0
	for j := range jobs { //difftest:loop
		calls++
		for i := 0; i < 3; i++ { //difftest:loop
			sum = (sum*31 + j.n*table[i]) % 10007
		}
		j.reply <- sum
	}
}

func main() {
	reply := make(chan int)
	total := 0
	for n := 0; n < 8; n++ { //difftest:loop
		jobs <- job{n, reply}
		r := <-reply
		total += r
		fmt.Println(n, r)
	}
	fmt.Println(total, calls, table)
}
