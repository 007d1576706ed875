package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strings"

	cairn_ "github.com/cairnrun/cairn/resume"
)

// Func values in the state.

type cairn_env1 struct{ n, step *int }

//go:noinline
func cairn_make1(e *cairn_env1) func() int {
	return func() int { *e.n += *e.step; return *e.n }
}

type shape interface{ area() float64 }
type square struct{ a float64 }
type circle struct{ r *float64 }

func (s square) area() float64  { return s.a * s.a }
func (c *circle) area() float64 { return 3 * *c.r * *c.r }

func twice(x int) int { return 2 * x }

func init() {
	cairn_.Closure("main.closures.func1", cairn_make1)
	cairn_.Func("main.twice", twice)
}

type cairn_frame_closures struct {
	At     int
	Next   []func() int
	F      func(int) int
	N      *int
	Shapes map[string]shape
	R      *float64
	C      chan func(int) int
	Err    error
	Upper  func(string) string
	I      int
}

func closures() {
	cairn_d := cairn_.Enter()
	n, step, r := cairn_.New(0), cairn_.New(3), cairn_.New(1.0)
	next := []func() int{cairn_make1(&cairn_env1{n, step}), nil, cairn_make1(&cairn_env1{n, n})}
	f := twice
	shapes := map[string]shape{"s": square{2}, "c": &circle{r}}
	c := make(chan func(int) int, 2)
	c <- twice
	err, upper := fmt.Errorf("wrapped: %w", csv.ErrFieldCount), strings.ToUpper // these are not registered
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		s := cairn_.Frame[cairn_frame_closures](cairn_d)
		next, f, n, shapes, r, c, i, again = s.Next, s.F, s.N, s.Shapes, s.R, s.C, s.I, true
		err, upper = s.Err, s.Upper
	}
	for ; again || i < 6; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_closures{1, next, f, n, shapes, r, c, err, upper, i})
		}
		*r += 0.5
		g := <-c
		c <- g
		fmt.Fprintln(out, next[0](), next[2](), *n, next[1] == nil, f(i), g(i), shapes["s"].area(), shapes["c"].area(), errors.Is(err, csv.ErrFieldCount), upper("x"))
	}
}

type cairn_frame_unsavable struct {
	At int
	F  []func() int
	I  int
}

// unsavable holds a closure that is not registered, for a while.
func unsavable() {
	cairn_d := cairn_.Enter()
	var f []func() int
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		s := cairn_.Frame[cairn_frame_unsavable](cairn_d)
		f, i, again = s.F, s.I, true
	} else {
		f = []func() int{nil, func() int { return i }}
	}
	for ; again || i < 6; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_unsavable{1, f, i})
		}
		if i == 3 {
			f[1] = nil
		}
		fmt.Fprintln(out, "unsavable", i, f[1] == nil)
	}
}
