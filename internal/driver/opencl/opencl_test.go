package opencl

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/drivertest"
)

func TestMain(m *testing.M) {
	if os.Getenv("POCL_DEVICES") == "" {
		os.Setenv("POCL_DEVICES", "pthread pthread")
	}
	os.Exit(m.Run())
}

// TestInfo checks that what is known of each device makes sense, and that IDs
// are unique.
func TestInfo(t *testing.T) {
	devs := openAll(t)
	ids := make(map[string]bool)
	for _, d := range devs {
		i := d.Info()
		t.Logf("%+v", i)
		if i.Backend != "opencl" || ids[i.ID] || !strings.HasPrefix(i.ID, "opencl:") || i.Name == "" || !strings.Contains(i.Version, "OpenCL") ||
			i.Kind < driver.GPU || i.Kind > driver.CPU || i.Memory <= 0 || i.MaxAlloc <= 0 || i.Units < 1 || i.MaxGroup < 1 || i.LocalMemory < 1<<10 || i.Shared {
			t.Errorf("%+v", i)
		}
		ids[i.ID] = true
	}
}

// TestDevices_ComputeConcurrently shows that several devices can compute at the
// same time with separate buffers.
func TestDevices_ComputeConcurrently(t *testing.T) {
	devs := openAll(t)
	if len(devs) < 2 {
		t.Skip("there is one device only")
	}
	var wg sync.WaitGroup
	for i, d := range devs {
		b := benchOn(t, d.(*device), false)
		a := b.ints(1, 2, 3, 4)
		other := devs[(i+1)%len(devs)]
		foreign := must(other.Alloc(16))(t)
		if err := b.q.CopyIn(foreign, 0, make([]byte, 4)); err == nil || !strings.Contains(err.Error(), "another device") {
			t.Error(err)
		}
		wg.Go(func() {
			for range 200 {
				b.launch("add", 4, 0, whole(a), value(int32(i+1)), value(int32(4)))
			}
			if v := read[int32](b, a); v[0] != 1+200*int32(i+1) {
				t.Error(v)
			}
		})
	}
	wg.Wait()
}

// TestLaunch_Shapes launches one, two and three dimensions, with groups that do
// not divide them. Impossible shapes are errors, and the device is not lost.
func TestLaunch_Shapes(t *testing.T) {
	b := newBench(t, false)
	k := must(b.p.Kernel("place"))(t)
	for _, c := range []struct{ global, local [3]int }{
		{[3]int{7, 1, 1}, [3]int{}},
		{[3]int{7, 1, 1}, [3]int{4, 1, 1}},
		{[3]int{7, 5, 1}, [3]int{4, 2, 1}},
		{[3]int{7, 5, 3}, [3]int{4, 2, 2}},
		{[3]int{1, 5, 1}, [3]int{8, 1, 1}},
		{[3]int{1, 1, 3}, [3]int{}},
		{[3]int{1, 1, 3}, [3]int{1, 1, 2}},
	} {
		g := c.global
		n := g[0] * g[1] * g[2]
		a := must(b.d.Alloc(int64(4 * n)))(t)
		check(t, b.q.Launch(k, c.global, c.local, []driver.Arg{whole(a), value(int32(g[0])), value(int32(g[1])), value(int32(g[2]))}))
		for i, v := range read[uint32](b, a) {
			x, y, z := i%g[0], i/g[0]%g[1], i/g[0]/g[1]
			if v&0xFFFFFF != uint32(x|y<<8|z<<16) || c.local[0] != 0 && v>>24 != uint32(c.local[0]) {
				t.Fatalf("%v in %v: item %d is %x", c.global, c.local, i, v)
			}
		}
		check(t, a.Free())
	}
	for _, c := range []struct{ global, local [3]int }{
		{[3]int{0, 1, 1}, [3]int{}},
		{[3]int{1, 1, -1}, [3]int{}},
		{[3]int{8, 1, 1}, [3]int{-1, 1, 1}},
		{[3]int{8, 1, 1}, [3]int{8, 0, 1}},
		{[3]int{1 << 30, 1, 1}, [3]int{1 << 30, 1, 1}},
		{[3]int{math.MaxInt, 1, 1}, [3]int{4, 1, 1}},
	} {
		a := must(b.d.Alloc(4))(t)
		err := b.q.Launch(k, c.global, c.local, []driver.Arg{whole(a), value(int32(0)), value(int32(0)), value(int32(0))})
		if err == nil || errors.Is(err, driver.ErrLost) {
			t.Error(c, err)
		}
	}
}

