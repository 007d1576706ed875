// Command golocks has goroutines that hold a mutex at points and in waits, while
// others wait for it, and readers and writers that do the same.
package main

import (
	"fmt"
	"sync"
)

// account is changed in several steps, under its mutex.
type account struct {
	sync.Mutex
	sum, steps int
}

func (a *account) deposit(n int) {
	a.Lock()
	defer a.Unlock()
	was := a.sum
	for i := range n { //difftest:loop
		a.steps++
		a.sum = was + i + 1
	}
}

// table is read while others wait to write to it.
type table struct {
	mu   sync.RWMutex
	rows []int
}

func (t *table) total() (sum int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := len(t.rows)
	for i := range n { //difftest:loop
		if len(t.rows) != n {
			panic("written while it is read")
		}
		sum += t.rows[i]
	}
	return sum
}

func (t *table) add(n int, tokens chan int) {
	t.mu.Lock()
	was := len(t.rows)
	tokens <- n // it waits here, with the lock
	t.rows = append(t.rows, n)
	if len(t.rows) != was+1 {
		panic("two writers")
	}
	t.mu.Unlock()
}

func main() {
	a := &account{}
	t := &table{}
	tokens := make(chan int)
	var wg, taker sync.WaitGroup
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 5 { //difftest:loop
				a.deposit(w + i + 1)
			}
		}()
	}
	var grown sync.Mutex
	seen := 0
	for range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 5 { //difftest:loop
				s := t.total()
				grown.Lock()
				seen = max(seen, s)
				grown.Unlock()
			}
		}()
	}
	for w := range 2 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 6 { //difftest:loop
				t.add(w*6+i, tokens)
			}
		}()
	}
	got := 0
	taker.Add(1)
	go func() {
		defer taker.Done()
		for n := range tokens { //difftest:loop
			got += n
		}
	}()
	wg.Wait()
	close(tokens)
	taker.Wait()
	fmt.Println(a.sum, a.steps, t.total(), got, seen <= got)
	if !a.TryLock() || !t.mu.TryLock() {
		panic("still locked")
	}
}
