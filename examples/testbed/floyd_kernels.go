package main

import "github.com/cairnrun/cairn/device"

// floydRows is the number of rows that an item of floydVia computes: it reads
// an element of row k once for all of them.
const floydRows = 4

// floydMix returns numbers that look random.
func floydMix(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x7feb352d
	x ^= x >> 15
	x *= 0x846ca68b
	return x ^ x>>16
}

// floydWeight returns the length of the edge from i to j.
func floydWeight(i, j, n, limit uint32) uint32 {
	at := i*n + j
	switch {
	case i == j:
		return 0
	case floydMix(2*at) < limit:
		return 1 + floydMix(2*at+1)%1000
	}
	return floydFar
}

// The graph. Items are (j, i): column and row.
func floydInitial(w *device.Work) {
	dist, path := device.Slice[uint32](w, 0), device.Slice[uint32](w, 1)
	n, limit := device.Value[uint32](w, 2), device.Value[uint32](w, 3)
	left, right := w.Range(0)
	lo, hi := w.Range(1)
	for i := lo; i < hi; i++ {
		for j := left; j < right; j++ {
			at := i*int(n) + j
			dist[at], path[at] = floydWeight(uint32(i), uint32(j), n, limit), uint32(i)
		}
	}
}

// Paths by way of k. Row and column k stay as they are, so that the order of
// the items does not matter. Where the rows of the last item are fewer, it
// computes the last row several times: it reads before it writes, so that each
// time writes the same.
func floydVia(w *device.Work) {
	dist, path := device.Slice[uint32](w, 0), device.Slice[uint32](w, 1)
	n, k := int(device.Value[uint32](w, 2)), int(device.Value[uint32](w, 3))
	left, right := w.Range(0)
	lo, hi := w.Range(1)
	last := (n - 1) * n
	for i := lo; i < hi; i++ {
		r0 := floydRows * i * n
		r1, r2, r3 := min(r0+n, last), min(r0+2*n, last), min(r0+3*n, last)
		f0, f1, f2, f3 := dist[r0+k], dist[r1+k], dist[r2+k], dist[r3+k]
		if min(f0, f1, f2, f3) < floydFar { // nothing gets shorter otherwise
			through := dist[k*n:][:right]
			d0, d1, d2, d3 := dist[r0:][:right], dist[r1:][:right], dist[r2:][:right], dist[r3:][:right]
			for j := left; j < right; j++ {
				t, o0, o1, o2, o3 := through[j], d0[j], d1[j], d2[j], d3[j]
				if d := f0 + t; d < o0 {
					d0[j], path[r0+j] = d, uint32(k)
				}
				if d := f1 + t; d < o1 {
					d1[j], path[r1+j] = d, uint32(k)
				}
				if d := f2 + t; d < o2 {
					d2[j], path[r2+j] = d, uint32(k)
				}
				if d := f3 + t; d < o3 {
					d3[j], path[r3+j] = d, uint32(k)
				}
			}
		}
	}
}
