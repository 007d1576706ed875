// Command genericspoint covers a generic type with a point in its method,
// called through an interface with type parameters.
package main

import "fmt"

type stepper[S any] interface {
	step(S) S
	done(S) bool
}

type sim[S any, P stepper[S]] struct {
	state S
	by    P
	steps int
}

func (s *sim[S, P]) run() S {
	for !s.by.done(s.state) { //difftest:loop
		s.state = s.by.step(s.state)
		s.steps++
		fmt.Println("step", s.steps, s.state)
	}
	return s.state
}

type doubling int

func (d doubling) step(x int) int {
	for i := range 2000 {
		x ^= i & 1
	}
	return x*2 + int(d)
}
func (d doubling) done(x int) bool { return x > 500 }

type board struct {
	cells [4]uint8
	log   []string
}

type rotate struct{ turns map[uint8]int }

func (r *rotate) step(b board) board {
	for range 1001 {
		b.cells[0], b.cells[1], b.cells[2], b.cells[3] = b.cells[1]+1, b.cells[2], b.cells[3], b.cells[0]
	}
	r.turns[b.cells[0]]++
	b.log = append(b.log, fmt.Sprint(b.cells[0]))
	return b
}
func (r *rotate) done(b board) bool { return len(b.log) >= 5 }

func main() {
	a := sim[int, doubling]{state: 3, by: 1}
	fmt.Println(a.run(), a.steps)
	r := &rotate{map[uint8]int{}}
	b := sim[board, *rotate]{by: r}
	end := b.run()
	fmt.Println(end.cells, end.log, len(r.turns), b.steps)
}
