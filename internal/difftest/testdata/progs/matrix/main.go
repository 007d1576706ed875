// Command matrix covers LU factorisation with pivoting of a matrix held as
// slices of slices, with rows swapped, and the product of arrays of arrays.
package main

import (
	"fmt"
	"math"
)

func lu(a [][]float64, perm []int) (sign float64) {
	sign = 1
	n := len(a)
	for k := 0; k < n; k++ { //difftest:loop
		p := k
		for i := k + 1; i < n; i++ {
			if math.Abs(a[i][k]) > math.Abs(a[p][k]) {
				p = i
			}
		}
		if p != k {
			a[p], a[k] = a[k], a[p]
			perm[p], perm[k] = perm[k], perm[p]
			sign = -sign
		}
		for i := k + 1; i < n; i++ {
			f := a[i][k] / a[k][k]
			a[i][k] = f
			for j := k + 1; j < n; j++ {
				a[i][j] -= f * a[k][j]
			}
		}
	}
	return sign
}

func main() {
	const n = 8
	flat := make([]float64, n*n) // one array under all rows
	a := make([][]float64, n)
	perm := make([]int, n)
	for i := range a {
		a[i] = flat[i*n : (i+1)*n]
		perm[i] = i
		for j := range a[i] {
			a[i][j] = float64((i*7+j*j*3)%11) + 1/float64(i+j+1)
		}
	}
	det := lu(a, perm)
	for i := range a {
		det *= a[i][i]
	}
	fmt.Printf("%.9f %v %.6f\n", det, perm, flat[:4])
	m := [3][3]float64{{1, 2, 0}, {0, 1, 1}, {1, 0, 1}}
	p := m
	for step := range 5 { //difftest:loop
		var q [3][3]float64
		for range 200 {
			for i := range 3 {
				for j := range 3 {
					q[i][j] = 0
					for k := range 3 {
						q[i][j] += p[i][k] * m[k][j]
					}
				}
			}
		}
		p = q
		fmt.Println(step, p)
	}
}
