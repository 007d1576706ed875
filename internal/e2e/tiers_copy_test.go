//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestTiers_CopyDirectory makes copies of a run that has no tiers: of its run
// directory while it runs, and of its checkpoint directory when it is stopped.
// All of them continue.
func TestTiers_CopyDirectory(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	limit := filepath.Join(t.TempDir(), "limit")
	wander := func() *wanderer {
		return &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-limit", limit), ranks: n, limit: limit}
	}
	begin := func(w *wanderer, flags ...string) {
		w.supervisor = w.start(append([]string{"-n", fmt.Sprint(n), "--every", "1h"}, flags...)...)
	}
	first, second, third := wander(), wander(), wander()
	first.lets(5)
	begin(first)
	first.reachesStep(5)
	if out, code := cairnTool(t, "checkpoint", first.run()); code != 0 {
		t.Fatalf("cairn checkpoint: exit status %d: %s", code, out)
	}
	first.goes(7)
	begin(second, "--from", first.run())
	second.awaits("restored checkpoint 1")
	second.reachesStep(7)
	first.stopsRun() // with checkpoint 2
	second.stopsRun()
	place := filepath.Join(t.TempDir(), "me", "sim")
	for range 2 { // the second time, all is there
		out, code := cairnTool(t, "copy", first.checkpoints()+"@2", place)
		if code != 0 {
			t.Fatalf("cairn copy: exit status %d: %s", code, out)
		}
		must(t, out, "1 checkpoint of run ", "copied to "+place+" as run ")
	}
	if out, code := cairnTool(t, "copy", second.run(), place); code != 3 {
		t.Errorf("cairn copy to a place of another run: exit status %d: %s", code, out)
	}
	begin(third, "--from", place)
	third.awaits("restored checkpoint 2")
	third.lets(60)
	third.finishes()
	begin(first)
	first.awaits("restored checkpoint 2")
	first.finishes()
	begin(second, "--from", first.run())
	second.awaits("the run directory has a run, which is resumed")
	second.awaits("restored checkpoint 2")
	second.finishes()
	ids := make(map[string]bool)
	for _, w := range []*wanderer{first, second, third} {
		sameOutput(t, w.output(), want)
		rec, err := rundir.ReadRecord(w.run())
		if err != nil {
			t.Fatal(err)
		}
		ids[rec.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("the runs have %d identities", len(ids))
	}
}
