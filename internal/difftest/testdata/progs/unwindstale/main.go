// Command unwindstale covers calls that do not enter the expected function:
// those that end by a panic, which another function recovers, and those of
// functions without points. The next call that a library makes, at the same
// depth, must not be mistaken for it.
package main

import (
	"container/list"
	"fmt"
	"io"
	"sort"
	"strings"

	"progs/unwindstale/catch"
)

type op interface{ do(k int) int }

type adds struct{ n int }

type fails struct{}

func (a adds) do(k int) int {
	for i := range 3 { //difftest:loop
		k += i * a.n
	}
	return k
}

func (fails) do(k int) int { panic("fails") }

func twice(o op, k int) (s int) {
	for i := range 2 { //difftest:loop
		s += o.do(k + i)
	}
	return s
}

// above calls back by a library, as many calls deep as twice is.
func above(k int) int {
	return sort.Search(100, func(j int) bool { return adds{1}.do(j) > k })
}

func caught(o op, k int) (n int, err error) {
	defer catch.Error(&err)
	for range 2 { //difftest:loop
		n += twice(o, k)
	}
	return n, nil
}

func counts(o op, k int) int {
	n, err := caught(o, k)
	if err != nil {
		return -1
	}
	return n
}

func panics() {
	for i := range 4 { //difftest:loop
		var o op = adds{i}
		if i%2 == 1 {
			o = fails{}
		}
		fmt.Println(counts(o, i))
		fmt.Println(sort.Search(100, func(j int) bool { return adds{1}.do(j) > 40 }), above(30))
	}
}

var done int

type told struct {
	o op
	n int
}

func (t told) String() string {
	defer func() { done++ }()
	return fmt.Sprint(t.count())
}

func (t told) count() int {
	defer func() { done++ }()
	return twice(t.o, t.n)
}

func byFmt(t told) string { return fmt.Sprint(t) }

func itself(t told) string { return t.String() }

// prints has panics that package fmt recovers from.
func prints() {
	for i := range 4 { //difftest:loop
		t, f := told{adds{i}, i}, itself
		if i%2 == 1 {
			t.o, f = fails{}, byFmt
		}
		fmt.Println(f(t))
		fmt.Println(sort.Search(100, func(j int) bool { return adds{1}.do(j) > 40 }), done)
	}
}

// Writers, of which some have points, and some are of a library.
type shifts struct{ w io.Writer }

func (u shifts) Write(p []byte) (n int, err error) {
	q, add := []byte(nil), 0
	inc := func() { add++ }
	for _, c := range p { //difftest:loop
		inc()
		q = append(q, c+byte(add))
	}
	defer func() { done++ }()
	return u.w.Write(q)
}

type same struct{ n int }

func (s *same) Write(p []byte) (int, error) {
	for range p { //difftest:loop
		s.n++
	}
	return len(p), nil
}

func writes(w io.Writer, k int) (s string) {
	for range k { //difftest:loop
		n, err := w.Write([]byte("ab"))
		s += fmt.Sprint(n, err)
		io.WriteString(w, "yz")
	}
	return s
}

// A call by a value that has been in a list, and one of a generic type's method.
func short(k int) int {
	for i := range 2 { //difftest:loop
		k += i
	}
	return k
}

func long(k int) int {
	defer func() { done++ }()
	for i := range 5 { //difftest:loop
		k += i * i
	}
	return k
}

func listed(l *list.List, k int) int {
	f := short
	if k%2 == 1 {
		f = l.Front().Value.(func(int) int)
	}
	return f(k)
}

type shower interface{ show(k int) string }

type box[T any] struct{ v T }

func (b box[T]) show(k int) (s string) {
	for i := range k { //difftest:loop
		s += fmt.Sprint(b.v, i)
	}
	return s
}

func shows(s shower, k int) string { return s.show(k) }

// quiet has a deferred recover itself, which recovers from nothing.
func quiet(k int) (n int) {
	defer func() {
		defer recover()
		if e := recover(); e != nil {
			fmt.Println("caught", e)
			n = -1
		}
	}()
	for i := range k { //difftest:loop
		n += i
	}
	if k == 3 {
		panic("three")
	}
	return n
}

func main() {
	panics()
	prints()
	var b strings.Builder
	fmt.Println(writes(shifts{&b}, 2), writes(shifts{&same{}}, 2), writes(&same{}, 2), b.String())
	l := list.New()
	l.PushBack(any(long))
	fmt.Println(listed(l, 1), listed(l, 2), long(3), done)
	fmt.Println(shows(box[int]{3}, 4))
	fmt.Println(quiet(2), quiet(3), quiet(4))
}
