package main

import "github.com/cairnrun/cairn/device"

// The kernels of mg.cl in Go: the same sums in the same order. Because of the
// conversions to float64, the compiler does not fuse a product with an
// addition.

// mgRows holds, for each point of a row of n points, the sum of the four
// nearest points in y and z, and the sum of the four points diagonal to it.
type mgRows struct{ side, cross []float64 }

func newMGRows(n int) mgRows { return mgRows{make([]float64, n), make([]float64, n)} }

// add computes the sums around row y of plane z.
func (s mgRows) add(a []float64, y, z int) {
	n := len(s.side)
	back, front := (y+n-1)&(n-1), (y+1)&(n-1)
	row := func(z, y int) []float64 { return a[(z*n+y)*n:][:n] }
	mb, mf, l, h := row(z, back), row(z, front), row(z-1, y), row(z+1, y)
	lb, lf, hb, hf := row(z-1, back), row(z-1, front), row(z+1, back), row(z+1, front)
	side, cross := s.side, s.cross
	for x := range side {
		side[x] = mb[x] + mf[x] + l[x] + h[x]
		cross[x] = lb[x] + lf[x] + hb[x] + hf[x]
	}
}

func mgResidual(w *device.Work) {
	r, v, u := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Slice[float64](w, 2)
	n := int(device.Value[int32](w, 3))
	a0, a2, a3 := device.Value[float64](w, 4), device.Value[float64](w, 5), device.Value[float64](w, 6)
	sums := newMGRows(n)
	side, cross := sums.side, sums.cross
	lo, hi := w.Range(2)
	for z := lo + 1; z <= hi; z++ {
		for y := range n {
			sums.add(u, y, z)
			at := (z*n + y) * n
			for x := range n {
				west, east := (x+n-1)&(n-1), (x+1)&(n-1)
				r[at+x] = v[at+x] - float64(a0*u[at+x]) -
					float64(a2*(cross[x]+side[west]+side[east])) -
					float64(a3*(cross[west]+cross[east]))
			}
		}
	}
}

func mgSmooth(w *device.Work) {
	u, r := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	n, add := int(device.Value[int32](w, 2)), device.Value[int32](w, 3) != 0
	s0, s1, s2 := device.Value[float64](w, 4), device.Value[float64](w, 5), device.Value[float64](w, 6)
	sums := newMGRows(n)
	side, cross := sums.side, sums.cross
	lo, hi := w.Range(2)
	for z := lo + 1; z <= hi; z++ {
		for y := range n {
			sums.add(r, y, z)
			at := (z*n + y) * n
			for x := range n {
				west, east := (x+n-1)&(n-1), (x+1)&(n-1)
				d := float64(s0*r[at+x]) +
					float64(s1*(r[at+west]+r[at+east]+side[x])) +
					float64(s2*(cross[x]+side[west]+side[east]))
				if add {
					d = u[at+x] + d
				}
				u[at+x] = d
			}
		}
	}
}

func mgReduce(w *device.Work) {
	coarse, fine := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	n, first := int(device.Value[int32](w, 2)), int(device.Value[int32](w, 3))
	m := 2 * n
	sums := newMGRows(m)
	side, cross := sums.side, sums.cross
	lo, hi := w.Range(2)
	for z := lo; z < hi; z++ {
		for y := range n {
			sums.add(fine, 2*y+1, 2*z+2)
			line := fine[((2*z+2)*m+2*y+1)*m:][:m]
			to := coarse[((z+first)*n+y)*n:][:n]
			for x := range to {
				f, west, east := 2*x+1, 2*x, (2*x+2)&(m-1)
				to[x] = float64(0.5*line[f]) +
					float64(0.25*(line[west]+line[east]+side[f])) +
					float64(0.125*(cross[f]+side[west]+side[east])) +
					float64(0.0625*(cross[west]+cross[east]))
			}
		}
	}
}

func mgExtend(w *device.Work) {
	fine, coarse := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	n, add := int(device.Value[int32](w, 2)), device.Value[int32](w, 3) != 0
	m := n / 2
	row := func(z, y int) []float64 { return coarse[(z*m+(y+m)&(m-1))*m:][:m] }
	mean := make([]float64, m)
	lo, hi := w.Range(2)
	for z := lo; z < hi; z++ {
		for y := range n {
			a, b := row(z/2, (y+1)/2-1), row(z/2, (y+2)/2-1)
			c, d := row((z+1)/2, (y+1)/2-1), row((z+1)/2, (y+2)/2-1)
			for x := range mean {
				mean[x] = 0.25 * (a[x] + b[x] + c[x] + d[x])
			}
			to := fine[(z*n+y)*n:][:n]
			for x := range to {
				value := 0.5 * (mean[((x+1)/2+m-1)&(m-1)] + mean[((x+2)/2-1)&(m-1)])
				if add {
					value = to[x] + value
				}
				to[x] = value
			}
		}
	}
}

func mgGhosts(w *device.Work) {
	below, above := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	last, first := device.Slice[float64](w, 2), device.Slice[float64](w, 3)
	lo, hi := w.Range(0)
	copy(below[lo:hi], last[lo:hi])
	copy(above[lo:hi], first[lo:hi])
}

func mgWrap(w *device.Work) {
	a, n, planes := device.Slice[float64](w, 0), int(device.Value[int32](w, 1)), int(device.Value[int32](w, 2))
	lo, hi := w.Range(0)
	copy(a[lo:hi], a[planes*n+lo:planes*n+hi])
	copy(a[(planes+1)*n+lo:(planes+1)*n+hi], a[n+lo:n+hi])
}

func mgZero(w *device.Work) {
	a := device.Slice[float64](w, 0)
	lo, hi := w.Range(0)
	clear(a[lo:min(hi, len(a))])
}
