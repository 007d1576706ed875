package main

import (
	"math"
	"math/cmplx"
)

// direction of a Fourier transform.
type direction int

const (
	forward direction = iota
	backward
)

// fft transforms vectors of one length, a power of two.
type fft struct {
	roots [2][]complex128 // by direction: exp(∓2πi·k/n) for k < n/2
	work  []complex128
}

func newFFT(n int) *fft {
	f := &fft{work: make([]complex128, n)}
	for k := range n / 2 {
		sin, cos := math.Sincos(2 * math.Pi * float64(k) / float64(n))
		root := complex(cos, -sin)
		f.roots[forward] = append(f.roots[forward], root)
		f.roots[backward] = append(f.roots[backward], cmplx.Conj(root))
	}
	return f
}

// transform transforms a in place, and scales in neither direction. It is
// Stockham's form of the fast Fourier transform: each pass joins transforms of
// half the length, and writes them so that no reordering is needed at the end.
func (f *fft) transform(a []complex128, d direction) {
	n := len(a)
	from, to := a, f.work
	stride := 1
	for half := n / 2; half >= 1; half /= 2 {
		for k := range half {
			root := f.roots[d][k*stride]
			lower := from[stride*k:][:stride]
			upper := from[stride*(k+half):][:stride]
			even := to[stride*2*k:][:stride]
			odd := to[stride*(2*k+1):][:stride]
			for i := range lower {
				u, v := lower[i], upper[i]
				even[i] = u + v
				odd[i] = (u - v) * root
			}
		}
		from, to = to, from
		stride *= 2
	}
	if &from[0] != &a[0] {
		copy(a, from)
	}
}
