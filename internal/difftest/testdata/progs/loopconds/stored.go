package main

import "fmt"

// Functions that store their frames before calls, since they have deferred calls,
// are called by way of interfaces and func values, or are func literals.

type sorter interface {
	sort(a []int) int
}

type bubbles struct{ passes int }

func (b *bubbles) sort(a []int) int {
	defer func() { b.passes += 100 }()
	for swapped := true; swapped; { //difftest:loop
		swapped = false
		b.passes++
		for i := 1; i < len(a); i++ {
			swapped = swap(a, i) || swapped
		}
	}
	return b.passes
}

// swap has a point, so that the flag waits for a call.
func swap(a []int, i int) (done bool) {
	for range 2 { //difftest:loop
		if a[i-1] > a[i] {
			a[i-1], a[i] = a[i], a[i-1]
			done = true
		}
	}
	return done
}

// settle asks a func value before each iteration, and does a call after each.
func settle(step func(int) float64, note func(float64)) (n int) {
	defer note(-1)
	diff := 1.0
	for ; diff > 0.01; note(diff) { //difftest:loop
		diff = 0
		diff = step(n)
		n++
	}
	return n
}

// stored has func literals with such loops.
func stored() {
	var s sorter = &bubbles{}
	a := []int{4, 8, 1, 9, 3, 2}
	fmt.Println(s.sort(a), a)
	var notes []float64
	steps := func(i int) float64 {
		d := 0.0
		for on := true; on; i++ { //difftest:loop
			on = false
			d += 1 / float64((i+1)*(i+1)*(i+1))
			on = i%3 != 0
		}
		return d
	}
	fmt.Println(settle(steps, func(d float64) { notes = append(notes, d) }))
	fmt.Println(notes)
	var trace []int
	walk := func(n int) {
		for todo := []int{n}; len(todo) > 0; { //difftest:loop
			k := todo[0]
			rest := todo[1:]
			todo = nil
			trace = append(trace, k)
			if k > 1 {
				todo = append(rest, k/2, k-2)
			} else if len(rest) > 0 {
				todo = rest
			}
		}
	}
	walk(7)
	fmt.Println(trace)
}
