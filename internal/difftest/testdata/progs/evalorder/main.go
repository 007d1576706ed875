// Command evalorder covers operands that are read before or after a call that
// leads to a point and changes them, as the Go compiler does it.
package main

//difftest:daily

import "fmt"

type pair struct{ x, y int }

type half struct{ a, b int16 }

type shape interface{ area(n int) int }

type square struct{ side int }

func (s square) area(n int) int { return s.side*s.side*1000 + n }

type prog struct {
	x, y  int
	h     int16
	s     string
	b     []byte
	list  []int
	pairs map[pair]int
	halfs map[half]int
	anys  map[any]int
	names map[string][]int
	hook  func()
}

func (p *prog) run() int {
	s := 0
	for k := range 3 { //difftest:loop
		s += k*p.x + 1
	}
	p.x += 2
	p.y++
	p.h += 3
	p.s += "x"
	p.b = append([]byte(nil), p.s...)
	p.list = []int{p.x, p.y, p.x + p.y}
	if p.hook != nil {
		p.hook()
	}
	return s
}

func (p prog) get() int { return p.x*100 + p.y }

func call(f func() int, n ...int) int { return f() + len(n) }

func show(list ...any) { fmt.Println(list...) }

func main() {
	p := &prog{x: 1, y: 2, h: 1, s: "abc", b: []byte("abc"), list: []int{1, 2, 3}, pairs: map[pair]int{}, halfs: map[half]int{}, anys: map[any]int{}, names: map[string][]int{}}
	p.pairs[pair{p.x, p.y}] = p.run()
	p.pairs[pair{p.x, p.y}] += p.run()
	p.halfs[half{p.h, 1}] = p.run()
	p.anys[p.x] = p.run()
	p.anys[pair{p.x, 1}], p.y = p.run(), p.x
	p.names[p.s] = append(p.names[p.s], p.run())
	show(p.pairs, p.halfs, len(p.anys), p.names)
	show(map[string]int{"x": p.x}, p.run())
	show(map[string]int{p.s: 1, "abc": 2, "k": p.run()})
	show(call(p.get, p.run()), call(p.get, p.run(), p.x))
	show(p.list[p.x&1:2+p.run()&1], pair{p.x, 0} == pair{p.run(), 0})
	show(p.names[string(p.b)], len(p.s), []byte(p.s), p.s, p.run())
	show(pair{p.x, p.run()}, p.x, pair{p.x, p.y}, p.h, p.run())
	var s shape = square{1}
	x := 1
	p.hook = func() { s, x = square{x + 1}, x+1 }
	show(s.area(p.run()), x, p.run(), shape(square{x}).area(p.run()))
	list := []int{1, 2, 3}
	p.hook = func() { x = (x + 1) % 2; list[0]++ }
	show(list[x:2+p.run()&1], x+p.run(), []int{x, p.run(), list[0]})
	defer show(p.x, pair{p.x, p.y}, p.run(), x)
}
