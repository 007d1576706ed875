// Command goheld has its points while goroutines wait for locks that main holds,
// and for a sync.Cond.
package main

//difftest:killed 5

import (
	"fmt"
	"sync"
)

type shared struct {
	sync.Mutex
	rw                                    sync.RWMutex
	c                                     *sync.Cond
	doubled, added, read, waiting, passed int
	open                                  bool
}

func (s *shared) double(ready chan<- bool) {
	ready <- true
	s.Lock()
	defer s.Unlock()
	s.doubled *= 2
}

func (s *shared) add(ready chan<- bool) {
	ready <- true
	s.rw.Lock()
	s.added++
	s.rw.Unlock()
}

func (s *shared) pass(ready chan<- bool) {
	ready <- true
	s.c.L.Lock()
	for s.waiting++; !s.open; {
		s.c.Wait()
	}
	s.passed++
	s.c.L.Unlock()
}

// allWait reports whether all goroutines wait for the Cond.
func (s *shared) allWait() bool {
	s.c.L.Lock()
	defer s.c.L.Unlock()
	return s.waiting == 3
}

func main() {
	s := &shared{c: sync.NewCond(new(sync.Mutex)), doubled: 1}
	var doubled, added, passed sync.WaitGroup
	ready := make(chan bool)
	s.Lock()
	s.rw.RLock()
	for range 3 {
		doubled.Go(func() { s.double(ready) })
		added.Go(func() { s.add(ready) })
		passed.Go(func() { s.pass(ready) })
		for range 3 {
			<-ready
		}
	}
	for !s.allWait() {
	}
	for i := range 10 { //difftest:loop
		s.doubled += i
		s.read += s.added
	}
	fmt.Println("held", s.doubled, s.read)
	s.Unlock()
	doubled.Wait()
	fmt.Println("doubled", s.doubled)
	s.rw.RUnlock()
	added.Wait()
	fmt.Println("added", s.added)
	s.c.L.Lock()
	s.open = true
	s.c.Broadcast()
	s.c.L.Unlock()
	passed.Wait()
	fmt.Println("passed", s.passed)
}
