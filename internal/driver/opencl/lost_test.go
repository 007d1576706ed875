package opencl

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// TestLost_StaysLost shows that a lost device stays lost and can be closed.
func TestLost_StaysLost(t *testing.T) {
	for _, code := range []int32{codeNotAvailable, codeInvalidQueue, codeNVIDIAFault} {
		b := newBench(t, false)
		a := b.ints(1)
		if err := b.d.fail("something", "clSomething", code, 0); !errors.Is(err, driver.ErrLost) {
			t.Error(err)
		}
		_, err1 := b.d.Alloc(4)
		_, err2 := b.q.Record()
		_, err3 := b.d.Build(driver.Source{OpenCL: kernels})
		_, err4 := b.d.FreeMemory()
		for _, err := range []error{err1, err2, err3, err4, b.q.Finish(), b.q.CopyIn(a, 0, make([]byte, 4)), b.q.Copy(a, 0, a, 0, 0)} {
			if !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "something") {
				t.Error(err)
			}
		}
		check(t, a.Free())
		check(t, b.q.Close())
		check(t, b.d.Close())
	}
	b := newBench(t, false)
	// The queue still works, so this is only a lack of resources.
	if err := b.d.fail("op", "call", codeResources, b.d.own); errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	if err := b.d.noRoom("op", "call", codeResources); !errors.Is(err, driver.ErrMemory) {
		t.Error(err)
	}
	if err := b.d.late("op", "call", codeResources); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
}

// held makes the queue wait until pass is called.
func held(t *testing.T, b *bench) (pass func()) {
	lib := must(dl.Open(libraries...))(t)
	create, setStatus := must(lib.Lookup("clCreateUserEvent"))(t), must(lib.Lookup("clSetUserEventStatus"))(t)
	var code int32
	user := dl.Call(create, b.d.context, uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		t.Fatal(words(code))
	}
	q := b.q.(*queue)
	if code := int32(dl.Call(b.d.a.barrier, q.h, 1, uintptr(unsafe.Pointer(&user)), 0)); code != 0 {
		t.Fatal(words(code))
	}
	return func() {
		if code := int32(dl.Call(setStatus, user, 0)); code != 0 {
			t.Error(words(code))
		}
		dl.Call(b.d.a.releaseEvent, user)
	}
}

// TestLost_AcceptedCommandFails shows that a device is lost when an accepted
// command fails, and that the next call reports it. A function of libc that
// never returns 0 replaces the one that reports the driver's error.
func TestLost_AcceptedCommandFails(t *testing.T) {
	launch := func(b *bench, a driver.Buffer) error {
		k, err := b.p.Kernel("add")
		if err != nil {
			return err
		}
		return b.q.Launch(k, [3]int{1, 1, 1}, group(1), []driver.Arg{whole(a), value(int32(1)), value(int32(1))})
	}
	for _, c := range []struct {
		name string
		call func(a *api) *uintptr
		do   func(b *bench, a driver.Buffer, e driver.Event) error
	}{
		{"Finish", func(a *api) *uintptr { return &a.finish }, func(b *bench, a driver.Buffer, e driver.Event) error { return b.q.Finish() }},
		{"Finish by its marker", func(a *api) *uintptr { return &a.waitForEvents }, func(b *bench, a driver.Buffer, e driver.Event) error { return b.q.Finish() }},
		{"Wait", func(a *api) *uintptr { return &a.waitForEvents }, func(b *bench, a driver.Buffer, e driver.Event) error { return e.Wait() }},
		{"Wait by the state", func(a *api) *uintptr { return &a.getEventInfo }, func(b *bench, a driver.Buffer, e driver.Event) error { return e.Wait() }},
		{"Done", func(a *api) *uintptr { return &a.getEventInfo }, func(b *bench, a driver.Buffer, e driver.Event) error {
			_, err := e.Done()
			return err
		}},
		{"CopyOut", func(a *api) *uintptr { return &a.waitForEvents }, func(b *bench, a driver.Buffer, e driver.Event) error {
			return b.q.CopyOut(make([]byte, 4), a, 0)
		}},
		{"Launch", func(a *api) *uintptr { return &a.waitForEvents }, func(b *bench, a driver.Buffer, e driver.Event) error {
			for range 3 * window {
				if err := launch(b, a); err != nil {
					return err
				}
			}
			return nil
		}},
		{"what is refused then", func(a *api) *uintptr { return &a.finish }, func(b *bench, a driver.Buffer, e driver.Event) error {
			return b.d.fail("op", "call", codeResources, b.d.own)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, false)
			fails := must(must(dl.Open("libc.so.6"))(t).Lookup("getpagesize"))(t)
			a := b.ints(1)
			check(t, launch(b, a))
			e := must(b.q.Record())(t)
			call := c.call(b.d.a)
			real := *call
			*call = fails
			err := c.do(b, a, e)
			*call = real
			if !errors.Is(err, driver.ErrLost) {
				t.Error(err)
			}
			if _, err := b.d.Alloc(4); !errors.Is(err, driver.ErrLost) {
				t.Error("later:", err)
			}
			if err := launch(b, a); !errors.Is(err, driver.ErrLost) {
				t.Error("later:", err)
			}
		})
	}
}

