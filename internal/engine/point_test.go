package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// points calls Point until n checkpoints are safe, and returns how many calls
// it took.
func points(t *testing.T, p *Run, indices *int, n int) (calls int) {
	t.Helper()
	for *indices < n {
		if err := p.Point(ctx); err != nil {
			t.Fatal(err)
		}
		calls++
	}
	return calls
}

// TestPoint_Due checks when a point takes a checkpoint, and the reason that it
// gives.
func TestPoint_Due(t *testing.T) {
	x := 0
	for _, c := range []struct {
		name   string
		change func(*Options)
		reason string
	}{
		{"count", func(o *Options) { o.EveryPoints = 3; o.Every = 0 }, "points"},
		{"time", func(o *Options) { o.Every = time.Millisecond }, "time"},
		{"auto", func(o *Options) { o.Every = 0; o.Auto = true; o.MTBF = time.Millisecond }, "time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var reasons []string
			indices := 0
			p := open(t, t.TempDir(), c.change, func(o *Options) {
				o.OnSaved = func(s CheckpointInfo) { reasons = append(reasons, s.Reason); indices++ }
			})
			Protect(p, "x", &x)
			restore(t, p, false)
			points(t, p, &indices, 3)
			for _, r := range reasons {
				if r != c.reason {
					t.Errorf("reasons %v, want %q", reasons, c.reason)
				}
			}
		})
	}
	t.Run("exact count", func(t *testing.T) {
		p := open(t, t.TempDir(), func(o *Options) { o.EveryPoints = 5; o.Every = 0 })
		Protect(p, "x", &x)
		restore(t, p, false)
		for i := 1; i <= 4; i++ {
			if p.Point(ctx); p.saver.Busy() {
				t.Fatalf("saved at point %d, want 5", i)
			}
		}
		if p.Point(ctx); !p.saver.Busy() {
			t.Fatal("not saved at point 5")
		}
	})
	t.Run("request", func(t *testing.T) {
		indices := 0
		p := open(t, t.TempDir(), func(o *Options) { o.OnSaved = func(CheckpointInfo) { indices++ } })
		Protect(p, "x", &x)
		restore(t, p, false)
		for range 1000 {
			p.Point(ctx)
		}
		if indices != 0 || p.saver.Busy() {
			t.Fatal("saved though nothing was due")
		}
		p.Request()
		points(t, p, &indices, 1)
	})
}

// TestInterval_Daly compares the interval with published figures.
func TestInterval_Daly(t *testing.T) {
	// Young's figure for a cost of 5 minutes and a day between failures is
	// sqrt(2·300·86400) = 7200 s; Daly's correction moves it a little.
	got := Interval(5*time.Minute, 24*time.Hour).Seconds()
	if got < 6900 || got > 7200 {
		t.Errorf("Interval = %.0f s", got)
	}
	if got := Interval(time.Hour, time.Minute); got != time.Minute {
		t.Errorf("Interval with a cost above the MTBF = %v", got)
	}
}

// TestPoint_ChangesAfterReturn changes everything as soon as Point returns,
// while the writer has to wait. The checkpoint must not contain any of these
// changes.
func TestPoint_ChangesAfterReturn(t *testing.T) {
	for _, bound := range []int64{0, 8 << 20} { // with room for everything, and without
		t.Run(fmt.Sprintf("bound=%d", bound), func(t *testing.T) {
			disk := newDisk(t)
			gate := make(chan struct{})
			var wait atomic.Bool
			fsys := vfstest.Hook(disk, func(op, name string) error {
				if wait.Load() && op == "write" && bound == 0 {
					<-gate
				}
				return nil
			})
			grid := make([]float64, 4<<20) // 32 MiB
			tag := "before"
			p, err := Open(ctx, Options{Dir: "/run/ckpt", Every: time.Hour, Signals: map[os.Signal]SignalAction{}, Memory: bound, fs: fsys})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			Protect(p, "grid", &grid)
			Protect(p, "tag", &tag)
			restore(t, p, false)
			for i := range grid {
				grid[i] = 1
			}
			wait.Store(true)
			p.Request()
			if err := p.Point(ctx); err != nil {
				t.Fatal(err)
			}
			for i := range grid {
				grid[i] = 2
			}
			tag = "after"
			close(gate)
			closeRun(t, p)

			var got []float64
			var word string
			q, err := Open(ctx, Options{Dir: "/run/ckpt", Signals: map[os.Signal]SignalAction{}, fs: disk})
			if err != nil {
				t.Fatal(err)
			}
			defer q.Close()
			Protect(q, "grid", &got)
			Protect(q, "tag", &word)
			restore(t, q, true)
			for i := range got {
				if got[i] != 1 {
					t.Fatalf("grid[%d] = %v", i, got[i])
				}
			}
			if word != "before" {
				t.Fatalf("tag = %q", word)
			}
		})
	}
}

