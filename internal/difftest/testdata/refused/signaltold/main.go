// Command signaltold has a goroutine that does more than wait for a signal
// while the program works: it begins to print before that. A goroutine that
// begins with the receive can be saved.
package main

//difftest:refuse goroutine

import (
	"fmt"
	"os"
	"os/signal"
)

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	go func() {
		fmt.Println("stopped by", <-stop)
		os.Exit(3)
	}()
	x := 1
	for i := range 6 { //difftest:loop
		for k := range 3000 {
			x = (x*7 + k + i) % 4001
		}
		fmt.Println(i, x)
	}
}
