//go:build linux && (amd64 || arm64) && !static

package cuda

import (
	_ "embed"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/drivertest"
)

//go:embed testdata/fake/fake.cpp
var fakeSource []byte

//go:embed testdata/fake/mock.h
var fakeMock []byte

var (
	fakeOnce sync.Once
	fakePath string
	fakeErr  error
)

func TestMain(m *testing.M) {
	code := m.Run()
	if fakePath != "" {
		os.RemoveAll(filepath.Dir(fakePath))
	}
	os.Exit(code)
}

// fakeLibrary builds testdata/fake, or skips the test if there is no g++.
func fakeLibrary(t testing.TB) string {
	t.Helper()
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("there is no g++ to build a driver without a GPU")
	}
	fakeOnce.Do(func() {
		dir, err := os.MkdirTemp("", "fakecuda")
		if err != nil {
			fakeErr = err
			return
		}
		fakePath = filepath.Join(dir, "libfake.so")
		source := filepath.Join(dir, "fake.cpp")
		fakeErr = errors.Join(os.WriteFile(source, fakeSource, 0o666), os.WriteFile(filepath.Join(dir, "mock.h"), fakeMock, 0o666))
		if fakeErr != nil {
			return
		}
		out, err := exec.Command(gxx, "-std=c++17", "-shared", "-fPIC", "-o", fakePath, source, "-lpthread", "-ldl").CombinedOutput()
		if err != nil {
			fakeErr = errors.New(err.Error() + "\n" + string(out))
		}
	})
	if fakeErr != nil {
		t.Fatal(fakeErr)
	}
	return fakePath
}

func fakeDevices(t testing.TB) []*device {
	t.Helper()
	path := fakeLibrary(t)
	devs, err := open([]string{path}, func() []string { return []string{path} })
	if err != nil {
		t.Fatal(err)
	}
	var list []*device
	for _, d := range devs {
		list = append(list, d.(*device))
	}
	return list
}

// fakeCall calls a function of the fake driver.
func fakeCall(t testing.TB, name string, args ...uintptr) int {
	t.Helper()
	lib, err := dl.Open(fakeLibrary(t))
	if err != nil {
		t.Fatal(err)
	}
	addr, err := lib.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	return int(int32(dl.Call(addr, args...)))
}

