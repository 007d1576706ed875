// Command pointers covers pointers to locals that stay in use, pointers to
// pointers, pointers as parameters, and variables taken per iteration.
package main

import "fmt"

type meter struct {
	total *int
	peak  **int
}

func feed(m meter, v int, low *int) {
	*m.total += v
	if v > **m.peak {
		*m.peak = &v
	}
	if v < *low {
		*low = v
	}
}

// elements points to elements of an array.
func elements() (cells [4]int) {
	p, q := &cells[1], &cells[2]
	for i := 0; i < 6; i++ { //difftest:loop
		*p += i
		*q = *p * i
		if i%2 == 0 {
			p, q = q, p
		}
		cells[0]++
	}
	local := [3]int{1, 2, 3}
	last := &local[2]
	for i := range 4 { //difftest:loop
		*last += i
		cells[3] += local[2]
	}
	return cells
}

func main() {
	fmt.Println(elements())
	total, low := 0, 1<<30
	first := new(int)
	peak := first
	m := meter{&total, &peak}
	var kept []*int
	for i := 0; i < 8; i++ { //difftest:loop
		v := i
		for k := range 2000 {
			v = (v*13 + k) % 1171
		}
		feed(m, v, &low)
		if i%2 == 0 {
			kept = append(kept, &i, &v) // a new i for each iteration
		}
		for _, p := range kept {
			*p += 0
		}
		fmt.Println(i, v, total, low, *peak, peak == first)
	}
	for _, p := range kept {
		fmt.Print(*p, " ")
	}
	fmt.Println(*first, **m.peak)
}
