// Command dispatch covers interface dispatch to several implementations, each
// with loops of its own, from the main loop.
package main

import (
	"fmt"
	"strings"
)

type solver interface {
	step(round int) float64
	name() string
}

type bisect struct{ lo, hi float64 }

func (b *bisect) step(round int) float64 {
	for range 8 {
		mid := (b.lo + b.hi) / 2
		if mid*mid*mid < float64(round+2) {
			b.lo = mid
		} else {
			b.hi = mid
		}
	}
	b.lo, b.hi = b.lo-0.5, b.hi+0.5
	return b.lo
}
func (*bisect) name() string { return "bisect" }

type newton float64

func (n *newton) step(round int) float64 {
	x := float64(*n)
	for range 5 {
		x -= (x*x - float64(round+3)) / (2 * x)
	}
	*n = newton(x) + 1
	return x
}
func (n newton) name() string { return "newton" }

type series struct {
	terms []float64
	inner solver
}

func (s series) step(round int) (sum float64) {
	for i, t := range s.terms {
		for k := range 200 {
			sum += t / float64(k+i+1)
		}
	}
	s.terms[round%len(s.terms)]++
	return sum + s.inner.step(round)
}
func (s series) name() string { return "series of " + s.inner.name() }

func main() {
	first := newton(2)
	list := []solver{&bisect{0, 10}, &first, series{[]float64{1, 2, 3}, &first}}
	best := map[string]float64{}
	for round := range 7 { //difftest:loop
		var line strings.Builder
		for _, s := range list {
			v := s.step(round)
			best[s.name()] = max(best[s.name()], v)
			fmt.Fprintf(&line, " %.9f", v)
		}
		list[0], list[2] = list[2], list[0]
		fmt.Println(round, line.String())
	}
	for _, s := range list {
		fmt.Printf("%s %.6f\n", s.name(), best[s.name()])
	}
}
