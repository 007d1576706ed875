// Calls in all kinds of expressions and simple statements.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

var depth int

func say(a ...any) { fmt.Println(a...) }

func reach(x int) int { say("reach", x); return x * 2 }

func reach2(x int) (int, string) { say("reach2", x); return x + 1, fmt.Sprint("s", x) }

func reachErr(x int) (int, error) {
	if x > 3 {
		return 0, errors.New("large")
	}
	return x, nil
}

func reachB(x int, b bool) bool { say("reachB", x, b); return b }

func reach0() { say("reach0"); depth++ }

func reachV(xs ...int) int { say("reachV", xs); return len(xs) }

func reachS(x int) []int { return []int{x, x + 1, x + 2} }

func reachM() map[string]int { return map[string]int{"a": 1} }

func reachAny(a any) any { return a }

func reachP(p *int) *int { *p++; return p }

func plain(x int) int { say("plain", x); return x + 100 }

func two() (int, int) { say("two"); return 7, 8 }

type box struct {
	n    int
	name string
	sub  *box
}

func (b box) ReachVal(x int) int { say("val", b.n, x); return b.n + x }

func (b *box) ReachPtr(x int) *box { b.n += x; say("ptr", b.n); return b }

func (b *box) plain(x int) *box { b.n += x * 10; say("boxplain", b.n); return b }

type walker interface{ ReachWalk(int) int }

func (b *box) ReachWalk(x int) int { say("walk", b.name, x); return x }

type holder struct {
	walker
	f func(int) int
}

type myBool bool

func reachMy(b bool) myBool { return myBool(b) }

func statements() {
	reach0()
	x := reach(1)
	x = reach(x) // a comment
	x += reach(x)
	var y int = reach(3)
	var z = reach(4)
	var a, b = reach2(5)
	var (
		// first
		c    = reach(6)
		d, e = reach2(c)
		g    = 5
		h    int64
	)
	var _, _ = reach2(9)
	_ = reach(10)
	_, s := reach2(11)
	arr := []int{1, 2, 3, 4, 5, 6, 7, 8}
	arr[reach(1)] = reach(2)
	arr[reach(0)]++
	arr[plain(-99)], s = reach2(3)
	arr[plain(-98)] += reach(1)
	p := &box{}
	p.n, p.name = reach2(4)
	ch := make(chan int, 2)
	ch <- reach(8)
	ch <- plain(1) + reach(9)
	say(x, y, z, a, b, c, d, e, g, h, s, arr, *p, <-ch, <-ch, depth)
	if x > 0 {
		reach0()
		say("one line")
	}
	reach0()
	say("two")
	reach0()
}

func nested() {
	say(reach(reach(reach(1))))
	say(plain(1), reach(2), plain(3), reach(4), plain(5))
	say(plain(reach(plain(2))) + plain(1)*reach(3))
	say(reach2(2))
	fmt.Println(reach2(plain(2)))
	x := []int{reach(1), plain(2), reach(3), plain(4)}
	say(x, x[reach(0)], x[plain(-98):reach(1)+1], x[:reach(1)])
	m := map[int]int{plain(1): reach(2), reach(3): plain(4)}
	say(len(m), m[101], m[6], len(reachS(3)), cap(reachS(2)[:1:2]))
	s := box{n: reach(2), sub: &box{reach(3), "x", nil}}
	say(s.n, s.sub.n)
	l := []box{{n: reach(1)}, {n: plain(2), sub: &box{n: reach(4)}}}
	say(l[0].n, l[1].n, l[1].sub.n)
	lp := []*box{{n: reach(1)}, {n: reach(2)}}
	say(lp[0].n, lp[1].n)
	ml := []map[string]int{{"a": reach(1)}, {"b": plain(reach(2))}}
	say(ml)
	say(-reach(2), !reachB(1, true), *reachP(&x[0]), ^reach(1), &x[reach(0)] == &x[0])
	say(reachV(append(x[:2], plain(7), 8)...), reachV(), reachV(two()))
	say(string(rune(reach(33))), float64(reach(1))/4, []byte(fmt.Sprint(reach(3))))
	var shifted uint8 = 1 << reach(2)
	say(shifted, 1<<reach(1)+1, uint64(1)<<reach(4))
	say(reachAny(3).(int)+reach(1), reachM()["a"])
	v, ok := reachM()["b"]
	say(v, ok)
	v, ok = reachAny("q").(int)
	say(v, ok)
	ch := make(chan int, 3)
	ch <- 1
	ch <- 2
	ch <- 3
	say(<-ch, reach(1), <-ch)
	w, ok := <-ch
	say(w, ok, min(reach(1), 7, plain(1)), max(plain(0), reach(60)))
	func() { say("called at once", reach(5)) }()
	fs := []func() int{func() int { return reach(1) }, func() int { return plain(reach(2)) }}
	say(fs[0](), fs[1]())
	say(strings.Repeat("x", reach(2)), len([]int{reach(1), 2}))
	const c = len([3]int{})
	say(c, [...]int{1: reach(1), 3: 4})
}

