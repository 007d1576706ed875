// Loops, switches, selects.
package main

import (
	"fmt"
	"slices"
)

func say(a ...any) { fmt.Println(a...) }

func reach(x int) int { say("reach", x); return x }

func reachS(x ...int) []int { say("reachS", x); return x }

func reachB(b bool) bool { return b }

func reach2(x int) (int, int) { return x, x + 3 }

type key string

func ranges() {
	xs := []int{3, 1, 2}
	//pt
	for i, v := range xs {
		say(i, v)
		xs = append(xs, v)
		v++
		i++
	}
	//pt
	for i := range xs {
		i := i
		say(i)
	}
	//pt
	for _, v := range xs {
		v := v * 2
		say(v)
	}
	//pt
	for range xs {
		say("x")
	}
	var i, v int
	//pt
	for i, v = range xs {
		xs[0]++
	}
	say(i, v)
	at := make([]int, 7)
	for at[reach(1)], at[2] = range xs {
	}
	for at[0] = range xs {
		reach(1)
	}
	say(at)
	arr := [3]string{"a", "b", "c"}
	//pt
	for i, s := range arr {
		arr[2] = "changed"
		say(i, s)
	}
	//pt
	for i, s := range &arr {
		arr[2] = "again"
		say(i, s)
	}
	var none *[4]int
	//pt
	for i := range none {
		say(i)
	}
	//pt
	for i, _ := range arr {
		say(i)
	}
	//pt
	for i := range [2]int{} {
		say(i)
	}
	//pt
	for i := range 3 {
		i *= 2
		say(i)
	}
	var u uint8
	//pt
	for u = range 4 {
		say(u)
	}
	const limit int64 = 2
	//pt
	for l := range limit {
		fmt.Printf("%T %v\n", l, l)
	}
	//pt
	for range 2 {
		say("twice")
	}
	for i := range reach(2) {
		say(i, reach(i))
	}
	//pt
	for i, r := range "héy" {
		say(i, r)
	}
	//pt
	for i := range "héy" {
		i := i + 1
		say(i)
	}
	//pt
	for _, r := range "ab" {
		say(string(r))
	}
	//pt
	for range "abc" {
		say("s")
	}
	var r rune
	//pt
	for i, r = range "xyz" {
		reach(i)
	}
	say(i, r)
	for i, v := range reachS(4, 5) {
		say(i, v)
	}
	for _, v := range reachS(7, 8) {
		reach(v)
	}
	ch := make(chan int, 3)
	ch <- 1
	ch <- 2
	ch <- 3
	close(ch)
	//pt
	for v := range ch {
		v := v + 1
		say(v)
		break
	}
	for v = range ch {
		reach(v)
	}
	for range ch {
		reach(1)
	}
	for xs := range xs {
		say(reach(xs))
	}
}

func maps() {
	m := map[key]int{"a": 1, "b": 2, "c": 3, "d": 4}
	var got []string
	//pt
	for k, v := range m {
		got = append(got, fmt.Sprint(k, v))
	}
	slices.Sort(got)
	say(got)
	n := 0
	//pt
	for k := range m {
		for o := range m {
			if o != k {
				delete(m, o)
			}
		}
		n++
	}
	say(n, len(m))
	m = map[key]int{"a": 1, "b": 2}
	sum := 0
	//pt
	for _, v := range m {
		v := v
		sum += v
		if v == 1 {
			continue
		}
		sum += 10
	}
	//pt
	for range m {
		sum += 100
	}
	say(sum)
	var a any
	var v int
	//pt
	for a, v = range m {
		sum += v
	}
	for _, v = range m {
		sum += reach(1) + v*0
	}
	say(a != nil, sum)
	type point struct{ x, y int }
	pm := map[point]string{{1, 2}: "p"}
	for k, v := range pm {
		say(k, v, reach(k.x))
	}
	//pt
outer:
	for k := range map[point]bool{{3, 4}: true} {
		for range 3 {
			if reach(k.x) > 0 {
				continue outer
			}
		}
		say("not here")
	}
	for k := range map[*int]bool{nil: true} {
		say(k == nil, reach(1))
	}
}

