// Command rangefuncpkg covers points in the bodies of loops over generic functions
// of another package, with types of this one.
package main

import (
	"fmt"
	"strings"

	"progs/rangefuncpkg/seq"
)

type particle struct {
	x, v float64
}

type names []string

func (p *particle) move(n int) float64 {
	for range n * 100 {
		p.v -= p.x * 0.001
		p.x += p.v * 0.001
	}
	return p.x
}

func total[T any](s *seq.Stack[T], weigh func(T) int) (sum int) {
	for i, v := range s.Down() { //difftest:loop
		sum = sum*3 + weigh(v) + i
		fmt.Println("down", i, v, sum)
	}
	return sum
}

func main() {
	var all []*particle
	for n := range seq.Squares(4) { //difftest:loop
		all = append(all, &particle{x: float64(n), v: 1})
	}
	for p := range seq.Filter(seq.Values(all), func(p *particle) bool { return p.x > 0 }) { //difftest:loop
		fmt.Printf("%.9f\n", p.move(5))
	}
	for s := range seq.Map(seq.Values(names{"a", "bb", "ccc"}), strings.ToUpper) { //difftest:loop
		for x := range seq.Map(seq.Filter(seq.Values(all), func(p *particle) bool { return p.v < 1 }), func(p *particle) float64 { return p.move(len(s)) }) { //difftest:loop
			fmt.Printf("%s %.9f\n", s, x)
		}
	}
	var ints seq.Stack[int]
	var words seq.Stack[string]
	var pointers seq.Stack[*particle]
	for i, p := range all {
		ints.Push(i * i)
		words.Push(strings.Repeat("z", i))
		pointers.Push(p)
	}
	fmt.Println(total(&ints, func(n int) int { return n }), total(&words, func(s string) int { return len(s) }))
	last := 0.0
	for i, p := range pointers.Down() { //difftest:loop
		last += p.move(i + 1)
		if i == 1 {
			break
		}
	}
	for v := range seq.Empty[*names]() { //difftest:loop
		fmt.Println(v == nil)
	}
	for v := range seq.Empty[*particle]() { //difftest:loop
		fmt.Println(v == nil, seq.Empty[int] != nil)
	}
	fmt.Printf("%.9f\n", last)
}