// TestGroups_FewIdleItems shows that the chosen sizes are few, fit the kernel,
// and leave few items idle.
func TestGroups_FewIdleItems(t *testing.T) {
	for _, kind := range []driver.Kind{driver.CPU, driver.GPU} {
		for _, limit := range []int{1, 48, 4096} {
			k := &kernel{d: &device{info: driver.Info{Kind: kind}}, maxGroup: limit}
			seen := make(map[[3]int]bool)
			for n := 1; n < 3000; n++ {
				for _, global := range [][3]int{{n, 1, 1}, {1, n, 1}, {n, n/2 + 1, 1}, {7, n, 13}} {
					local := k.groups(global)
					items := local[0] * local[1] * local[2]
					if items > limit || items > 256 || items&(items-1) != 0 {
						t.Fatalf("%v of at most %d in groups of %v", global, limit, local)
					}
					for i := range global {
						if idle := roundUp(global[i], local[i]) - global[i]; idle > max(global[i]/8, 7) {
							t.Fatalf("%v in groups of %v: %d are idle", global, local, idle)
						}
					}
					seen[local] = true
				}
			}
			if len(seen) > 80 {
				t.Error(len(seen), "sizes of groups")
			}
			if got := k.groups([3]int{1 << 20, 1, 1}); limit == 4096 && got[0] < 64 {
				t.Error(got)
			}
		}
	}
	b := newBench(t, false)
	p := must(b.d.Build(driver.Source{OpenCL: "__kernel __attribute__((reqd_work_group_size(3, 2, 1))) void six(__global int *a) { if (get_global_id(1) == 0) a[get_global_id(0)] = get_local_size(0)*10 + get_local_size(1); }"}))(t)
	a := b.ints(make([]int32, 12)...)
	check(t, b.q.Launch(must(p.Kernel("six"))(t), [3]int{10, 1, 1}, [3]int{}, []driver.Arg{whole(a)}))
	if v := read[int32](b, a); v[0] != 32 || v[11] != 32 {
		t.Error(v)
	}
}

// TestLocalMemory runs a kernel that exchanges values in local memory.
func TestLocalMemory(t *testing.T) {
	b := newBench(t, false)
	v := make([]int32, 64)
	for i := range v {
		v[i] = int32(i)
	}
	a := b.ints(v...)
	b.launch("reverse", 64, 16, whole(a), driver.Arg{Local: 16 * 4})
	for i, got := range read[int32](b, a) {
		if want := int32(i/16*16 + 15 - i%16); got != want {
			t.Fatalf("%d: %d, not %d", i, got, want)
		}
	}
}

