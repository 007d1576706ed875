// Command counter covers closures over local variables that are shared, kept
// in variables, returned from functions, and called around points.
package main

import "fmt"

func accumulator(start int) (add func(int) int, reset func()) {
	sum := start
	add = func(n int) int {
		sum += n
		return sum
	}
	reset = func() { sum = start }
	return
}

func spin(n int, f func(int) int) (r int) {
	for i := range 500 {
		r = f(i*n) % 1009
	}
	return r
}

func main() {
	count := 0
	tick := func() int { count++; return count }
	add, reset := accumulator(10)
	other, _ := accumulator(1000)
	for step := 0; step < 8; step++ { //difftest:loop
		if step == 4 {
			reset()
		}
		a := spin(step, add)
		b := spin(tick(), other)
		scale := func(x int) int { return x*step + count }
		fmt.Println(step, a, b, scale(2), count)
	}
	fmt.Println(add(0), other(0), tick(), count)
}
