package device

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/mem"
)

// slowQueue calls a function before a launch is on the queue.
type slowQueue struct {
	driver.Queue
	before func()
}

func (q *slowQueue) Launch(k driver.Kernel, global, local [3]int, args []driver.Arg) error {
	q.before()
	return q.Queue.Launch(k, global, local, args)
}

// TestWait_DuringLaunch waits while another goroutine puts a launch on the
// queue. The wait must not consider that launch ended.
func TestWait_DuringLaunch(t *testing.T) {
	d, e := shared(t, 0), shared(t, 1)
	waited := make(chan error, 1)
	d.q = &slowQueue{d.q, func() {
		go func() { waited <- d.settle() }()
		select {
		case err := <-waited:
			waited <- err
		case <-time.After(20 * time.Millisecond):
		}
	}}
	gate := make(chan struct{})
	k := NewKernel("", "gated", func(w *Work) {
		<-gate
		Slice[uint32](w, 0)[0] = 5
	})
	a, b := New[uint32](1), New[uint32](1)
	must(t, d.Launch(k, Size{1}, Out(a)))
	if d.over(1) {
		t.Error("a launch that runs is taken for over")
	}
	close(gate)
	must(t, e.Launch(axpy, Size{1}, In(a), InOut(b), uint32(1), n32(1)), <-waited)
	if p, err := b.Read(); err != nil || p[0] != 5 {
		t.Error(p, err)
	}
}

func n32(n int) uint32 { return uint32(n) }

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestTransfers_Lazy counts transfers.
func TestTransfers_Lazy(t *testing.T) {
	const n = 1000
	d, e := discrete(t, 0, 0), discrete(t, 1, 0)
	x, y := New[uint32](n), New[uint32](n)
	moved := func(when string, d *Device, in, out int64) {
		t.Helper()
		if i, o := d.Moved(); i != in || o != out {
			t.Errorf("%s: %v moved %d in and %d out, want %d and %d", when, d, i, o, in, out)
		}
	}
	p, err := x.Data()
	must(t, err)
	p[5] = 3
	for range 3 {
		must(t, d.Launch(axpy, Size{n}, In(x), InOut(y), uint32(2), n32(n)))
	}
	moved("zeros are made there, and x comes once", d, 4*n, 0)
	must(t, d.Launch(put, Size{n}, Out(x), uint32(1), n32(n)))
	moved("Out brings nothing", d, 4*n, 0)
	for range 2 {
		_, err = y.Rows(0, 10).Read()
		must(t, err)
	}
	moved("a view is read once", d, 4*n, 40)
	_, err = y.Read()
	must(t, err)
	moved("the rest", d, 4*n, 4*n)
	must(t, d.Launch(axpy, Size{n}, In(x), InOut(y), uint32(2), n32(n)))
	moved("Read leaves the device's copy", d, 4*n, 4*n)
	q, err := y.Data()
	must(t, err)
	moved("Data", d, 4*n, 8*n)
	if q[5] != 48 {
		t.Error(q[5])
	}
	must(t, d.Launch(axpy, Size{n}, In(x), InOut(y), uint32(2), n32(n)))
	moved("after Data it comes again", d, 8*n, 8*n)
	must(t, e.Launch(axpy, Size{n / 2}, In(x.Rows(0, n/2)), InOut(y.Rows(0, n/2)), uint32(2), n32(n/2)))
	moved("half of both goes over", d, 8*n, 12*n)
	moved("half of both comes over", e, 4*n, 0)
	must(t, d.Launch(axpy, Size{n}, In(x), InOut(y), uint32(2), n32(n)))
	moved("only y comes back", d, 10*n, 12*n)
	moved("only y goes back", e, 4*n, 2*n)
	if y.h.m.host == nil || x.h.m.host == nil {
		t.Error("x and y have no host copies, but were read there")
	}
	z := New[uint32](n)
	must(t, d.Launch(put, Size{n}, Out(z), uint32(1), n32(n)), e.Launch(axpy, Size{n}, In(z), InOut(x), uint32(1), n32(n)))
	if z.h.m.host != nil {
		t.Error("a copy between devices made a host copy")
	}
}

