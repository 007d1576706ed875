//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestTiers_PinnedCheckpointsStay keeps checkpoints of hosts that share
// nothing: on a shared tier that has one, and in the run directory if only the
// hosts' disks do. Neither newer checkpoints nor 'cairn gc' nor the end of the
// run removes them, and runs resume from both. The daily version takes fewer
// checkpoints.
func TestTiers_PinnedCheckpointsStay(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	shared := sharedDir(t)
	w.lets(5)
	w.begins("2 1", "--tiers", fmt.Sprintf("shared=%s:every=2,keep=1", shared))
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on shared=" + shared)
	w.tells(0, "pin --name first", "checkpoint 1 is kept as "+shared+"/run-", "@first")
	w.goes(7)
	w.saves()
	w.tells(0, "pin --name second", "checkpoint 2 is kept as "+filepath.Join(w.run(), "pinned", "second"))
	w.tells(2, "pin --name 17", "is no number")
	w.goes(9)
	w.saves()
	w.awaits("checkpoint 3 is on shared=" + shared)
	if stressed() {
		w.goes(11)
		w.saves()
		w.saves()
		w.awaits("checkpoint 5 is on shared=" + shared)
		w.tells(0, "gc --tier shared --keep 1", "1 kept; pinned: checkpoint 1")
		w.tells(0, "verify --tier shared", "2 checkpoints checked, 0 damaged")
		w.tells(3, "pin --name first", "another checkpoint is pinned under that name")
	}
	list := []string{"checkpoint 1 is kept as " + shared + "/run-", "checkpoint 2 is kept as " + filepath.Join(w.run(), "pinned", "second")}
	w.tells(0, "list", list...)
	w.lets(60)
	w.finishes()
	sameOutput(t, w.output(), want)
	must(t, w.text(), "checkpoint 1 stays on shared="+shared+", pinned as first")

	found, _ := filepath.Glob(filepath.Join(shared, "run-*"))
	if len(found) != 1 {
		t.Fatalf("on the shared tier: %v", found)
	}
	pins := []struct{ from, restored string }{{found[0] + "@first", "1"}, {filepath.Join(w.run(), "pinned", "second"), "2"}}
	if !stressed() {
		pins = pins[1:]
	}
	for _, c := range pins {
		limit := filepath.Join(t.TempDir(), "limit")
		next := &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-limit", limit), ranks: n, limit: limit}
		next.lets(60)
		next.supervisor = next.start("-n", fmt.Sprint(n), "--every", "1h", "--from", c.from)
		next.awaits("restored checkpoint " + c.restored)
		next.finishes()
		sameOutput(t, next.output(), want)
	}
	w.tells(0, "pin --remove first", "is not kept as first any more on shared="+shared)
	w.tells(0, "pin --remove second", "is not kept as second any more")
	if _, err := os.Stat(filepath.Join(w.run(), "pinned", "second")); err == nil {
		t.Error("it is still there")
	}
	if left, _ := filepath.Glob(filepath.Join(found[0], "*", "files", "*.h5")); len(left) > 0 {
		t.Errorf("left on the shared tier: %v", left)
	}
}
