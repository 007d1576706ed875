// Command signalquit has a goroutine that waits for a signal or for the end of
// the work.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	quit, ended := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case s := <-signals:
				n++
				fmt.Println("got", s)
			case <-quit:
				ended <- n
				return
			}
		}
	}()
	go func() {
		select {
		case <-signals:
			os.Exit(3)
		case <-quit:
		}
		ended <- 100
	}()
	sum := 0
	for i := range 8 { //difftest:loop
		for k := range 1000 {
			sum = (sum*3 + k + i) % 8009
		}
		fmt.Println(i, sum)
	}
	close(quit)
	fmt.Println(<-ended + <-ended)
}