// TestTransfers_SharedMemory shows that devices that work in host memory use
// the host copy.
func TestTransfers_SharedMemory(t *testing.T) {
	d, e := shared(t, 0), shared(t, 1)
	x := New[uint32](100)
	must(t, d.Launch(put, Size{100}, Out(x), uint32(1), n32(100)), e.Launch(axpy, Size{100}, In(x), InOut(x), uint32(2), n32(100)))
	p, err := x.Data()
	must(t, err)
	if p[10] != 33 {
		t.Errorf("%v", p)
	}
	for _, d := range []*Device{d, e} {
		if in, out := d.Moved(); in+out != 0 {
			t.Errorf("%v moved %d and %d bytes", d, in, out)
		}
	}
}

// TestArray_AllocatesUsedPartsOnly shows that an array takes memory only for
// the parts that are used.
func TestArray_AllocatesUsedPartsOnly(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("address space is memory here")
	}
	const rows = 1 << 26
	d := discrete(t, 0, 1<<20)
	a := New[float64](rows, 1024, 16) // 8 TiB

	if a.Len() != rows<<14 || !slices.Equal(a.Dims(), []int{rows, 1024, 16}) {
		t.Errorf("%d elements, %v", a.Len(), a.Dims())
	}
	v := a.Rows(rows-2, rows-1)
	inc := NewKernel("", "inc", func(w *Work) {
		x := Slice[float64](w, 0)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			x[i]++
		}
	})
	must(t, d.Launch(inc, Size{v.Len()}, InOut(v)))
	places, err := a.h.m.Places(a.h.m.size-4*v.hi+4*v.lo, a.h.m.size)
	must(t, err)
	var on []string
	for _, p := range places {
		if p.Device != nil {
			on = append(on, fmt.Sprintf("%s %d %d", p.Device.Name(), p.Off, p.Len))
		}
	}
	if want := []string{fmt.Sprintf("host:0 0 %d", v.hi-v.lo)}; !slices.Equal(on, want) {
		t.Errorf("on devices: %q, want %q", on, want)
	}
	if a.h.m.host != nil {
		t.Error("there is a host copy")
	}
	if _, err := a.Read(); err == nil || !strings.Contains(err.Error(), "does not fit in the host") {
		t.Errorf("an array that is larger than the host: %v", err)
	}
	err = d.Launch(inc, Size{1}, InOut(a))
	if !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "8192.0 GiB") || !strings.Contains(err.Error(), "1.0 MiB") {
		t.Errorf("an array that does not fit: %v", err)
	}
}

// TestEvict_MakesRoom shows that copies which are valid elsewhere make room,
// and so do unreachable arrays.
func TestEvict_MakesRoom(t *testing.T) {
	const n = 1000
	d := discrete(t, 0, 3*4*n)
	x := New[uint32](n)
	_, err := x.Data()
	must(t, err)
	for i := range 20 { // each leaves a copy there
		y := New[uint32](n)
		must(t, d.Launch(axpy, Size{n}, In(x), InOut(y), uint32(1), n32(n)))
		if i%2 == 0 {
			_, err := y.Read()
			must(t, err)
		}
	}
	a, b, c := New[uint32](n), New[uint32](n), New[uint32](n)
	must(t, d.Launch(put, Size{n}, Out(a), uint32(1), n32(n)), d.Launch(put, Size{n}, Out(b), uint32(1), n32(n)), d.Launch(put, Size{n}, Out(c), uint32(1), n32(n)))
	if err := d.Launch(put, Size{n}, Out(x), uint32(1), n32(n)); !errors.Is(err, ErrMemory) {
		t.Errorf("a fourth array: %v", err)
	}
	a.Free()
	must(t, d.Launch(put, Size{n}, Out(x), uint32(1), n32(n)))
	for _, a := range []*Array[uint32]{b, c, x} {
		p, err := a.Read()
		if err != nil || p[n-1] != n {
			t.Errorf("%v, %v", p, err)
		}
	}
}

