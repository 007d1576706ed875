// Matmul multiplies dense matrices in blocks.
package main

import (
	"flag"
	"fmt"
)

type matrix [][]float64

func newMatrix(n int, f func(i, j int) float64) matrix {
	m := make(matrix, n)
	for i := range m {
		m[i] = make([]float64, n)
		for j := range m[i] {
			m[i][j] = f(i, j)
		}
	}
	return m
}

func multiply(c, a, b matrix) {
	n := len(a)
	const block = 64
	for kk := 0; kk < n; kk += block {
		for i := 0; i < n; i++ {
			row := c[i]
			for k := kk; k < min(kk+block, n); k++ {
				x, from := a[i][k], b[k]
				for j := range row {
					row[j] += x * from[j]
				}
			}
		}
	}
}

func main() {
	rounds := flag.Int("rounds", 8, "products")
	flag.Parse()
	n := 400
	a := newMatrix(n, func(i, j int) float64 { return float64((i*7+j*3)%11) / 11 })
	b := newMatrix(n, func(i, j int) float64 { return float64((i*5+j)%13) / 13 })
	trace := 0.0
	for round := 0; round < *rounds; round++ {
		c := newMatrix(n, func(i, j int) float64 { return 0 })
		multiply(c, a, b)
		for i := range c {
			trace += c[i][i]
		}
		a[round%n][0] += 1
	}
	fmt.Println(trace)
}