func logic() {
	for _, a := range []bool{true, false} {
		for _, b := range []bool{true, false} {
			say(a, b, "→", a && reachB(1, b), a || reachB(2, b))
			say(reachB(3, a) && b, reachB(4, a) || b)
			say(reachB(5, a) && reachB(6, b) || reachB(7, a) && !reachB(8, b))
			say(a && (b || reachB(9, a)) == (b && reachB(10, b)))
			if a && reachB(11, b) || !b {
				say("yes")
			} else {
				say("no")
			}
			x := !(a && reachB(12, b)) && plain(1) > 0
			say(x, plain(2) > 0 && a, reach(1), b && plain(3) > 0)
			var my myBool = (a == b) && reachMy(b)
			say(my, (a != b) || reachMy(a))
			if x := reach(3); a && reachB(x, b) {
				say("in", x)
			} else if y := reach(x); b || reachB(y, a) && y > x {
				say("else", x, y)
			} else if a {
				say("never", reach(1))
			} else {
				say("last", x, y, reach(2))
			}
		}
	}
}

func calls(w walker, f func(int) int) {
	b := &box{n: 1, name: "b"}
	say(b.ReachPtr(1).ReachPtr(2).plain(3).ReachPtr(reach(4)).ReachVal(5))
	say(box{n: 3}.ReachVal(reach(1)), (*box).ReachPtr(b, 4).n, box.ReachVal(*b, 2))
	say(w.ReachWalk(reach(2)), w.ReachWalk(plain(1)))
	h := holder{b, f}
	say(h.ReachWalk(3), h.walker.ReachWalk(4))
	hp := &h
	say(hp.ReachWalk(reach(5)))
	reachF := f
	say(reachF(3), reachF(plain(4)))
	h.f = func(x int) int { return reach(x) - 1 }
	type pair struct{ reachG func(int) int }
	pr := pair{h.f}
	say(pr.reachG(plain(3)))
	get := func() *box { say("get"); return b }
	say(get().ReachVal(plain(1)), get().ReachPtr(1).n)
	reachLater := func(x int) int { return x }
	g := func() { reachLater = func(x int) int { return -x } }
	say(reachLater(1))
	g()
	say(reachLater(2), gen(3), reachGen[string]("q", 2), reachGen(2.5, 1))
}

func reachGen[T any](x T, n int) []T {
	var out []T
	for range n {
		out = append(out, x)
	}
	return out
}

type num interface{ ~int | ~int64 }

func gen[T num](x T) T {
	y := reachGen(x, int(x))
	t := T(0)
	//pt
	for i, v := range y {
		t += T(i) + v
	}
	return t + T(reach(int(t)))
}

