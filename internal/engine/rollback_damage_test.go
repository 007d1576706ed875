package engine

import (
	"context"
	"log/slog"
	"os"
	"testing"
)

// TestRollback_WhilePruning goes back over damaged checkpoints while older ones
// may still be being removed.
func TestRollback_WhilePruning(t *testing.T) {
	ctx := context.Background()
	p, err := Open(ctx, Options{Dir: t.TempDir(), EveryPoints: 1 << 30, MaxBases: -1, Keep: 3, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := 0
	Protect(p, "x", &x)
	if _, err := p.Restore(ctx); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		for range 2 {
			x++
			if err := p.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
		want, bad := x-1, p.lastCommitted
		if err := os.Truncate(p.dir.File(bad), 100); err != nil {
			t.Fatal(err)
		}
		if ok, err := p.Rollback(ctx); err != nil || !ok || x != want {
			t.Fatalf("Rollback = %v, %v, x = %d, want %d", ok, err, x, want)
		}
		if err := p.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
