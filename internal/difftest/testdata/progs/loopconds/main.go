// Command loopconds covers loops that overwrite the variables of their own
// condition before they read them: flags, numbers, pointers, lengths and
// comparisons of every kind, in all forms of loops. A point begins each
// iteration, where only the condition reads these variables again. The
// functions of stored.go cannot be unwound; those of selects.go assign in
// selects.
package main

//difftest:daily

import (
	"errors"
	"fmt"
	"math"
)

// bubble sorts until nothing was swapped.
func bubble(a []int) []int {
	for swapped := true; swapped; { //difftest:loop
		swapped = false
		for i := 1; i < len(a); i++ {
			if a[i-1] > a[i] {
				a[i-1], a[i] = a[i], a[i-1]
				swapped = true
			}
		}
	}
	return a
}

// both has a point in each of two loops, and a flag that is declared outside.
func both(a []int) (passes int) {
	changed := true
	for changed { //difftest:loop
		changed = false
		passes++
		for i := 1; i < len(a); i++ { //difftest:loop
			if a[i-1] < a[i] {
				a[i-1], a[i] = a[i], a[i-1]
				changed = true
			}
		}
	}
	return passes
}

// newton has a condition of floats.
func newton(x float64) float64 {
	guess := x
	for diff := 1.0; diff > 1e-9; { //difftest:loop
		next := (guess + x/guess) / 2
		diff = math.Abs(next - guess)
		guess = next
	}
	return guess
}

// more has a counter beside the flag, and a post statement.
func more(n int) (list []int) {
	more := true
	for i := 0; more; i++ { //difftest:loop
		more = false
		list = append(list, i*i)
		if i < n {
			more = true
		}
	}
	return list
}

// labelled continues an outer loop.
func labelled(n int) (out []string) {
	tries := 0
outer:
	for again := true; again; tries++ { //difftest:loop
		again = tries < n
		for j := range 3 {
			if (tries+j)%2 == 0 {
				continue outer
			}
			out = append(out, fmt.Sprint(tries, j))
			if tries > n+3 {
				break outer
			}
		}
	}
	return out
}

type node struct {
	next *node
	n    int
}

// pointers has a condition on a pointer, that each iteration computes anew.
func pointers(n *node) (sum int) {
	rest := n
	for at := n; at != nil; { //difftest:loop
		at = nil
		sum += rest.n
		if rest.next != nil {
			rest = rest.next
			at = rest
		}
	}
	return sum
}

// lengths works off lists: the next is made of the one before.
func lengths(n int) (levels []int) {
	level := []int{n}
	var was []int
	for was = level; len(was) > 0; { //difftest:loop
		was = nil
		for _, k := range level {
			if k > 1 {
				was = append(was, k/2, k/3)
			}
		}
		level = was
		levels = append(levels, len(was))
	}
	return levels
}

// words has a condition of strings; it depends on two variables, one of which
// is overwritten.
func words(s string) (out []string) {
	last := "?"
	for i := 0; last != "" && i < 20; i++ { //difftest:loop
		last = ""
		if i < len(s) {
			last = s[i : i+1]
		}
		out = append(out, last)
	}
	return out
}

// failing continues as long as there is an error.
func failing(n int) (tries int) {
	err := errors.New("first")
	for err != nil { //difftest:loop
		err = nil
		if tries++; tries < n {
			err = fmt.Errorf("try %d", tries)
		}
	}
	return tries
}

type state struct{ on, off bool }

// fields has a condition on a part of a variable that is overwritten whole.
func fields(n int) (list []state) {
	s := state{on: true}
	for s.on != s.off { //difftest:loop
		s = state{len(list) < n, false}
		list = append(list, s)
	}
	return list
}

// shadowed has variables of one name, of which the inner one is dead.
func shadowed(n int) (sum int) {
	for ok := true; ok; { //difftest:loop
		ok = false
		if ok := sum < n; ok {
			sum += 3
		}
		ok = sum < n
	}
	return sum
}

// lasts has a variable that is dead where an iteration begins, and read after
// the loop, which may have ended by its condition or by a break.
func lasts(n int) (int, string) {
	last, how := -1, "condition"
	for i, on := 0, true; on; i++ { //difftest:loop
		last, on = i*7, i < n
		if i > 40 {
			how = "break"
			break
		}
	}
	return last, how
}

// turns is a loop by goto.
func turns(n int) (sum int) {
	on := true
again:
	if on {
		on = false
		for i := range 3 { //difftest:loop
			sum += i + n
		}
		on = sum < 50
		goto again
	}
	return sum
}

// chosen has its flag in a switch and in a select.
func chosen(n int) (out []int) {
	ch := make(chan int, 1)
	for run := true; run; { //difftest:loop
		run = false
		switch len(out) % 3 {
		case 0:
			ch <- len(out)
			fallthrough
		case 1:
			select {
			case v := <-ch:
				out = append(out, v)
			default:
				out = append(out, -1)
			}
		default:
			out = append(out, 100)
		}
		run = len(out) < n
	}
	return out
}

// turned has the loop inside of loops of other kinds.
func turned(m [][]int) (sum int) {
	for _, row := range m {
		for k := 0; k < 2; k++ {
			for dirty := true; dirty; { //difftest:loop
				dirty = false
				for i := range row {
					if row[i] > 3 {
						row[i] /= 2
						dirty = true
					}
				}
				sum += row[0] + k
			}
		}
	}
	return sum
}

// recursive calls itself from such a loop.
func recursive(n int) (sum int) {
	for left := n; left > 0; { //difftest:loop
		k := left
		left = 0
		sum += k + recursive(k/2)
		if k > 1 {
			left = k - 1
		}
	}
	return sum
}

func seq(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i, on := 0, true; on; i++ { //difftest:loop unsaved
			on = false
			if !yield(i) {
				return
			}
			on = i < n
		}
	}
}

// ranged ranges over a function that has such a loop, and is in one.
func ranged(n int) (sum int) {
	for on := true; on; { //difftest:loop
		on = false
		for v := range seq(n) { //difftest:loop
			sum += v
		}
		on = sum < 30
	}
	return sum
}

// generic has a condition of a type parameter's type.
func generic[T comparable](list []T, end T) (n int) {
	var zero T
	at := end
	for at != zero { //difftest:loop
		at = zero
		if n < len(list) {
			at = list[n]
			n++
		}
	}
	return n
}

func main() {
	fmt.Println(bubble([]int{5, 3, 9, 1, 8, 2, 7}))
	fmt.Println(both([]int{5, 3, 9, 1, 8, 2, 7}))
	fmt.Println(newton(2), newton(12345))
	fmt.Println(more(6))
	fmt.Println(labelled(5))
	fmt.Println(pointers(&node{&node{&node{&node{nil, 4}, 3}, 2}, 1}))
	fmt.Println(lengths(40))
	fmt.Println(words("changed"))
	fmt.Println(failing(5))
	fmt.Println(fields(4))
	fmt.Println(shadowed(10))
	fmt.Println(lasts(6))
	fmt.Println(turns(2))
	fmt.Println(chosen(8))
	fmt.Println(turned([][]int{{9, 2, 17}, {33, 1}}))
	fmt.Println(recursive(5))
	fmt.Println(ranged(4))
	fmt.Println(generic([]int{4, 5, 6, 0, 7}, 3), generic([]string{"a", "b"}, "c"))
	fmt.Println(pump(24), waits(10))
	stored()
}
