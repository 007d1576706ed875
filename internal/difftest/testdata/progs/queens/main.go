// Command queens covers the n-queens problem: a loop in a recursive function
// with shared boards, and a count of all solutions.
package main

import "fmt"

type solver struct {
	n              int
	cols, up, down []bool
	rows           []int
	count, tried   int
	first          []int
}

func (s *solver) place(r int) {
	if r == s.n {
		if s.count++; s.first == nil {
			s.first = append(s.first, s.rows...)
		}
		return
	}
	for c := range s.n {
		s.tried++
		u, d := r+c, r-c+s.n
		if s.cols[c] || s.up[u] || s.down[d] {
			continue
		}
		s.cols[c], s.up[u], s.down[d] = true, true, true
		s.rows[r] = c
		s.place(r + 1)
		s.cols[c], s.up[u], s.down[d] = false, false, false
	}
}

func main() {
	total := 0
	for n := 4; n <= 8; n++ { //difftest:loop
		s := &solver{n: n, cols: make([]bool, n), up: make([]bool, 2*n), down: make([]bool, 2*n+1), rows: make([]int, n)}
		s.place(0)
		total += s.count
		fmt.Println(n, s.count, s.tried, s.first)
	}
	fmt.Println(total)
}
