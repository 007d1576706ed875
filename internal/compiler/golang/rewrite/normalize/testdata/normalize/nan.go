// Command nan ranges over maps whose keys may be unequal to themselves.
package main

import (
	"fmt"
	"math"
	"slices"
)

func reach(x any) any { return x }

type pair struct {
	a float64
	b string
}

func sums(m map[float64]int) {
	var seen []string
	for k, v := range m {
		reach(k)
		seen = append(seen, fmt.Sprint(k, "=", v))
		if k == 1 {
			m[1] = -1 // not seen again
		}
	}
	slices.Sort(seen)
	fmt.Println(seen, len(m))
}

func keys[K comparable](m map[K]string) {
	n, nans := 0, 0
	var some K
	//pt
	for some = range m {
		n++
		if some != some {
			nans++
		}
	}
	var last string
	length := 0
	for _, last = range m {
		reach(last)
		length += len(last)
	}
	fmt.Println(n, nans, length)
}

func cleared(m map[any]int) {
	n := 0
	for k := range m {
		reach(k)
		n++
		clear(m)
		m["new"] = 1
	}
	fmt.Println("cleared after", n > 0 && n < 3)
}

func deleted(m map[pair]int) {
	n, sum := 0, 0
	for k, v := range m {
		reach(v)
		for j := range m {
			delete(m, j)
		}
		_ = k
		n++
		sum += v
	}
	fmt.Println("deleted, left:", len(m), "seen NaN:", n >= 2, sum >= 200)
}

func main() {
	nan := math.NaN()
	sums(map[float64]int{1: 10, nan: 20, nan * 2: 30, math.Inf(1): 40})
	keys(map[float64]string{nan: "one", 2: "two"})
	keys(map[any]string{nan: "x", "s": "yy", [1]float64{nan}: "zzz"})
	keys(map[int]string{1: "a"})
	cleared(map[any]int{nan: 1, 1: 2, "a": 3})
	deleted(map[pair]int{{nan, "a"}: 100, {1, "b"}: 1, {nan, "c"}: 100, {2, "d"}: 2})
	var none map[any]int
	for k, v := range none {
		reach(k)
		fmt.Println(k, v)
	}
}
