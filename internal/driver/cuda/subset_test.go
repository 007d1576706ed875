package cuda

import (
	_ "embed"
	"math"
	"math/bits"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
)

//go:embed testdata/subset.cl
var subset string

func raw[T any](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}

func val[T any](v T) driver.Arg { return driver.Arg{Value: raw([]T{v})} }

// bench runs kernels of testdata/subset.cl.
type bench struct {
	t *testing.T
	d driver.Device
	p driver.Program
	q driver.Queue
}

func newBench(t *testing.T, d driver.Device) *bench {
	b := &bench{t: t, d: d}
	var err error
	b.p, err = d.Build(driver.Source{OpenCL: subset})
	must(t, err)
	b.q, err = d.NewQueue()
	must(t, err)
	t.Cleanup(func() { must(t, b.q.Close()); must(t, b.p.Close()); must(t, d.Close()) })
	return b
}

// run launches a kernel. Slices of numbers become buffers and are read back.
func (b *bench) run(name string, global, local [3]int, args ...any) {
	b.t.Helper()
	k, err := b.p.Kernel(name)
	must(b.t, err)
	list := make([]driver.Arg, len(args))
	bufs := map[driver.Buffer][]byte{}
	buffer := func(p []byte) driver.Arg {
		buf, err := b.d.Alloc(int64(len(p)))
		must(b.t, err)
		must(b.t, b.q.CopyIn(buf, 0, p))
		bufs[buf] = p
		return driver.Arg{Buffer: buf, Len: int64(len(p))}
	}
	for i, a := range args {
		switch a := a.(type) {
		case driver.Arg:
			list[i] = a
		case []int32:
			list[i] = buffer(raw(a))
		case []uint32:
			list[i] = buffer(raw(a))
		case []int64:
			list[i] = buffer(raw(a))
		case []uint64:
			list[i] = buffer(raw(a))
		case []float32:
			list[i] = buffer(raw(a))
		case []float64:
			list[i] = buffer(raw(a))
		case []particle:
			list[i] = buffer(raw(a))
		default:
			b.t.Fatalf("argument %d is a %T", i, a)
		}
	}
	must(b.t, b.q.Launch(k, global, local, list))
	for buf, p := range bufs {
		must(b.t, b.q.CopyOut(p, buf, 0))
		must(b.t, buf.Free())
	}
}

