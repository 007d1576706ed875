//go:build unix

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// openFS starts a run on a file system that saves only when told.
func openFS(t *testing.T, fsys vfs.FS, change ...func(*Options)) *Run {
	t.Helper()
	onFS := func(o *Options) { o.fs = fsys }
	return open(t, "/run/ckpt", append([]func(*Options){onFS}, change...)...)
}

// fillable is a disk that is full while the returned flag is set.
func fillable(disk vfs.FS) (vfs.FS, *atomic.Bool) {
	full := new(atomic.Bool)
	return vfstest.Hook(disk, func(op, name string) error {
		if full.Load() && op == "write" {
			return syscall.ENOSPC
		}
		return nil
	}), full
}

// until waits for what another goroutine does.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 10 s for this: %s", what)
		}
		runtime.Gosched()
	}
}

// needTracking skips a test of what the kernel tells of written pages.
func needTracking(t *testing.T) {
	t.Helper()
	tracker, err := mem.NewTracker()
	if err != nil {
		t.Skipf("this kernel can't track written pages: %v", err)
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

// TestCanceledCount cancels the very point at which a checkpoint is due by
// count: the next point must make up for it.
func TestCanceledCount(t *testing.T) {
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

// TestCanceledTime cancels a point while it waits for memory to copy to: the
// checkpoint is still due, and a later point saves it.
func TestCanceledTime(t *testing.T) {
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

// TestCheckpointTellsThoughOnError shows that Checkpoint returns why it did
// not save, even if OnError has been told.
func TestCheckpointTellsThoughOnError(t *testing.T) {
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

// TestCheckpointAfterFailure fails a set that nobody has asked about yet: the
// Checkpoint that follows speaks of its own set, not of that one.
func TestCheckpointAfterFailure(t *testing.T) {
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
		t.Fatalf("Checkpoint: %v, though its set is safe", err)
	}
	y := 0
	q := openFS(t, disk.Crash(vfstest.LoseAll))
	Protect(q, "x", &y)
	restore(t, q, true)
	if y != 2 {
		t.Errorf("restored %d, want 2", y)
	}
}

// TestStopWithRefusedState is asked to stop when the state holds what can't
// be saved: the error says both, and the stop is forgotten.
func TestStopWithRefusedState(t *testing.T) {
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

// TestSharedPage protects two slices that meet in the middle of a page, and
// changes one next to the border: the scan for the other must not hide it.
func TestSharedPage(t *testing.T) {
	needTracking(t)
	buf := counted(1 << 18)
	const border = 1<<17 + 100 // not where a page begins
	left, right := buf[:border:border], buf[border:]
	disk := newDisk(t)
	p := openFS(t, disk)
	Protect(p, "left", &left)
	Protect(p, "right", &right)
	restore(t, p, false)
	for round := range 8 {
		left[border-1] = float64(-round)
		right[0] = float64(-round)
		checkpoint(t, p)
		var gotLeft, gotRight []float64
		q := openFS(t, disk.Crash(vfstest.LoseAll))
		Protect(q, "left", &gotLeft)
		Protect(q, "right", &gotRight)
		restore(t, q, true)
		if !slices.Equal(left, gotLeft) || !slices.Equal(right, gotRight) {
			t.Fatalf("round %d: restored %v and %v at the border, want %d", round, gotLeft[border-1], gotRight[0], -round)
		}
		closeRun(t, q)
	}
}

// TestNeighbouringArrays does so for arrays that lie side by side, as package
// variables do.
func TestNeighbouringArrays(t *testing.T) {
	needTracking(t)
	const n = 100_001
	type arrays struct{ a, b [n]float64 }
	state := new(arrays)
	copy(state.a[:], counted(n))
	copy(state.b[:], counted(n))
	disk := newDisk(t)
	p := openFS(t, disk)
	Protect(p, "a", &state.a)
	Protect(p, "b", &state.b)
	restore(t, p, false)
	for round := range 8 {
		for _, f := range []*float64{&state.a[0], &state.a[n-1], &state.b[0], &state.b[n-1]} {
			*f = float64(-round)
		}
		checkpoint(t, p)
		got := new(arrays)
		q := openFS(t, disk.Crash(vfstest.LoseAll))
		Protect(q, "a", &got.a)
		Protect(q, "b", &got.b)
		restore(t, q, true)
		if *got != *state {
			t.Fatalf("round %d: restored ends %v %v %v %v, want %d", round, got.a[0], got.a[n-1], got.b[0], got.b[n-1], -round)
		}
		closeRun(t, q)
	}
}

// TestPathsComeAndGo has memory whose place in the file changes with the rest
// of the state, and a save that fails in between: what the failed one saw
// changed must be in the next.
func TestPathsComeAndGo(t *testing.T) {
	needTracking(t)
	type state struct {
		grid []float64
		note []int32
	}
	disk := newDisk(t)
	fsys, full := fillable(disk)
	s := state{grid: counted(1 << 19)}
	p := openFS(t, fsys)
	Protect(p, "s", &s)
	restore(t, p, false)
	for i := range 5 {
		s.grid[7] = float64(-i)
		checkpoint(t, p)
	}
	s.note = []int32{1}
	for i := range 5 {
		s.grid[8] = float64(-i)
		checkpoint(t, p)
	}
	s.grid[300_000] = -77
	s.note = nil
	full.Store(true)
	if err := p.Checkpoint(ctx); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Checkpoint on a full disk: %v", err)
	}
	full.Store(false)
	s.note = []int32{1}
	checkpoint(t, p)
	closeRun(t, p)
	var got state
	q := openFS(t, disk)
	Protect(q, "s", &got)
	restore(t, q, true)
	if !reflect.DeepEqual(got, s) {
		t.Errorf("restored another state; grid[300000] = %v, want -77", got.grid[300_000])
	}
}

// TestSharedMapping changes protected memory through another mapping of it,
// which the kernel does not tell of.
func TestSharedMapping(t *testing.T) {
	needTracking(t)
	const size = 8 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	mapped := func() []float64 {
		m, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(m) })
		return unsafe.Slice((*float64)(unsafe.Pointer(&m[0])), size/8)
	}
	grid, alias := mapped(), mapped()
	copy(grid, counted(len(grid)))
	dir := t.TempDir()
	p := open(t, dir)
	Protect(p, "grid", &grid)
	restore(t, p, false)
	for i := range 4 {
		grid[0] = float64(i)
		checkpoint(t, p)
	}
	alias[500_000] = -42
	checkpoint(t, p)
	closeRun(t, p)
	var got []float64
	q := open(t, dir)
	Protect(q, "grid", &got)
	restore(t, q, true)
	if !slices.Equal(got, grid) {
		t.Errorf("restored another state; grid[500000] = %v, want -42", got[500_000])
	}
}

// TestOptionalOfDamagedSet damages a set that holds optional variables, which
// the older set lacks: they must keep the program's values, not get those of
// the damaged one.
func TestOptionalOfDamagedSet(t *testing.T) {
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
		t.Fatalf("x = %d, want 1: the damaged set was not stepped over", x)
	}
	if count != 7 || slices.Max(grid) != 0 {
		t.Errorf("count = %d, grid has %v, want 7 and 0", count, slices.Max(grid))
	}
}

// TestClosedFile closes a file that the state still refers to: no set may be
// reported saved that can't be restored.
func TestClosedFile(t *testing.T) {
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
	s.n = 1
	if err := s.out.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Checkpoint(ctx); !errors.Is(err, ErrNotSaved) || !strings.Contains(err.Error(), "s.out") {
			t.Fatalf("Checkpoint with a closed file: %v", err)
		}
	}
	s.n, s.out = 2, nil
	checkpoint(t, p)
	closeRun(t, p)
	var got state
	p = start(&got)
	restore(t, p, true)
	if got.n != 2 || got.out != nil {
		t.Errorf("restored %+v", got)
	}
}

