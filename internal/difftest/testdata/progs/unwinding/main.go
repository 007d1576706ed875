// Command unwinding covers functions that unwind when a checkpoint is due and
// resume: recursion in many forms, and the same functions where they cannot do
// that: in callbacks, as values, by interfaces, on other goroutines.
package main

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
)

type node struct {
	left, right *node
	key         int
}

type walker struct {
	seen  []int
	total int
	depth int
}

// insert is mutually recursive with grow, has two results and shadows its own.
func insert(n *node, key int) (*node, bool) {
	if n == nil {
		return &node{key: key}, true
	}
	grown := false
	for range 2 { //difftest:loop
		if key < n.key {
			left, grown := grow(n.left, key)
			n.left = left
			if grown {
				return n, grown
			}
		} else if key > n.key {
			right, ok := grow(n.right, key)
			n.right, grown = right, ok
			if grown {
				return n, true
			}
		}
	}
	return n, grown
}

func grow(n *node, key int) (out *node, grown bool) {
	out, grown = insert(n, key)
	return
}

// walk names a result, and what it calls is named by an unnamed receiver's
// method.
func (w *walker) walk(n *node, _ int, more ...string) (sum int, err error) {
	if n == nil {
		return 0, nil
	}
	w.depth++
	for i, side := range []*node{n.left, n.right} { //difftest:loop
		x, err := w.walk(side, i, append(more, "x")...)
		if err != nil {
			return sum, err
		}
		sum += x
		if i == 0 {
			w.seen = append(w.seen, n.key)
			sum += n.key * len(more)
		}
	}
	w.depth--
	if n.key == 41 {
		err = errors.New("forty-one")
	}
	w.total += sum
	return sum, err
}

type counter struct{ walker }

func (counter) down(k int) int {
	sum := 0
	for i := range k { //difftest:loop
		sum += i + counter{}.down(k-2)
	}
	return sum
}

// total keeps what a call returns in a package variable that the call reads.
var total = 100

func add(k int) int {
	if k == 0 {
		return total
	}
	for range 2 { //difftest:loop
		total = add(k-1) + 1
	}
	return total
}

// gives has its address taken.
func gives(k int, p *int) (r int) {
	for i := range k { //difftest:loop
		*p += i
		r = gives(k-1, p) + *p%7
	}
	return r
}

type shape interface{ area(k int) int }

type square int

func (s square) area(k int) int {
	a := 0
	for range k { //difftest:loop
		a += int(s) * int(s) * s.area(k-2) % 101
		a++
	}
	return a
}

// String has points, and is called by fmt, in the midst of a quick function.
func (s square) String() string {
	return fmt.Sprint("square of ", s.area(2))
}

func prints(k int, b *strings.Builder) {
	for i := range k { //difftest:loop
		fmt.Fprint(b, square(i), ";")
		prints(k-2, b)
	}
}

// orders calls itself from a callback.
func orders(list []int, k int) int {
	moves := 0
	sort.Slice(list, func(i, j int) bool {
		if k > 0 && i == 0 {
			moves += orders([]int{3, 1, 2}, k-1)
		}
		return list[i] < list[j]
	})
	for i, x := range list { //difftest:loop
		moves += i * x
		if k > 1 {
			moves += orders([]int{x, i, 5}, k-2)
		}
	}
	return moves
}

// fails panics at a depth; tries recovers.
func fails(k int) int {
	sum := 0
	for i := range 3 { //difftest:loop
		if k == 0 {
			panic(fmt.Sprint("at ", i))
		}
		sum += fails(k - 1)
	}
	return sum
}

func tries(k int) (out string) {
	defer func() {
		out = fmt.Sprint(recover(), " ", square(3).area(1))
	}()
	fmt.Println(fails(k))
	return "?"
}

func main() {
	var root *node
	for i := range 9 {
		var ok bool
		root, ok = insert(root, i*37%47)
		fmt.Println(ok)
	}
	w := &walker{}
	fmt.Println(w.walk(root, 0))
	fmt.Println(w.seen, w.total, w.depth)
	c := &counter{}
	fmt.Println(c.down(4))
	fmt.Println(c.walk(root.left, 1, "a", "b"))
	fmt.Println(add(3), total)
	x := 5
	fmt.Println(gives(3, &x), x)
	var s shape = square(3)
	fmt.Println(s.area(4))
	var b strings.Builder
	prints(4, &b)
	fmt.Println(b.String())
	fmt.Println(orders([]int{4, 2, 9}, 3))
	fmt.Println(tries(2), tries(0))
	f := counter.down
	fmt.Println(f(*c, 3))
	var wg sync.WaitGroup
	sums := make([]int, 3)
	for i := range sums {
		wg.Go(func() {
			for range 200 {
				sums[i] += square(i).area(4) + counter{}.down(4)
			}
		})
	}
	sum := counter{}.down(5)
	wg.Wait()
	fmt.Println(sum, sums)
}
