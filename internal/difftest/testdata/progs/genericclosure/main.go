// Command genericclosure keeps closures that use a type declared in a generic
// function, which has no name outside of it.
package main

import (
	"fmt"
	"strings"
)

type number interface{ ~int | ~float64 }

// smoother returns closures that share state of a type that is a parameter.
func smoother[T number](start T) (add func(T) T, undo func()) {
	type state struct{ now, before T }
	s := &state{now: start}
	add = func(v T) T {
		s.before = s.now
		s.now = (s.now + v) / 2
		return s.now
	}
	undo = func() { s.now = s.before }
	return
}

func apply[K comparable, V any](m map[K]V, keys []K, f func(K, V) V) map[K]V {
	changed := 0
	log := func(k K) { changed++; fmt.Println("changed", k, changed) }
	for _, k := range keys { //difftest:loop
		for range 500 {
			m[k] = f(k, m[k])
		}
		log(k)
	}
	return m
}

func main() {
	addInt, undoInt := smoother(100)
	addFloat, undoFloat := smoother(0.5)
	for i := range 6 { //difftest:loop
		for k := range 1000 {
			addInt(k % 50)
			addFloat(float64(k%7) / 3)
		}
		if i%2 == 1 {
			undoInt()
			undoFloat()
		}
		fmt.Printf("%d %d %.9f\n", i, addInt(i), addFloat(1))
	}
	n := 0
	a := apply(map[string]int{}, []string{"x", "yy"}, func(k string, v int) int { n++; return (v*3 + len(k)) % 101 })
	b := apply(map[int]string{}, []int{1, 2, 3}, func(k int, v string) string { return strings.Repeat("z", (len(v)+k)%9) })
	fmt.Println(a, b, n)
}
