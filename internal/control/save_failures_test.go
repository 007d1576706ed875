package control

import (
	"fmt"
	"testing"
	"time"
)

// TestSaveFailures_ReportOnce: a failure is reported once for all ranks and
// checkpoints, and again after a while or when a checkpoint was saved.
func TestSaveFailures_ReportOnce(t *testing.T) {
	var l SaveFailures
	now := time.Now()
	add := func(index uint64, why string, count int, report bool) {
		t.Helper()
		if n, ok := l.Add(index, why, now); n != count || ok != report {
			t.Errorf("checkpoint %d, %s: %d in a row, reported: %v", index, why, n, ok)
		}
	}
	full := func(index uint64, rank int) string { return fmt.Sprintf("ckpt-%08d/rank-%04d: full", index, rank) }
	if l.Over() != 0 {
		t.Error("checkpoints that were never tried")
	}
	add(9, full(9, 0), 1, true)
	add(9, full(9, 1), 1, false)
	add(10, full(10, 0), 2, false)
	add(10, "a slow disk", 2, true)
	now = now.Add(reportAgain)
	add(11, full(11, 1), 3, true)
	add(12, full(12, 1), 4, false)
	if n := l.Over(); n != 4 || l.Over() != 0 {
		t.Errorf("%d checkpoints", n)
	}
	add(14, full(14, 1), 1, true)
}
