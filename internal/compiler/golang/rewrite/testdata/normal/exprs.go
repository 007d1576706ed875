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

func spine(x int) int { say("spine", x); return x * 2 }

func spine2(x int) (int, string) { say("spine2", x); return x + 1, fmt.Sprint("s", x) }

func spineErr(x int) (int, error) {
	if x > 3 {
		return 0, errors.New("large")
	}
	return x, nil
}

func spineB(x int, b bool) bool { say("spineB", x, b); return b }

func spine0() { say("spine0"); depth++ }

func spineV(xs ...int) int { say("spineV", xs); return len(xs) }

func spineS(x int) []int { return []int{x, x + 1, x + 2} }

func spineM() map[string]int { return map[string]int{"a": 1} }

func spineAny(a any) any { return a }

func spineP(p *int) *int { *p++; return p }

func plain(x int) int { say("plain", x); return x + 100 }

func two() (int, int) { say("two"); return 7, 8 }

type box struct {
	n    int
	name string
	sub  *box
}

func (b box) SpineVal(x int) int { say("val", b.n, x); return b.n + x }

func (b *box) SpinePtr(x int) *box { b.n += x; say("ptr", b.n); return b }

func (b *box) plain(x int) *box { b.n += x * 10; say("boxplain", b.n); return b }

type walker interface{ SpineWalk(int) int }

func (b *box) SpineWalk(x int) int { say("walk", b.name, x); return x }

type holder struct {
	walker
	f func(int) int
}

type myBool bool

func spineMy(b bool) myBool { return myBool(b) }

func statements() {
	spine0()
	x := spine(1)
	x = spine(x) // a comment
	x += spine(x)
	var y int = spine(3)
	var z = spine(4)
	var a, b = spine2(5)
	var (
		// first
		c    = spine(6)
		d, e = spine2(c)
		g    = 5
		h    int64
	)
	var _, _ = spine2(9)
	_ = spine(10)
	_, s := spine2(11)
	arr := []int{1, 2, 3, 4, 5, 6, 7, 8}
	arr[spine(1)] = spine(2)
	arr[spine(0)]++
	arr[plain(-99)], s = spine2(3)
	arr[plain(-98)] += spine(1)
	p := &box{}
	p.n, p.name = spine2(4)
	ch := make(chan int, 2)
	ch <- spine(8)
	ch <- plain(1) + spine(9)
	say(x, y, z, a, b, c, d, e, g, h, s, arr, *p, <-ch, <-ch, depth)
	if x > 0 {
		spine0()
		say("one line")
	}
	spine0()
	say("two")
	spine0()
}

func nested() {
	say(spine(spine(spine(1))))
	say(plain(1), spine(2), plain(3), spine(4), plain(5))
	say(plain(spine(plain(2))) + plain(1)*spine(3))
	say(spine2(2))
	fmt.Println(spine2(plain(2)))
	x := []int{spine(1), plain(2), spine(3), plain(4)}
	say(x, x[spine(0)], x[plain(-98):spine(1)+1], x[:spine(1)])
	m := map[int]int{plain(1): spine(2), spine(3): plain(4)}
	say(len(m), m[101], m[6], len(spineS(3)), cap(spineS(2)[:1:2]))
	s := box{n: spine(2), sub: &box{spine(3), "x", nil}}
	say(s.n, s.sub.n)
	l := []box{{n: spine(1)}, {n: plain(2), sub: &box{n: spine(4)}}}
	say(l[0].n, l[1].n, l[1].sub.n)
	lp := []*box{{n: spine(1)}, {n: spine(2)}}
	say(lp[0].n, lp[1].n)
	ml := []map[string]int{{"a": spine(1)}, {"b": plain(spine(2))}}
	say(ml)
	say(-spine(2), !spineB(1, true), *spineP(&x[0]), ^spine(1), &x[spine(0)] == &x[0])
	say(spineV(append(x[:2], plain(7), 8)...), spineV(), spineV(two()))
	say(string(rune(spine(33))), float64(spine(1))/4, []byte(fmt.Sprint(spine(3))))
	var shifted uint8 = 1 << spine(2)
	say(shifted, 1<<spine(1)+1, uint64(1)<<spine(4))
	say(spineAny(3).(int)+spine(1), spineM()["a"])
	v, ok := spineM()["b"]
	say(v, ok)
	v, ok = spineAny("q").(int)
	say(v, ok)
	ch := make(chan int, 3)
	ch <- 1
	ch <- 2
	ch <- 3
	say(<-ch, spine(1), <-ch)
	w, ok := <-ch
	say(w, ok, min(spine(1), 7, plain(1)), max(plain(0), spine(60)))
	func() { say("called at once", spine(5)) }()
	fs := []func() int{func() int { return spine(1) }, func() int { return plain(spine(2)) }}
	say(fs[0](), fs[1]())
	say(strings.Repeat("x", spine(2)), len([]int{spine(1), 2}))
	const c = len([3]int{})
	say(c, [...]int{1: spine(1), 3: 4})
}

func logic() {
	for _, a := range []bool{true, false} {
		for _, b := range []bool{true, false} {
			say(a, b, "→", a && spineB(1, b), a || spineB(2, b))
			say(spineB(3, a) && b, spineB(4, a) || b)
			say(spineB(5, a) && spineB(6, b) || spineB(7, a) && !spineB(8, b))
			say(a && (b || spineB(9, a)) == (b && spineB(10, b)))
			if a && spineB(11, b) || !b {
				say("yes")
			} else {
				say("no")
			}
			x := !(a && spineB(12, b)) && plain(1) > 0
			say(x, plain(2) > 0 && a, spine(1), b && plain(3) > 0)
			var my myBool = (a == b) && spineMy(b)
			say(my, (a != b) || spineMy(a))
			if x := spine(3); a && spineB(x, b) {
				say("in", x)
			} else if y := spine(x); b || spineB(y, a) && y > x {
				say("else", x, y)
			} else if a {
				say("never", spine(1))
			} else {
				say("last", x, y, spine(2))
			}
		}
	}
}

