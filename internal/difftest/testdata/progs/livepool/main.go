// Command livepool keeps workers for the whole run, which wait for jobs at
// every point.
package main

import (
	"fmt"
	"sync"
)

type pool struct {
	jobs chan func()
	wg   sync.WaitGroup
}

func newPool(n int) *pool {
	p := &pool{jobs: make(chan func())}
	for range n {
		go func() {
			for job := range p.jobs {
				job()
				p.wg.Done()
			}
		}()
	}
	return p
}

func main() {
	p := newPool(3)
	cells := make([]int, 12)
	for step := range 7 { //difftest:loop
		for i := range cells {
			p.wg.Add(1)
			p.jobs <- func() {
				for k := range 1000 {
					cells[i] = (cells[i]*3 + k + step) % 1013
				}
			}
		}
		p.wg.Wait()
		fmt.Println(step, cells)
	}
	close(p.jobs)
}
