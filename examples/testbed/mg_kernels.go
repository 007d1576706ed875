package main

import "github.com/cairnrun/cairn/device"

// The operations of multigrid on a slab of a periodic cubic grid of n points a
// side, n a power of two. An array has the slab's planes of n × n points. An
// array that a kernel reads also has a plane of a neighbour below and above
// them. Items are (x, y, plane), and a group is a row.
//
// For each point of a row, side is the sum of the four nearest points in y and
// z, and cross that of the four points across. The items of a group share these
// sums. Because of the conversions to float64, the compiler does not fuse a
// product with an addition.

// r = v − A·u
func mgResidual(w *device.Work) {
	r, v, u := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Slice[float64](w, 2)
	n := int(device.Value[int32](w, 3))
	a0, a2, a3 := device.Value[float64](w, 4), device.Value[float64](w, 5), device.Value[float64](w, 6)
	side, cross := device.LocalSlice[float64](w, 7), device.LocalSlice[float64](w, 8)
	for g := range w.Groups() {
		xlo, xhi := g.Range(0)
		ylo, yhi := g.Range(1)
		zlo, zhi := g.Range(2)
		for z := zlo; z < zhi; z++ {
			for y := ylo; y < yhi; y++ {
				back, front := (y+n-1)&(n-1), (y+1)&(n-1)
				lb, l, lf := u[(z*n+back)*n:][:xhi], u[(z*n+y)*n:][:xhi], u[(z*n+front)*n:][:xhi]
				mb, mf := u[((z+1)*n+back)*n:][:xhi], u[((z+1)*n+front)*n:][:xhi]
				hb, h, hf := u[((z+2)*n+back)*n:][:xhi], u[((z+2)*n+y)*n:][:xhi], u[((z+2)*n+front)*n:][:xhi]
				s, c := side[:xhi], cross[:xhi]
				for x := xlo; x < xhi; x++ {
					s[x] = mb[x] + mf[x] + l[x] + h[x]
					c[x] = lb[x] + lf[x] + hb[x] + hf[x]
				}
			}
		}
		for z := zlo; z < zhi; z++ {
			for y := ylo; y < yhi; y++ {
				at := (z*n + y) * n
				to, from, here := r[at:][:xhi], v[at:][:xhi], u[at+n*n:][:xhi]
				s, c := side[:n], cross[:n]
				for x := xlo; x < xhi; x++ {
					west, east := (x+n-1)&(n-1), (x+1)&(n-1)
					to[x] = from[x] - float64(a0*here[x]) -
						float64(a2*(c[x]+s[west]+s[east])) -
						float64(a3*(c[west]+c[east]))
				}
			}
		}
	}
}

// u += S·r; without add, u = S·r
func mgSmooth(w *device.Work) {
	u, r := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	n, add := int(device.Value[int32](w, 2)), device.Value[int32](w, 3) != 0
	s0, s1, s2 := device.Value[float64](w, 4), device.Value[float64](w, 5), device.Value[float64](w, 6)
	side, cross := device.LocalSlice[float64](w, 7), device.LocalSlice[float64](w, 8)
	for g := range w.Groups() {
		xlo, xhi := g.Range(0)
		ylo, yhi := g.Range(1)
		zlo, zhi := g.Range(2)
		for z := zlo; z < zhi; z++ {
			for y := ylo; y < yhi; y++ {
				back, front := (y+n-1)&(n-1), (y+1)&(n-1)
				lb, l, lf := r[(z*n+back)*n:][:xhi], r[(z*n+y)*n:][:xhi], r[(z*n+front)*n:][:xhi]
				mb, mf := r[((z+1)*n+back)*n:][:xhi], r[((z+1)*n+front)*n:][:xhi]
				hb, h, hf := r[((z+2)*n+back)*n:][:xhi], r[((z+2)*n+y)*n:][:xhi], r[((z+2)*n+front)*n:][:xhi]
				s, c := side[:xhi], cross[:xhi]
				for x := xlo; x < xhi; x++ {
					s[x] = mb[x] + mf[x] + l[x] + h[x]
					c[x] = lb[x] + lf[x] + hb[x] + hf[x]
				}
			}
		}
		for z := zlo; z < zhi; z++ {
			for y := ylo; y < yhi; y++ {
				at := (z*n + y) * n
				to, here := u[at:][:xhi], r[at+n*n:][:n]
				s, c := side[:n], cross[:n]
				for x := xlo; x < xhi; x++ {
					west, east := (x+n-1)&(n-1), (x+1)&(n-1)
					d := float64(s0*here[x]) +
						float64(s1*(here[west]+here[east]+s[x])) +
						float64(s2*(c[x]+s[west]+s[east]))
					if add {
						d = to[x] + d
					}
					to[x] = d
				}
			}
		}
	}
}

