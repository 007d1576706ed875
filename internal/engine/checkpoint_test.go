//go:build unix

package engine

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestCheckpoint_ReturnsErrorDespiteOnError shows that Checkpoint returns why
// it failed even if OnError was called.
func TestCheckpoint_ReturnsErrorDespiteOnError(t *testing.T) {
	fsys, full := fillable(newDisk(t))
	var told error
	p := openFS(t, fsys, func(o *Options) { o.OnError = func(err error) { told = err } })
	x := 0
	Protect(p, "x", &x)
	restore(t, p, false)
	full.Store(true)
	err := p.Checkpoint(ctx)
	if !errors.Is(err, ErrNotSaved) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Checkpoint: %v", err)
	}
	if !errors.Is(told, syscall.ENOSPC) {
		t.Errorf("OnError was told: %v", told)
	}
}

// TestCheckpoint_AfterUnreportedFailure makes a checkpoint fail whose outcome
// is not requested. The next Checkpoint must report its own outcome.
func TestCheckpoint_AfterUnreportedFailure(t *testing.T) {
	disk := newDisk(t)
	fsys, full := fillable(disk)
	p := openFS(t, fsys)
	x := 1
	Protect(p, "x", &x)
	restore(t, p, false)
	full.Store(true)
	p.Request()
	if err := p.Point(ctx); err != nil {
		t.Fatal(err)
	}
	until(t, "the writer has failed", func() bool { return len(p.outcome) > 0 })
	full.Store(false)
	x = 2
	if err := p.Checkpoint(ctx); err != nil {
		t.Fatalf("Checkpoint: %v, though its checkpoint is committed", err)
	}
	y := 0
	q := openFS(t, disk.Crash(vfstest.LoseAll))
	Protect(q, "x", &y)
	restore(t, q, true)
	if y != 2 {
		t.Errorf("restored %d, want 2", y)
	}
}

// TestStop_UnsupportedValue requests a stop while the state holds a value that
// cannot be saved: the error says both, and the stop is done.
func TestStop_UnsupportedValue(t *testing.T) {
	p := openFS(t, newDisk(t))
	var state struct{ c chan int }
	Protect(p, "state", &state)
	restore(t, p, false)
	state.c = make(chan int)
	var sig os.Signal = syscall.SIGTERM
	p.requestStop(sig.String())
	p.wake.Store(true)
	err := p.Point(ctx)
	if !errors.Is(err, ErrStopped) || !errors.Is(err, ErrNotSaved) || !strings.Contains(err.Error(), "state.c") {
		t.Fatalf("Point: %v", err)
	}
	state.c = nil
	if err := p.Point(ctx); err != nil {
		t.Fatalf("the next Point: %v", err)
	}
	checkpoint(t, p)
}

// TestCheckpoint_ClosedFile closes a file that was opened before Restore, as at
// every start. Its content is final, whether the state refers to it or not: a
// restart does not truncate it.
func TestCheckpoint_ClosedFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(t.TempDir(), "out")
	type state struct {
		n   int
		out *os.File
	}
	start := func(s *state) *Run {
		p := open(t, dir)
		f, err := p.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		s.out = f
		Protect(p, "s", s)
		return p
	}
	var s state
	p := start(&s)
	restore(t, p, false)
	s.out.WriteString("parameters")
	if err := s.out.Close(); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < 5; n++ {
		s.n = n
		if n == 2 {
			s.out = nil
		}
		checkpoint(t, p)
		closeRun(t, p)
		s = state{}
		p = start(&s)
		opened := s.out
		restore(t, p, true)
		if s.n != n || s.out == opened || (s.out == nil) != (n > 1) {
			t.Fatalf("%d: restored %+v", n, s)
		}
		if n == 3 { // closed again, as before
			opened.Close()
		}
		if b, err := os.ReadFile(name); string(b) != "parameters" {
			t.Fatalf("%d: it holds %q, %v", n, b, err)
		}
	}
	closeRun(t, p)
}

// TestRun_FaultsLeakNothing fails each file operation in turn, and checks that
// runs leave no goroutines or open files.
func TestRun_FaultsLeakNothing(t *testing.T) {
	try := func(failing int64) {
		var n atomic.Int64
		fsys := vfstest.Hook(newDisk(t), func(op, name string) error {
			if n.Add(1) == failing {
				return syscall.EIO
			}
			return nil
		})
		p, err := Open(ctx, Options{Dir: "/run/ckpt", EveryPoints: 1, fs: fsys})
		if err != nil {
			return
		}
		defer p.Close()
		grid := counted(100_000)
		Protect(p, "grid", &grid)
		if _, err := p.Restore(ctx); err != nil {
			return
		}
		for range 3 {
			grid[5]++
			p.Point(ctx)
		}
	}
	try(0) // starts what the runtime keeps, such as the goroutine for signals
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	for i := range int64(80) {
		try(i)
	}
	until(t, "goroutines and open files are gone", func() bool {
		return runtime.NumGoroutine() <= goroutines && descriptors(t) <= files
	})
}

// slowState takes pause to be collected.
type slowState struct{ pause time.Duration }

func (s *slowState) CairnState(c *graph.Coder) error {
	time.Sleep(s.pause)
	graph.Field(c, "pause", &s.pause)
	return nil
}

// TestCheckpoint_PauseInFile shows that the pause in a checkpoint's file counts
// all of the pause, also the time in which the state is collected, and that the
// program and the supervisor are told the same.
func TestCheckpoint_PauseInFile(t *testing.T) {
	disk := newDisk(t)
	var told time.Duration
	p := openFS(t, disk, func(o *Options) { o.OnSaved = func(s CheckpointInfo) { told = s.Pause } })
	v := slowState{20 * time.Millisecond}
	Protect(p, "v", &v)
	restore(t, p, false)
	if err := p.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
	f, err := ckpt.Open(disk, p.dir.File(1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got := f.Header.Note.PauseMS; got < 20 || got != float64(told.Microseconds())/1000 {
		t.Errorf("the file says %v ms, and OnSaved was told %v", got, told)
	}
}

// TestRanks_PauseInFile is the same for several ranks.
func TestRanks_PauseInFile(t *testing.T) {
	dir := t.TempDir()
	told := make([]time.Duration, 3)
	errs := newCrew(3, mem.Options{}).runWith(Options{Dir: dir}, func(p *Run) error {
		v := slowState{time.Duration(p.Rank()) * time.Millisecond}
		Protect(p, "v", &v)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		return p.Checkpoint(ctx)
	}, func(r int, o *Options) { o.OnSaved = func(s CheckpointInfo) { told[r] = s.Pause } })
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for r, told := range told {
		f, err := ckpt.Open(vfs.OS(), store.Open(vfs.OS(), dir, r).File(1))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Header.Note.PauseMS; got < float64(r) || got != float64(told.Microseconds())/1000 {
			t.Errorf("rank %d: the file says %v ms, and OnSaved was told %v", r, got, told)
		}
		f.Close()
	}
}
