// Command notify listens for signals, as programs do that can be asked to stop, or
// to tell how far they are. It sends itself some.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// hints is asked for when the program starts, and again at every other start.
var hints = make(chan os.Signal, 4)

func init() { signal.Notify(hints, syscall.SIGHUP) }

func send(sig syscall.Signal) { syscall.Kill(os.Getpid(), sig) }

// held waits until signals are in a channel, and leaves them there.
func held(c chan os.Signal, n int) {
	for len(c) < n {
		runtime.Gosched()
	}
}

func main() {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	tell := make(chan os.Signal, 2)
	signal.Notify(tell, syscall.SIGUSR2, syscall.SIGHUP)
	signal.Ignore(syscall.SIGWINCH)
	alias := tell
	x := 1
	for i := 0; ; i++ { //difftest:loop
		select {
		case s := <-stop:
			fmt.Println("stopped by", s)
			signal.Stop(tell)
			signal.Reset()
			fmt.Println(x, len(alias), len(hints))
			return
		case s := <-alias:
			fmt.Println("asked by", s)
		default:
		}
		for k := range 3000 {
			x = (x*7 + k + i) % 4001
		}
		fmt.Println(i, x, signal.Ignored(syscall.SIGWINCH))
		switch i {
		case 2:
			send(syscall.SIGUSR2)
			held(tell, 1)
		case 4:
			send(syscall.SIGHUP)
			held(hints, 1)
			held(tell, 1)
		case 5: // no channel receives it any more
			signal.Reset(syscall.SIGHUP)
			signal.Ignore(syscall.SIGHUP)
		case 6:
			send(syscall.SIGHUP)
			send(syscall.SIGUSR2)
			fmt.Println("asked by", <-tell)
		case 8:
			send(syscall.SIGINT)
			held(stop, 1)
		}
	}
}