// TestPoint_DiskFull shows that Point reports a full disk once, and that
// checkpoints succeed when there is room again.
func TestPoint_DiskFull(t *testing.T) {
	disk := newDisk(t)
	var full atomic.Bool
	fsys := vfstest.Hook(disk, func(op, name string) error {
		if full.Load() && op == "write" {
			return syscall.ENOSPC
		}
		return nil
	})
	x := 1
	p, err := Open(ctx, Options{Dir: "/run/ckpt", Every: time.Hour, Signals: map[os.Signal]SignalAction{}, fs: fsys})
	if err != nil {
		t.Fatal(err)
	}
	Protect(p, "x", &x)
	restore(t, p, false)
	checkpoint(t, p)
	full.Store(true)
	x = 2
	p.Request()
	if err := p.Point(ctx); err != nil {
		t.Fatalf("the point that saves: %v", err)
	}
	for err == nil { // the next call after the writer has failed reports it
		err = p.Point(ctx)
	}
	if !errors.Is(err, ErrNotSaved) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Point: %v", err)
	}
	if err := p.Point(ctx); err != nil {
		t.Fatalf("the failure is reported twice: %v", err)
	}
	if err := p.Checkpoint(ctx); !errors.Is(err, ErrNotSaved) {
		t.Fatalf("Checkpoint: %v", err)
	}
	full.Store(false)
	x = 3
	checkpoint(t, p)
	closeRun(t, p)
	y := 0
	q, _ := Open(ctx, Options{Dir: "/run/ckpt", Signals: map[os.Signal]SignalAction{}, fs: disk})
	defer q.Close()
	Protect(q, "x", &y)
	restore(t, q, true)
	if y != 3 {
		t.Fatalf("x = %d", y)
	}
}

// TestRestore_DamagedCheckpoints skips a damaged checkpoint, and fails if all
// are damaged.
func TestRestore_DamagedCheckpoints(t *testing.T) {
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
	if err := disk.Corrupt("/run/ckpt/ckpt-00000002/rank-0000.h5", 5000, 1); err != nil {
		t.Fatal(err)
	}
	w := newVersioned()
	if p, err = openOn(disk, w, None); err != nil {
		t.Fatal(err)
	}
	restore(t, p, true)
	if err := w.check(); err != nil || w.version != 1 {
		t.Fatalf("version %d: %v", w.version, err)
	}
	closeRun(t, p)
	if err := disk.Corrupt("/run/ckpt/ckpt-00000001/rank-0000.h5", 5000, 1); err != nil {
		t.Fatal(err)
	}
	if p, err = openOn(disk, newVersioned(), None); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if ok, err := p.Restore(ctx); ok || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "none of 2 checkpoints") {
		t.Fatalf("Restore of nothing but damaged checkpoints: %v, %v", ok, err)
	}
}