// TestQueue_WaitsWhenFull shows that issuing commands waits when there are too
// many, and then continues.
func TestQueue_WaitsWhenFull(t *testing.T) {
	b := newBench(t, false)
	a := b.ints(0)
	k := must(b.p.Kernel("add"))(t)
	pass := held(t, b)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 4 * window {
			check(t, b.q.Launch(k, [3]int{1, 1, 1}, group(1), []driver.Arg{whole(a), value(int32(1)), value(int32(1))}))
		}
	})
	q := b.q.(*queue)
	for full := false; !full; {
		if full = !q.mu.TryLock(); !full {
			full = q.given >= 2*window-1
			if q.given > 2*window {
				t.Error(q.given, "commands are under way")
			}
			q.mu.Unlock()
		}
	}
	pass()
	wg.Wait()
	if v := read[int32](b, a); v[0] != 4*window {
		t.Error(v)
	}
}

// TestClose_WhileWaiting closes a queue while other goroutines wait for it.
func TestClose_WhileWaiting(t *testing.T) {
	for range 5 {
		b := newBench(t, false)
		a := b.ints(1)
		b.launch("spin", 1, 1, whole(a), value(int32(1_000_000)))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := b.q.Finish(); err != nil && !strings.Contains(err.Error(), "closed") {
					t.Error(err)
				}
			})
		}
		check(t, b.q.Close())
		wg.Wait()
		check(t, b.d.Close())
	}
}

// TestLost_KernelWritesOutside runs a kernel that writes outside of its
// buffers. The device is lost. NVIDIA's driver gives this process no other
// context for it then. Other processes are not affected. On a CPU, the process
// would end.
func TestLost_KernelWritesOutside(t *testing.T) {
	const child = "CAIRN_TEST_FAULT"
	b := newBench(t, false)
	if b.d.info.Kind != driver.GPU {
		t.Skip("there is no GPU")
	}
	a := b.ints(1)
	works := func(b *bench, a driver.Buffer) {
		t.Helper()
		before := read[int32](b, a)[0]
		b.launch("add", 1, 1, whole(a), value(int32(1)), value(int32(1)))
		if v := read[int32](b, a); v[0] != before+1 {
			t.Error(v, "after", before)
		}
	}
	works(b, a)
	switch os.Getenv(child) {
	case "":
		for _, what := range []string{"fault", "new process"} {
			c := exec.Command(os.Args[0], "-test.run=^TestLost_KernelWritesOutside$", "-test.v")
			c.Env = append(os.Environ(), child+"="+what)
			out, err := c.CombinedOutput()
			t.Logf("%s: %s", what, out)
			if err != nil {
				t.Error(what, err)
			}
			if !strings.Contains(string(out), "--- PASS: TestLost_KernelWritesOutside") {
				t.Error(what, "did not run")
			}
			works(b, a)
		}
		return
	case "new process":
		return
	}
	other := newBench(t, false) // another context of the process
	x := other.ints(1)
	works(other, x)
	p := must(b.d.Build(driver.Source{OpenCL: "__kernel void nowhere(__global int *a, ulong at) { *(__global int *)at = a[0]; }"}))(t)
	err := b.q.Launch(must(p.Kernel("nowhere"))(t), [3]int{1, 1, 1}, group(1), []driver.Arg{whole(a), value(uint64(0x123456789000))})
	if err == nil {
		err = b.q.Finish()
	}
	t.Log(err)
	if !errors.Is(err, driver.ErrLost) {
		t.Error("the kernel did no harm:", err)
	}
	if err := b.q.CopyOut(make([]byte, 4), a, 0); !errors.Is(err, driver.ErrLost) {
		t.Error("later:", err)
	}
	check(t, b.d.Close())
	// The other context is lost, too, or works.
	err = other.q.CopyOut(make([]byte, 4), x, 0)
	t.Log("another context:", err)
	if err == nil {
		works(other, x)
	} else if !errors.Is(err, driver.ErrLost) {
		t.Error("another context:", err)
	}
	check(t, other.d.Close())

	d := openOne(t)
	_, err = d.NewQueue()
	t.Log("a new context:", err)
	if err == nil {
		b = benchOn(t, d, false)
		works(b, b.ints(1))
		return
	}
	if !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), refusedAgain) {
		t.Error("a new context:", err)
	}
	if _, err := d.Alloc(4); !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), refusedAgain) {
		t.Error("a new context, later:", err)
	}
}
