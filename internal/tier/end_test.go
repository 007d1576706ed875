package tier_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
)

// TestEnd_SurvivesCollections stores the end of a run beside a checkpoint.
// Collections spare it, and only the removal of the run removes it.
func TestEnd_SurvivesCollections(t *testing.T) {
	ctx := t.Context()
	m := tiertest.NewMem()
	run, attempt := strings.Repeat("ab", 16), strings.Repeat("cd", 16)
	upload := func() error {
		up, err := tier.Upload(ctx, m, tier.UploadOptions{Index: tier.EndIndex, Ranks: []int{0, 1}, Part: "host", End: &tier.EndOf{Run: run, Attempt: attempt, Ranks: 2},
			Extra: []tier.ExtraFile{{Kind: "pack", Rank: 1, Path: "output", Source: tier.BytesSource([]byte("the result"))}}})
		if err != nil {
			return err
		}
		return tier.CommitEnd(ctx, m, []tier.Uploaded{up}, tier.End{Status: 5, Time: time.Unix(1, 0).UTC()})
	}
	if x, err := tier.ReadEnd(ctx, m, run); x != nil || err != nil {
		t.Fatalf("before the end: %v, %v", x, err)
	}
	for range 2 { // it may be repeated
		if err := upload(); err != nil {
			t.Fatal(err)
		}
	}
	whole := func(when string) {
		x, err := tier.ReadEnd(ctx, m, run)
		if err != nil || x == nil || x.End.Status != 5 || x.Attempt != attempt {
			t.Fatalf("%s: %+v, %v", when, x, err)
		}
		damaged := 0
		if _, err := tier.Verify(ctx, m, x, make(map[string]error), func(string, error) { damaged++ }); err != nil || damaged > 0 {
			t.Errorf("%s: %d objects are damaged, %v", when, damaged, err)
		}
		if list, err := tier.Checkpoints(ctx, m, run); len(list) > 0 || err != nil {
			t.Errorf("%s: the end is a checkpoint: %v, %v", when, list, err)
		}
	}
	whole("after the end")
	if _, err := tier.Collect(ctx, m, run, tier.CollectOptions{Keep: 1}); err != nil {
		t.Fatal(err)
	}
	whole("after a collection")
	if _, err := tier.RemoveRest(ctx, m, run); err != nil {
		t.Fatal(err)
	}
	whole("without the rest")
	if runs, err := tier.Runs(ctx, m); err != nil || !slices.Contains(runs, run) {
		t.Errorf("runs: %v, %v", runs, err)
	}
	if _, err := tier.RemoveRun(ctx, m, run); err != nil || len(m.Names()) > 0 {
		t.Errorf("after the removal of the run: %v, %v", m.Names(), err)
	}
}