type particle struct {
	New    int32
	_      int32
	At     [2]float32
	Weight float64
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// testSubset checks the results of the documented subset of OpenCL C.
func testSubset(t *testing.T, d driver.Device) {
	b := newBench(t, d)
	one := [3]int{1, 1, 1}

	x, y := float32(2.75), float32(-1.5)
	f := make([]float32, 30)
	b.run("floats", one, [3]int{}, f, val(x), val(y))
	equal(t, "float", f, []float32{
		float32(math.Sqrt(float64(x))), x, 2, 3, -2, 3, 3, y, x, y, x, 1, x*y + 1, x*y + 1, -x, 1.25, y, -1, 1, 22,
		float32(math.Float32frombits(0x40490fdb)), 7, 8, x * x, y, x - y, 15, 0.875, 2, float32(math.Pi),
	})

	dx, dy := 1.75, 2.5
	c := make([]float64, 40)
	b.run("close", one, [3]int{}, c, val(dx), val(dy))
	lg, _ := math.Lgamma(dx)
	near := func(v ...float64) (sum float64) {
		for _, x := range v {
			sum += x
		}
		return sum
	}
	base := near(math.Exp(dx), math.Log(dx), math.Sin(dx), math.Cos(dx))
	for i, want := range []float64{
		math.Exp(dx), math.Exp2(dx), math.Pow(10, dx), math.Expm1(dx), math.Log(dx), math.Log2(dx), math.Log10(dx), math.Log1p(dx),
		math.Sin(dx), math.Cos(dx), math.Tan(dx), math.Asin(dx / 4), math.Acos(dx / 4), math.Atan(dx), math.Sinh(dx), math.Cosh(dx),
		math.Tanh(dx), math.Asinh(dx), math.Acosh(dx), math.Atanh(dx / 4), math.Cbrt(dx), math.Sqrt(dx), math.Pow(dx, dy), math.Pow(dx, dy),
		math.Pow(dx, 3), math.Atan2(dx, dy), math.Hypot(dx, dy), math.Erf(dx), math.Erfc(dx), math.Gamma(dx), lg, math.Remainder(dx, dy),
		math.Sin(math.Pi * dx / 4), math.Cos(math.Pi * dx / 4), math.Sin(dx) + math.Cos(dx), math.Nextafter(dx, dy), math.Pi,
		near(base, math.Sqrt(dx), dx*dx, math.Exp2(dx)), near(base, math.Sqrt(dx), dx*dx, 1/math.Sqrt(dx)),
		near(base, dx*dx, math.Hypot(dx, 2), math.Tanh(dx), math.Erf(dx)),
	} {
		limit := 1e-14
		if i >= 37 { // single precision
			limit = 1e-6
		}
		if math.Abs(c[i]-want) > limit*math.Abs(want) {
			t.Errorf("double %d is %v, want %v", i, c[i], want)
		}
	}

	var ia, ib, ic, id = int32(-12345), uint32(0x80f00001), int64(-1) << 62, uint64(0xfedcba9876543210)
	hi := func(a, b uint64) int64 { h, _ := bits.Mul64(a, b); return int64(h) }
	n := make([]int64, 35)
	b.run("integers", one, [3]int{}, n, val(ia), val(ib), val(ic), val(id))
	mixed := (id ^ id>>33) * 0xff51afd7ed558ccd
	equal(t, "integer", n, []int64{
		12345, 1 << 62, 12445, int64(ia), int64(ib), -5, 3 * int64(ia), 3*int64(ia) + 1, int64(ia) << 30 >> 32,
		int64(uint64(ib) * uint64(ib) >> 32), 1 << 60, hi(id, id), int64(bits.RotateLeft32(ib, 8)),
		int64(int32(bits.RotateLeft32(uint32(ia), 8))), int64(bits.RotateLeft64(id, 60)), int64(bits.OnesCount32(ib)), int64(bits.OnesCount64(id)), 0,
		0, int64(math.Float32bits(1)), math.MaxUint32, int64(math.Float64bits(1)), int64(math.Float64bits(-2)),
		3, 300 & 255, 2, -2, 1, 10, int64(mixed), 21, 8 + 80 + 2400 + 160000 + 32000000, math.MaxInt32,
		int64(uint32(uint64(ib)*uint64(ib)>>32) + 5), 1,
	})

	v := make([]float32, 24)
	in := []float32{1.5, 2.5, 3.5, 4.5}
	b.run("vectors", one, [3]int{}, v, in, val([4]float32{10, 20, 30, 40}), val([2]float64{1, 2}))
	equal(t, "vector", v, []float32{11, 22, 33, 44, -0.5, 3.5, 4.5, 11, 2, v[9], 3, 8, 1.5, 2.5, 3.5, 4.5, 4, 2, 3.5, 8, 4, 1, 2, 9})

	const items, group = 64, 16
	ints, ps := make([]int32, items), make([]particle, items)
	for i := range ints {
		ints[i] = int32(i)
	}
	b.run("shared", [3]int{items, 1, 1}, [3]int{group, 1, 1}, ints, driver.Arg{Local: 4 * group}, ps, driver.Arg{Local: 16 * group})
	for i, p := range ps {
		total, first := int32(0), i/group*group
		for j := range group {
			total += int32((first + j) * (first + j))
		}
		next := float32(first + (i-first+1)%group)
		if want := (particle{New: total, At: [2]float32{next, -next}, Weight: items*100 + items/group*10 + 1}); p != want {
			t.Fatalf("item %d has %v, want %v", i, p, want)
		}
	}

	// 100 KiB of local memory, more than kernels have without reserving it.
	clear(ps)
	b.run("shared", [3]int{items, 1, 1}, [3]int{group, 1, 1}, ints, driver.Arg{Local: 100 << 10}, ps, driver.Arg{Local: 16 * group})
	if ps[63].New == 0 {
		t.Error("the kernel with much local memory did nothing")
	}

	ai, au, al, aul := make([]int32, 11), make([]uint32, 4), make([]int64, 2), make([]uint64, 3)
	ai[6], au[2] = -1, 100
	b.run("atomics", [3]int{items, 1, 1}, [3]int{group, 1, 1}, ai, au, al, aul)
	equal(t, "atomic int", ai, []int32{2016, -2016, 64, -64, -63, 63, -64, 63, 0, 5, 9})
	equal(t, "atomic uint", au, []uint32{2016, 1<<32 - 64, 0, 0x80000000 + 63})
	equal(t, "atomic long", al, []int64{2016 << 33, -63 << 33})
	equal(t, "atomic ulong", aul, []uint64{63 << 40, 64, 3})

	fixed := make([]int32, 32)
	b.run("fixed", [3]int{8, 4, 1}, [3]int{}, fixed)
	equal(t, "group size", fixed[:1], []int32{42})
	k, err := b.p.Kernel("fixed")
	must(t, err)
	if err := b.q.Launch(k, [3]int{8, 4, 1}, [3]int{8, 1, 1}, []driver.Arg{{}}); err == nil {
		t.Error("a group that the kernel forbids")
	}
}

// TestSubset runs the documented subset of OpenCL C on a GPU.
func TestSubset(t *testing.T) { testSubset(t, gpu(t)) }
