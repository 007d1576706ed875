// Command iterators covers range over functions inside a loop with points, and
// the iterators of package slices and maps.
package main

import (
	"fmt"
	"iter"
	"maps"
	"slices"
)

func collatz(n int) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		for step := 0; n != 1; step++ {
			if !yield(step, n) {
				return
			}
			if n%2 == 0 {
				n /= 2
			} else {
				n = 3*n + 1
			}
		}
	}
}

func pairs[T any](list []T) iter.Seq2[T, T] {
	return func(yield func(T, T) bool) {
		for i := 1; i < len(list); i++ {
			if !yield(list[i-1], list[i]) {
				return
			}
		}
	}
}

func main() {
	longest := map[int]int{}
	var peaks []int
	for n := 27; n < 35; n++ { //difftest:loop
		peak := 0
		for step, v := range collatz(n) {
			if v > 9000 && step > 75 {
				break
			}
			longest[n] = step
			peak = max(peak, v)
		}
		peaks = append(peaks, peak)
		falls := 0
		for a, b := range pairs(peaks) {
			if b < a {
				falls++
				continue
			}
		}
		fmt.Println(n, longest[n], peak, falls)
	}
	fmt.Println(slices.Sorted(maps.Values(longest)), slices.Max(peaks))
}
