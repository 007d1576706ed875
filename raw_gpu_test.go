//go:build linux && (amd64 || arm64) && !static

package cairn_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/dl"
)

// cudaProgram calls the CUDA driver like a program that does not use package
// device. Its functions run on the thread of locked.
type cudaProgram struct {
	t      *testing.T
	lib    *dl.Library
	out    *[2]uintptr // written by C
	stream uintptr
}

// newCUDA makes the primary context of the first GPU current, as the CUDA
// runtime does, and creates a stream. It skips the test without a GPU.
func newCUDA(t *testing.T) *cudaProgram {
	t.Helper()
	if devs, err := device.Open("cuda"); err != nil || len(devs) == 0 {
		t.Skipf("there is no NVIDIA GPU: %v", err)
	}
	lib, err := dl.Open("libcuda.so.1")
	if err != nil {
		t.Fatal(err)
	}
	c := &cudaProgram{t: t, lib: lib, out: new([2]uintptr)}
	c.call("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(&c.out[0])), 0)
	c.call("cuCtxSetCurrent", c.out[0])
	c.call("cuStreamCreate", uintptr(unsafe.Pointer(&c.out[0])), 1)
	c.stream = c.out[0]
	return c
}

//go:uintptrescapes
func (c *cudaProgram) call(name string, args ...uintptr) {
	c.t.Helper()
	f, err := c.lib.Lookup(name)
	if err != nil {
		c.t.Fatal(err)
	}
	if r := int32(dl.Call(f, args...)); r != 0 {
		c.t.Fatalf("%s returned %d", name, r)
	}
}

// alloc calls an allocator whose first argument is a pointer to the resulting
// address.
func (c *cudaProgram) alloc(name string, args ...uintptr) uintptr {
	c.t.Helper()
	f, err := c.lib.Lookup(name)
	if err != nil {
		c.t.Fatal(err)
	}
	var r int32
	switch len(args) {
	case 1:
		r = int32(dl.Call(f, uintptr(unsafe.Pointer(&c.out[0])), args[0]))
	default:
		r = int32(dl.Call(f, uintptr(unsafe.Pointer(&c.out[0])), args[0], args[1]))
	}
	if r != 0 {
		c.t.Fatalf("%s returned %d", name, r)
	}
	return c.out[0]
}

// words returns memory that the host can access.
func words(addr uintptr, n int) []uint32 {
	return unsafe.Slice((*uint32)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), n)
}

// busy gives the stream work that takes a while, so that later commands are
// delayed.
func (c *cudaProgram) busy(scratch uintptr, n int) {
	for i := range 20 {
		c.call("cuMemsetD32Async", scratch, uintptr(i), uintptr(n), c.stream)
	}
}

// TestRawMemory_OwnStream changes raw memory on a stream of the program right
// before a point and right after it. The checkpoint must have the effect of the
// commands before the point, and of none after it.
func TestRawMemory_OwnStream(t *testing.T) {
	n := 1 << 18
	if os.Getenv("CAIRN_FAKE_CUDA") == "" {
		n = 512 << 20 // 2 GiB: a copy takes long enough to be overtaken
	}
	// Each kind is tested alone: waiting for one would hide that another one is
	// not awaited.
	for _, kind := range []string{"device", "sparse", "managed", "managed, written by the processor", "pinned"} {
		t.Run(kind, func(t *testing.T) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				locked(func() { rawOwnStream(t, kind, n) })
			}()
			<-done
		})
	}
}

