// Command sequence covers several chosen loops one after the other in one
// function and in callees, with state that passes from one to the next.
package main

import "fmt"

type model struct {
	a, b []float64
	norm float64
}

func (m *model) fill(n int) {
	for i := range n { //difftest:loop
		x := float64(i + 1)
		for range 2000 {
			x = (x + 2/x) / 2
		}
		m.a = append(m.a, x*float64(i))
	}
}

func main() {
	m := &model{}
	m.fill(5)
	fmt.Printf("%.6f\n", m.a)
	for i, x := range m.a { //difftest:loop
		y := 0.0
		for k := range 3000 {
			y += x / float64(k+1)
		}
		m.b = append(m.b, y)
		fmt.Printf("b%d %.9f\n", i, y)
	}
	k := 0
	for k < 4 { //difftest:loop
		for range 2000 {
			m.norm = m.norm*0.5 + m.b[k]
		}
		k++
		fmt.Printf("c%d %.9f\n", k, m.norm)
	}
	for ; k >= 0; k-- { //difftest:loop
		for range 1000 {
			m.norm -= m.a[k] * 1e-3
		}
	}
	fmt.Printf("%.9f %d\n", m.norm, k)
}
