package coordtest

import (
	"math"
	"testing"
)

// halo returns the six neighbours of each rank in a box of n ranks that wraps
// around.
func halo(n int) func(int) []int {
	dims := [3]int{1, 1, n}
	best := math.Inf(1)
	for a := 1; a*a*a <= n; a++ {
		for b := a; a*b*b <= n; b++ {
			if c := n / (a * b); a*b*c == n {
				if surface := float64(a*b + b*c + a*c); surface < best {
					best, dims = surface, [3]int{a, b, c}
				}
			}
		}
	}
	return func(r int) []int {
		at := [3]int{r % dims[0], r / dims[0] % dims[1], r / dims[0] / dims[1]}
		seen := map[int]bool{r: true}
		var list []int
		for d := range 3 {
			for _, step := range []int{-1, 1} {
				to := at
				to[d] = (to[d] + step + dims[d]) % dims[d]
				p := to[0] + dims[0]*(to[1]+dims[1]*to[2])
				if !seen[p] {
					seen[p] = true
					list = append(list, p)
				}
			}
		}
		return list
	}
}

// TestSimulate checks that the numbers of messages and rounds grow as expected
// with the number of ranks.
func TestSimulate(t *testing.T) {
	sizes := []int{8, 64, 512, 1000, 4096, 10000}
	if testing.Short() {
		sizes = sizes[:4]
	}
	for _, n := range sizes {
		c := Simulate(n, 0, halo(n))
		t.Logf("%5d ranks: depth %d, %3d rounds (paused %d), %6d messages (%5.2f per rank, %5d bookmarks), at most %d per rank, %.1f bytes each",
			n, c.Depth, c.Rounds, c.Paused, c.Messages, float64(c.Messages)/float64(n), c.Bookmarks, c.MaxPerRank, float64(c.Bytes)/float64(c.Messages))
		// Up or down the tree: Ask, Poll, Count, Target, Quiet,
		// Complete, Save, Saved, Outcome; at most one more wave with
		// its notice; and a bookmark to each neighbour.
		if most := n * (6 + 11); c.Messages > most {
			t.Errorf("%d ranks: %d messages, wanted at most %d", n, c.Messages, most)
		}
		if most := 8*c.Depth + 4; c.Rounds > most {
			t.Errorf("%d ranks: %d rounds, wanted at most %d", n, c.Rounds, most)
		}
		if most := 2*6 + 10*(4+1); c.MaxPerRank > most {
			t.Errorf("%d ranks: a rank has %d messages, wanted at most %d", n, c.MaxPerRank, most)
		}
	}
}
