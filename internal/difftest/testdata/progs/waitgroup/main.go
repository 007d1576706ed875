// Command waitgroup covers goroutines per step joined by a WaitGroup, with
// results in a slice, and a first error as errgroup keeps it.
package main

import (
	"errors"
	"fmt"
	"sync"
)

type group struct {
	wg   sync.WaitGroup
	once sync.Once
	err  error
}

func (g *group) do(f func() error) {
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		if err := f(); err != nil {
			g.once.Do(func() { g.err = err })
		}
	}()
}

func (g *group) wait() error { g.wg.Wait(); return g.err }

var errBad = errors.New("bad strip")

func relax(strip []float64, left, right float64) error {
	for range 200 {
		l := left
		for i := range strip {
			r := right
			if i+1 < len(strip) {
				r = strip[i+1]
			}
			l, strip[i] = strip[i], (l+strip[i]+r)/3
		}
	}
	if strip[0] > 60 {
		return errBad
	}
	return nil
}

func main() {
	const strips = 4
	grid := make([]float64, 64)
	for i := range grid {
		grid[i] = float64(i * i % 23)
	}
	var wg sync.WaitGroup
	for step := range 8 { //difftest:loop
		grid[0] += float64(step * 20)
		g := &group{}
		edges := make([]float64, strips+1)
		for s := range strips {
			edges[s] = grid[s*16]
		}
		for s := range strips {
			g.do(func() error { return relax(grid[s*16:(s+1)*16], edges[s], edges[s+1]) })
		}
		err := g.wait()
		sums := make([]float64, strips)
		for s := range sums {
			wg.Go(func() {
				for _, v := range grid[s*16 : (s+1)*16] {
					sums[s] += v
				}
			})
		}
		wg.Wait()
		fmt.Printf("%d %.9f %v %v\n", step, sums, err, errors.Is(err, errBad))
	}
}