func calls(w walker, f func(int) int) {
	b := &box{n: 1, name: "b"}
	say(b.SpinePtr(1).SpinePtr(2).plain(3).SpinePtr(spine(4)).SpineVal(5))
	say(box{n: 3}.SpineVal(spine(1)), (*box).SpinePtr(b, 4).n, box.SpineVal(*b, 2))
	say(w.SpineWalk(spine(2)), w.SpineWalk(plain(1)))
	h := holder{b, f}
	say(h.SpineWalk(3), h.walker.SpineWalk(4))
	hp := &h
	say(hp.SpineWalk(spine(5)))
	spineF := f
	say(spineF(3), spineF(plain(4)))
	h.f = func(x int) int { return spine(x) - 1 }
	type pair struct{ spineG func(int) int }
	pr := pair{h.f}
	say(pr.spineG(plain(3)))
	get := func() *box { say("get"); return b }
	say(get().SpineVal(plain(1)), get().SpinePtr(1).n)
	spineLater := func(x int) int { return x }
	g := func() { spineLater = func(x int) int { return -x } }
	say(spineLater(1))
	g()
	say(spineLater(2), gen(3), spineGen[string]("q", 2), spineGen(2.5, 1))
}

func spineGen[T any](x T, n int) []T {
	var out []T
	for range n {
		out = append(out, x)
	}
	return out
}

type num interface{ ~int | ~int64 }

func gen[T num](x T) T {
	y := spineGen(x, int(x))
	t := T(0)
	//pt
	for i, v := range y {
		t += T(i) + v
	}
	return t + T(spine(int(t)))
}

func changing() {
	// What is read when, if calls change it.
	x := 1
	spineSet := func(v int) int { x = v; return v }
	say(x, spineSet(2), x)
	say(x+spineSet(3), x)
	s := []int{1, 2, 3}
	spineCut := func() int { s = s[1:]; return len(s) }
	say(s[0], spineCut(), s[0])
	say(len(s), spineCut(), len(s))
	s = []int{4, 5, 6}
	say(s[:1], spineCut(), s[:1])
	b := box{n: 1}
	spineBox := func() int { b.n++; b.name += "x"; return b.n }
	say(b, spineBox(), b)
	say(b.n, spineBox(), b.name)
	var a any = 1
	spineAnyS := func() int { a = 5; return 0 }
	say(a.(int), spineAnyS(), a.(int))
	t := true
	spineT := func() bool { t = !t; return t }
	say(t && depth >= 0, spineT(), t && depth >= 0)
	m := map[string]int{"a": 1}
	spineMap := func() int { m["a"]++; return m["a"] }
	say(m["a"], spineMap(), m["a"])
	m["a"] += spineMap()
	m["b"] = spineMap()
	say(m)
	i := 0
	spineI := func() int { i++; return i }
	arr := make([]int, 9)
	arr[i] = spineI()
	arr[i], arr[i+1] = spineI(), spineI()
	arr[len(arr[:i])] = spineI()
	say(arr, i)
	k, l := i, spineI()
	k, l = l, spineI()+k
	say(k, l)
	str := "ab"
	spineStr := func() string { str += "c"; return str }
	say(str+spineStr()+str, []byte(str), spineStr(), string([]byte(str)))
	bs := []byte("xyz")
	spineBs := func() int { bs[0]++; return int(bs[0]) }
	say(string(bs), spineBs(), string(bs))
	p := &b
	spinePtrSet := func() int { p = &box{n: 77}; return 1 }
	say(p.n, spinePtrSet(), p.n)
	q := &x
	say(*q, spineSet(9), *q)
	var e error
	spineE := func() error { e = errors.New("set"); return nil }
	say(e == nil, spineE(), e == nil)
	y := int8(1)
	spineY := func() int8 { y++; return y }
	say(-y, spineY(), []any{y + 1, spineY(), y == 3}, struct{ a, b any }{!t, spineT()})
	var any1, any2 any
	any1, any2 = y*2, spineY()
	say(any1, any2, [2]int{x, i}, spineSet(31), spineI(), any(box{n: x}), m["a"] == 1, spineMap())
	f := func() int { return 1 }
	spineFn := func() int { f = func() int { return 2 }; return 0 }
	say(f(), spineFn(), f())
}

func named(x int) (a int, err error) {
	defer func() { a++ }()
	if x > 5 {
		return spineErr(x)
	}
	a, err = spineErr(x)
	if err != nil {
		return a, fmt.Errorf("wrapped: %w", err)
	}
	return plain(a) + spine(a), err
}

func multi(x int) (int, string) { return spine2(x) }

func panics() {
	defer func() { say("recovered", recover()) }()
	if depth >= 0 {
		panic(spine(4))
	}
}

func last(x int) int {
	switch {
	case x > 0:
		return spine(x)
	default:
		panic(fmt.Sprint(spine(x)))
	}
}

var atTop = func(x int) int { return spine(spine(x)) }

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
	say(last(3), atTop(2))
	go func(x int) {}(spine(3))
	if len(os.Args) > 5 {
		os.Exit(spine(1))
	}
}
