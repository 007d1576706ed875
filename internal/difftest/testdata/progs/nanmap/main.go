// Command nanmap covers ranges over maps whose keys may be NaN, with points in
// their bodies.
package main

import (
	"fmt"
	"math"
)

func work(seed int) (h uint32) {
	h = 2166136261
	for k := range 2000 {
		h = h*16777619 ^ uint32(k+seed)
	}
	return h
}

func weigh(m map[float64]int) (sum, nans int, h uint32) {
	for k, v := range m { //difftest:loop
		h ^= work(v) // in any order
		sum += v
		if k != k {
			nans++
		}
		fmt.Println("entry", nans >= 0)
	}
	return sum, nans, h
}

func count[K comparable](m map[K]string) int {
	n := 0
	for k := range m { //difftest:loop
		work(n)
		n++
		delete(m, k)
		fmt.Println("left", len(m) >= 0)
	}
	return n
}

func main() {
	nan := math.NaN()
	fmt.Println(weigh(map[float64]int{1: 10, nan: 20, nan * 2: 30, math.Inf(1): 40, -nan: 50}))
	mixed := map[any]string{nan: "x", "s": "yy", [1]float64{nan}: "zzz", 3: "t"}
	fmt.Println(count(mixed), len(mixed))
	fmt.Println(count(map[string]string{"a": "1", "b": "2"}))
}
