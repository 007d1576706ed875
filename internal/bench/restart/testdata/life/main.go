// Life is Conway's game of life on a torus.
package main

import (
	"flag"
	"fmt"
)

type field struct {
	w, h  int
	cells [][]bool
}

func newField(w, h int) *field {
	f := &field{w: w, h: h, cells: make([][]bool, h)}
	for i := range f.cells {
		f.cells[i] = make([]bool, w)
	}
	return f
}

func (f *field) alive(x, y int) bool {
	x += f.w
	x %= f.w
	y += f.h
	y %= f.h
	return f.cells[y][x]
}

func (f *field) next(x, y int) bool {
	n := 0
	for i := -1; i <= 1; i++ {
		for j := -1; j <= 1; j++ {
			if (j != 0 || i != 0) && f.alive(x+i, y+j) {
				n++
			}
		}
	}
	return n == 3 || n == 2 && f.alive(x, y)
}

type life struct {
	a, b *field
	w, h int
}

func (l *life) step() {
	for y := 0; y < l.h; y++ {
		for x := 0; x < l.w; x++ {
			l.b.cells[y][x] = l.a.next(x, y)
		}
	}
	l.a, l.b = l.b, l.a
}

func main() {
	rounds := flag.Int("rounds", 80, "generations")
	flag.Parse()
	l := &life{a: newField(320, 240), b: newField(320, 240), w: 320, h: 240}
	seed := uint32(1)
	for i := 0; i < l.w*l.h/4; i++ {
		seed = seed*1664525 + 1013904223
		x := int(seed>>8) % l.w
		seed = seed*1664525 + 1013904223
		l.a.cells[int(seed>>8)%l.h][x] = true
	}
	for i := 0; i < *rounds; i++ {
		l.step()
	}
	n := 0
	for _, row := range l.a.cells {
		for _, c := range row {
			if c {
				n++
			}
		}
	}
	fmt.Println(n)
}