// TestCopies tries copies of all kinds, also within a buffer and of nothing.
func TestCopies(t *testing.T) {
	b := newBench(t, false)
	src := make([]byte, 1000)
	for i := range src {
		src[i] = byte(i * 7)
	}
	x, y := must(b.d.Alloc(1000))(t), must(b.d.Alloc(1000))(t)
	check(t, b.q.CopyIn(x, 0, src))
	check(t, b.q.Copy(y, 1, x, 10, 900))
	check(t, b.q.Copy(y, 950, y, 1, 50))
	check(t, b.q.Copy(y, 0, y, 0, 0))
	check(t, b.q.CopyIn(y, 1000, nil))
	got := make([]byte, 900)
	check(t, b.q.CopyOut(got, y, 1))
	if string(got) != string(src[10:910]) {
		t.Error("different")
	}
	check(t, b.q.CopyOut(got[:50], y, 950))
	if string(got[:50]) != string(src[10:60]) {
		t.Error("different")
	}
	for _, err := range []error{
		b.q.Copy(y, 1, y, 0, 10),
		b.q.Copy(y, 0, y, 9, 10),
		b.q.Copy(y, 995, x, 0, 10),
		b.q.Copy(y, 0, x, -1, 10),
		b.q.Copy(y, 0, x, 1, -1),
		b.q.Copy(y, math.MaxInt64, x, 1, math.MaxInt64),
		b.q.CopyIn(y, 1, src),
		b.q.CopyOut(src, y, 1),
	} {
		var e *driver.Error
		if !errors.As(err, &e) || e.Kind != nil || e.Device != b.d.info.ID {
			t.Error(err)
		}
	}
	if err := b.q.Copy(y, 1, y, 0, 10); !strings.Contains(err.Error(), "overlap") {
		t.Error(err)
	}
}

// TestPin_CopiesDoNotWait shows that copies of pinned memory do not wait, and
// that release does.
func TestPin_CopiesDoNotWait(t *testing.T) {
	b := newBench(t, false)
	n := 1 << 20
	src, dst := make([]byte, n), make([]byte, n)
	for i := range src {
		src[i] = byte(i ^ i>>8)
	}
	unpinSrc, unpinDst := must(b.d.Pin(src))(t), must(b.d.Pin(dst))(t)
	inner := must(b.d.Pin(dst[100:200]))(t)
	for _, c := range []struct {
		p    []byte
		want bool
	}{{src, true}, {src[5:], true}, {dst[:150], true}, {dst[150:160], true}, {dst[n-1:], true}, {make([]byte, 10), false}, {nil, false}} {
		if got := b.d.pins.holds(c.p); got != c.want {
			t.Error("pinned:", got)
		}
	}
	x, slow := must(b.d.Alloc(int64(n)))(t), b.ints(1)
	b.launch("spin", 1, 1, whole(slow), value(int32(30_000_000)))
	check(t, b.q.CopyIn(x, 0, src))
	check(t, b.q.CopyOut(dst, x, 0))
	e := must(b.q.Record())(t)
	if done, err := e.Done(); done || err != nil {
		t.Log("the kernel was faster than four calls", err)
	}
	check(t, inner())
	check(t, unpinSrc())
	if done, err := e.Done(); !done || err != nil {
		t.Error("release did not wait", err)
	}
	if string(dst) != string(src) {
		t.Error("different")
	}
	check(t, unpinDst())
	check(t, unpinDst())
	if len(b.d.pins.list) != 0 {
		t.Error("still pinned")
	}
}

// TestPin_BothDirections shows that memory which a copy will fill is not copied
// from before that, by any queue. Other memory is copied at once.
func TestPin_BothDirections(t *testing.T) {
	b := newBench(t, false)
	host := make([]byte, 64)
	unpin := must(b.d.Pin(host))(t)
	x, y := b.ints(7, 8, 9, 10), b.ints(0, 0, 0, 0)
	other := must(b.d.NewQueue())(t)
	for i, q := range []driver.Queue{b.q, other} {
		clear(host)
		pass := held(t, b)
		check(t, b.q.CopyOut(host[:8], x, 0))
		check(t, b.q.CopyOut(host[:16], x, 0))
		if n := len(b.d.arrivals.list); n != 1 {
			t.Error(n, "copies are remembered")
		}
		check(t, other.CopyIn(y, 0, host[16:32]))
		done := make(chan error)
		go func() { done <- q.CopyIn(y, 0, host[4:20]) }()
		select {
		case err := <-done:
			t.Error(i, "it did not wait", err)
			pass()
		case <-time.After(20 * time.Millisecond):
			pass()
			check(t, <-done)
		}
		check(t, q.Finish())
		if v := read[int32](b, y); v[0] != 8 || v[2] != 10 || v[3] != 0 {
			t.Error(i, v)
		}
	}
	check(t, unpin())
	check(t, other.Close())
	check(t, b.q.CopyIn(y, 0, host[:16])) // from a queue that was closed
}

