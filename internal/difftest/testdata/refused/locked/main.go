// Command locked holds a mutex at every point. It has no other goroutine that
// could wait for it, but Cairn does not save locked mutexes.
package main

//difftest:refuse (?i)mutex|lock

import (
	"fmt"
	"sync"
)

type table struct {
	mu   sync.Mutex
	rows []int
}

func (t *table) fill(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x := 1
	for i := range n { //difftest:loop
		for k := range 3000 {
			x = (x*7 + k + i) % 4001
		}
		t.rows = append(t.rows, x)
	}
}

func main() {
	t := &table{}
	t.fill(6)
	fmt.Println(t.rows)
}
