// Cg solves a sparse system by conjugate gradients.
package main

import (
	"flag"
	"fmt"
	"math"
)

type sparse struct {
	n      int
	rows   []int
	cols   []int
	values []float64
}

// poisson is the Laplacian on a square.
func poisson(side int) *sparse {
	m := &sparse{n: side * side, rows: []int{0}}
	add := func(c int, v float64) {
		m.cols = append(m.cols, c)
		m.values = append(m.values, v)
	}
	for y := range side {
		for x := range side {
			i := y*side + x
			if y > 0 {
				add(i-side, -1)
			}
			if x > 0 {
				add(i-1, -1)
			}
			add(i, 4)
			if x < side-1 {
				add(i+1, -1)
			}
			if y < side-1 {
				add(i+side, -1)
			}
			m.rows = append(m.rows, len(m.cols))
		}
	}
	return m
}

func (m *sparse) times(x, y []float64) {
	for i := 0; i < m.n; i++ {
		s := 0.0
		for k := m.rows[i]; k < m.rows[i+1]; k++ {
			s += m.values[k] * x[m.cols[k]]
		}
		y[i] = s
	}
}

func dot(a, b []float64) float64 {
	s := 0.0
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

func solve(m *sparse, b []float64, most int) ([]float64, float64, int) {
	x, r, p, q := make([]float64, m.n), make([]float64, m.n), make([]float64, m.n), make([]float64, m.n)
	copy(r, b)
	copy(p, b)
	rr := dot(r, r)
	n := 0
	for ; n < most && rr > 1e-20; n++ {
		m.times(p, q)
		alpha := rr / dot(p, q)
		for i := range x {
			x[i] += alpha * p[i]
			r[i] -= alpha * q[i]
		}
		next := dot(r, r)
		beta := next / rr
		rr = next
		for i := range p {
			p[i] = r[i] + beta*p[i]
		}
	}
	return x, math.Sqrt(rr), n
}

func main() {
	rounds := flag.Int("rounds", 150, "iterations at most")
	flag.Parse()
	m := poisson(400)
	b := make([]float64, m.n)
	for i := range b {
		b[i] = math.Sin(float64(i))
	}
	x, left, n := solve(m, b, *rounds)
	fmt.Printf("%.9f %.3e %d\n", dot(x, x), left, n)
}