// TestCover_Grows launches on views that together need a larger buffer, also
// where there is no room for both the old and the new one.
func TestCover_Grows(t *testing.T) {
	const n = 1000
	for _, memory := range []int64{0, 4*n + 100} {
		d := discrete(t, 0, memory)
		x := New[uint32](n)
		must(t, d.Launch(put, Size{n / 2}, Out(x.Rows(0, n/2)), uint32(1), n32(n/2)), d.Launch(put, Size{n / 2}, Out(x.Rows(n/2, n)), uint32(9), n32(n/2)))
		must(t, d.Launch(axpy, Size{n}, In(x), InOut(x), uint32(1), n32(n)))
		p, err := x.Read()
		if err != nil || p[0] != 2 || p[n/2] != 18 || len(x.h.m.bufs) != 1 {
			t.Errorf("%v %v %v", p, err, x.h.m.bufs)
		}
	}
}

// TestArray_Lifetime shows that memory is released with the last view, and by
// Free.
func TestArray_Lifetime(t *testing.T) {
	drv := host.New(host.Options{Discrete: true, Memory: 1 << 20})
	d := use1(t, drv)
	used := func() int64 {
		free, err := drv.FreeMemory()
		must(t, err)
		return 1<<20 - free
	}
	a := New[uint32](1000)
	v := a.Rows(10, 20)
	must(t, d.Launch(put, Size{1000}, Out(a), uint32(1), n32(1000)), d.Finish())
	p, _ := v.addresses()
	a = nil
	collect(t, func() bool { return true })
	if used() != 4000 {
		t.Fatalf("%d bytes are used while there is a view", used())
	}
	q, err := v.Read()
	if err != nil || q[0] != 11 {
		t.Fatal(q, err)
	}
	runtime.KeepAlive(v)
	v = nil
	collect(t, func() bool { return used() == 0 })
	if r, _ := mem.FindRemote(p); r != nil {
		t.Error("its addresses are still taken")
	}
	if q[0] != 11 {
		t.Error("what Read gave is gone")
	}

	b := New[uint32](1000)
	must(t, d.Launch(put, Size{1000}, Out(b), uint32(1), n32(1000)))
	p, _ = b.addresses()
	b.Rows(0, 1).Free()
	b.Free()
	must(t, d.Finish())
	if r, _ := mem.FindRemote(p); r != nil || used() != 0 {
		t.Errorf("after Free: %v, %d bytes", r, used())
	}
	_, err1 := b.Data()
	err2 := d.Launch(put, Size{1000}, Out(b), uint32(1), n32(1000))
	if !errors.Is(err1, errFreed) || !errors.Is(err2, errFreed) {
		t.Errorf("a freed array: %v, %v", err1, err2)
	}
	if p, n := b.addresses(); p != nil || n != 0 {
		t.Error("a freed array has memory")
	}
}

// collect runs the garbage collector until a condition holds.
func collect(t *testing.T, so func() bool) {
	t.Helper()
	for i := range 2000 {
		runtime.GC()
		if i > 2 && so() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the collector changes nothing")
}

// TestLaunch_Concurrent uses the same devices from several goroutines, with one
// array that all read.
func TestLaunch_Concurrent(t *testing.T) {
	devs := mixed(t)
	common := New[uint32](60)
	must(t, devs[2].Launch(put, Size{60}, Out(common), uint32(5), n32(60)))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(g), rand.Uint64()))
			ms := models()
			out := New[uint32](60)
			for i := range 300 {
				err := step(r, devs, ms)
				if err == nil {
					err = devs[r.IntN(len(devs))].Launch(axpy, Size{60}, In(common), InOut(out), uint32(0), n32(60))
				}
				if err != nil {
					t.Errorf("goroutine %d, step %d: %v", g, i, err)
					return
				}
			}
			if p, err := out.Read(); err != nil || p[59] != 64 {
				t.Errorf("%v, %v", p, err)
			}
		}()
	}
	wg.Wait()
}

