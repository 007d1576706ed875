// Command life covers the game of life with two boards that are swapped.
package main

import "fmt"

type board struct {
	w, h  int
	cells []bool
}

func (b *board) at(x, y int) int {
	if b.cells[(y+b.h)%b.h*b.w+(x+b.w)%b.w] {
		return 1
	}
	return 0
}

func (b *board) step(next *board) (alive int) {
	for y := range b.h {
		for x := range b.w {
			n := b.at(x-1, y-1) + b.at(x, y-1) + b.at(x+1, y-1) + b.at(x-1, y) + b.at(x+1, y) + b.at(x-1, y+1) + b.at(x, y+1) + b.at(x+1, y+1)
			next.cells[y*b.w+x] = n == 3 || n == 2 && b.at(x, y) == 1
			alive += n & 1
		}
	}
	return alive
}

func (b *board) String() string {
	s := ""
	for y := range b.h {
		for x := range b.w {
			s += " #"[b.at(x, y) : b.at(x, y)+1]
		}
		s += "|\n"
	}
	return s
}

func main() {
	const w, h = 16, 8
	a, b := &board{w, h, make([]bool, w*h)}, &board{w, h, make([]bool, w*h)}
	for _, i := range []int{1, 18, 32, 33, 34, 70, 71, 72, 73, 90} {
		a.cells[i] = true
	}
	for gen := 0; gen < 12; gen++ { //difftest:loop
		odd := a.step(b)
		a, b = b, a
		if gen%4 == 3 {
			fmt.Print(gen, " ", odd, "\n", a)
		}
	}
}
