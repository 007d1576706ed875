// Command generatorfn covers generators as closures that return closures, a
// recursive closure, and a closure that replaces itself.
package main

import "fmt"

func fib() func() int {
	a, b := 0, 1
	return func() int {
		defer func() { a, b = b, a+b }()
		return a
	}
}

func filter(src func() int, keep func(int) bool) func() int {
	return func() int {
		for {
			if v := src(); keep(v) {
				return v
			}
		}
	}
}

func compose(fs ...func(int) int) func(int) int {
	return func(x int) int {
		for _, f := range fs {
			x = f(x)
		}
		return x
	}
}

func main() {
	gen := fib()
	odd := filter(gen, func(n int) bool { return n%2 != 0 })
	var walk func(n, depth int) int
	calls := 0
	walk = func(n, depth int) int {
		calls++
		if depth == 0 || n < 2 {
			return n
		}
		return walk(n/2, depth-1) + walk(n/3, depth-1)
	}
	var state func() string
	var start, middle func() string
	start = func() string { state = middle; return "start" }
	middle = func() string {
		if calls > 2000 {
			state = start
		}
		return "middle"
	}
	state = start
	mix := compose(func(x int) int { return x + calls }, func(x int) int { return x * 3 })
	for i := range 9 { //difftest:loop
		v := odd()
		fmt.Println(i, v, walk(1000+v, 9), state(), mix(i))
	}
	fmt.Println(gen(), calls)
}
