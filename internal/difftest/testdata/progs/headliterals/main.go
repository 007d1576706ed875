// Command headliterals has func literals in the heads of loops.
package main

import "fmt"

func work(n int) (s int) {
	for i := range 2 { //difftest:loop
		s = (s*31 + n + i) % 1009
	}
	return s
}

func main() {
	sum := 0
	for f := func() int { return work(sum & 15) }; sum < 500; sum += f() + 1 { //difftest:loop
		sum += 3
	}
	fmt.Println(sum)
outer:
	for i, less := 0, func(i int) bool { return i < 3+work(i)%2 }; less(i); i++ { //difftest:loop
		for k := 0; ; k++ { //difftest:loop
			if k > i {
				continue outer
			}
			sum += work(k)
		}
	}
	fmt.Println(sum)
	for i := 0; func() bool { return i < 3 }(); func() { i++ }() { //difftest:loop
		sum += i
		fmt.Println(i, sum)
	}
	var kept []func() int
	for n, next := 0, func(n int) int { return n + 1 }; n < 3; n = next(n) { //difftest:loop
		kept = append(kept, func() int { return next(n) + work(n) })
	}
	for _, f := range kept { //difftest:loop
		fmt.Println(f())
	}
	for f, n := func() int { return 1 }, 0; n < 3; n++ { //difftest:loop
		fmt.Println(f())
		f = func() int { return n * 10 }
	}
}
