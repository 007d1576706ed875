package main

import (
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// TestDocs_TablesAreCurrent checks that docs/tiers.md has these tables.
func TestDocs_TablesAreCurrent(t *testing.T) {
	page, err := os.ReadFile("../../../docs/tiers.md")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	tables(&b, large)
	for _, table := range strings.Split(strings.TrimSpace(b.String()), "\n\n") {
		if !strings.Contains(string(page), table) {
			t.Errorf("docs/tiers.md does not have the table\n%s", table)
		}
	}
}

// TestMeanTimeToLoss compares the formula with a simulation in which hosts are
// lost and repaired.
func TestMeanTimeToLoss(t *testing.T) {
	for _, c := range []struct {
		n, lose int
		repair  float64
	}{{2, 1, 20}, {3, 2, 5}, {6, 2, 10}, {11, 3, 8}, {4, 0, 1}} {
		r := rand.New(rand.NewPCG(uint64(c.n), uint64(c.lose)))
		const runs = 4000
		sum := 0.
		for range runs {
			lost, now := 0, 0.
			for lost <= c.lose {
				up, down := float64(c.n-lost), float64(lost)*c.repair
				now += r.ExpFloat64() / (up + down)
				if r.Float64()*(up+down) < up {
					lost++
				} else {
					lost--
				}
			}
			sum += now
		}
		got, want := meanTimeToLoss(c.n, c.lose, 1, c.repair), sum/runs
		if math.Abs(got-want) > 0.08*want {
			t.Errorf("%+v: %g, simulated %g", c, got, want)
		}
	}
}

// TestAtLeast compares with counting all choices.
func TestAtLeast(t *testing.T) {
	const all, some, n = 12, 5, 4
	counts, total := make([]int, n+1), 0
	for bits := range 1 << all {
		chosen, in := 0, 0
		for i := range all {
			if bits>>i&1 == 1 {
				chosen++
				if i < some {
					in++
				}
			}
		}
		if chosen == n {
			total++
			for k := range in + 1 {
				counts[k]++
			}
		}
	}
	for k := range counts {
		if got, want := atLeast(k, n, some, all), float64(counts[k])/float64(total); math.Abs(got-want) > 1e-9 {
			t.Errorf("at least %d: %g, counted %g", k, got, want)
		}
	}
}
