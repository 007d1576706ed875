package main

import (
	"math"
	"math/cmplx"
)

// ftSums computes the checksums of steps from…to of a problem, counted from 1,
// without transforms of the grid. The points of a checksum are (j, 3j, 5j) for
// j from 1 to 1024. If the sides of the grid divide 1024, these points go
// around the grid a whole number of times. Then only waves that have the same
// value at all these points contribute to the checksum:
//
//	kx/nx + 3·ky/ny + 5·kz/nz = 0, up to integers.
//
// If nx is the longest side, that is one kx for every ky and kz. Add up the
// initial values along the direction of the points: the transform of these
// sums, in two dimensions, has the waves.
func ftSums(c ftClass, from, to int) []complex128 {
	along := make([]complex128, c.nz*c.ny)
	state := uint64(ftSeed)
	next := func() float64 {
		state = state * ftMultiplier % ftModulus
		return float64(state) / ftModulus
	}
	for z := range c.nz {
		for y := range c.ny {
			for x := range c.nx {
				re := next()
				along[(z-5*x)&(c.nz-1)*c.ny+(y-3*x)&(c.ny-1)] += complex(re, next())
			}
		}
	}
	waves := ftTurn(ftTurn(along, c.nz, c.ny), c.ny, c.nz) // [z][y] again
	squares := make([]float64, len(waves))                 // of the wave numbers
	square := func(k, n int) float64 {
		k = (k%n+n+n/2)%n - n/2
		return float64(k * k)
	}
	for z := range c.nz {
		for y := range c.ny {
			x := -3*y*(c.nx/c.ny) - 5*z*(c.nx/c.nz)
			squares[z*c.ny+y] = square(x, c.nx) + square(y, c.ny) + square(z, c.nz)
		}
	}
	var sums []complex128
	for t := from; t <= to; t++ {
		var sum complex128
		for i, w := range waves {
			if decay := 4e-6 * math.Pi * math.Pi * squares[i] * float64(t); decay < 700 {
				sum += w * complex(math.Exp(-decay), 0)
			}
		}
		points := float64(c.nx * c.ny * c.nz)
		sums = append(sums, complex(ftPoints*real(sum)/points, ftPoints*imag(sum)/points))
	}
	return sums
}

// ftTurn computes the Fourier transform of rows of n numbers, by its
// definition, and transposes the result.
func ftTurn(in []complex128, rows, n int) []complex128 {
	roots := make([]complex128, n)
	for k := range roots {
		roots[k] = cmplx.Rect(1, -2*math.Pi*float64(k)/float64(n))
	}
	out := make([]complex128, len(in))
	for r := range rows {
		for k := range n {
			var sum complex128
			for j, v := range in[r*n : (r+1)*n] {
				sum += v * roots[j*k&(n-1)]
			}
			out[k*rows+r] = sum
		}
	}
	return out
}
