// Command rangefunc covers points in the bodies of loops over functions, and the
// ways out of them: continue, break, labels, return, goto.
package main

import (
	"fmt"
	"iter"
)

func count(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		defer fmt.Println("count ends", n)
		for i := range n {
			if !yield(i) {
				fmt.Println("count is left at", i)
				return
			}
		}
	}
}

func grid(n int) func(func(int, int) bool) {
	return func(yield func(int, int) bool) {
		for i := range count(n) {
			for j := range n {
				if !yield(i, j) {
					return
				}
			}
		}
	}
}

func filter[T any](seq iter.Seq[T], keep func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		for v := range seq {
			if keep(v) && !yield(v) {
				return
			}
		}
	}
}

func mix(x, k int) int {
	for i := range 400 {
		x = (x*7 + k + i) % 6007
	}
	return x
}

// find returns from the inner of two loops.
func find(n, want int) (where int, ok bool) {
	for i, j := range grid(n) { //difftest:loop
		where = mix(where, i*j)
		for k := range count(3) { //difftest:loop
			if i*j*k == want {
				return where + k, true
			}
			if k > i {
				break
			}
		}
	}
	return
}

// named returns a value where the result's name is another variable's.
func named(n int) (x int) {
	for i := range count(n) { //difftest:loop
		x := mix(i, 3)
		if i == 2 {
			return x
		}
		fmt.Println("named", x)
	}
	return -1
}

func plain(n int) (int, string, error) {
	var last *int
	for i := range count(n) { //difftest:loop
		last = &i
		if mix(i, 1)%3 == 1 {
			return *last, "third", nil
		}
	}
	return 0, "", fmt.Errorf("none of %d", n)
}

func labels(n int) string {
	s := ""
outer:
	for a := 0; a < n; a++ {
	middle:
		for b := range count(n) { //difftest:loop
			for c := range filter(count(n), func(c int) bool { return c != b }) { //difftest:loop
				s += fmt.Sprint(a, b, c, " ")
				switch mix(a+b, c) % 5 {
				case 0:
					continue middle
				case 1:
					break middle
				case 2:
					continue
				case 3:
					if a == 1 {
						continue outer
					}
					if a == 2 {
						break outer
					}
					break
				default:
					for d := range 3 {
						if d == 1 {
							continue middle
						}
					}
				}
				if len(s) > 90 {
					goto full
				}
			}
		}
		s += "; "
	}
	return s
full:
	return s + "full"
}

// captured has variables of each iteration, and of all iterations, in closures.
func captured() []func() int {
	var list []func() int
	total, last := 0, 0
	for i := range count(4) { //difftest:loop
		n := mix(i, total)
		list = append(list, func() int { i++; n++; total++; return n*1000 + i*10 + total })
		list[i]()
	}
	for last = range count(3) { //difftest:loop
		total += mix(last, 0)
	}
	var pair [2]int
	for pair[0], pair[1] = range grid(2) { //difftest:loop
		total += pair[0] - pair[1]
	}
	fmt.Println("captured", total, last, pair)
	return list
}

func main() {
	fmt.Println(find(3, 100))
	fmt.Println(find(4, 6))
	fmt.Println(named(1), named(5))
	fmt.Println(plain(9))
	fmt.Println(plain(1))
	fmt.Println(labels(3))
	fmt.Println(labels(4))
	for _, f := range captured() {
		fmt.Println(f(), f())
	}
	x := 1
	for i := range func(yield func(int) bool) { _ = yield(x) && yield(x+1) && yield(x+2) } { //difftest:loop
		x = mix(x, i)
		fmt.Println("literal", i, x)
	}
	for range count(2) { //difftest:loop
		fmt.Println("twice")
	}
}
