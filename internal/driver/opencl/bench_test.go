package opencl

import (
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

func openAll(t testing.TB) []driver.Device {
	t.Helper()
	devs, err := Open()
	if len(devs) == 0 {
		t.Skip(err)
	}
	t.Cleanup(func() {
		for _, d := range devs {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return devs
}

func openOne(t testing.TB) *device {
	t.Helper()
	return openAll(t)[0].(*device)
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func raw[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

func value[T any](v T) driver.Arg { return driver.Arg{Value: raw([]T{v})} }

func whole(b driver.Buffer) driver.Arg { return driver.Arg{Buffer: b, Len: b.Size()} }

func part(b driver.Buffer, off, n int64) driver.Arg { return driver.Arg{Buffer: b, Off: off, Len: n} }

// bench is a device with a queue and the test's kernels.
type bench struct {
	t testing.TB
	d *device
	q driver.Queue
	p driver.Program
}

const kernels = `
__kernel void nothing(void) {}
__kernel void add(__global int *a, int v, int n) {
	int i = get_global_id(0);
	if (i < n) a[i] += v;
}
__kernel void sum(__global const int *a, __global const int *b, __global int *c, int n) {
	int i = get_global_id(0);
	if (i < n) c[i] = a[i] + b[i];
}
__kernel void both(__global int *a, __global int *b, int n) {
	int i = get_global_id(0);
	if (i < n) { a[i] += 1; b[i] += 2; }
}
__kernel void place(__global uint *a, int w, int h, int d) {
	int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
	if (x < w && y < h && z < d)
		a[(z*h + y)*w + x] = x | y<<8 | z<<16 | (uint)get_local_size(0)<<24;
}
__kernel void reverse(__global int *a, __local int *s) {
	int i = get_local_id(0), n = get_local_size(0);
	s[i] = a[get_global_id(0)];
	barrier(CLK_LOCAL_MEM_FENCE);
	a[get_global_id(0)] = s[n-1-i];
}
__kernel void muladd(__global const float *a, __global const float *b, __global const float *c, __global float *r) {
	int i = get_global_id(0);
	r[i] = a[i]*b[i] + c[i];
}
__kernel void muladds(__global const double *a, __global const double *b, __global const double *c, __global double *r) {
	int i = get_global_id(0);
	double x = a[i]*b[i];
	r[i] = x - c[i];
}
__kernel void divide(__global const float *a, __global const float *b, __global float *q, __global float *s) {
	int i = get_global_id(0);
	q[i] = a[i]/b[i];
	s[i] = sqrt(fabs(a[i]));
}
__kernel void spin(__global int *a, int n) {
	for (int i = 0; i < n; i++) a[0] = a[0]*1664525 + 1013904223;
}
`

func newBench(t testing.TB, contract bool) *bench {
	t.Helper()
	return benchOn(t, openOne(t), contract)
}

func benchOn(t testing.TB, d *device, contract bool) *bench {
	t.Helper()
	return &bench{t, d, must(d.NewQueue())(t), must(d.Build(driver.Source{OpenCL: kernels, Contract: contract}))(t)}
}

func (b *bench) launch(name string, global, local int, args ...driver.Arg) {
	b.t.Helper()
	check(b.t, b.q.Launch(must(b.p.Kernel(name))(b.t), [3]int{global, 1, 1}, group(local), args))
}

func group(n int) [3]int {
	if n == 0 {
		return [3]int{}
	}
	return [3]int{n, 1, 1}
}

func (b *bench) ints(v ...int32) driver.Buffer {
	b.t.Helper()
	m := must(b.d.Alloc(int64(4 * len(v))))(b.t)
	check(b.t, b.q.CopyIn(m, 0, raw(v)))
	return m
}

func read[T any](b *bench, m driver.Buffer) []T {
	b.t.Helper()
	v := make([]T, m.Size()/int64(unsafe.Sizeof(*new(T))))
	check(b.t, b.q.CopyOut(raw(v), m, 0))
	return v
}

// BenchmarkLaunch measures a launch, compared with the library's own call.
func BenchmarkLaunch(b *testing.B) {
	x := newBench(b, false)
	k := must(x.p.Kernel("nothing"))(b)
	b.Run("raw", func(b *testing.B) {
		size := [3]uintptr{1, 1, 1}
		for i := 0; b.Loop(); i++ {
			dl.Call(x.d.a.enqueueKernel, x.q.(*queue).h, k.(*kernel).h, 1, 0, uintptr(unsafe.Pointer(&size)), uintptr(unsafe.Pointer(&size)), 0, 0, 0)
			if i%window == 0 {
				check(b, x.q.Finish())
			}
		}
		check(b, x.q.Finish())
	})
	b.Run("empty", func(b *testing.B) {
		for b.Loop() {
			check(b, x.q.Launch(k, [3]int{1, 1, 1}, group(1), nil))
		}
		check(b, x.q.Finish())
	})
	b.Run("args", func(b *testing.B) {
		k := must(x.p.Kernel("add"))(b)
		args := []driver.Arg{whole(x.ints(1)), value(int32(1)), value(int32(1))}
		for b.Loop() {
			check(b, x.q.Launch(k, [3]int{1, 1, 1}, group(1), args))
		}
		check(b, x.q.Finish())
	})
	b.Run("unaligned", func(b *testing.B) {
		k := must(x.p.Kernel("add"))(b)
		args := []driver.Arg{part(x.ints(1, 2), 4, 4), value(int32(1)), value(int32(1))}
		for b.Loop() {
			check(b, x.q.Launch(k, [3]int{1, 1, 1}, group(1), args))
		}
		check(b, x.q.Finish())
	})
}