// TestLaunch_Refused tries launches that are impossible.
func TestLaunch_Refused(t *testing.T) {
	d := shared(t, 0)
	a := New[uint32](10, 4)
	k := NewConstant[uint32](4)
	ok := NewKernel("", "ok", func(*Work) {})
	for _, c := range []struct {
		err  error
		want string
	}{
		{d.Launch(ok, Size{}, In(a)), "1 to 3 dimensions"},
		{d.Launch(ok, nil, In(a)), "without a size"},
		{d.Launch(ok, Size{4}.In(2, 2), In(a)), "1 to 3 dimensions"},
		{d.Launch(ok, Size{0}, In(a)), "a launch of [0] items"},
		{d.Launch(ok, Size{1}, In(a.Rows(0, 5)), Out(a.Rows(4, 6))), "arguments 0 and 1 overlap"},
		{d.Launch(ok, Size{1}, 3), "argument 0: an int"},
		{d.Launch(ok, Size{1}, "x"), "argument 0: a string"},
		{d.Launch(ok, Size{1}, Local[float32](0)), "local memory of 0 bytes"},
		{d.Launch(ok, Size{1}, Out(k)), "the array is constant"},
		{d.Launch(ok, Size{1}, In(&Array[int32]{})), "not made with New"},
		{d.Launch(ok, Size{1}, In[int32](nil)), "not made with New"},
		{d.Launch(NewKernel("__kernel", "none", nil), Size{1}), "kernel none has no Go function"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%v, want %q", c.err, c.want)
		}
	}
	must(t, d.Launch(ok, Size{1}, In(a), In(a.Rows(3, 4)), In(k)), d.Launch(ok, Size{1, 2, 3}.In(1, 1, 1), InOut(a), In(a), Local[float32](3)), d.Finish())
	for _, f := range []func(){
		func() { New[uint32](1, 2, 3, 4) }, func() { New[uint32](0) }, func() { New[uint32](-1, -1) }, func() { New[string](1) },
		func() { New[*int](1) }, func() { New[struct{}](1) }, func() { New[uint32](1<<31, 1<<31, 4) },
		func() { a.Rows(3, 3) }, func() { a.Rows(-1, 3) }, func() { a.Rows(3, 11) }, func() { New[uint32]().Rows(0, 1) },
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "device: ") {
					t.Errorf("no panic, or %q", s)
				}
			}()
			f()
		}()
	}
}

// TestKernel_Build shows that build errors hold the compiler's log, and that a
// source is compiled once for all its kernels.
func TestKernel_Build(t *testing.T) {
	devs, err := Open("opencl")
	if err != nil {
		t.Skip(err)
	}
	d := devs[0]
	err = d.Launch(NewKernel("__kernel void f() { nonsense }", "f", nil), Size{1})
	if !errors.Is(err, ErrBuild) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("%v", err)
	}
	a := New[uint32](4)
	must(t, d.Launch(NewKernel(testSource, "put", nil), Size{4}, Out(a), uint32(1), n32(4)))
	n := len(d.programs)
	must(t, d.Launch(NewKernel(testSource, "axpy", nil), Size{4}, In(a), InOut(a), uint32(1), n32(4)))
	if len(d.programs) != n {
		t.Error("the source was compiled again")
	}
	if err := d.Launch(boom, Size{1}, InOut(a)); err == nil || !strings.Contains(err.Error(), "no OpenCL C source") {
		t.Errorf("%v", err)
	}
}

// TestLaunch_Scalars passes an array of no dimensions, an array of structs, and
// all types of scalars.
func TestLaunch_Scalars(t *testing.T) {
	type cell struct {
		I32 int32
		U32 uint32
		I64 int64
		U64 uint64
		F32 [2]float32
		F64 float64
	}
	d := discrete(t, 0, 0)
	a := New[cell]()
	if a.Len() != 1 || len(a.Dims()) != 0 {
		t.Error(a.Len(), a.Dims())
	}
	k := NewKernel("", "all", func(w *Work) {
		Slice[cell](w, 0)[0] = cell{Value[int32](w, 1), Value[uint32](w, 2), Value[int64](w, 3), Value[uint64](w, 4), [2]float32{Value[float32](w, 5)}, Value[float64](w, 6)}
	})
	must(t, d.Launch(k, Size{1}, Out(a), int32(-1), uint32(2), int64(-3), uint64(4), float32(5), 6.0))
	p, err := a.Data()
	if err != nil || p[0] != (cell{-1, 2, -3, 4, [2]float32{5}, 6}) {
		t.Error(p, err)
	}
}

