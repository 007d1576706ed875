//go:build unix

package engine

import (
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// openFS opens a run on a file system. It saves only on request.
func openFS(t *testing.T, fsys vfs.FS, change ...func(*Options)) *Run {
	t.Helper()
	onFS := func(o *Options) { o.fs = fsys }
	return open(t, "/run/ckpt", append([]func(*Options){onFS}, change...)...)
}

// fillable returns a disk that is full while the returned flag is set.
func fillable(disk vfs.FS) (vfs.FS, *atomic.Bool) {
	full := new(atomic.Bool)
	return vfstest.Hook(disk, func(op, name string) error {
		if full.Load() && op == "write" {
			return syscall.ENOSPC
		}
		return nil
	}), full
}

// until waits until another goroutine has done something.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited two minutes for this: %s", what)
		}
	}
}

// needTracking skips a test if the kernel cannot track written pages.
func needTracking(t *testing.T) {
	t.Helper()
	tracker, err := mem.NewTracker()
	if err != nil {
		t.Skipf("this kernel cannot track written pages: %v", err)
	}
	tracker.Close()
}

// counted returns n different numbers.
func counted(n int) []float64 {
	f := make([]float64, n)
	for i := range f {
		f[i] = float64(i + 1)
	}
	return f
}

// descriptors counts the open files of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("open files cannot be counted here: %v", err)
	}
	return len(files)
}