func changing() {
	// What is read when, if calls change it.
	x := 1
	reachSet := func(v int) int { x = v; return v }
	say(x, reachSet(2), x)
	say(x+reachSet(3), x)
	s := []int{1, 2, 3}
	reachCut := func() int { s = s[1:]; return len(s) }
	say(s[0], reachCut(), s[0])
	say(len(s), reachCut(), len(s))
	s = []int{4, 5, 6}
	say(s[:1], reachCut(), s[:1])
	b := box{n: 1}
	reachBox := func() int { b.n++; b.name += "x"; return b.n }
	say(b, reachBox(), b)
	say(b.n, reachBox(), b.name)
	var a any = 1
	reachAnyS := func() int { a = 5; return 0 }
	say(a.(int), reachAnyS(), a.(int))
	t := true
	reachT := func() bool { t = !t; return t }
	say(t && depth >= 0, reachT(), t && depth >= 0)
	m := map[string]int{"a": 1}
	reachMap := func() int { m["a"]++; return m["a"] }
	say(m["a"], reachMap(), m["a"])
	m["a"] += reachMap()
	m["b"] = reachMap()
	say(m)
	i := 0
	reachI := func() int { i++; return i }
	arr := make([]int, 9)
	arr[i] = reachI()
	arr[i], arr[i+1] = reachI(), reachI()
	arr[len(arr[:i])] = reachI()
	say(arr, i)
	k, l := i, reachI()
	k, l = l, reachI()+k
	say(k, l)
	str := "ab"
	reachStr := func() string { str += "c"; return str }
	say(str+reachStr()+str, []byte(str), reachStr(), string([]byte(str)))
	bs := []byte("xyz")
	reachBs := func() int { bs[0]++; return int(bs[0]) }
	say(string(bs), reachBs(), string(bs))
	p := &b
	reachPtrSet := func() int { p = &box{n: 77}; return 1 }
	say(p.n, reachPtrSet(), p.n)
	q := &x
	say(*q, reachSet(9), *q)
	var e error
	reachE := func() error { e = errors.New("set"); return nil }
	say(e == nil, reachE(), e == nil)
	y := int8(1)
	reachY := func() int8 { y++; return y }
	say(-y, reachY(), []any{y + 1, reachY(), y == 3}, struct{ a, b any }{!t, reachT()})
	var any1, any2 any
	any1, any2 = y*2, reachY()
	say(any1, any2, [2]int{x, i}, reachSet(31), reachI(), any(box{n: x}), m["a"] == 1, reachMap())
	f := func() int { return 1 }
	reachFn := func() int { f = func() int { return 2 }; return 0 }
	say(f(), reachFn(), f())
}

func named(x int) (a int, err error) {
	defer func() { a++ }()
	if x > 5 {
		return reachErr(x)
	}
	a, err = reachErr(x)
	if err != nil {
		return a, fmt.Errorf("wrapped: %w", err)
	}
	return plain(a) + reach(a), err
}

func multi(x int) (int, string) { return reach2(x) }

func panics() {
	defer func() { say("recovered", recover()) }()
	if depth >= 0 {
		panic(reach(4))
	}
}

func last(x int) int {
	switch {
	case x > 0:
		return reach(x)
	default:
		panic(fmt.Sprint(reach(x)))
	}
}

// lengths has arrays of which only the length matters. They are evaluated,
// because there is a call in them.
func lengths() {
	type row struct {
		cells *[3]int
		all   [2]int
	}
	reachNil := func() *[4]int { return nil }
	reachRow := func() *row { return nil }
	reachRows := func() *[2][5]int { return new([2][5]int) }
	two := 2
	for i, f := range []func(){
		func() { say(len(*reachNil())) },
		func() { say(len(reachNil())) },
		func() { say(cap(*reachNil()) + reach(1)) },
		func() { say(len(reachRow().cells)) },
		func() { say(len(reachRow().all)) },
		func() { say(len(reachRows()[two])) },
		func() { say(len(reachRows()[two-1])) },
		func() { say(len((*reachRows())[reach(two)])) },
		func() {
			for range *reachNil() {
			}
		},
		func() {
			for i := range reachRow().all {
				say(i)
			}
		},
		func() {
			for i := range reachNil() {
				say(i)
			}
		},
	} {
		func() {
			defer func() { say(i, recover()) }()
			f()
		}()
	}
}

var atTop = func(x int) int { return reach(reach(x)) }

func main() {
	statements()
	nested()
	logic()
	calls(&box{name: "w"}, func(x int) int { return x + 1 })
	changing()
	say(named(1))
	say(named(4))
	say(named(6))
	say(multi(3))
	panics()
	lengths()
	say(last(3), atTop(2))
	go func(x int) {}(reach(3))
	if len(os.Args) > 5 {
		os.Exit(reach(1))
	}
}
