//go:build linux && (amd64 || arm64) && !static

package cairn_test

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/dl"
)

// gpu opens the NVIDIA GPU, or skips.
func gpu(t *testing.T) *device.Device {
	t.Helper()
	devs, err := device.Open("cuda")
	if err != nil || len(devs) == 0 {
		t.Skipf("there is no NVIDIA GPU: %v", err)
	}
	return devs[0]
}

// slots are written by C, so they must not be on a stack, which may move.
var slots [4]uintptr

// TestRawMemory_AllKinds protects memory that the program has allocated with
// the CUDA driver itself: of the device, managed, pinned, and ordinary.
func TestRawMemory_AllKinds(t *testing.T) {
	d := gpu(t)
	const n = 1 << 20
	warm := device.New[uint32](16) // a launch creates the context
	k := device.NewKernel("__kernel void one(__global uint *x) { x[get_global_id(0)] = 1; }", "one", nil)
	if err := errors.Join(d.Launch(k, device.Size{16}, device.Out(warm)), d.Finish()); err != nil {
		t.Fatal(err)
	}
	cu, err := dl.Open("libcuda.so.1")
	if err != nil {
		t.Fatal(err)
	}
	call := func(name string, args ...uintptr) {
		t.Helper()
		f, err := cu.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if r := int32(dl.Call(f, args...)); r != 0 {
			t.Fatalf("%s returned %d", name, r)
		}
	}
	// Everything runs on one thread with the primary context, as in a CUDA
	// program.
	done := make(chan struct{})
	var dev, managed, pinned uintptr
	host := make([]uint32, n)
	copyIn := func(to uintptr, v []uint32) {
		call("cuMemcpyHtoD_v2", to, uintptr(unsafe.Pointer(&v[0])), 4*n)
	}
	copyOut := func(v []uint32, from uintptr) {
		call("cuMemcpyDtoH_v2", uintptr(unsafe.Pointer(&v[0])), from, 4*n)
	}
	go func() {
		defer close(done)
		locked(func() {
			call("cuDevicePrimaryCtxRetain", uintptr(unsafe.Pointer(&slots[0])), 0)
			call("cuCtxSetCurrent", slots[0])
			call("cuMemAlloc_v2", uintptr(unsafe.Pointer(&slots[1])), 4*n)
			call("cuMemAllocManaged", uintptr(unsafe.Pointer(&slots[2])), 4*n, 1)
			call("cuMemHostAlloc", uintptr(unsafe.Pointer(&slots[3])), 4*n, 0)
			dev, managed, pinned = slots[1], slots[2], slots[3]
			want := make([][]uint32, 4)
			for i := range want {
				want[i] = make([]uint32, n)
				for j := range want[i] {
					want[i][j] = uint32(j*7 + i*1000003)
				}
			}
			put := func(v [][]uint32) {
				copyIn(dev, v[0])
				copyIn(managed, v[1])
				copy(unsafe.Slice((*uint32)(*(*unsafe.Pointer)(unsafe.Pointer(&pinned))), n), v[2])
				copy(host, v[3])
			}
			put(want)
			p, err := cairn.Open(context.Background(), cairn.Options{Dir: t.TempDir()})
			if err != nil {
				t.Error(err)
				return
			}
			defer p.Close()
			for i, at := range []uintptr{dev, managed, pinned, uintptr(unsafe.Pointer(&host[0]))} {
				a, err := device.Raw[uint32](at, n)
				if err != nil {
					t.Error(err)
					return
				}
				cairn.Protect(p, []string{"device", "managed", "pinned", "host"}[i], a)
			}
			if _, err := p.Restore(context.Background()); err != nil {
				t.Error(err)
				return
			}
			for round := range 3 {
				if err := p.Checkpoint(context.Background()); err != nil {
					t.Error(err)
					return
				}
				put([][]uint32{make([]uint32, n), make([]uint32, n), make([]uint32, n), make([]uint32, n)})
				if ok, err := p.Rollback(context.Background()); err != nil || !ok {
					t.Error(ok, err)
					return
				}
				got := make([][]uint32, 4)
				for i := range got {
					got[i] = make([]uint32, n)
				}
				copyOut(got[0], dev)
				copyOut(got[1], managed)
				copy(got[2], unsafe.Slice((*uint32)(*(*unsafe.Pointer)(unsafe.Pointer(&pinned))), n))
				copy(got[3], host)
				for i := range got {
					for j := range got[i] {
						if got[i][j] != want[i][j] {
							t.Errorf("round %d, memory %d: element %d is %d, not %d", round, i, j, got[i][j], want[i][j])
							return
						}
					}
					want[i][round*1000]++ // some change
				}
				put(want)
			}
		})
	}()
	<-done
}

// TestRollback_GPULost destroys the GPU's context by a write to an invalid
// address, and continues on the host from the last checkpoint. It runs in a
// process of its own, which no other test shares.
func TestRollback_GPULost(t *testing.T) {
	d := gpu(t)
	if os.Getenv("CAIRN_LOSE_GPU") == "" {
		again(t, "TestRollback_GPULost", "CAIRN_LOSE_GPU=1")
		return
	}
	const src = `
__kernel void step(__global uint *x) { size_t i = get_global_id(0); x[i] = x[i] * 1664525u + 1013904223u; }
__kernel void wild(__global uint *x, ulong far) { x[far] = 1; }`
	step := device.NewKernel(src, "step", func(w *device.Work) {
		x := device.Slice[uint32](w, 0)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			x[i] = x[i]*1664525 + 1013904223
		}
	})
	wild := device.NewKernel(src, "wild", nil)
	hosts, err := device.Open("host")
	if err != nil {
		t.Fatal(err)
	}
	const n, steps = 1 << 20, 20
	x, i := device.New[uint32](n), 0
	ctx := context.Background()
	p, err := cairn.Open(ctx, cairn.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	cairn.Protect(p, "x", x)
	cairn.Protect(p, "i", &i)
	if _, err := p.Restore(ctx); err != nil {
		t.Fatal(err)
	}
	lost := false
	for ; i < steps; i++ {
		if i == 10 && !lost {
			if err := p.Checkpoint(ctx); err != nil {
				t.Fatal(err)
			}
		}
		err := d.Launch(step, device.Size{n}, device.InOut(x))
		if i == 15 && !lost {
			err = errors.Join(d.Launch(wild, device.Size{1}, device.InOut(x), uint64(1)<<45), d.Finish())
		}
		if errors.Is(err, device.ErrLost) {
			lost = true
			if ok, err := p.Rollback(ctx); err != nil || !ok {
				t.Fatal(ok, err)
			}
			if i != 10 {
				t.Fatalf("back at step %d", i)
			}
			d = hosts[0]
			i--
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !lost {
		t.Fatal("the GPU was not lost")
	}
	got, err := x.Read()
	if err != nil {
		t.Fatal(err)
	}
	want := uint32(0)
	for range steps {
		want = want*1664525 + 1013904223
	}
	for k, v := range got {
		if v != want {
			t.Fatalf("element %d is %d, not %d", k, v, want)
		}
	}
}

// locked runs f on a thread of its own.
func locked(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f()
}
