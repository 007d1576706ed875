package host

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/drivertest"
	"github.com/cairnrun/cairn/internal/mem"
)

func TestDriver(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) driver.Device { return New(Options{Workers: 3}) })
}

func TestDriver_Discrete(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) driver.Device {
		return New(Options{Index: 1, Workers: 4, Discrete: true, Memory: 64 << 20})
	})
}

func TestDriver_OneWorker(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) driver.Device { return New(Options{Workers: 1, Discrete: true}) })
}

func TestPeers(t *testing.T) {
	drivertest.RunPeers(t, func(t *testing.T) (a, b driver.Device) {
		return New(Options{Workers: 1, Discrete: true}), New(Options{Index: 1, Workers: 1, Discrete: true})
	})
}

// open returns a device with a queue, and a function that makes kernels.
func open(t testing.TB, o Options) (driver.Device, driver.Queue, func(func(*driver.Work)) driver.Kernel) {
	d := New(o)
	t.Cleanup(func() { d.Close() })
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	return d, q, func(fn func(*driver.Work)) driver.Kernel {
		p, err := d.Build(driver.Source{Go: map[string]func(*driver.Work){"k": fn}})
		if err != nil {
			t.Fatal(err)
		}
		k, err := p.Kernel("k")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLaunch_AllWorkItems checks that parts are as driver.Work documents: whole
// groups, complete in all dimensions but one, every item once, the same in
// every launch.
func TestLaunch_AllWorkItems(t *testing.T) {
	for _, workers := range []int{1, 2, 7, 64} {
		_, q, kernel := open(t, Options{Workers: workers})
		for _, c := range []struct{ global, local [3]int }{
			{[3]int{1, 1, 1}, [3]int{}},
			{[3]int{100, 1, 1}, [3]int{}},
			{[3]int{100000, 1, 1}, [3]int{}},
			{[3]int{100001, 1, 1}, [3]int{64, 1, 1}},
			{[3]int{3, 1, 1}, [3]int{64, 1, 1}},
			{[3]int{70, 90, 1}, [3]int{16, 16, 1}},
			{[3]int{10, 20, 30}, [3]int{4, 4, 4}},
			{[3]int{10, 2000, 1}, [3]int{}},
			{[3]int{1, 5000, 2}, [3]int{1, 8, 1}},
		} {
			var runs [2][][2]int
			for i := range runs {
				var mu sync.Mutex
				dim := 0
				for d, n := range c.global {
					if n > 1 {
						dim = d
					}
				}
				must(t, q.Launch(kernel(func(w *driver.Work) {
					mu.Lock()
					defer mu.Unlock()
					if w.Global != c.global || c.local[0] != 0 && w.Local != c.local || w.Local[0] < 1 {
						t.Errorf("sizes %v in groups of %v", w.Global, w.Local)
					}
					for d := range 3 {
						if d != dim && (w.Lo[d] != 0 || w.Hi[d] != c.global[d]) {
							t.Errorf("%v: a part from %v to %v is not whole", c, w.Lo, w.Hi)
						}
					}
					lo, hi := w.Range(dim)
					if lo%w.Local[dim] != 0 || hi%w.Local[dim] != 0 && hi != c.global[dim] || lo >= hi {
						t.Errorf("%v: a part from %d to %d has no whole groups", c, lo, hi)
					}
					runs[i] = append(runs[i], [2]int{lo, hi})
				}), c.global, c.local, nil))
				must(t, q.Finish())
				seen := make([]int, c.global[dim])
				for _, r := range runs[i] {
					for j := r[0]; j < r[1]; j++ {
						seen[j]++
					}
				}
				for j, n := range seen {
					if n != 1 {
						t.Fatalf("%d workers, %v: item %d was done %d times", workers, c, j, n)
					}
				}
			}
			if len(runs[0]) != len(runs[1]) {
				t.Errorf("%v: %d parts, then %d", c, len(runs[0]), len(runs[1]))
			}
		}
	}
}

// TestQueues_Concurrent needs all workers at the same time, for many items.
func TestQueues_Concurrent(t *testing.T) {
	_, q, kernel := open(t, Options{Workers: 4})
	var here atomic.Int32
	all := make(chan struct{})
	must(t, q.Launch(kernel(func(w *driver.Work) {
		if here.Add(1) == 4 {
			close(all)
		}
		<-all
	}), [3]int{1 << 16, 1, 1}, [3]int{}, nil))
	must(t, q.Finish())
}

// TestLaunch_FewLongParts shows that a few long items are shared among workers,
// too. The first part runs alone; the others run together.
func TestLaunch_FewLongParts(t *testing.T) {
	_, q, kernel := open(t, Options{Workers: 3})
	var here atomic.Int32
	both := make(chan struct{})
	var sink atomic.Uint64
	must(t, q.Launch(kernel(func(w *driver.Work) {
		if w.Lo[0] == 0 {
			x := uint64(1)
			for i := range uint64(1 << 22) {
				x = x*6364136223846793005 + i
			}
			sink.Store(x)
			return
		}
		if here.Add(1) == 2 {
			close(both)
		}
		<-both
	}), [3]int{3, 1, 1}, [3]int{}, nil))
	must(t, q.Finish())
}

func boom(w *driver.Work) {
	x := driver.Slice[int32](w, 0)
	if w.Hi[0] == w.Global[0] {
		x[len(x)+w.Global[0]]++ // here
	}
}

// TestLaunch_Panic shows that a kernel that panics is reported once, with its
// line, and that commands behind it do not run. Then the queue works again.
func TestLaunch_Panic(t *testing.T) {
	for _, n := range []int{1, 100000} {
		d, q, kernel := open(t, Options{Workers: 4, Discrete: true})
		b, err := d.Alloc(4 * 10)
		must(t, err)
		ran := false
		next := kernel(func(*driver.Work) { ran = true })
		must(t, q.Launch(kernel(boom), [3]int{n, 1, 1}, [3]int{}, []driver.Arg{{Buffer: b}}))
		other, err := d.NewQueue()
		must(t, err)
		e, err := q.Record()
		if err == nil { // the command was still running
			must(t, other.After(e))
			err = e.Wait()
			if late := other.Finish(); late == nil {
				t.Error("a queue that waited for a kernel that panicked has no error")
			}
		}
		for _, err := range []error{err, q.Launch(next, [3]int{1, 1, 1}, [3]int{}, nil), q.CopyOut(make([]byte, 4), b, 0), q.Finish()} {
			if err == nil {
				t.Fatal("no error after a panic")
			}
			text := err.Error()
			for _, want := range []string{"host:0", "Launch of k", "index out of range", "host_test.go:", "host.boom"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in the error: %s", want, text)
				}
			}
			if errors.Is(err, driver.ErrLost) {
				t.Errorf("a panic is no loss: %v", err)
			}
		}
		if ran {
			t.Error("a launch behind one that panicked was run")
		}
		must(t, q.Finish()) // the error was reported already
		must(t, q.Launch(next, [3]int{1, 1, 1}, [3]int{}, nil))
		must(t, q.Finish())
		if !ran {
			t.Error("the queue does not continue")
		}
	}
}

// TestLaunch_PanicInDriver shows that a wrong argument is reported at the
// kernel's line that used it.
func TestLaunch_PanicInDriver(t *testing.T) {
	_, q, kernel := open(t, Options{})
	must(t, q.Launch(kernel(func(w *driver.Work) { driver.Value[int32](w, 0) }), [3]int{1, 1, 1}, [3]int{}, []driver.Arg{{Value: make([]byte, 8)}}))
	if err := q.Finish(); err == nil || !strings.Contains(err.Error(), "argument 0 has 8 bytes, not 4, at ") || !strings.Contains(err.Error(), "host_test.go") {
		t.Errorf("%v", err)
	}
}

// TestBuild_NoFunction shows that a kernel without a Go function is an error
// that names the device.
func TestBuild_NoFunction(t *testing.T) {
	d := New(Options{Index: 3})
	defer d.Close()
	p, err := d.Build(driver.Source{OpenCL: "__kernel void f(void) {}"})
	must(t, err)
	if _, err := p.Kernel("f"); err == nil || !strings.Contains(err.Error(), "host:3") || !strings.Contains(err.Error(), "kernel has no Go function") {
		t.Errorf("%v", err)
	}
}

// TestAlloc_BeyondMemory fills a device's memory.
func TestAlloc_BeyondMemory(t *testing.T) {
	d, q, kernel := open(t, Options{Discrete: true, Memory: 1000})
	b, err := d.Alloc(600)
	must(t, err)
	if _, err := d.Alloc(401); !errors.Is(err, driver.ErrMemory) {
		t.Fatalf("Alloc beyond the bound: %v", err)
	}
	gate := make(chan struct{})
	must(t, q.Launch(kernel(func(*driver.Work) { <-gate }), [3]int{1, 1, 1}, [3]int{}, []driver.Arg{{Buffer: b}}))
	must(t, b.Free())
	if _, err := d.Alloc(401); !errors.Is(err, driver.ErrMemory) {
		t.Errorf("the memory of a buffer in use is given away: %v", err)
	}
	close(gate)
	must(t, q.Finish())
	if free, err := d.FreeMemory(); err != nil || free != 1000 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
	b, err = d.Alloc(1000)
	must(t, err)
	if p := b.(*buffer).data; uintptr(unsafe.Pointer(&p[0]))%256 != 0 || mem.IsZero(p) {
		t.Error("a buffer is not aligned, or looks defined")
	}
}

// TestPinned_CopiesDoNotWait shows that copies from pinned memory run behind a
// kernel, and that others wait.
func TestPinned_CopiesDoNotWait(t *testing.T) {
	d, q, kernel := open(t, Options{Discrete: true})
	b, err := d.Alloc(4096)
	must(t, err)
	p := mem.Aligned(4096)
	release, err := d.Pin(p)
	must(t, err)
	gate := make(chan struct{})
	must(t, q.Launch(kernel(func(*driver.Work) { <-gate }), [3]int{1, 1, 1}, [3]int{}, nil))
	must(t, q.CopyIn(b, 1, p[1:101])) // if it waited, the gate would never open
	must(t, q.CopyOut(p[1000:], b, 0))
	e, err := q.Record()
	must(t, err)
	if done, err := e.Done(); done || err != nil {
		t.Errorf("the event has passed: %v, %v", done, err)
	}
	close(gate)
	must(t, e.Wait())
	must(t, release())
	must(t, release()) // once is enough
	if len(d.(*device).pinned) != 0 {
		t.Error("memory stays pinned")
	}
}

// TestClose_Waits shows that a closed device accesses no memory any more, and
// that waiting commands do not run.
func TestClose_Waits(t *testing.T) {
	d, q, kernel := open(t, Options{})
	started, gate := make(chan struct{}), make(chan struct{})
	var ended, second atomic.Bool
	must(t, q.Launch(kernel(func(*driver.Work) {
		close(started)
		<-gate
		ended.Store(true)
	}), [3]int{1, 1, 1}, [3]int{}, nil))
	must(t, q.Launch(kernel(func(*driver.Work) { second.Store(true) }), [3]int{1, 1, 1}, [3]int{}, nil))
	e, err := q.Record()
	must(t, err)
	<-started
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	for { // until Close was called
		if _, err := d.FreeMemory(); err != nil {
			break
		}
	}
	close(gate)
	must(t, <-closed)
	if !ended.Load() || second.Load() {
		t.Errorf("the first kernel ended: %v, the second ran: %v", ended.Load(), second.Load())
	}
	if err := e.Wait(); err == nil {
		t.Error("an event behind a launch that was not run has no error")
	}
}

// TestQueue_MoreThanMayWait issues far more commands than may wait, from
// several goroutines.
func TestQueue_MoreThanMayWait(t *testing.T) {
	_, q, kernel := open(t, Options{})
	var ran atomic.Int64
	k := kernel(func(*driver.Work) { ran.Add(1) })
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for range 2 * maxWaiting {
				if err := q.Launch(k, [3]int{1, 1, 1}, [3]int{}, nil); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	must(t, q.Finish())
	if ran.Load() != 6*maxWaiting {
		t.Errorf("%d launches, %d were run", 6*maxWaiting, ran.Load())
	}
}

func BenchmarkLaunch(b *testing.B) {
	for _, n := range []int{1, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, q, kernel := open(b, Options{})
			k := kernel(func(*driver.Work) {})
			b.ReportAllocs()
			for b.Loop() {
				must(b, q.Launch(k, [3]int{n, 1, 1}, [3]int{}, nil))
			}
			must(b, q.Finish())
		})
	}
}
