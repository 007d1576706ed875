// Command specials covers NaN, infinities, negative zero, NaN map keys, huge
// integers, empty and nil slices and maps, and zero-size values.
package main

import (
	"fmt"
	"math"
)

type empty struct{}

func main() {
	nan, inf, negzero := math.NaN(), math.Inf(-1), math.Copysign(0, -1)
	floats := map[float64]int{nan: 1, inf: 2, negzero: 3}
	var nilSlice []int
	emptySlice := []int{}
	var nilMap map[string]int
	var nilFunc func()
	var iface any
	var typed any = (*int)(nil)
	set := map[empty]empty{}
	none := [0]int{}
	units := make([]struct{}, 3)
	top, low := uint64(math.MaxUint64), int64(math.MinInt64)
	var small int8 = 127
	for i := range 6 { //difftest:loop
		s := 0
		for k := range 3000 {
			s += k % (i + 1)
		}
		floats[nan] = i // one more entry each time
		small++
		top -= uint64(s)
		low++
		set[empty{}] = empty{}
		if i == 3 {
			iface = typed
			nilSlice = append(nilSlice, s)
		}
		units = append(units, struct{}{})
		fmt.Println(i, len(floats), floats[inf], math.Signbit(negzero), nilSlice == nil, emptySlice == nil, nilMap == nil, nilFunc == nil,
			iface == nil, typed == nil, len(set), len(none), len(units), top, low, small, 1/negzero)
	}
}
