package main

import (
	"os"
	"sync"
	"time"
)

func tick() {
	for {
		time.Sleep(time.Second)
	}
}

func main() {
	n := len(os.Args)
	go tick() // alive in all
	var wg sync.WaitGroup
	//cairn:point
	for i := range n { // alive: 1
		wg.Go(func() { n += i })
		wg.Wait()
	}
	wg.Go(func() { n++ })
	//cairn:point
	for i := range n { // alive: 2
		n += i
	}
	wg.Wait()
	done := make(chan bool)
	go func() {
		defer close(done)
		n++
	}()
	<-done
	//cairn:point
	for i := range n { // alive: 1
		n += i
	}
}