// bigElement is larger than a block, hugeElement than any.
type (
	bigElement struct {
		A  [200_000]float64
		ID int32
	}
	hugeElement struct {
		A  [1_000_000]float64
		ID int32
	}
)

// TestBigElements saves and restores single elements that are larger than
// the blocks of a file.
func TestBigElements(t *testing.T) {
	dir := t.TempDir()
	big, huge := &bigElement{ID: 3}, &hugeElement{ID: 4}
	copy(big.A[:], counted(len(big.A)))
	copy(huge.A[:], counted(len(huge.A)))
	p := open(t, dir)
	Protect(p, "big", &big)
	Protect(p, "huge", &huge)
	restore(t, p, false)
	checkpoint(t, p)
	big.A[150_000] = -1
	huge.A[999_999] = -2
	checkpoint(t, p)
	closeRun(t, p)
	var gotBig *bigElement
	var gotHuge *hugeElement
	q := open(t, dir)
	Protect(q, "big", &gotBig)
	Protect(q, "huge", &gotHuge)
	restore(t, q, true)
	if *gotBig != *big || *gotHuge != *huge {
		t.Error("restored another state")
	}
}

// TestBaseCannotBeOpened has no file descriptor left for the base of the
// newest set: that says nothing about the set, so Restore must fail rather
// than go back to an older one.
func TestBaseCannotBeOpened(t *testing.T) {
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

// TestUnreadableSet can't read the newest set for now: Restore steps over to
// the older one, but later sets do not make the newest go away.
func TestUnreadableSet(t *testing.T) {
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

// TestReshaped changes the lengths of rows: the numbers are then a list and no
// table any more, and blocks of the one must not be taken for others of the
// other.
func TestReshaped(t *testing.T) {
	dir := t.TempDir()
	rows := make([][]float64, 4096)
	for i := range rows {
		rows[i] = []float64{float64(i), 1, 2, 3, 4, 5, 6, 7}
	}
	p := open(t, dir)
	Protect(p, "rows", &rows)
	restore(t, p, false)
	checkpoint(t, p)
	rows[0] = counted(4)
	rows[1] = counted(12)
	checkpoint(t, p)
	closeRun(t, p)

	shape := func(index int) []uint64 {
		s, err := ckpt.Open(vfs.OS(), filepath.Join(dir, fmt.Sprintf("ckpt-%08d", index), "rank-0000.h5"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, d := range s.Header.Datasets {
			if d.Path == "MemBlocks/rows" {
				return d.Dims
			}
		}
		t.Fatalf("checkpoint %d has no dataset of the numbers: %+v", index, s.Header.Datasets)
		return nil
	}
	if before, after := shape(1), shape(2); slices.Equal(before, after) {
		t.Errorf("the shape is %v before and after", after)
	}
	var got [][]float64
	q := open(t, dir)
	Protect(q, "rows", &got)
	restore(t, q, true)
	if !reflect.DeepEqual(rows, got) {
		t.Error("restored another state")
	}
}

// TestPointsAtZero restores a set that was saved before the first point: the
// count of points must not fall below zero.
func TestPointsAtZero(t *testing.T) {
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

// TestOwnSignalHandler has a program with a handler of its own for a signal
// that says stop: the run must not take it away.
func TestOwnSignalHandler(t *testing.T) {
	survive := make(chan os.Signal, 1) // the test itself, if the handler is gone
	own, others := make(chan os.Signal, 8), make(chan os.Signal, 8)
	signal.Notify(own, syscall.SIGUSR2)
	signal.Notify(others, syscall.SIGUSR1)
	defer signal.Stop(own)
	defer signal.Stop(others)
	p := open(t, t.TempDir(), func(o *Options) {
		o.Signals = map[os.Signal]SignalAction{syscall.SIGUSR2: SaveAndStop, syscall.SIGUSR1: SaveAndContinue}
	})
	x := 0
	Protect(p, "x", &x)
	restore(t, p, false)
	send := func(s syscall.Signal) {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGUSR2)
	<-own
	until(t, "the run is asked to stop", func() bool { return p.stop.Load() != nil })
	until(t, "the run has dealt with that and hears the other signal", func() bool {
		send(syscall.SIGUSR1)
		return p.request.Load() != nil
	})
	signal.Notify(survive, syscall.SIGUSR2)
	defer signal.Stop(survive)
	send(syscall.SIGUSR2)
	<-survive
	select {
	case <-own:
	case <-time.After(5 * time.Second):
		t.Error("the program's own handler is gone after the first signal")
	}
}

// descriptors counts the open files of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("open files can't be counted here: %v", err)
	}
	return len(files)
}

// TestNoLeakAfterFaults fails each file operation in turn and then looks
// whether runs leave goroutines or open files behind.
func TestNoLeakAfterFaults(t *testing.T) {
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

// TestNoLeakAfterFailedRestore restores with a data file that was cut, which
// fails: the file that Restore opened must be closed again.
func TestNoLeakAfterFailedRestore(t *testing.T) {
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

// TestNoLinks saves differential sets where there are no hard links: each is
// whole by itself nevertheless.
func TestNoLinks(t *testing.T) {
	disk := newDisk(t)
	var links atomic.Int64
	fsys := vfstest.Hook(disk, func(op, name string) error {
		if op == "link" {
			links.Add(1)
			return vfs.ErrNoLink
		}
		return nil
	})
	v := newVersioned()
	p, err := openOn(fsys, v, None)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	restore(t, p, false)
	for range 6 {
		v.advance()
		checkpoint(t, p)
		if err := resumed(disk.Crash(vfstest.LoseAll), int64(v.version)); err != nil {
			t.Fatalf("version %d: %v", v.version, err)
		}
	}
	closeRun(t, p)
	if links.Load() == 0 {
		t.Error("no set asked for a link: none was differential")
	}
}

// TestExportedSetGoesOn puts an exported file into an empty folder, under
// another index than it was saved with: it restores, and the run goes on with
// differential sets from there.
func TestExportedSetGoesOn(t *testing.T) {
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

// TestZerosInDifferentialSet saves, differentially, a variable that is still
// all zeros.
func TestZerosInDifferentialSet(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	for start := range 3 {
		p, err := Open(ctx, Options{Dir: dir, EveryPoints: 1, Signals: map[os.Signal]SignalAction{}})
		if err != nil {
			t.Fatal(err)
		}
		zeros, other := make([]float64, 1<<20), make([]float64, 1<<20)
		Protect(p, "zeros", &zeros)
		Protect(p, "other", &other)
		if _, err := p.Restore(ctx); err != nil {
			t.Fatal(err)
		}
		for i, x := range other[:len(other)-1] {
			if i < start*10 && x != 1 || i >= start*10 && x != 0 || zeros[i] != 0 {
				t.Fatalf("start %d: other[%d] = %v, zeros[%d] = %v", start, i, x, i, zeros[i])
			}
		}
		for i := range 10 {
			other[start*10+i] = 1
		}
		other[len(other)-1] = 2 // a block that stays as it is
		if err := p.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
