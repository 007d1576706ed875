// Command deferloops defers in loops and blocks, while calls follow.
package main

import (
	"errors"
	"fmt"
)

func reach(x int) int { fmt.Println("reach", x); return x }

type stack struct{ n int }

func (s *stack) pop(i int, what ...any) { s.n++; fmt.Println("pop", s.n, i, what) }
func (s stack) show(what string)        { fmt.Println(what, s.n) }

func two() (int, string) { return 2, "two" }

func pair(i int, s string) { fmt.Println("pair", i, s) }

func climb(s *stack, n int) (h int) {
	defer func() { fmt.Println("first", h) }()
	for i := range n {
		h = h*3 + i
		switch i % 4 {
		case 0:
			defer s.pop(i, "x", h)
		case 1:
			saved := h
			defer func() {
				h ^= saved
				saved++
				s.pop(i, "closure", saved)
			}()
			saved += 100
		case 2:
			defer pair(two())
		default:
			f := s.show
			defer f("value")
			defer s.show(fmt.Sprint("shown ", i))
		}
		reach(i)
	}
	for j := 0; j < 2; j++ {
		for k := range 2 {
			defer func(what string) { fmt.Println(what, j, k) }(fmt.Sprint("inner ", j*k))
		}
	}
	defer fmt.Println("last")
	return reach(h)
}

func safe(n int) (err error) {
	for i := range n {
		defer func() {
			if r := recover(); r != nil {
				err = errors.Join(err, fmt.Errorf("%d: %v", i, r))
				if i > 1 {
					panic(fmt.Sprint("again ", i))
				}
			}
		}()
		//pt
		for range 2 {
			reach(i)
		}
	}
	panic("first")
}

func blocks(x int) {
	if y := x * 2; x > 0 {
		z := []int{y}
		defer func() {
			z[0]++
			y++
			fmt.Println("block", y, z, len(z) > 0 && x > 0)
		}()
		y += 10
		z = append(z, 5)
	} else {
		defer fmt.Println("else")
	}
	x = reach(x)
	x++
}

func generic[T any](list []T) {
	for i, v := range list {
		defer func(before T) { fmt.Println(i, v, before) }(list[0])
		reach(i)
	}
}

func main() {
	s := &stack{}
	fmt.Println(climb(s, 6), s.n)
	fmt.Println(safe(4))
	blocks(1)
	blocks(0)
	generic([]string{"a", "b"})
	generic([]float64{1, 2})
	func() {
		for i := range 2 {
			defer fmt.Println("literal", i)
			reach(i)
		}
	}()
}
