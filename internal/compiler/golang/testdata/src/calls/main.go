package main

import "math"

type point struct{ x, y float64 }

func (p *point) length() float64 { return math.Sqrt(p.x*p.x + p.y*p.y) } // 1 statement, 4 accesses

func double(n int) int { // 2 statements, 3 accesses
	m := n + n
	return m
}

func main() { // total s=17 a=27
	n := double(3)
	m := double(n) + double(n)
	p := &point{1, 2}
	l := p.length()
	f := math.Floor(l) + l
	if double(n) > m {
		n = 0
	}
	for i := 0; i < double(m); i++ { // s=4 a=5
		l = l + f
	}
	print(l)
	println(n, m, f)
}