func rawOwnStream(t *testing.T, kind string, n int) {
	c, ctx := newCUDA(t), context.Background()
	size := uintptr(4 * n)
	var at uintptr
	switch kind {
	case "device", "sparse":
		at = c.alloc("cuMemAlloc_v2", size)
	case "pinned":
		at = c.alloc("cuMemHostAlloc", size, 0)
	default:
		at = c.alloc("cuMemAllocManaged", size, 1)
	}
	scratch := c.alloc("cuMemAlloc_v2", size)
	// write makes the program's stream store a value in n elements.
	write := func(at uintptr, v uint32, n int) {
		if kind == "pinned" {
			c.call("cuMemsetD32Async", scratch, uintptr(v), uintptr(n), c.stream)
			c.call("cuMemcpyDtoHAsync_v2", at, scratch, uintptr(4*n), c.stream)
		} else {
			c.call("cuMemsetD32Async", at, uintptr(v), uintptr(n), c.stream)
		}
	}
	// The values before the point: most are rest, those of lo…hi are v.
	rest, lo, hi := uint32(0), 0, n
	if kind == "sparse" {
		lo, hi = n/2, n/2+1000
	}
	p, err := cairn.Open(ctx, cairn.Options{Dir: t.TempDir(), EveryPoints: 1})
	if err != nil {
		t.Error(err)
		return
	}
	defer p.Close()
	a, err := device.Raw[uint32](at, n)
	if err != nil {
		t.Error(err)
		return
	}
	cairn.Protect(p, "a", a)
	if _, err := p.Restore(ctx); err != nil {
		t.Error(err)
		return
	}
	write(at, rest, n)
	for v := uint32(2); v < 50; v += 10 {
		c.busy(scratch, n)
		write(at+uintptr(4*lo), v, hi-lo)
		if err := p.Point(ctx); err != nil {
			t.Error(err)
			return
		}
		// At once, without waiting for Cairn.
		if strings.HasSuffix(kind, "processor") {
			// The end is copied last; the device would have to fetch all of it.
			host := words(at, n)[n-n/64:]
			for i := range host {
				host[i] = v + 1
			}
		} else {
			write(at, v+1, n)
			c.call("cuStreamSynchronize", c.stream)
		}
		// Commands that were issued before a rollback must not be executed
		// after it.
		c.busy(scratch, n)
		write(at, v+2, n)
		if ok, err := p.Rollback(ctx); err != nil || !ok {
			t.Error(ok, err)
			return
		}
		c.call("cuStreamSynchronize", c.stream)
		wrong, first := 0, ""
		got := make([]uint32, min(n, 16<<20))
		for from := 0; from < n; from += len(got) {
			if kind == "pinned" {
				copy(got, words(at, n)[from:])
			} else {
				c.call("cuMemcpyDtoH_v2", uintptr(unsafe.Pointer(&got[0])), at+uintptr(4*from), uintptr(4*len(got)))
			}
			for i, x := range got {
				want := rest
				if i += from; lo <= i && i < hi {
					want = v
				}
				if x == want {
					continue
				}
				if wrong++; wrong == 1 {
					first = fmt.Sprintf("element %d is %d, not %d", i, x, want)
				}
			}
		}
		if wrong > 0 {
			t.Errorf("round %d: %d of %d elements are wrong; %s", v, wrong, n, first)
			return
		}
	}
}

// TestRawMemory_OtherOwnerRefused passes CUDA memory to Raw that the program's
// devices cannot save. It must be refused, never treated as host memory.
func TestRawMemory_OtherOwnerRefused(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		locked(func() {
			c := newCUDA(t)
			dev, managed := c.alloc("cuMemAlloc_v2", 1<<20), c.alloc("cuMemAllocManaged", 1<<20, 1)
			for name, at := range map[string]uintptr{"device": dev, "managed": managed} {
				a, err := device.Raw[uint32](at, 1000)
				if os.Getenv("CAIRN_DEVICES") == "host" {
					if err == nil || !strings.Contains(err.Error(), "CAIRN_DEVICES") {
						t.Errorf("%s memory with CAIRN_DEVICES=host: %v, %v", name, a, err)
					}
				} else if err != nil {
					t.Errorf("%s memory: %v", name, err)
				}
			}
			if pinned, err := device.Raw[uint32](c.alloc("cuMemHostAlloc", 1<<20, 0), 1000); err != nil {
				t.Error("pinned memory:", pinned, err)
			}
		})
	}()
	<-done
	if os.Getenv("CAIRN_DEVICES") == "" && !t.Skipped() {
		again(t, "TestRawMemory_OtherOwnerRefused", "CAIRN_DEVICES=host")
	}
}

// again runs a test of this binary in a process with another environment.
func again(t *testing.T, name string, env ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^("+name+")$", "-test.v")
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "--- SKIP") || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v: %v\n%s", env, err, out)
	}
}

// TestRawMemory_FakeCUDA runs the tests of raw memory on a CUDA driver that
// needs no GPU and executes commands of streams as late as possible.
func TestRawMemory_FakeCUDA(t *testing.T) {
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("there is no g++ to build a CUDA driver without a GPU")
	}
	dir := t.TempDir()
	source := filepath.Join("internal", "driver", "cuda", "testdata", "fake")
	lib := filepath.Join(dir, "libcuda.so.1")
	if out, err := exec.Command(gxx, "-std=c++17", "-shared", "-fPIC", "-o", lib, filepath.Join(source, "fake.cpp"), "-lpthread", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	header, err := os.ReadFile(filepath.Join(source, "mock.h"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "mock.h"), header, 0o600)
	}
	if err == nil {
		err = os.Symlink(lib, filepath.Join(dir, "libnvrtc.so.13"))
	}
	if err != nil {
		t.Fatal(err)
	}
	again(t, "TestRawMemory_AllKinds|TestRawMemory_OwnStream|TestRawMemory_OtherOwnerRefused", "LD_LIBRARY_PATH="+dir, "CAIRN_FAKE_CUDA=1", "FAKE_CUDA_LAZY=1", "CAIRN_DEVICES=cuda")
	again(t, "TestRawMemory_OtherOwnerRefused", "LD_LIBRARY_PATH="+dir, "CAIRN_FAKE_CUDA=1", "FAKE_CUDA_LAZY=1", "CAIRN_DEVICES=host")
}
