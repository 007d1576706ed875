//go:build unix

package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestPoint_CanceledWhenDueByCount cancels the very point at which a checkpoint
// is due by count: the next point takes it.
func TestPoint_CanceledWhenDueByCount(t *testing.T) {
	indices := 0
	p := open(t, t.TempDir(), func(o *Options) {
		o.Every = 0
		o.EveryPoints = 3
		o.OnSaved = func(CheckpointInfo) { indices++ }
	})
	x := 0
	Protect(p, "x", &x)
	restore(t, p, false)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for i, c := range []context.Context{ctx, ctx, canceled, ctx} {
		if err := p.Point(c); !errors.Is(err, c.Err()) {
			t.Fatalf("point %d: %v, want %v", i+1, err, c.Err())
		}
	}
	closeRun(t, p)
	if indices != 1 {
		t.Errorf("%d sets were saved, want 1", indices)
	}
}

// TestPoint_CanceledWhileCopying cancels a point while it waits for memory to
// copy to: the checkpoint is still due, and a later point takes it.
func TestPoint_CanceledWhileCopying(t *testing.T) {
	canceled, cancel := context.WithCancel(ctx)
	gate := make(chan struct{})
	context.AfterFunc(canceled, func() { close(gate) })
	fsys := vfstest.Hook(newDisk(t), func(op, name string) error {
		if op == "write" {
			cancel() // the writer hangs, and the program loses patience
			<-gate
		}
		return nil
	})
	indices := 0
	p := openFS(t, fsys, func(o *Options) {
		o.Every = time.Millisecond
		o.Memory = 8 << 20
		o.OnSaved = func(CheckpointInfo) { indices++ }
	})
	grid := counted(8 << 20) // 64 MiB
	Protect(p, "grid", &grid)
	restore(t, p, false)
	until(t, "the checkpoint is due", p.due.Load)
	if err := p.Point(canceled); !errors.Is(err, context.Canceled) {
		t.Fatalf("Point: %v, want it canceled", err)
	}
	until(t, "a point saves what the canceled one did not", func() bool {
		if err := p.Point(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		return indices > 0
	})
}
