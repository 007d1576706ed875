// Command bareresults covers named results that are assigned before a point and
// returned after it by a return that does not name them.
package main

import (
	"errors"
	"fmt"
)

var errEarly = errors.New("early")

// early has results that nothing names after the point.
func early(n int) (sum int, err error, note string) {
	note = "noted"
	if n > 2 {
		err = errEarly
	}
	for i := range n { //difftest:loop
		sum += i
	}
	return
}

// waiting has one while it waits for a call.
func waiting(n int) (err error) {
	err = errEarly
	total := 0
	for i := 0; i < n; i++ {
		total += work(i)
	}
	if total == 4 {
		err = nil
	}
	return
}

// deferred returns what a deferred call finds.
func deferred(n int) (what string) {
	defer func() { what += " at the end" }()
	what = fmt.Sprint("deferred ", n)
	_ = work(n)
	if n > 1 {
		return
	}
	return "few"
}

// panicking returns what it had when a call panicked.
func panicking(n int) (what string, k int) {
	defer func() { recover() }()
	what, k = "panicked", n
	k = explode(n)
	return "not", -1
}

func explode(n int) (sum int) {
	for i := range n { //difftest:loop
		if sum += i; i == 3 {
			panic("three")
		}
	}
	return
}

func work(n int) (sum int) {
	for i := range n { //difftest:loop
		sum += i
	}
	return
}

type box struct{ n int }

// literal has it in a func literal, and a large result.
func (b *box) literal() (list [40]int, err error) {
	list[b.n] = 7
	f := func(k int) (x, y int, ok bool) {
		x, ok = k*2, true
		for i := 0; i < k; i++ { //difftest:loop
			y += i
		}
		return
	}
	x, y, ok := f(b.n)
	err = fmt.Errorf("%d %d %v", x, y, ok)
	for range 3 { //difftest:loop
		b.n++
	}
	return
}

func main() {
	for n := range 5 {
		fmt.Println(early(n))
		fmt.Println(waiting(n))
		fmt.Println(deferred(n))
		fmt.Println(panicking(n))
	}
	b := &box{4}
	fmt.Println(b.literal())
}