// left fails the test if the driver still has resources.
func left(t testing.TB) {
	t.Helper()
	for i, what := range []string{"allocations", "streams", "events", "modules", "pinned ranges", "contexts"} {
		if n := fakeCall(t, "fake_left", uintptr(i)); n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}

// TestDriver_Fake runs the tests of all drivers on a driver that needs no GPU.
func TestDriver_Fake(t *testing.T) {
	for i, name := range []string{"cubin", "ptx"} {
		t.Run(name, func(t *testing.T) {
			drivertest.Run(t, func(t *testing.T) driver.Device { return fakeDevices(t)[i] })
		})
		left(t)
	}
}

// TestPeers_Fake runs the tests of copies between devices, and checks which
// devices reach each other.
func TestPeers_Fake(t *testing.T) {
	t.Run("two", func(t *testing.T) {
		drivertest.RunPeers(t, func(t *testing.T) (a, b driver.Device) {
			devs := fakeDevices(t)
			return devs[0], devs[1]
		})
	})
	left(t)
	if fakeCall(t, "fake_peer_moved") == 0 {
		t.Error("nothing was copied from GPU to GPU")
	}
	d := fakeDevices(t)[0]
	if apart := fakeDevices(t)[1]; d.Reaches(apart) || d.Reaches(d) {
		t.Error("a GPU reaches one that was opened separately, or itself")
	}
	must(t, d.Close())
}

// TestSubset_Fake runs the documented subset of OpenCL C on a driver that needs
// no GPU.
func TestSubset_Fake(t *testing.T) {
	t.Run("cubin", func(t *testing.T) { testSubset(t, fakeDevices(t)[0]) })
	t.Run("ptx", func(t *testing.T) { testSubset(t, fakeDevices(t)[1]) })
	left(t)
}

// TestLost_FailsAtOnce shows that a lost device fails at once with the first
// cause, can be closed, and does not affect another device.
func TestLost_FailsAtOnce(t *testing.T) {
	devs := fakeDevices(t)
	d, other := devs[0], devs[1]
	q, err := d.NewQueue()
	must(t, err)
	b, err := d.Alloc(1000)
	must(t, err)
	must(t, q.CopyIn(b, 0, make([]byte, 1000)))
	e, err := q.Record()
	must(t, err)
	p, err := d.Build(driver.Source{OpenCL: "__kernel void f(__global int *x) { x[0] = 1; }"})
	must(t, err)
	k, err := p.Kernel("f")
	must(t, err)
	release, err := d.Pin(make([]byte, 4096))
	must(t, err)

	fakeCall(t, "fake_lose", 0, 700)
	defer fakeCall(t, "fake_lose", 0, 0)
	first := q.Finish()
	if !errors.Is(first, driver.ErrLost) || !strings.Contains(first.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Fatal(first)
	}
	fakeCall(t, "fake_lose", 0, 0) // it stays lost
	_, allocErr := d.Alloc(10)
	_, queueErr := d.NewQueue()
	_, freeErr := d.FreeMemory()
	_, recordErr := q.Record()
	_, buildErr := d.Build(driver.Source{OpenCL: "__kernel void f() {}"})
	_, kernelErr := p.Kernel("f")
	_, pinErr := d.Pin(make([]byte, 10))
	_, doneErr := e.Done()
	for i, err := range []error{
		allocErr, queueErr, freeErr, recordErr, buildErr, kernelErr, pinErr, doneErr, e.Wait(), q.Finish(),
		q.CopyIn(b, 0, make([]byte, 10)), q.CopyOut(make([]byte, 10), b, 0), q.Copy(b, 0, b, 10, 10),
		q.Launch(k, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{{Buffer: b, Len: 1000}}),
	} {
		var de *driver.Error
		if !errors.Is(err, driver.ErrLost) || !errors.As(err, &de) || de.Code != 700 || !strings.Contains(de.Op, "Finish") {
			t.Errorf("call %d: %v", i, err)
		}
	}
	must(t, release())
	must(t, q.Close())
	must(t, p.Close())
	must(t, d.Close())

	b, err = other.Alloc(10)
	must(t, err)
	must(t, b.Free())
	must(t, other.Close())

	// The driver still has the lost device's resources. Free them by hand.
	again := fakeDevices(t)[0]
	must(t, again.enter("test"))
	for addr := range d.live {
		dl.Call(again.cu.MemFree, addr)
	}
	dl.Call(again.cu.StreamDestroy, d.queues[0].stream)
	dl.Call(again.cu.ModuleUnload, p.(*program).module)
	for _, h := range d.made {
		dl.Call(again.cu.EventDestroy, h)
	}
	dl.Call(again.cu.PrimaryCtxRelease, 0)
	again.leave()
	must(t, again.Close())
}

// TestLost_OtherErrors shows that a wrong argument does not make a device lost.
func TestLost_OtherErrors(t *testing.T) {
	for _, code := range []int32{1, 2, 200, 218, 400, 500, 600, 701, 704, 712, 713, 720, 801} {
		if isLost(code) {
			t.Errorf("%d", code)
		}
	}
}

// TestFreedMemory_Reused shows that freed memory is reused, and counts as free.
func TestFreedMemory_Reused(t *testing.T) {
	d := fakeDevices(t)[0]
	defer func() { must(t, d.Close()); left(t) }()
	before, err := d.FreeMemory()
	must(t, err)
	b, err := d.Alloc(1 << 20)
	must(t, err)
	addr := b.(*buffer).addr
	must(t, b.Free())
	if after, err := d.FreeMemory(); err != nil || after != before {
		t.Errorf("%d bytes free, then %d, %v", before, after, err)
	}
	b, err = d.Alloc(1 << 20)
	must(t, err)
	if b.(*buffer).addr != addr {
		t.Error("other memory")
	}
	must(t, b.Free())
	// This size is available only if the freed memory is returned.
	all, err := d.Alloc(before)
	must(t, err)
	must(t, all.Free())
	if n := len(d.dead); n != 0 {
		t.Errorf("%d buffers are kept, of %d bytes", n, d.unused)
	}
}

// TestAttributes checks what kind of memory is at an address: of the device, of
// another context, pinned.
func TestAttributes(t *testing.T) {
	d := fakeDevices(t)[0]
	defer func() { must(t, d.Close()); left(t) }()
	b, err := d.Alloc(4096)
	must(t, err)
	addr := b.(*buffer).addr
	attr, ok, err := d.Attributes(addr + 100)
	if want := (driver.Attributes{}); err != nil || !ok || attr != want {
		t.Errorf("device memory is %+v, %v, %v", attr, ok, err)
	}
	fakeCall(t, "fake_other", addr)
	attr, ok, err = d.Attributes(addr)
	if want := (driver.Attributes{Other: true}); err != nil || !ok || attr != want {
		t.Errorf("memory of another context is %+v, %v, %v", attr, ok, err)
	}
	p := make([]byte, 1<<16)
	release, err := d.Pin(p)
	must(t, err)
	attr, ok, err = d.Attributes(uintptr(unsafe.Pointer(&p[5])))
	if want := (driver.Attributes{Host: true}); err != nil || !ok || attr != want {
		t.Errorf("pinned memory is %+v, %v, %v", attr, ok, err)
	}
	q, err := d.NewQueue()
	must(t, err)
	own := d.At(addr+8, 100)
	must(t, q.CopyIn(own, 10, []byte("brought along")))
	must(t, own.Free())
	got := make([]byte, 13)
	must(t, q.CopyOut(got, b, 18))
	if string(got) != "brought along" {
		t.Errorf("%q", got)
	}
	must(t, release())
	must(t, release())
}

// TestAttributes_WithoutContext shows that queries create no context, and
// neither does waiting without any work. A context takes time, and memory of
// the GPU.
func TestAttributes_WithoutContext(t *testing.T) {
	d := fakeDevices(t)[0]
	p := make([]byte, 100)
	if attr, ok, err := d.Attributes(uintptr(unsafe.Pointer(&p[0]))); ok || err != nil {
		t.Errorf("ordinary memory is %+v, %v", attr, err)
	}
	must(t, d.Synchronize())
	left(t)
	must(t, d.Close())
}

// TestCurrentContext_Kept shows that the program's current context stays
// current.
func TestCurrentContext_Kept(t *testing.T) {
	devs := fakeDevices(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fakeCall(t, "cuCtxSetCurrent", 2)
	defer fakeCall(t, "cuCtxSetCurrent", 0)
	d := devs[0]
	q, err := d.NewQueue()
	must(t, err)
	b, err := d.Alloc(100)
	must(t, err)
	must(t, q.CopyIn(b, 0, make([]byte, 100)))
	release, err := d.Pin(make([]byte, 100))
	must(t, err)
	must(t, release())
	e, err := q.Record()
	must(t, err)
	must(t, q.After(e))
	must(t, e.Wait())
	p, err := d.Build(driver.Source{OpenCL: subset})
	must(t, err)
	_, err = p.Kernel("floats")
	must(t, err)
	must(t, p.Close())
	must(t, b.Free())
	must(t, q.Close())
	must(t, d.Close())
	if got := fakeCall(t, "fake_current"); got != 200 {
		t.Errorf("the current context is %d, %d deep", got/100, got%100)
	}
	left(t)
}

// TestPin_Twice pins the same memory by two devices. It stays pinned until both
// have released it.
func TestPin_Twice(t *testing.T) {
	devs := fakeDevices(t)
	p := make([]byte, 1<<16)
	one, err := devs[0].Pin(p)
	must(t, err)
	two, err := devs[1].Pin(p[100:5000])
	must(t, err)
	must(t, one())
	if n := fakeCall(t, "fake_left", 4); n != 1 {
		t.Errorf("%d ranges are pinned", n)
	}
	if first, rest, pinned := devs[1].piece(p[:200]); !pinned || len(first) != 200 || len(rest) != 0 {
		t.Error("not pinned any more")
	}
	must(t, two())
	must(t, devs[0].Close())
	must(t, devs[1].Close())
	left(t)
}

// TestEvents_Reused shows that events are reused when the program drops them
// without waiting.
func TestEvents_Reused(t *testing.T) {
	d := fakeDevices(t)[0]
	defer func() { must(t, d.Close()); left(t) }()
	q, err := d.NewQueue()
	must(t, err)
	for range 1000 {
		e, err := q.Record()
		must(t, err)
		must(t, e.Wait())
	}
	if n := fakeCall(t, "fake_left", 2); n != 1 {
		t.Errorf("%d events for one at a time", n)
	}
}

// TestFree_DuringLaunch frees memory while a call is about to issue a command
// with it. The memory must not be reused before that.
func TestFree_DuringLaunch(t *testing.T) {
	d := fakeDevices(t)[0]
	defer d.Close()
	q, err := d.NewQueue()
	must(t, err)
	b, err := d.Alloc(4096)
	must(t, err)
	x, addr, err := d.use("test", b, 0, 4)
	must(t, err)
	must(t, b.Free())
	other, err := d.Alloc(4096)
	must(t, err)
	if other.(*buffer).addr == addr {
		t.Error("memory that a command is about to use was given away")
	}
	if err := q.CopyIn(b, 0, make([]byte, 4)); err == nil {
		t.Error("a buffer that was freed can be used")
	}
	d.unuse(x)
	again, err := d.Alloc(4096)
	must(t, err)
	if again.(*buffer).addr != addr {
		t.Error("the memory was not freed by its last user")
	}
}

// TestKernel_OneObjectPerFunction: two kernel objects for one function would
// overwrite each other's setting of local memory.
func TestKernel_OneObjectPerFunction(t *testing.T) {
	d := fakeDevices(t)[0]
	defer d.Close()
	p, err := d.Build(driver.Source{OpenCL: "__kernel void f(__local int *x) { x[0] = 1; }"})
	must(t, err)
	k, err := p.Kernel("f")
	must(t, err)
	l, err := p.Kernel("f")
	must(t, err)
	if k != l {
		t.Error("two kernels for one function")
	}
}