func fors() {
	for i := 0; reach(i) < 3; i++ {
		if i == 1 {
			continue
		}
		say("body", i)
	}
	for i := reach(1); i < 4; i++ {
		say(i)
	}
	for i, j := reach2(0); i < j; i, j = i+1, j-1 {
		say(i, j)
	}
	n := 0
	for reachB(n < 3) {
		n++
	}
	for reach(0); n < 5; n++ {
	}
	//pt
	for i := 0; i < 2 && reachB(true); i++ {
		i := i
		say("point", i)
	}
	//pt
	for {
		n++
		if n > 8 {
			break
		}
	}
	say(n)
	var fs []func() int
	for i := 0; reachB(i < 3); i++ {
		fs = append(fs, func() int { i += 10; return i })
	}
	for i := reach(0); i < 3; i++ {
		fs = append(fs, func() int { i += 10; return i })
	}
	for i := range fs {
		say(fs[i](), fs[i](), reach(i))
	}
outer:
	for i := 0; reach(i) < 5; i++ {
		for j := range reachS(1, 2, 3) {
			switch {
			case j == 1:
				continue outer
			case i == 3:
				break outer
			}
			say(i, j, reach(j))
		}
	}
here:
	for {
		switch reach(n) {
		case 0:
			break here
		default:
			n = 0
			break
		}
		say("round")
	}
	//pt
	say("a statement")
	//pt
	if n == 0 {
		say("if")
	}
}

func captured() {
	var fs []func() int
	var ps []*int
	for i, v := range []int{10, 20, 30} {
		fs = append(fs, func() int { return i*100 + v })
		ps = append(ps, &v)
		reach(i)
	}
	for _, f := range fs {
		say(f())
	}
	for i := range ps {
		say(*ps[i])
	}
	var gs []func() string
	for k, v := range map[string]int{"one": 1} {
		gs = append(gs, func() string { return fmt.Sprint(k, v) })
		k += "x"
		reach(v)
	}
	say(gs[0]())
}

func switches(x int) string {
	switch reach(x) {
	case 1:
		reach(10)
		fallthrough
	case 2:
		say("two", reach(20))
		if x == 2 {
			break
		}
		say("end")
	default:
		say("other")
	}
	switch y := reach(x + 1); y {
	case 2:
		return fmt.Sprint("early", reach(y))
	}
	switch y := x; {
	case y > 2:
		say("large", reach(y))
	}
tag:
	switch y, z := reach2(x); y + reach(z) {
	case 7:
		for range 2 {
			break tag
		}
	}
	var a any = x
	switch v := any(reach(x)).(type) {
	case int:
		say("int", v, reach(v))
	case string:
	}
	switch b := a; c := b.(type) {
	case int:
		say(reach(c))
	}
	switch any(reach(1)).(type) {
	}
	switch {
	case x == 2:
		reach(2)
		say("b")
	case x == 3:
		{
			y := reach(x)
			say(y)
		}
	}
	ch := make(chan int, 1)
	ch <- x
	//pt
	select {
	case v := <-ch:
		say("got", reach(v))
	default:
	}
	select {
	case ch <- 1:
		reach(0)
	}
	if y := x; y > 2 {
		return fmt.Sprint(reach(y))
	} else if z := reach(y); z > 1 {
		return fmt.Sprint("z", reach(z))
	} else /* comment */ {
		return "end"
	}
}

func endless() int {
	for i := 0; ; i++ {
		if reach(i) == 2 {
			return i
		}
	}
}

func generic[S ~[]E, E any, M ~map[string]E](s S, m M) (out []E) {
	//pt
	for i, v := range s {
		_ = i
		out = append(out, v)
	}
	for _, v := range m {
		reach(1)
		out = append(out, v)
	}
	return out
}

func main() {
	ranges()
	maps()
	fors()
	captured()
	for i := range 4 {
		say(switches(i))
	}
	say(endless())
	say(generic([]string{"q", "r"}, map[string]string{"k": "m"}))
	func() {
		//pt
		for i := range 2 {
			say("literal", i)
		}
	}()
}
