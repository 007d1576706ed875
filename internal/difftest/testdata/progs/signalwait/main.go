// Command signalwait has goroutines that wait for signals while the program
// works: one that counts them, one that ends the program, one that has ended.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
)

type state struct {
	asked atomic.Int32
	last  string
}

func (s *state) watch(c chan os.Signal) {
	go func() {
		for sig := range c {
			s.last = sig.String()
			s.asked.Add(1)
		}
	}()
}

func send(sig syscall.Signal) { syscall.Kill(os.Getpid(), sig) }

//difftest:daily
//difftest:exit 3
func main() {
	s := &state{}
	tell := make(chan os.Signal, 1)
	signal.Notify(tell, syscall.SIGHUP)
	s.watch(tell)
	var once atomic.Bool
	first := make(chan os.Signal, 1)
	signal.Notify(first, syscall.SIGUSR2)
	go func() {
		<-first
		signal.Stop(first)
		signal.Ignore(syscall.SIGUSR2)
		once.Store(true)
	}()
	stop := make(chan os.Signal, 1)
	other := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt)
	steps := 0
	go func() {
		for {
			select {
			case sig := <-stop:
				fmt.Println("stopped by", sig, "after", steps)
				os.Exit(3)
			case <-other:
				fmt.Println("not sent")
			}
		}
	}()
	x := 1
	for i := 0; ; i++ { //difftest:loop
		for k := range 3000 {
			x = (x*7 + k + i) % 4001
		}
		steps++
		fmt.Println(i, x, s.asked.Load(), s.last, once.Load())
		switch i {
		case 1, 4:
			n := s.asked.Load()
			send(syscall.SIGHUP)
			for s.asked.Load() == n {
				runtime.Gosched()
			}
		case 3:
			send(syscall.SIGUSR2)
			for !once.Load() {
				runtime.Gosched()
			}
		case 5:
			send(syscall.SIGUSR2) // no goroutine waits any more
		case 7:
			send(syscall.SIGINT)
			select {}
		}
	}
}