// coarse = means of fine. n is the side of coarse. An item adds up around the
// points x and x+n of fine.
func mgReduce(w *device.Work) {
	coarse, fine := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	n := int(device.Value[int32](w, 2))
	side, cross := device.LocalSlice[float64](w, 3), device.LocalSlice[float64](w, 4)
	m := 2 * n
	for g := range w.Groups() {
		xlo, xhi := g.Range(0)
		ylo, yhi := g.Range(1)
		zlo, zhi := g.Range(2)
		for z := zlo; z < zhi; z++ {
			for y := ylo; y < yhi; y++ {
				back, mid, front := 2*y, 2*y+1, (2*y+2)&(m-1)
				z0, z1, z2 := (2*z+1)*m, (2*z+2)*m, (2*z+3)*m
				for half := range 2 {
					at := half * n
					lb, l, lf := fine[(z0+back)*m+at:][:xhi], fine[(z0+mid)*m+at:][:xhi], fine[(z0+front)*m+at:][:xhi]
					mb, mf := fine[(z1+back)*m+at:][:xhi], fine[(z1+front)*m+at:][:xhi]
					hb, h, hf := fine[(z2+back)*m+at:][:xhi], fine[(z2+mid)*m+at:][:xhi], fine[(z2+front)*m+at:][:xhi]
					s, c := side[at:][:xhi], cross[at:][:xhi]
					for x := xlo; x < xhi; x++ {
						s[x] = mb[x] + mf[x] + l[x] + h[x]
						c[x] = lb[x] + lf[x] + hb[x] + hf[x]
					}
				}
			}
		}
		for z := zlo; z < zhi; z++ {
			for y := ylo; y < yhi; y++ {
				line := fine[((2*z+2)*m+2*y+1)*m:][:m]
				to := coarse[(z*n+y)*n:][:xhi]
				s, c := side[:m], cross[:m]
				for x := xlo; x < xhi; x++ {
					f, west, east := 2*x+1, 2*x, (2*x+2)&(m-1)
					to[x] = float64(0.5*line[f]) +
						float64(0.25*(line[west]+line[east]+s[f])) +
						float64(0.125*(c[f]+s[west]+s[east])) +
						float64(0.0625*(c[west]+c[east]))
				}
			}
		}
	}
}

// fine += coarse, interpolated, also in the neighbours' planes; without add,
// fine = coarse. n is the side of fine.
func mgExtend(w *device.Work) {
	fine, coarse := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	n, add := int(device.Value[int32](w, 2)), device.Value[int32](w, 3) != 0
	mean := device.LocalSlice[float64](w, 4)
	m := n / 2
	for g := range w.Groups() {
		xlo, xhi := g.Range(0)
		ylo, yhi := g.Range(1)
		zlo, zhi := g.Range(2)
		for z := zlo; z < zhi; z++ {
			for y := ylo; y < yhi; y++ {
				y0, y1 := ((y+1)/2+m-1)&(m-1), ((y+2)/2-1)&(m-1)
				a, b := coarse[(z/2*m+y0)*m:][:m], coarse[(z/2*m+y1)*m:][:m]
				c, d := coarse[((z+1)/2*m+y0)*m:][:m], coarse[((z+1)/2*m+y1)*m:][:m]
				to := mean[:m]
				for x := xlo; x < min(xhi, m); x++ {
					to[x] = 0.25 * (a[x] + b[x] + c[x] + d[x])
				}
			}
		}
		for z := zlo; z < zhi; z++ {
			for y := ylo; y < yhi; y++ {
				to, from := fine[(z*n+y)*n:][:xhi], mean[:m]
				for x := xlo; x < xhi; x++ {
					value := 0.5 * (from[((x+1)/2+m-1)&(m-1)] + from[((x+2)/2-1)&(m-1)])
					if add {
						value = to[x] + value
					}
					to[x] = value
				}
			}
		}
	}
}

// The neighbours' planes, out of their arrays. A slab may be its own neighbour.
func mgGhosts(w *device.Work) {
	below, above := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	last, first := device.Slice[float64](w, 2), device.Slice[float64](w, 3)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		below[i], above[i] = last[i], first[i]
	}
}

func mgZero(w *device.Work) {
	a := device.Slice[float64](w, 0)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a[i] = 0
	}
}
