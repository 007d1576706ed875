// Command goparallel computes parts of an array on goroutines, with points in
// each, and waits for them in each step.
package main

import (
	"fmt"
	"sync"
)

func relax(cells, next []float64, lo, hi int) {
	for i := lo; i < hi; i++ { //difftest:loop
		left, right := 0.0, 1.0
		if i > 0 {
			left = cells[i-1]
		}
		if i+1 < len(cells) {
			right = cells[i+1]
		}
		next[i] = (left + cells[i] + right) / 3
	}
}

func main() {
	cells, next := make([]float64, 24), make([]float64, 24)
	const parts = 3
	for step := range 4 { //difftest:loop
		var wg sync.WaitGroup
		for p := range parts {
			wg.Go(func() { relax(cells, next, p*8, (p+1)*8) })
		}
		wg.Wait()
		cells, next = next, cells
		fmt.Println(step, cells[21], cells[23])
	}
	var wg sync.WaitGroup
	sums := make([]float64, parts)
	for p := range parts {
		wg.Add(1)
		go func(lo, hi int) {
			defer wg.Done()
			for _, c := range cells[lo:hi] { //difftest:loop
				sums[p] += c
			}
		}(p*8, (p+1)*8)
	}
	wg.Wait()
	fmt.Println(sums)
}
