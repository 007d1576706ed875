// Spectral finds the spectral norm of an infinite matrix.
package main

import (
	"flag"
	"fmt"
	"math"
)

func element(i, j int) float64 { return 1 / float64((i+j)*(i+j+1)/2+i+1) }

type vec []float64

func (v vec) times(u vec) {
	for i := range v {
		var a float64
		for j := range u {
			a += element(i, j) * u[j]
		}
		v[i] = a
	}
}

func (v vec) timesTransposed(u vec) {
	for i := range v {
		var a float64
		for j := range u {
			a += element(j, i) * u[j]
		}
		v[i] = a
	}
}

func (v vec) both(u vec) {
	x := make(vec, len(u))
	x.times(u)
	v.timesTransposed(x)
}

func main() {
	rounds := flag.Int("rounds", 10, "iterations")
	flag.Parse()
	const n = 2000
	u, v := make(vec, n), make(vec, n)
	for i := range u {
		u[i] = 1
	}
	for i := 0; i < *rounds; i++ {
		v.both(u)
		u.both(v)
	}
	var vBv, vv float64
	for i := range v {
		vBv += u[i] * v[i]
		vv += v[i] * v[i]
	}
	fmt.Printf("%.9f\n", math.Sqrt(vBv/vv))
}