// TestEvents shows that a queue waits for an event of another one.
func TestEvents(t *testing.T) {
	b := newBench(t, false)
	q2 := must(b.d.NewQueue())(t)
	a, slow := b.ints(0), b.ints(1)
	add := must(b.p.Kernel("add"))(t)
	for i := range 20 {
		b.launch("spin", 1, 1, whole(slow), value(int32(100_000)))
		check(t, b.q.Copy(a, 0, slow, 0, 4))
		e := must(b.q.Record())(t)
		check(t, q2.After(e))
		check(t, q2.Launch(add, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{whole(a), value(int32(1)), value(int32(1))}))
		f := must(q2.Record())(t)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := f.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, e := range []driver.Event{e, f} {
			if done, err := e.Done(); !done || err != nil {
				t.Error(done, err)
			}
		}
		check(t, q2.After(e))
		check(t, b.q.After(f))
		v, w := read[int32](b, a), read[int32](b, slow)
		if v[0] != w[0]+1 {
			t.Fatalf("round %d: %d after %d", i, v[0], w[0])
		}
	}
	if h := must(b.q.Record())(t).(*event); h.Wait() != nil || h.h != 0 {
		t.Error("a passed event keeps its handle")
	}
}

// TestFree_BufferInUse frees a buffer while commands use it: they end as if it
// were there. Later commands are refused.
func TestFree_BufferInUse(t *testing.T) {
	b := newBench(t, false)
	a, slow := b.ints(5), b.ints(1)
	used := b.d.used.Load()
	b.launch("spin", 1, 1, whole(slow), value(int32(10_000_000)))
	c := must(b.d.Alloc(4))(t)
	check(t, b.q.Copy(c, 0, slow, 0, 4))
	b.launch("add", 1, 1, whole(slow), value(int32(1)), value(int32(1)))
	check(t, b.q.Copy(a, 0, slow, 0, 4))
	check(t, slow.Free())
	check(t, slow.Free())
	check(t, b.q.Finish())
	if x, y := read[int32](b, a), read[int32](b, c); x[0] != y[0]+1 {
		t.Error(x, y)
	}
	check(t, c.Free())
	if got := b.d.used.Load(); got != used-4 {
		t.Error(got, used)
	}
	k := must(b.p.Kernel("spin"))(t)
	for _, err := range []error{
		b.q.CopyIn(slow, 0, make([]byte, 4)),
		b.q.Launch(k, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{whole(slow), value(int32(1))}),
	} {
		if err == nil || !strings.Contains(err.Error(), "freed") {
			t.Error(err)
		}
	}
	check(t, b.p.Close())
	check(t, b.p.Close())
	if err := b.q.Launch(k, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{whole(a), value(int32(1))}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
	if _, err := b.p.Kernel("spin"); err == nil {
		t.Error("a kernel of a closed program")
	}
	check(t, b.q.Close())
	check(t, b.q.Close())
	if err := b.q.Finish(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
	check(t, b.d.Close())
	check(t, b.d.Close())
	if _, err := b.d.Alloc(1); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Error(err)
	}
	check(t, a.Free())
}

// TestAlloc_NoRoom checks the errors for sizes that no device can have.
func TestAlloc_NoRoom(t *testing.T) {
	b := newBench(t, false)
	for _, n := range []int64{b.d.info.Memory + 1, b.d.info.MaxAlloc + 1, math.MaxInt64} {
		a, err := b.d.Alloc(n)
		if err == nil && n == b.d.info.MaxAlloc+1 { // NVIDIA's driver ignores the limit
			check(t, a.Free())
		} else if !errors.Is(err, driver.ErrMemory) || errors.Is(err, driver.ErrLost) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if _, err := b.d.Alloc(0); err == nil || errors.Is(err, driver.ErrMemory) {
		t.Error(err)
	}
	free := must(b.d.FreeMemory())(t)
	a := must(b.d.Alloc(1 << 20))(t)
	if got := must(b.d.FreeMemory())(t); got != free-1<<20 {
		t.Error(free, got)
	}
	check(t, a.Free())
	if got := must(b.d.FreeMemory())(t); got != free {
		t.Error(free, got)
	}
}

// TestAlloc_Aligned shows that memory is aligned for every type, and so are
// copies of parts that are not.
func TestAlloc_Aligned(t *testing.T) {
	b := newBench(t, false)
	p := must(b.d.Build(driver.Source{OpenCL: "__kernel void address(__global const int *a, __global ulong *out) { out[0] = (ulong)a; }"}))(t)
	k := must(p.Kernel("address"))(t)
	out := must(b.d.Alloc(8))(t)
	least := uint64(1 << 63)
	for _, n := range []int64{1, 5, 64, 100, 1000, 4096, 100_000, 1 << 20} {
		for range 5 {
			a := must(b.d.Alloc(n))(t)
			for _, off := range []int64{0, n / 2, n - 1} {
				check(t, b.q.Launch(k, [3]int{1, 1, 1}, group(1), []driver.Arg{part(a, off, 0), whole(out)}))
				at := read[uint64](b, out)[0]
				least = min(least, at&-at)
			}
		}
	}
	t.Log(least, "bytes")
	if least < 128 {
		t.Error(least)
	}
}

func TestLaunch_WrongArguments(t *testing.T) {
	b := newBench(t, false)
	a := b.ints(1, 2)
	for _, c := range []struct {
		kernel string
		args   []driver.Arg
		want   string
	}{
		{"add", []driver.Arg{whole(a)}, "3 arguments"},
		{"add", []driver.Arg{value(int64(1)), value(int32(1)), value(int32(1))}, "wants a buffer"},
		{"add", []driver.Arg{whole(a), whole(a), value(int32(1))}, "wants a value"},
		{"add", []driver.Arg{whole(a), value(int64(1)), value(int32(1))}, "CL_INVALID_ARG_SIZE"},
		{"add", []driver.Arg{whole(a), {}, value(int32(1))}, "not one of"},
		{"add", []driver.Arg{part(a, 8, 0), value(int32(1)), value(int32(1))}, "empty"},
		{"add", []driver.Arg{part(a, 4, 8), value(int32(1)), value(int32(1))}, "not in a buffer"},
		{"add", []driver.Arg{part(a, 9, 0), value(int32(1)), value(int32(1))}, "not in a buffer"},
		{"reverse", []driver.Arg{whole(a), value(int32(1))}, "wants local memory"},
		{"reverse", []driver.Arg{whole(a), {Local: 1 << 30}}, "local memory"},
	} {
		err := b.q.Launch(must(b.p.Kernel(c.kernel))(t), [3]int{1, 1, 1}, group(1), c.args)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, driver.ErrLost) {
			t.Errorf("%s, %s: %v", c.kernel, c.want, err)
		}
	}
	if err := b.q.Finish(); err != nil {
		t.Error(err)
	}
	if a.(*buffer).users != 0 {
		t.Error("the buffer is still in use")
	}
	if v := read[int32](b, a); v[0] != 1 || v[1] != 2 {
		t.Error(v)
	}
}

// TestBuild_Errors shows that errors hold the compiler's log and name the
// device.
func TestBuild_Errors(t *testing.T) {
	d := openOne(t)
	_, err := d.Build(driver.Source{OpenCL: "__kernel void a(__global int *x) {\n\n  x[0] = no_such_name;\n}\n"})
	var e *driver.Error
	if !errors.As(err, &e) || e.Kind != driver.ErrBuild || !strings.Contains(e.Log, "no_such_name") || !strings.Contains(e.Log, ":3:") ||
		!strings.Contains(err.Error(), d.info.ID) || !strings.Contains(err.Error(), d.info.Name) {
		t.Error(err)
	}
	for _, src := range []string{"", "__kernel void a(void) {}\x00"} {
		if _, err := d.Build(driver.Source{OpenCL: src}); !errors.Is(err, driver.ErrBuild) {
			t.Error(err)
		}
	}
	p := must(d.Build(driver.Source{OpenCL: "__kernel void one(void) {} __kernel void two(void) {}"}))(t)
	if _, err := p.Kernel("three"); err == nil || !strings.Contains(err.Error(), "one, two") {
		t.Error(err)
	}
	if k := must(p.Kernel("one"))(t); k.Name() != "one" || k != must(p.Kernel("one"))(t) {
		t.Error("another kernel of the same name")
	}
}

// TestQueues_Concurrent shares a queue, a kernel and buffers between
// goroutines.
func TestQueues_Concurrent(t *testing.T) {
	b := newBench(t, false)
	q2 := must(b.d.NewQueue())(t)
	k := must(b.p.Kernel("add"))(t)
	const workers, rounds = 4, 200
	all := b.ints(make([]int32, workers*64)...)
	var wg sync.WaitGroup
	for w := range workers {
		q := []driver.Queue{b.q, q2}[w%2]
		own := must(b.d.Alloc(4))(t)
		check(t, q.CopyIn(own, 0, make([]byte, 4)))
		wg.Go(func() {
			for i := range rounds {
				err := errors.Join(
					q.Launch(k, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{part(own, 0, 0), value(int32(w + 1)), value(int32(1))}),
					q.Launch(k, [3]int{64, 1, 1}, [3]int{}, []driver.Arg{part(all, int64(256*w), 256), value(int32(w + 1)), value(int32(64))}))
				if err != nil {
					t.Error(err)
					return
				}
				if i%50 == 0 {
					var got [4]byte
					if err := q.CopyOut(got[:], own, 0); err != nil || int(binary.NativeEndian.Uint32(got[:])) != (i+1)*(w+1) {
						t.Error(got, err)
					}
				}
			}
		})
	}
	wg.Wait()
	check(t, q2.Finish())
	for i, v := range read[int32](b, all) {
		if v != int32(rounds*(i/64+1)) {
			t.Fatal(i, v)
		}
	}
}

// TestOpen_Error checks the errors for a missing library, and for one that is
// not OpenCL.
func TestOpen_Error(t *testing.T) {
	devs, err := Open()
	if len(devs) == 0 && (err == nil || !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, dl.ErrNotFound)) {
		t.Error(err)
	}
	if errors.Is(err, dl.ErrUnsupported) {
		t.Skip(err)
	}
	if _, err := load("libno-such-library.so"); !errors.Is(err, dl.ErrNotFound) || !strings.Contains(err.Error(), "install") {
		t.Error(err)
	}
	if _, err := load("libc.so.6"); !errors.Is(err, dl.ErrNoSymbol) {
		t.Error(err)
	}
}

// TestErrors_NameEveryCode shows that every error code of OpenCL is reported by
// name and in words.
func TestErrors_NameEveryCode(t *testing.T) {
	for code := int32(-72); code <= -1; code++ {
		if code < -19 && code > -30 {
			continue
		}
		if s := words(code); !strings.HasPrefix(s, "CL_") || !strings.Contains(s, ": ") {
			t.Error(code, s)
		}
	}
	if s := words(-12345); !strings.Contains(s, "-12345") {
		t.Error(s)
	}
}

// TestDriver runs the tests of all drivers on each device.
func TestDriver(t *testing.T) {
	for i := range openAll(t) {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Device {
				devs, err := Open()
				if err != nil {
					t.Fatal(err)
				}
				return devs[i]
			})
		})
	}
}

// TestPeers: without direct copies between devices, CopyFrom is refused.
func TestPeers(t *testing.T) {
	openAll(t)
	drivertest.RunPeers(t, func(t *testing.T) (a, b driver.Device) {
		one, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		two, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		return one[0], two[len(two)-1]
	})
}
