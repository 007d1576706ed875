// Lu decomposes a matrix with pivots, and solves with it.
package main

import (
	"flag"
	"fmt"
	"math"
)

func decompose(a [][]float64, perm []int) bool {
	n := len(a)
	for k := 0; k < n; k++ {
		p := k
		for i := k + 1; i < n; i++ {
			if math.Abs(a[i][k]) > math.Abs(a[p][k]) {
				p = i
			}
		}
		if a[p][k] == 0 {
			return false
		}
		a[p], a[k] = a[k], a[p]
		perm[p], perm[k] = perm[k], perm[p]
		for i := k + 1; i < n; i++ {
			a[i][k] /= a[k][k]
			f := a[i][k]
			for j := k + 1; j < n; j++ {
				a[i][j] -= f * a[k][j]
			}
		}
	}
	return true
}

func solve(lu [][]float64, perm []int, b []float64) []float64 {
	n := len(lu)
	x := make([]float64, n)
	for i := range x {
		x[i] = b[perm[i]]
		for j := 0; j < i; j++ {
			x[i] -= lu[i][j] * x[j]
		}
	}
	for i := n - 1; i >= 0; i-- {
		for j := i + 1; j < n; j++ {
			x[i] -= lu[i][j] * x[j]
		}
		x[i] /= lu[i][i]
	}
	return x
}

func main() {
	rounds := flag.Int("rounds", 2, "matrices")
	flag.Parse()
	const n = 800
	sum := 0.0
	for r := range *rounds {
		a, perm, b := make([][]float64, n), make([]int, n), make([]float64, n)
		for i := range a {
			a[i], perm[i], b[i] = make([]float64, n), i, float64(i%7)
			for j := range a[i] {
				a[i][j] = math.Sin(float64(i*j+r)) + float64(i%3)
			}
			a[i][i] += 2
		}
		if !decompose(a, perm) {
			fmt.Println("singular")
			return
		}
		for _, v := range solve(a, perm, b) {
			sum += v
		}
	}
	fmt.Printf("%.6f\n", sum)
}
