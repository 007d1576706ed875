// Command reassigned covers calls that assign what finds them: the receiver, the
// func value, the element and the field that hold it.
package main

import "fmt"

type step interface {
	next(trace *[]string) step
}

type (
	first  struct{ n int }
	second struct{ from *first }
)

func (f *first) next(trace *[]string) step {
	for i := range 3 { //difftest:loop
		*trace = append(*trace, fmt.Sprint("first ", f.n, i))
	}
	if f.n > 2 {
		return nil
	}
	return second{f}
}

func (s second) next(trace *[]string) step {
	for i := 0; i < 2; i++ { //difftest:loop
		*trace = append(*trace, fmt.Sprint("second ", s.from.n, i))
	}
	return &first{s.from.n + 1}
}

// machine assigns an interface's variable by its own method.
func machine(trace *[]string) {
	defer fmt.Println("machine is over")
	var x step = &first{}
	for x != nil {
		x = x.next(trace)
	}
}

type state func(n *int) state

func start(n *int) state {
	for range 3 { //difftest:loop
		*n++
	}
	if *n > 20 {
		return nil
	}
	return middle
}

func middle(n *int) state {
	for range 2 { //difftest:loop
		*n += 2
	}
	return start
}

// states assigns a variable by a call of its value.
func states() (n int) {
	f := state(start)
	for f != nil {
		f = f(&n)
	}
	return n
}

type holder struct {
	f     state
	on    step
	table []state
}

// held assigns a field and an element by calls of theirs.
func held(trace *[]string) (n int) {
	h := holder{start, &first{1}, []state{middle, start}}
	for h.f != nil {
		h.f = h.f(&n)
	}
	for h.on != nil {
		h.on = h.on.next(trace)
	}
	m := 0
	for i := 0; h.table[0] != nil; i++ {
		h.table[0] = h.table[0](&m)
		h.table[i%2] = h.table[i%2](&m)
		if h.table[1] == nil {
			break
		}
	}
	return n + m
}

type cell struct{ n int }

type advancer[T any] interface {
	advance() T
	done() bool
}

func (c *cell) advance() *cell {
	for range 2 { //difftest:loop
		c.n++
	}
	return &cell{c.n + 1}
}

func (c *cell) done() bool { return c.n > 9 }

// generic assigns a variable of a type parameter's type by its method.
func generic[T advancer[T]](x T) T {
	for !x.done() {
		x = x.advance()
	}
	return x
}

// expressions assigns by method expressions and method values.
func expressions(trace *[]string) {
	var x step = &first{2}
	x = step.next(x, trace)
	f := x.next
	x = f(trace)
	_, x = 1, step.next(x, trace)
	fmt.Println(x == nil)
}

var current *func(n int) int

func grow(n int) (s int) {
	*current = shrink
	for i := range 3 { //difftest:loop
		s += n + i
	}
	return s
}

func shrink(n int) (s int) {
	*current = grow
	for i := range 2 { //difftest:loop
		s -= n * i
	}
	return s
}

// swaps calls functions that assign the variable by which they are called.
func swaps() (s int) {
	f := grow
	current = &f
	for i := range 4 {
		s = s*10 + f(i)
	}
	return s
}

func main() {
	fmt.Println(swaps())
	var trace []string
	machine(&trace)
	fmt.Println(len(trace), trace)
	fmt.Println(states())
	trace = nil
	fmt.Println(held(&trace), len(trace))
	fmt.Println(generic(&cell{}).n)
	trace = nil
	expressions(&trace)
	fmt.Println(trace)
}
