// Command signals listens for signals on a channel that is in its state, which
// package os/signal knows by its address.
package main

//trial:refuse (?i)signal|chan|goroutine

import (
	"fmt"
	"os"
	"os/signal"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	x := 1
	for i := range 6 { //trial:loop
		select {
		case s := <-stop:
			fmt.Println("stopped by", s)
			return
		default:
		}
		for k := range 3000 {
			x = (x*7 + k + i) % 4001
		}
		fmt.Println(i, x)
	}
}
