package hotloops

import "math"

// Triangle returns the index of the knee of an ascending curve: the value
// farthest from the line between the first and the last. The loops up to and
// including it are the candidates. A straight line has no knee, and all loops
// are candidates.
func Triangle(h []float64) int {
	last := len(h) - 1
	if last <= 1 {
		return last
	}
	// The distance from the line, except for a constant factor.
	slope := (h[last] - h[0]) / float64(last)
	knee, most := last, 1e-9*max(1, math.Abs(h[last]-h[0]))
	for i := 1; i < last; i++ {
		if d := math.Abs(h[i] - h[0] - slope*float64(i)); d > most {
			knee, most = i, d
		}
	}
	return knee
}

// Cluster returns how many of the candidates (ascending) are chosen: those
// before the gap. Gaps are the local maxima of the second difference. Cluster
// takes the first gap with more than half of the range of h before it, else the
// last. share is the part of the range before it. Candidates that are all alike
// are all chosen, and so are those that equal the last chosen one.
//
// The second difference at i is h[i] - 2h[i-1] + h[i-2], and the curve is flat
// before its beginning, so a gap is where the steep part ends. The last value
// is compared with its left neighbour only.
func Cluster(h []float64) (keep int, share float64) {
	n := len(h)
	if n < 2 || h[n-1] <= h[0] {
		return n, 1
	}
	bend := func(i int) float64 {
		return h[i] - h[i-1] - (h[i-1] - h[max(i-2, 0)])
	}
	left := 0.0
	for i := 1; i < n; i++ {
		b := bend(i)
		if b > left && (i == n-1 || b >= bend(i+1)) {
			keep, share = i, (h[i]-h[0])/(h[n-1]-h[0])
			if share > 0.5 {
				break
			}
		}
		left = b
	}
	for keep < n && h[keep] == h[keep-1] {
		keep++
	}
	return keep, share
}
