// Command hiddentypes keeps values of types that another package does not export,
// in variables, in closures and in loops.
package main

import (
	"fmt"

	"trial/hiddentypes/dep"
)

func work(n int) float64 {
	x := 1.0
	for k := range n * 100 {
		x += float64(k%7) / 1000
	}
	return x
}

func main() {
	s := dep.New(3)
	m := dep.Slow
	v := dep.Of(9)
	first := s.Add(1)
	all := map[string]any{"s": s}
	grow := func(f float64) { first.Grow(f); m = dep.Fast }
	keep := []func(float64){grow}
	for i := range 4 { //trial:loop
		it := s.Add(work(i))
		for j := range 2 { //trial:loop
			it.Grow(work(j))
			v.N += j
		}
		keep[0](1.5)
		fmt.Printf("%d %.9f %d %d %v\n", i, s.Sum(), m, v.N, all["s"] == any(s))
	}
	for i, it := range s.All() { //trial:loop
		it.Grow(work(i))
		fmt.Printf("%T %d %.9f\n", it, i, s.Sum())
	}
}
