package main

import (
	_ "embed"

	"github.com/cairnrun/cairn/device"
)

//go:embed ft.cl
var ftSource string

var (
	ftInitial   = device.NewKernel(ftSource, "ft_initial", ftInitialHost)
	ftEvolve    = device.NewKernel(ftSource, "ft_evolve", ftEvolveHost)
	ftLines     = device.NewKernel(ftSource, "ft_lines", ftLinesHost)
	ftLinesHere = device.NewKernel(ftSource, "ft_lines_here", ftLinesHereHost)
	ftPlace     = device.NewKernel(ftSource, "ft_place", ftPlaceHost)
	ftPick      = device.NewKernel(ftSource, "ft_pick", ftPickHost)
	ftSum       = device.NewKernel(ftSource, "ft_sum", ftSumHost)
)

// The kernels of ft.cl in Go. Products are converted to float64 before they are
// added to something, so that no compiler fuses the two operations, and all
// devices compute the same bits.

const (
	ftMultiplier = 1220703125 // 5^13
	ftModulus    = 1 << 46
	ftSeed       = 314159265
	ftPoints     = 1024 // in the checksum
	ftGroup      = 128  // of ft_sum
)

// ints returns the int32 arguments from i on.
func ints(w *device.Work, i int) []int {
	v := make([]int, len(w.Args)-i)
	for k := range v {
		v[k] = int(device.Value[int32](w, i+k))
	}
	return v
}

func ftInitialHost(w *device.Work) {
	u, first := device.Slice[complex128](w, 0), device.Value[int64](w, 1)
	nx := int(device.Value[int32](w, 2))
	lo, hi := w.Range(0)
	x, a := uint64(ftSeed), uint64(ftMultiplier)
	for skip := 2 * uint64(nx) * uint64(int(first)+lo); skip > 0; skip /= 2 {
		if skip%2 == 1 {
			x = x * a % ftModulus
		}
		a = a * a % ftModulus
	}
	next := func() float64 {
		x = x * ftMultiplier % ftModulus
		return float64(x) / ftModulus
	}
	for i := lo * nx; i < hi*nx; i++ {
		re := next()
		u[i] = complex(re, next())
	}
}

func ftEvolveHost(w *device.Work) {
	u := device.Slice[complex128](w, 0)
	dx, dy, dz := device.Slice[float64](w, 1), device.Slice[float64](w, 2), device.Slice[float64](w, 3)
	n := ints(w, 4)
	nx, nz, y0 := n[0], n[2], n[3]
	for y := w.Lo[2]; y < w.Hi[2]; y++ {
		for z := w.Lo[1]; z < w.Hi[1]; z++ {
			row, yz := u[(y*nz+z)*nx:][:nx], dy[y0+y]*dz[z]
			for x, v := range row {
				d := dx[x] * yz
				row[x] = complex(real(v)*d, imag(v)*d)
			}
		}
	}
}

func ftLinesHost(w *device.Work) {
	in, out, roots := device.Slice[complex128](w, 0), device.Slice[complex128](w, 1), device.Slice[complex128](w, 2)
	n := ints(w, 4)
	ftGroups(w, in, out, roots, n[0], n[1], n[2], n[3:6], n[6:9])
}

func ftLinesHereHost(w *device.Work) {
	u, roots := device.Slice[complex128](w, 0), device.Slice[complex128](w, 1)
	n := ints(w, 3)
	ftGroups(w, u, u, roots, n[0], n[1], n[2], n[3:6], n[3:6])
}

// ftGroups transforms the lines of a part, those of a group together.
func ftGroups(w *device.Work, in, out, roots []complex128, n, width, q int, from, to []int) {
	buf, other := make([]complex128, width*n), make([]complex128, width*n)
	lo, hi := w.Range(0)
	for first := lo / (n / 2); first < hi/(n/2); first += width {
		ftEach(n, width, q, first, from, func(here, there, count int) {
			copy(buf[here:][:count], in[there:][:count])
		})
		done := ftPasses(buf, other, roots, n, width)
		ftEach(n, width, q, first, to, func(here, there, count int) {
			copy(out[there:][:count], done[here:][:count])
		})
	}
}

// ftEach returns the positions of the numbers of a group's lines, in the buffer
// and outside. Neighbours in memory come together, which is good for caches.
func ftEach(n, width, q, first int, l []int, do func(here, there, count int)) {
	if l[1] == 1 && first%q+width <= q {
		at := l[0]*(first/q) + first%q
		for j := range n {
			do(j*width, at+j*l[2], width)
		}
		return
	}
	for line := range width {
		at := l[0]*((first+line)/q) + l[1]*((first+line)%q)
		if width == 1 && l[2] == 1 {
			do(0, at, n)
			return
		}
		for j := range n {
			do(j*width+line, at+j*l[2], 1)
		}
	}
}

// ftPasses transforms lines that are side by side, and returns the buffer, of
// the two, that has the result.
func ftPasses(from, to, roots []complex128, n, width int) []complex128 {
	for stride := 1; stride < n; stride *= 2 {
		run := stride * width
		for k := range n / 2 / stride {
			re, im := real(roots[k*stride]), imag(roots[k*stride])
			lower, upper := from[run*k:][:run], from[run*k+n/2*width:][:run]
			even, odd := to[2*run*k:][:run], to[2*run*k+run:][:run]
			for i, u := range lower {
				v := upper[i]
				even[i] = complex(real(u)+real(v), imag(u)+imag(v))
				x, y := real(u)-real(v), imag(u)-imag(v)
				odd[i] = complex(float64(x*re)-float64(y*im), float64(x*im)+float64(y*re))
			}
		}
		from, to = to, from
	}
	return from
}

func ftPlaceHost(w *device.Work) {
	in, out := device.Slice[complex128](w, 0), device.Slice[complex128](w, 1)
	n := ints(w, 2)
	nx, nb, all, from := n[0], n[2], n[3], n[4]
	lo, hi := w.Range(0)
	for a := w.Lo[2]; a < w.Hi[2]; a++ {
		for b := w.Lo[1]; b < w.Hi[1]; b++ {
			copy(out[(a*all+from+b)*nx:][lo:hi], in[(a*nb+b)*nx:][lo:hi])
		}
	}
}

func ftPickHost(w *device.Work) {
	u, where, picks := device.Slice[complex128](w, 0), device.Slice[int32](w, 1), device.Slice[complex128](w, 2)
	n := ints(w, 3)
	per, plane := n[0], n[2]
	for z := w.Lo[1]; z < w.Hi[1]; z++ {
		for i := w.Lo[0]; i < w.Hi[0]; i++ {
			picks[z*per+i] = u[z*plane+int(where[z*per+i])]
		}
	}
}

func ftSumHost(w *device.Work) {
	picks, sums := device.Slice[complex128](w, 0), device.Slice[complex128](w, 1)
	step, points := device.Value[int32](w, 3), device.Value[float64](w, 4)
	var part [ftGroup]complex128
	for i, v := range picks {
		part[i%ftGroup] += v
	}
	for half := ftGroup / 2; half > 0; half /= 2 {
		for t := range half {
			part[t] += part[t+half]
		}
	}
	sums[step] = complex(real(part[0])/points, imag(part[0])/points)
}
