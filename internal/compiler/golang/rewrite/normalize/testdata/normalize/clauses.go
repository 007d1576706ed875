// Calls in cases, in communications, in post statements of loops, in map
// literals.
package main

import "fmt"

func say(a ...any) { fmt.Println(a...) }

func reach(x int) int { say("reach", x); return x }

func reachA(x any) any { say("reachA", x); return x }

func reachC(c chan int, s string) chan int { say("reachC", s); return c }

func reachB(b bool) bool { say("reachB", b); return b }

func reachF(f func()) int { f(); return 0 }

func plain(x int) int { say("plain", x); return x }

type color int

func switches(x int, a any) {
	switch x {
	case plain(0), reach(1), plain(2):
		say("low")
		fallthrough
	case reach(3), 4:
		say("middle")
	default:
		say("other")
	case reach(5):
		if x == 5 {
			break
		}
		say("never")
	}
	switch y := reach(x) + 1; y {
	case reach(2):
		say("two", y)
	case plain(3):
		say("three", y)
	}
	switch {
	case x > 2 && reachB(x > 3):
		say("large")
	case reachB(x == 1), plain(x) == 2:
		say("small")
	}
	switch a {
	case nil, reachA(1):
		say("nil or one")
	case "s", reachA([2]int{1, 2}):
		say("s or array")
	case color(3):
		say("color")
	}
	zero := func() { x = 0 }
	switch x { // the value before the call counts
	case reachF(zero):
		say("changed", x)
	case 3:
		say("three", x)
	}
here:
	switch color(x) {
	case color(reach(4)):
		for {
			break here
		}
	case 2:
		say("color two")
	}
	switch reach(7); {
	default:
		say("default")
	case reachB(false):
	}
}

func posts() {
	var funcs []func() int
	for i := 0; i < 5; i += reach(2) {
		if i == 2 {
			continue
		}
		funcs = append(funcs, func() int { i++; return i })
		say("round", i, funcs[0]())
	}
	for _, f := range funcs {
		say(f(), f())
	}
outer:
	for i, j := reach(0), 0; i+j < 9; i, j = reach(i+1), plain(j+2) {
		for k := 0; ; k = reach(k + 1) {
			if k == 2 {
				continue outer
			}
			if i == 3 {
				break outer
			}
			say(i, j, k)
		}
	}
	n := 0
	for ; ; n = reach(n + 1) {
		n := n * 2
		if n > 3 {
			break
		}
		say("n", n)
	}
	//pt
	for n = 3; reachB(n > 0); reach(n) {
		n--
	}
	a := []int{0, 0}
	for a[0] < 3 {
		for ; a[1] < 2; a[reach(1)]++ {
			say(a)
		}
		a[0], a[1] = a[0]+1, 0
	}
}

func selects() {
	c, d := make(chan int, 3), make(chan int, 3)
	at, ok := make([]int, 4), false
	x := 1
	change := func() { x++; say("changes", x) }
	for i := range 3 {
		select {
		case reachC(c, "c") <- x:
			say("sent to c", x)
			x++
		case nil2() <- reachF(change):
			say("never")
		}
		if i > 0 {
			select {
			case at[reach(2)] = <-c:
				say("from c", at)
			case at[0], ok = <-reachC(d, "d"):
				say("from d", at, ok)
			}
		}
	}
	d <- 8
	select {
	case at[reach(3)], ok = <-d:
		say("from d", at, ok)
	case nil2() <- reach(1):
	}
	close(c)
out:
	for {
		select {
		case v, more := <-reachC(c, "closed"):
			say(v, more)
			if !more {
				break out
			}
		case nil2() <- reach(9):
		}
	}
	select {
	case v := <-reachC(nil, "nil"):
		say(v)
	default:
		say("none")
	}
}

func nil2() chan int { return nil }

type list []int

func literals() {
	x := 1
	add := func(n int) int { x += n; return x }
	m := map[int]int{x: plain(x), reach(10): x, add(1): x, 7: reach(x)}
	say(m)
	n := map[string]list{"a": {x, 2}, fmt.Sprint(x): {reach(3), x}, "c": {4}}
	say(n)
	p := map[string]*list{"a": {x}, "b": {reach(5)}}
	say(*p["a"], *p["b"])
	q := []map[int]bool{{x: true, reach(6): false}, {x: reachB(true)}}
	say(q, len(map[int]int{x: 1, x + 1: reach(2)}))
	r := &map[string]int{fmt.Sprint(x, "!"): x, "y": reach(1), "z": x}
	say(*r)
	say(map[[2]int]string{{x, 1}: "a", {reach(2), x}: "b"}[[2]int{2, x}])
}

func main() {
	for x, a := range []any{nil, 1, "s", [2]int{1, 2}, color(3), 5} {
		say("--", x)
		switches(x, a)
	}
	posts()
	selects()
	literals()
}
