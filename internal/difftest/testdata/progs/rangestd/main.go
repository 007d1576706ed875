// Command rangestd covers points in loops over what functions of the standard
// library return.
package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func mix(x, k int) int {
	for i := range 300 {
		x = (x*7 + k + i) % 6007
	}
	return x
}

type words []string

func first(w words, want int) (string, bool) {
	for i, s := range slices.All(w) { //difftest:loop
		if mix(i, len(s))%5 == want {
			return s, true
		}
		w[len(w)-1] += "!"
	}
	return "", false
}

func backward[T any](list []T, f func(T) int) (x int) {
outer:
	for i, v := range slices.Backward(list) { //difftest:loop
		v := f(v)
		for k := range slices.Values([]int{1, 2, 3}) { //difftest:loop
			if v+k == i {
				continue outer
			}
			x = mix(x, k+v)
		}
		list = nil
	}
	return x
}

func main() {
	x := 0
	fmt.Println(first(words{"a", "bb", "ccc", "dddd"}, 2))
	fmt.Println(backward([]string{"x", "yyyy", "z", "w"}, func(s string) int { return len(s) }), backward([]int{3, 1, 2}, func(n int) int { return n }))
	m := map[string]int{"a": 3, "b": 1, "c": 2}
	for k, v := range maps.All(m) { //difftest:loop
		x += mix(v, len(k))
		m[k]++
	}
	n := 0
	for k := range maps.Keys(m) { //difftest:loop
		n += m[k] * mix(1, m[k])
	}
	for v := range maps.Values(m) { //difftest:loop
		n += mix(v, 2)
	}
	for range maps.Values(m) { //difftest:loop
		x = mix(x, 1)
	}
	fmt.Println(x, n, m)
	var funcs []func() int
	for c := range slices.Chunk([]int{1, 2, 3, 4, 5, 6, 7}, 3) { //difftest:loop
		x = mix(x, len(c))
		c[0] = x
		funcs = append(funcs, func() int { c[0]++; return c[0] })
		fmt.Println(c, x, funcs[0]())
	}
	var last string
	for last = range strings.SplitSeq("alpha,beta,,gamma,delta", ",") { //difftest:loop
		x = mix(x, len(last))
		if last == "gamma" {
			break
		}
		fmt.Println(last, x)
	}
	for line := range strings.Lines("one\ntwo\nthree") { //difftest:loop
		for f := range strings.FieldsSeq(strings.ReplaceAll(line, "o", " o ")) { //difftest:loop
			x = mix(x, len(f))
			fmt.Printf("%q %d\n", f, x)
		}
	}
	fmt.Println(last, x)
}
