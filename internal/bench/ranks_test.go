package main

import (
	"slices"
	"testing"
)

// TestTorus checks that neighbours are mutual, and not more than expected.
func TestTorus(t *testing.T) {
	for n, most := range map[int]int{1: 0, 2: 1, 8: 3, 27: 6, 12: 6, 7: 2, 64: 6, 1000: 6} {
		peers := torus(n)
		widest := 0
		for r := range n {
			list := peers(r)
			widest = max(widest, len(list))
			for i, p := range list {
				if p < 0 || p >= n || p == r || slices.Contains(list[:i], p) {
					t.Fatalf("%d ranks: rank %d has the neighbours %v", n, r, list)
				}
				if !slices.Contains(peers(p), r) {
					t.Errorf("%d ranks: rank %d is a neighbour of %d, but not the other way around", n, p, r)
				}
			}
		}
		if widest > most {
			t.Errorf("%d ranks: %d neighbours, wanted at most %d", n, widest, most)
		}
	}
}

// TestTake_LinesOfFigures reads figures from the output of a program. A line
// without a number is refused.
func TestTake_LinesOfFigures(t *testing.T) {
	b := &bench{got: map[string][]float64{}}
	if err := b.take("shm ", []byte("1 2e-7\n1024 1.5e-6\n1 3e-7\n")); err != nil {
		t.Fatal(err)
	}
	if got := b.got["shm 1"]; !slices.Equal(got, []float64{2e-7, 3e-7}) {
		t.Errorf("got %v", got)
	}
	if err := b.take("", []byte("mpirun: not enough slots\n")); err == nil {
		t.Error("a line without a number was taken")
	}
}
