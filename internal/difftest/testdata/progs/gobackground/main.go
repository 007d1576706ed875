// Command gobackground has goroutines that do not matter for its result: one
// that waits for connections, and one that prints progress for ever.
package main

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

func main() {
	var steps atomic.Int64
	//cairn:background
	go func() {
		l, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			return
		}
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, steps.Load())
			c.Close()
		}
	}()
	go report(&steps) //cairn:background
	sum := 0
	for i := range 9 { //difftest:loop
		for k := range 1000 {
			sum = (sum*7 + k + i) % 10007
		}
		steps.Add(1)
		fmt.Println(i, sum)
	}
}

func report(steps *atomic.Int64) {
	for {
		time.Sleep(time.Millisecond)
		fmt.Fprintln(os.Stderr, "at", steps.Load())
	}
}
