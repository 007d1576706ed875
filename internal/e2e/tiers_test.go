//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTiers_Shared keeps checkpoints of hosts that share nothing on a shared
// directory, too.
func TestTiers_Shared(t *testing.T) {
	t.Parallel()
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	shared := filepath.Join(t.TempDir(), "gpfs")
	tiers := "shared=" + shared + ":every=2,keep=1"
	w.lets(5)
	w.begins("2 1", "--tiers", tiers)
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on shared=" + shared)
	w.goes(7)
	w.saves()
	w.goes(9)
	w.saves()
	w.awaits("checkpoint 3 is on shared=" + shared)
	w.tells(0, "status", "tier        shared="+shared+": checkpoint 3")
	if err := os.Rename(shared, shared+"-away"); err != nil {
		t.Fatal(err)
	}
	write(t, shared, "no directory")
	w.goes(11)
	w.saves()
	w.saves()
	w.awaits("shared=" + shared + " fails")
	w.tells(0, "status", "it fails since", "not a directory")
	if err := os.Remove(shared); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(shared+"-away", shared); err != nil {
		t.Fatal(err)
	}
	w.awaits("works again")
	w.lets(60)
	w.finishes()
	sameOutput(t, w.output(), want)
	if left, _ := filepath.Glob(filepath.Join(shared, "run-*", "*", "*")); len(left) > 0 {
		t.Errorf("the finished run has left on the shared tier: %v", left)
	}
}