// TestPoint_Canceled shows that a canceled point returns an error, and that the
// next one works.
func TestPoint_Canceled(t *testing.T) {
	p := open(t, t.TempDir())
	x := 0
	Protect(p, "x", &x)
	restore(t, p, false)
	c, cancel := context.WithCancel(ctx)
	cancel()
	p.Request()
	if err := p.Point(c); !errors.Is(err, context.Canceled) {
		t.Fatalf("Point: %v", err)
	}
	if err := p.Point(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestRestore_Fixed restores a Fixed variable in its own memory. Other lengths
// are refused.
func TestRestore_Fixed(t *testing.T) {
	dir := t.TempDir()
	a := [][]float64{{1, 2}, {3, 4}}
	p := open(t, dir)
	Protect(p, "a", &a, Fixed)
	restore(t, p, false)
	checkpoint(t, p)
	closeRun(t, p)
	b := [][]float64{{0, 0}, {0, 0}}
	q := open(t, dir)
	Protect(q, "a", &b, Fixed)
	restore(t, q, true)
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("restored %v", b)
	}
	closeRun(t, q)
	c := [][]float64{{0, 0, 0}, {0, 0, 0}}
	r := open(t, dir)
	Protect(r, "a", &c, Fixed)
	if _, err := r.Restore(ctx); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), `"a" has shape [2 2] in the checkpoint, [2 3] in the program`) {
		t.Fatalf("Restore: %v", err)
	}
}

