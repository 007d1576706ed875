// Command callforms covers calls with points inside in every place where an
// expression can stand.
package main

//difftest:daily

import "fmt"

var calls int

type box struct {
	v    int
	list []int
}

// f has a point, and returns something small.
func f(n int) int {
	calls++
	x := n
	for i := range 2 { //difftest:loop
		for k := range 500 {
			x = (x*7 + k + i) % 13
		}
	}
	return x % 4
}

func pair(n int) (int, string)        { return f(n), fmt.Sprint("p", f(n+1)) }
func mk(n int) box                    { return box{v: f(n), list: []int{f(n + 1), n}} }
func (b box) plus(n int) box          { return box{b.v + f(n), b.list} }
func (b *box) ptr(n int) *box         { b.v += f(n); return b }
func list(n int) []int                { return []int{f(n), f(n + 1), f(n + 2), n} }
func table(n int) map[int]int         { return map[int]int{f(n): n, 9: f(n + 3)} }
func dyn(n int) any                   { return []any{f(n), "s", box{v: n}}[f(n)%3] }
func fn(n int) func(int) int          { m := f(n); return func(k int) int { return m + k + f(k) } }
func ch(n int) chan int               { c := make(chan int, 3); c <- f(n); return c }
func yes(n int) bool                  { return f(n) > 1 }
func three() (a, b, c int)            { return f(1), f(2), f(3) }
func sum(a, b, c int) int             { return a*100 + b*10 + c }
func variadic(p string, n ...int) int { return len(p) + len(n) + f(len(n)) }

func main() {
	elements()
	channels()
	loops()
	switches()
	literals()
}

func elements() {
	var a [4]int
	s := list(1)
	a[f(1)] = f(2)
	a[f(3)] += f(4)
	a[f(5)]++
	s[f(6)], a[f(7)] = a[f(8)], s[f(9)]
	v, ok := table(2)[f(3)]
	n, isInt := dyn(4).(int)
	fmt.Println(a, s, v, ok, n, isInt, list(3)[f(1):f(2)+1], len(list(f(2))))
	x := mk(1).plus(2).plus(f(3)).v
	y := (&box{v: f(4)}).ptr(5).ptr(f(6)).v
	fmt.Println(x, y, -f(1), !yes(2), f(3)+f(4)*f(5), "a"+fmt.Sprint(f(6))+"b", float64(f(7))/2)
}

func channels() {
	c := ch(1)
	c <- f(2)
	fmt.Println(<-c+<-ch(3), <-c, fn(1)(f(2)), func(k int) int { return k + f(k) }(f(3)))
	fmt.Println(sum(three()), variadic("x", f(1), f(2)), variadic("y", list(2)...), variadic(fmt.Sprint(f(3))))
}

func loops() {
	if z, s := pair(f(1)); z > 0 || yes(z) {
		fmt.Println("if", z, s)
	} else if yes(3) && yes(4) {
		fmt.Println("else if", z)
	}
	for i := f(1); yes(i) || i < 3; i++ {
		fmt.Println("for", i)
	}
	for i, v := range list(f(2)) {
		fmt.Println("range", i, v+f(v))
	}
	for i := range f(5) + 2 {
		fmt.Println("int", i)
	}
}

func switches() {
	c := ch(1)
	switch f(1) + 1 {
	case 9:
		fmt.Println("first")
	case 1, 2, 3, 4:
		fmt.Println("second", f(5))
	}
	switch t := dyn(f(2)).(type) {
	case int:
		fmt.Println("int", t+f(t))
	default:
		fmt.Printf("%T %d\n", t, f(1))
	}
	select {
	case c <- 3:
		fmt.Println("sent", f(4))
	default:
	}
}

func literals() {
	var a [4]int
	m := map[string][]int{fmt.Sprint(f(1)): {f(2), f(3)}, "k": list(f(4))}
	st := struct {
		a int
		b *box
	}{f(5), &box{v: f(6)}}
	p := &a[f(7)]
	*p = *p*10 + f(8)
	fmt.Println(len(m), m["k"], st.a, st.b.v, a, [3]int{f(1), 2: f(2)}, box{list: list(1)}.list[f(3)])
	defer fmt.Println("deferred", f(9), calls)
	fmt.Println(calls)
}
