// Command resultcapture covers named results that literals with points inside, or
// literals that are kept, capture, and whose addresses are taken.
package main

import (
	"errors"
	"fmt"
)

func mix(x, k int) int {
	for i := range 2 { //difftest:loop
		for j := range 300 {
			x = (x*7 + k + i*j) % 6007
		}
	}
	return x
}

// woven has a literal that leads to a point, and deferred calls.
func woven(n int) (sum int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recovered %v at %d", r, sum)
		}
	}()
	add := func(k int) {
		sum = mix(sum, k)
		if k == 3 {
			panic("three")
		}
	}
	for i := range n {
		add(i)
	}
	if sum%2 == 0 {
		return mix(sum, 9), nil
	}
	return
}

var kept []func() int

// keeps hands out literals that see the result, before and after the return.
func keeps(n int) (x int, _ string) {
	kept = append(kept, func() int { x++; return x })
	for i := range n {
		x = mix(x, kept[len(kept)-1]()+i)
	}
	if n == 2 {
		x := x + 100
		return x, "two"
	}
	return x * 2, "other"
}

func address(n int) (x int, err error) {
	p := &x
	*p = mix(n, 1)
	defer func() { *p += 1000 }()
	if n > 1 {
		err = errors.New("more than one")
		return
	}
	y, err := mix(*p, 2), error(nil)
	return y, err
}

func literal() func(int) int {
	return func(n int) (out int) {
		each(n, func(k int) { out += mix(out, k) })
		return
	}
}

func each(n int, f func(int)) {
	for i := range n {
		f(i)
	}
}

func main() {
	for n := range 5 {
		fmt.Println(woven(n))
	}
	for n := range 4 {
		fmt.Println(keeps(n))
		fmt.Println(kept[n](), kept[0]())
	}
	fmt.Println(address(1))
	fmt.Println(address(2))
	f := literal()
	fmt.Println(f(3), f(1))
}