// TestPoint_RetryAfterFailure: after a failed checkpoint the next one is tried
// when it is due, not at the next point, and at once if it is requested.
func TestPoint_RetryAfterFailure(t *testing.T) {
	for _, v := range []struct {
		name  string
		every int
		copy  bool   // it fails before anything is written
		tried string // points at which it is tried; a failure is known at the next point, unless nothing was copied
	}{
		{"time", 0, false, "1"},
		{"points", 5, false, "1 7 13"},
		{"time, no copy", 0, true, "1"},
		{"points, no copy", 5, true, "1 6 11"},
	} {
		t.Run(v.name, func(t *testing.T) {
			fsys := vfstest.Hook(newDisk(t), func(op, name string) error {
				if op == "write" {
					return syscall.ENOSPC
				}
				return nil
			})
			point, errs, tried := 0, 0, []string{}
			opts := Options{Dir: "/run/ckpt", EveryPoints: v.every, Signals: map[os.Signal]SignalAction{}, fs: fsys}
			if v.every == 0 {
				opts.Every = time.Hour
			}
			opts.OnCopy = func() error {
				tried = append(tried, fmt.Sprint(point))
				if v.copy {
					return syscall.ENOSPC
				}
				return nil
			}
			opts.OnError = func(error) { errs++ }
			p, err := Open(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			x := 0
			Protect(p, "x", &x)
			restore(t, p, false)
			pass := func() {
				n := len(tried)
				if err := p.Point(ctx); err != nil {
					t.Fatal(err)
				}
				for !v.copy && len(tried) > n && !p.wake.Load() { // for the next point to take in the outcome
					runtime.Gosched()
				}
			}
			p.Request()
			for point = 1; point < 15; point++ {
				pass()
			}
			if got := strings.Join(tried, " "); got != v.tried || errs != len(tried) {
				t.Errorf("tried at the points %s, not at %s, and told of %d", got, v.tried, errs)
			}
			n := len(tried)
			p.Request()
			if pass(); len(tried) != n+1 {
				t.Error("a request was not followed at once")
			}
		})
	}
}

// TestRetryDelay_Doubles: the delay after failed checkpoints doubles, up to the
// interval.
func TestRetryDelay_Doubles(t *testing.T) {
	for _, v := range []struct {
		failed      int
		every, want time.Duration
	}{
		{1, time.Second, time.Second}, {9, time.Second, time.Second}, {3, 0, 0},
		{1, time.Hour, 10 * time.Second}, {2, time.Hour, 20 * time.Second}, {9, time.Hour, 2560 * time.Second},
		{10, time.Hour, time.Hour}, {1 << 30, time.Hour, time.Hour}, {1 << 30, math.MaxInt64, math.MaxInt64},
	} {
		if got := retryDelay(v.failed, v.every); got != v.want {
			t.Errorf("%d failed, every %v: %v, not %v", v.failed, v.every, got, v.want)
		}
	}
}

// TestPoint_RetryAfterFailureOnRanks is TestPoint_RetryAfterFailure for several
// ranks.
func TestPoint_RetryAfterFailureOnRanks(t *testing.T) {
	var tried atomic.Int32
	c := newCrew(2, mem.Options{})
	opts := Options{Dir: t.TempDir(), Every: time.Hour, OnCopy: func() error {
		tried.Add(1)
		return syscall.ENOSPC
	}}
	mustEnd(t, within(t, c, opts, func(p *Run) error {
		x := 0
		Protect(p, "x", &x)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		if p.Rank() == 0 {
			p.Request()
		}
		var err error
		for err == nil {
			err = p.Point(ctx)
		}
		if !errors.Is(err, ErrNotSaved) {
			return err
		}
		for range 50 {
			if err := p.Point(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
	if n := tried.Load(); n != 2 {
		t.Errorf("%d parts of sets were tried by 2 ranks", n)
	}
}

// TestStop_DiskFull stops a run when its disk is full: the error says that the
// state is not saved, with OnError or without, and the run is not stopped
// again.
func TestStop_DiskFull(t *testing.T) {
	for _, onError := range []func(error){nil, func(error) {}} {
		disk := newDisk(t)
		var full atomic.Bool
		fsys := vfstest.Hook(disk, func(op, name string) error {
			if full.Load() && op == "write" {
				return syscall.ENOSPC
			}
			return nil
		})
		x := 1
		p, err := Open(ctx, Options{Dir: "/run/ckpt", Every: time.Hour, Signals: map[os.Signal]SignalAction{}, OnError: onError, fs: fsys})
		if err != nil {
			t.Fatal(err)
		}
		Protect(p, "x", &x)
		restore(t, p, false)
		checkpoint(t, p)
		full.Store(true)
		var sig os.Signal = syscall.SIGTERM
		p.requestStop(sig.String())
		p.wake.Store(true)
		err = p.Point(ctx)
		if !errors.Is(err, ErrStopped) || !errors.Is(err, ErrNotSaved) || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the last committed checkpoint is 1") {
			t.Fatalf("Point: %v", err)
		}
		if err := p.Point(ctx); err != nil {
			t.Fatalf("the next Point: %v", err)
		}
		closeRun(t, p)
	}
}

// TestStop_CanceledContext cancels the context by the signal that stops the
// run, as signal.NotifyContext does.
func TestStop_CanceledContext(t *testing.T) {
	p := open(t, t.TempDir())
	x := 1
	Protect(p, "x", &x)
	restore(t, p, false)
	c, cancel := context.WithCancel(ctx)
	cancel()
	var sig os.Signal = syscall.SIGTERM
	p.requestStop(sig.String())
	p.wake.Store(true)
	if err := p.Point(c); !errors.Is(err, ErrStopped) || errors.Is(err, ErrNotSaved) {
		t.Fatalf("Point: %v", err)
	}
	if indices, _ := p.dir.Committed(); len(indices) != 1 {
		t.Fatalf("sets %v", indices)
	}
}

// TestRun_Misuse checks the errors of Point before Restore and after Close.
func TestRun_Misuse(t *testing.T) {
	p := open(t, t.TempDir())
	if err := p.Point(ctx); err == nil || !strings.Contains(err.Error(), "no Restore") {
		t.Errorf("Point before Restore: %v", err)
	}
	q := open(t, t.TempDir())
	restore(t, q, false)
	closeRun(t, q)
	if err := q.Point(ctx); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("Point after Close: %v", err)
	}
}

// TestRestore_FilesLost deletes the files of all checkpoints but leaves their
// links: that must not look like a first start.
func TestRestore_FilesLost(t *testing.T) {
	disk := newDisk(t)
	v := newVersioned()
	p, err := openOn(disk, v, None)
	if err != nil {
		t.Fatal(err)
	}
	restore(t, p, false)
	v.advance()
	v.advance()
	for range 3 {
		v.grid[0]++
		checkpoint(t, p)
	}
	closeRun(t, p)
	for _, n := range []int{2, 3} {
		if err := disk.Remove(fmt.Sprintf("/run/ckpt/ckpt-%08d/rank-0000.h5", n)); err != nil {
			t.Fatal(err)
		}
	}
	if p, err = openOn(disk, newVersioned(), None); err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Restore(ctx); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "checkpoint 3 has lost its file") {
		t.Fatalf("Restore: %v", err)
	}
}
