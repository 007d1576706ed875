//go:build unix

package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestRestore_OptionalInDamagedCheckpoint damages a checkpoint with optional
// variables that the older one lacks: they keep the values of the program.
func TestRestore_OptionalInDamagedCheckpoint(t *testing.T) {
	disk := newDisk(t)
	x := 1
	p := openFS(t, disk)
	Protect(p, "x", &x)
	restore(t, p, false)
	checkpoint(t, p)
	closeRun(t, p)

	count, grid := 7, make([]float64, 50_000)
	start := func() *Run {
		p := openFS(t, disk)
		Protect(p, "count", &count, Optional)
		Protect(p, "grid", &grid, Optional)
		Protect(p, "x", &x)
		return p
	}
	p = start()
	restore(t, p, true)
	count, x = 99, 2
	for i := range grid {
		grid[i] = 99
	}
	checkpoint(t, p)
	closeRun(t, p)

	if err := disk.Corrupt("/run/ckpt/ckpt-00000002/rank-0000.h5", 4096+70_000, 1); err != nil {
		t.Fatal(err)
	}
	count, x = 7, 0
	clear(grid)
	p = start()
	restore(t, p, true)
	if x != 1 {
		t.Fatalf("x = %d, want 1: the damaged checkpoint was not skipped", x)
	}
	if count != 7 || slices.Max(grid) != 0 {
		t.Errorf("count = %d, grid has %v, want 7 and 0", count, slices.Max(grid))
	}
}

// TestRestore_BaseCannotBeOpened has no file descriptor left for the base of
// the newest checkpoint: Restore fails, and does not take an older one.
func TestRestore_BaseCannotBeOpened(t *testing.T) {
	disk := newDisk(t)
	v := newVersioned()
	p, err := openOn(disk, v, None)
	if err != nil {
		t.Fatal(err)
	}
	restore(t, p, false)
	for range 2 {
		v.advance()
		checkpoint(t, p)
	}
	closeRun(t, p)
	fsys := vfstest.Hook(disk, func(op, name string) error {
		if op == "open" && strings.Contains(name, "base") {
			return syscall.EMFILE
		}
		return nil
	})
	p, err = openOn(fsys, newVersioned(), None)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := p.Restore(ctx); ok || !errors.Is(err, syscall.EMFILE) {
		t.Errorf("Restore = %v, %v, want EMFILE", ok, err)
	}
	closeRun(t, p)
	if err := resumed(disk, 2); err != nil {
		t.Errorf("without the fault: %v", err)
	}
}

// TestRestore_UnreadableCheckpointIsKept cannot read the newest checkpoint for
// now: Restore takes the older one, and later checkpoints do not remove the
// newest.
func TestRestore_UnreadableCheckpointIsKept(t *testing.T) {
	disk := newDisk(t)
	v := newVersioned()
	p, err := openOn(disk, v, None)
	if err != nil {
		t.Fatal(err)
	}
	restore(t, p, false)
	for range 2 {
		v.advance()
		checkpoint(t, p)
	}
	closeRun(t, p)
	fsys := vfstest.Hook(disk, func(op, name string) error {
		if op == "read" && strings.HasSuffix(name, "ckpt-00000002/rank-0000.h5") {
			return syscall.EIO
		}
		return nil
	})
	w := newVersioned()
	p, err = openOn(fsys, w, None)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	restore(t, p, true)
	if err := w.check(); err != nil || w.version != 1 {
		t.Fatalf("restored version %d: %v", w.version, err)
	}
	checkpoint(t, p)
	closeRun(t, p)
	if indices, err := p.dir.Committed(); err != nil || !slices.Equal(indices, []uint64{3, 2}) {
		t.Errorf("sets %v (%v), want 3 and 2", indices, err)
	}
}

// TestRestore_BeforeFirstPoint restores a checkpoint that was saved before the
// first point: the count of points does not fall below zero.
func TestRestore_BeforeFirstPoint(t *testing.T) {
	dir := t.TempDir()
	x := 0
	for _, again := range []bool{false, true} {
		p := open(t, dir)
		Protect(p, "x", &x)
		restore(t, p, again)
		if p.points != 0 {
			t.Errorf("restored = %v: the run begins with %d points", again, p.points)
		}
		checkpoint(t, p)
		closeRun(t, p)
	}
}

// TestRestore_FailedLeaksNothing restores with a data file that was truncated,
// which fails: the file that Restore opened is closed again.
func TestRestore_FailedLeaksNothing(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(t.TempDir(), "out")
	x := 1
	p := open(t, dir)
	f, err := p.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "hello")
	Protect(p, "x", &x)
	restore(t, p, false)
	checkpoint(t, p)
	closeRun(t, p)
	f.Close()
	if err := os.Truncate(name, 1); err != nil {
		t.Fatal(err)
	}
	files := descriptors(t)
	for range 10 {
		p := open(t, dir)
		Protect(p, "x", &x)
		if _, err := p.Restore(ctx); err == nil {
			t.Fatal("Restore with a file that was cut succeeds")
		}
		closeRun(t, p)
	}
	if n := descriptors(t); n > files {
		t.Errorf("%d files are open, %d were before", n, files)
	}
}

// TestRestore_ExportedCheckpoint puts an exported file into an empty directory,
// under another index than it was saved with: the run restores it, and
// continues with differential checkpoints.
func TestRestore_ExportedCheckpoint(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	grid := make([]float64, 100_000)
	for i := range grid {
		grid[i] = float64(i + 1)
	}
	p := open(t, dir)
	Protect(p, "grid", &grid)
	restore(t, p, false)
	for range 3 {
		grid[7]++
		checkpoint(t, p)
	}
	closeRun(t, p)
	s, err := ckpt.Open(vfs.OS(), filepath.Join(dir, "ckpt-00000003", "rank-0000.h5"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := os.Mkdir(filepath.Join(other, "ckpt-00000003"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := s.Export(ctx, vfs.OS(), filepath.Join(other, "ckpt-00000003", "rank-0000.h5"), None, nil); err != nil {
		t.Fatal(err)
	}
	for want := grid[7]; want < grid[7]+2; want++ {
		var got []float64
		q := open(t, other)
		Protect(q, "grid", &got)
		restore(t, q, true)
		if got[7] != want || got[99_999] != 100_000 {
			t.Fatalf("restored %v, want %v", got[7], want)
		}
		got[7]++
		checkpoint(t, q)
		closeRun(t, q)
	}
}
