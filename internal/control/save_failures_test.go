package control

import (
	"fmt"
	"testing"
	"time"
)

// TestTroubles: the same is told once for all ranks and sets, other troubles too,
// and again after a while or when sets were saved in between.
func TestTroubles(t *testing.T) {
	var l SaveFailures
	now := time.Now()
	add := func(set uint64, why string, sets int, tell bool) {
		t.Helper()
		if n, ok := l.Add(set, why, now); n != sets || ok != tell {
			t.Errorf("set %d, %s: %d sets, told: %v", set, why, n, ok)
		}
	}
	full := func(set uint64, rank int) string { return fmt.Sprintf("ckpt-%08d/rank-%04d: full", set, rank) }
	if l.Over() != 0 {
		t.Error("sets that were never tried")
	}
	add(9, full(9, 0), 1, true)
	add(9, full(9, 1), 1, false)
	add(10, full(10, 0), 2, false)
	add(10, "a slow disk", 2, true)
	now = now.Add(reportAgain)
	add(11, full(11, 1), 3, true)
	add(12, full(12, 1), 4, false)
	if n := l.Over(); n != 4 || l.Over() != 0 {
		t.Errorf("%d sets", n)
	}
	add(14, full(14, 1), 1, true)
}