// TestFill restores bytes in any order, from several goroutines, to the
// preferred places.
func TestFill(t *testing.T) {
	want := make([]byte, 9<<20)
	for i := range want {
		want[i] = byte(i * i >> 9)
	}
	d, e, tiny := discrete(t, 0, 0), discrete(t, 1, 0), discrete(t, 2, 1<<20)
	for name, prefer := range map[string]func(*Array[byte]){
		"nothing":  func(a *Array[byte]) {},
		"a device": func(a *Array[byte]) { a.Prefer(d) },
		"two":      func(a *Array[byte]) { a.Prefer(e); a.Rows(0, 3e6).Prefer(d) },
		"a part":   func(a *Array[byte]) { a.Rows(1e6, 3e6).Prefer(d) },
		"the host": func(a *Array[byte]) { a.Prefer(shared(t, 3)) },
		"no room":  func(a *Array[byte]) { a.Prefer(tiny) },
		"used": func(a *Array[byte]) {
			a.Prefer(d)
			must(t, e.Launch(NewKernel("", "x", func(*Work) {}), Size{1}, Out(a.Rows(5, 7e6))))
		},
		"used here": func(a *Array[byte]) {
			a.Prefer(d)
			must(t, d.Launch(NewKernel("", "x", func(*Work) {}), Size{1}, Out(a.Rows(5, 7e6))))
		},
	} {
		in, _ := d.Moved()
		a := New[byte](len(want))
		prefer(a)
		var wg sync.WaitGroup
		for i := 0; i < len(want); i += 1 << 20 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				hi := min(i+1<<20, len(want))
				if err := a.h.m.Fill(int64(i), want[i:hi]); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}()
		}
		wg.Wait()
		must(t, a.h.m.sound())
		moved, _ := d.Moved()
		if n := map[string]int64{"a device": 9 << 20, "two": 3e6, "a part": 2e6, "used": 9 << 20, "used here": 9 << 20}[name]; moved-in != n {
			t.Errorf("%s: %d bytes went to the device, want %d", name, moved-in, n)
		}
		got, err := gather(a.h.m, 0, a.hi)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: wrong bytes, %v", name, err)
		}
		runtime.KeepAlive(a)
	}
	a := New[byte](10)
	p, err := a.h.m.Target(2, 8)
	must(t, err)
	copy(p, "abcdef")
	must(t, d.Launch(NewKernel("", "x", func(w *Work) { Slice[byte](w, 0)[0]++ }), Size{1}, InOut(a.Rows(3, 5))))
	h, err := a.h.m.Host(0, 10)
	if err != nil || string(h) != "\x00\x00accdef\x00\x00" {
		t.Errorf("%q, %v", h, err)
	}
	for _, r := range [][2]int64{{-1, 2}, {3, 2}, {0, 11}} {
		_, err1 := a.h.m.Places(r[0], r[1])
		_, err2 := a.h.m.Host(r[0], r[1])
		_, err3 := a.h.m.Target(r[0], r[1])
		if err1 == nil || err2 == nil || err3 == nil {
			t.Errorf("%v: %v %v %v", r, err1, err2, err3)
		}
	}
}

// TestPlaces_VersionChangesWithWrites shows that a version changes when a
// kernel could have written, and only then.
func TestPlaces_VersionChangesWithWrites(t *testing.T) {
	d := discrete(t, 0, 0)
	a := New[uint32](100)
	must(t, d.Launch(put, Size{100}, Out(a), uint32(1), n32(100)))
	versions := func() (out []uint64) {
		places, err := a.h.m.Places(0, 400)
		must(t, err)
		for _, p := range places {
			out = append(out, p.Version)
		}
		return out
	}
	before := versions()
	must(t, d.Launch(axpy, Size{10}, In(a.Rows(0, 10)), InOut(New[uint32](10)), uint32(1), n32(10)))
	if got := versions(); !slices.Equal(got, before) || len(got) != 1 {
		t.Errorf("%v, before %v", got, before)
	}
	must(t, d.Launch(put, Size{10}, Out(a.Rows(50, 60)), uint32(1), n32(10)))
	if got := versions(); len(got) != 3 || got[0] != before[0] || got[1] == before[0] || got[2] != before[0] {
		t.Errorf("%v, before %v", got, before)
	}
	must(t, d.Launch(put, Size{100}, InOut(a), uint32(1), n32(100)))
	if got := versions(); len(got) != 1 || got[0] == before[0] {
		t.Errorf("%v, before %v", got, before)
	}
	runtime.KeepAlive(a)
}
