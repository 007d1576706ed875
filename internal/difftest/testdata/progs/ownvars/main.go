// Command ownvars covers variables that a closure has to itself, and others
// that look so: shared, changed later, captured before they are set, of loops.
package main

import "fmt"

type grid struct{ cells [4]int }

func (g *grid) add(n int) { g.cells[n%4] += n }

// Only the closure uses r after it is made.
func lcg(seed uint32) func() uint32 {
	r := seed
	return func() uint32 {
		r = r*1103515245 + 12345
		return r >> 16
	}
}

// Its own, and a parameter.
func counter(n int) func() int { return func() int { n++; return n } }

// Its own, a struct with a method that takes its address inside.
func adder() func(int) [4]int {
	var g grid
	g.cells[1] = 5
	return func(n int) [4]int {
		g.add(n)
		return g.cells
	}
}

// Shared by two closures.
func pair() (up func() int, down func() int) {
	n := 10
	up = func() int { n++; return n }
	down = func() int { n -= 2; return n }
	return
}

// Changed after the closure is made.
func late() func() int {
	n := 1
	f := func() int { n *= 3; return n }
	n = 7
	return f
}

// Its address is known elsewhere.
func addressed() (func() int, *int) {
	n := 1
	p := &n
	return func() int { n++; return n }, p
}

// It calls itself by a variable that is given its value with it.
func fact() func(int) int {
	var f func(int) int
	f = func(n int) int {
		if n < 2 {
			return 1
		}
		return n * f(n-1)
	}
	return f
}

// One variable of three closures, and one each.
func loops() (all []func() int) {
	sum := 0
	for i := range 3 {
		each := i * 100
		all = append(all, func() int { sum += i; each++; return sum*1000 + each })
	}
	for k := 0; k < 2; k++ {
		all = append(all, func() int { k += 10; return k })
	}
	return all
}

// Made again by a jump, with the same variable.
func jumps() (all []func() int) {
	n := 0
again:
	all = append(all, func() int { n++; return n })
	if len(all) < 2 {
		goto again
	}
	return all
}

// A result is returned, whatever the closure does with it.
func result() (n int, f func() int) {
	n = 3
	f = func() int { n++; return n }
	f()
	return n, f
}

// A closure in a closure.
func nested(n int) func() func() int {
	return func() func() int {
		m := n
		n += 5
		return func() int { m++; return m }
	}
}

// Used in the statement that makes it.
func same() (int, func() int) {
	n := 4
	add := func(k int, f func() int) (int, func() int) { return k + f(), f }
	return add(n, func() int { n++; return n })
}

// Deferred, with a value of its own.
func deferred() (s string) {
	n := 1
	defer func() { s += fmt.Sprint("!", n) }()
	n = 2
	return "d"
}

func main() {
	r, c, a := lcg(7), counter(3), adder()
	up, down := pair()
	l := late()
	ad, p := addressed()
	f := fact()
	lo, ju := loops(), jumps()
	n, re := result()
	ne := nested(1)
	in := ne()
	first, sa := same()
	for i := range 8 { //difftest:loop
		*p += 2
		fmt.Println(i, r(), c(), a(i), up(), down(), l(), ad(), f(i), n, re(), first, sa(), deferred())
		for _, g := range append(lo, ju...) {
			fmt.Print(g(), " ")
		}
		fmt.Println(in(), ne()())
	}
}
