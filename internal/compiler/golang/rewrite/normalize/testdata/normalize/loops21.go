// Loops whose variables are those of the loop, not of an iteration.
//
// go1.21
package main

import "fmt"

func say(a ...any) { fmt.Println(a...) }

func reach(x int) int { say("reach", x); return x }

type cell struct{ n int }

func (c *cell) inc() *cell { c.n++; return c }

func main() {
	var fs []func() string
	add := func(f func() string) { fs = append(fs, f) }
	xs := []int{10, 20, 30}
	for i, v := range xs {
		add(func() string { i++; return fmt.Sprint("slice ", i, " ", v) })
		reach(i)
	}
	//pt
	for i, v := range [...]string{"a", "b"} {
		i := i
		add(func() string { return fmt.Sprint("array ", i, " ", v) })
	}
	//pt
	for i := range &[2]int{} {
		add(func() string { return fmt.Sprint("pointer ", i) })
	}
	for i, r := range "xy" {
		add(func() string { return fmt.Sprint("string ", i, " ", r) })
		reach(int(r))
	}
	for k, v := range map[string]int{"k": 5} {
		add(func() string { return fmt.Sprint("map ", k, v) })
		reach(v)
	}
	ch := make(chan int, 2)
	ch <- 1
	ch <- 2
	close(ch)
	for v := range ch {
		add(func() string { return fmt.Sprint("chan ", v) })
		reach(v)
	}
	for i := reach(0); reach(i) < 2; i++ {
		add(func() string { return fmt.Sprint("for ", i) })
	}
	for _, f := range fs {
		say(f(), f())
	}
	var ps []*cell
	for _, c := range []cell{{1}, {2}} {
		ps = append(ps, c.inc())
		reach(c.n)
	}
	say(*ps[0], *ps[1], ps[0] == ps[1])
	var as [][]int
	//pt
	for _, a := range [][2]int{{1, 2}, {3, 4}} {
		as = append(as, a[:])
	}
	say(as)
	// Not seen from outside: as if new in each iteration.
	for i, v := range xs {
		i, v := i+1, v+1
		say(i, v, reach(i))
	}
label:
	for i, v := range xs {
		func() { v++ }()
		for range xs {
			if reach(i) == 1 {
				continue label
			}
		}
		say("v", v)
	}
}
