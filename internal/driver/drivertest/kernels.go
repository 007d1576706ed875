package drivertest

import (
	_ "embed"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
)

//go:embed kernels.cl
var kernelsCL string

//go:embed doubles.cl
var doublesCL string

var source = driver.Source{OpenCL: kernelsCL, Go: map[string]func(*driver.Work){
	"add": add, "affine": affine, "spin": spin, "where3": where3, "groups": groups, "reduce": reduce, "turn": turn,
	"scalars": scalars, "atomics": atomics, "int64s": int64s, "vectors": vectors, "exact": exact, "low": low,
}}

// empty is a separate program: some compilers fail for kernels without
// arguments.
var empty = driver.Source{OpenCL: "__kernel void nothing(void) {}\n", Go: map[string]func(*driver.Work){"nothing": nothing}}

var doubles = driver.Source{OpenCL: doublesCL, Go: map[string]func(*driver.Work){"exact64": exact64}}

// count checks that a kernel has n arguments.
func count(w *driver.Work, n int) {
	if len(w.Args) != n {
		panic(fmt.Sprintf("%d arguments, not %d", len(w.Args), n))
	}
}

func add(w *driver.Work) {
	count(w, 3)
	x, n, k := driver.Slice[int32](w, 0), driver.Value[int32](w, 1), driver.Value[int32](w, 2)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(n)); i++ {
		x[i] += k
	}
}

func affine(w *driver.Work) {
	x, y, n := driver.Slice[int32](w, 0), driver.Slice[int32](w, 1), driver.Value[int32](w, 2)
	a, b := driver.Value[int32](w, 3), driver.Value[int32](w, 4)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(n)); i++ {
		y[i] = a*x[i] + b
	}
}

func spin(w *driver.Work) {
	x, y, n, rounds := driver.Slice[uint32](w, 0), driver.Slice[uint32](w, 1), driver.Value[int32](w, 2), driver.Value[int32](w, 3)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(n)); i++ {
		y[i] = spun(x[i], int(rounds))
	}
}

func spun(v uint32, rounds int) uint32 {
	for range rounds {
		v = v*1664525 + 1013904223
	}
	return v
}

func where3(w *driver.Work) {
	out := driver.Slice[int32](w, 0)
	nx, ny, nz := int(driver.Value[int32](w, 1)), int(driver.Value[int32](w, 2)), int(driver.Value[int32](w, 3))
	for z := w.Lo[2]; z < min(w.Hi[2], nz); z++ {
		for y := w.Lo[1]; y < min(w.Hi[1], ny); y++ {
			for x := w.Lo[0]; x < min(w.Hi[0], nx); x++ {
				out[(z*ny+y)*nx+x] += int32(x + 1000*y + 1000000*z)
			}
		}
	}
}

func groups(w *driver.Work) {
	out := driver.Slice[int32](w, 0)
	for z := w.Lo[2]; z < w.Hi[2]; z++ {
		for y := w.Lo[1]; y < w.Hi[1]; y++ {
			for x := w.Lo[0]; x < w.Hi[0]; x++ {
				o := out[((z*w.Global[1]+y)*w.Global[0]+x)*12:]
				for d, at := range [3]int{x, y, z} {
					o[d] = int32(at / w.Local[d])
					o[3+d] = int32(at % w.Local[d])
					o[6+d] = int32(w.Local[d])
					o[9+d] = int32(w.Global[d] / w.Local[d])
				}
			}
		}
	}
}

func reduce(w *driver.Work) {
	x, sums, part, n := driver.Slice[float32](w, 0), driver.Slice[float32](w, 1), driver.Slice[float32](w, 2), driver.Value[int32](w, 3)
	size := w.Local[0]
	lo, hi := w.Range(0)
	for g := lo / size; g*size < hi; g++ {
		for l := range size {
			part[l] = 0
			if i := g*size + l; i < int(n) {
				part[l] = x[i]
			}
		}
		for s := size / 2; s > 0; s /= 2 {
			for l := range s {
				part[l] += part[l+s]
			}
		}
		sums[g] = part[0]
	}
}

func turn(w *driver.Work) {
	x, a, b := driver.Slice[int32](w, 0), driver.Slice[uint8](w, 1), driver.Slice[int64](w, 2)
	var c [32]int32
	n := w.Local[0]
	for base := w.Lo[0]; base < w.Hi[0]; base += n {
		for l := range n {
			v := x[base+l]
			a[l], b[l], c[l] = uint8(v), int64(v)*3, v
		}
		for l := range n {
			x[base+l] = int32(a[n-1-l]) + int32(b[n-1-l]) + c[(l+1)%n]
		}
	}
}

func scalars(w *driver.Work) {
	count(w, 11)
	if w.Lo[0] != 0 {
		return
	}
	out, f := driver.Slice[int64](w, 0), driver.Slice[float32](w, 1)
	out[0] = int64(driver.Value[int8](w, 2))
	out[1] = int64(driver.Value[uint8](w, 3))
	out[2] = int64(driver.Value[int16](w, 4))
	out[3] = int64(driver.Value[uint16](w, 5))
	out[4] = int64(driver.Value[int32](w, 6))
	out[5] = int64(driver.Value[uint32](w, 7))
	out[6] = driver.Value[int64](w, 8)
	out[7] = int64(driver.Value[uint64](w, 9))
	f[0] = driver.Value[float32](w, 10)
}

func atomics(w *driver.Work) {
	x, out, n := driver.Slice[uint32](w, 0), driver.Slice[int32](w, 1), driver.Value[int32](w, 2)
	change := func(p *int32, f func(int32) int32) {
		for {
			old := atomic.LoadInt32(p)
			if atomic.CompareAndSwapInt32(p, old, f(old)) {
				return
			}
		}
	}
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(n)); i++ {
		v := int32(x[i])
		atomic.AddInt32(&out[0], v)
		atomic.AddInt32(&out[1], 1)
		change(&out[2], func(o int32) int32 { return min(o, v) })
		change(&out[3], func(o int32) int32 { return max(o, v) })
		atomic.OrInt32(&out[4], v)
		change(&out[5], func(o int32) int32 { return o ^ v })
		change(&out[6], func(o int32) int32 { return o + v*3 })
		atomic.AddInt32(&out[7], -v)
		atomic.AddInt32(&out[8], 1)
	}
}

func int64s(w *driver.Work) {
	x, y, out, n := driver.Slice[uint64](w, 0), driver.Slice[uint64](w, 1), driver.Slice[uint64](w, 2), driver.Value[int32](w, 3)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(n)); i++ {
		a, b, o := x[i], y[i], out[8*i:8*i+8]
		o[0] = a + b
		o[1] = a * b
		o[2], _ = bits.Mul64(a, b)
		o[3] = o[2] - a*(b>>63) - b*(a>>63)
		o[4] = 0
		if b != 0 {
			o[4] = a / b
		}
		o[5] = a<<(b&63) ^ a>>17
		o[6] = uint64(int64(a) >> 7)
		o[7] = uint64(uint32(a)) * uint64(uint32(b))
	}
}

func vectors(w *driver.Work) {
	a, b, product := driver.Slice[[2]float32](w, 0), driver.Slice[[2]float32](w, 1), driver.Slice[[2]float32](w, 2)
	p, q, u := driver.Slice[[4]float32](w, 3), driver.Slice[[4]float32](w, 4), driver.Slice[[4]uint32](w, 5)
	s, n := driver.Value[float32](w, 6), driver.Value[int32](w, 7)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(n)); i++ {
		product[i] = complexProduct(a[i], b[i])
		var v [4]float32
		for j := range v {
			v[j] = float32(p[i][j]*s) + float32(j+1)
		}
		v[3] = v[0]
		for j := range v {
			q[i][j] = v[j] - q[i][j]
		}
		k := u[i]
		u[i] = [4]uint32{k[3] + 4, k[2] + 3, k[1] + 2, k[0] + 1}
	}
}

// complexProduct rounds after every operation, on every processor.
func complexProduct(x, y [2]float32) [2]float32 {
	return [2]float32{float32(x[0]*y[0]) - float32(x[1]*y[1]), float32(x[0]*y[1]) + float32(x[1]*y[0])}
}

func exact(w *driver.Work) {
	a, b, c := driver.Slice[float32](w, 0), driver.Slice[float32](w, 1), driver.Slice[float32](w, 2)
	out, n := driver.Slice[float32](w, 3), driver.Value[int32](w, 4)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(n)); i++ {
		r := exactly(a[i], b[i], c[i])
		copy(out[5*i:], r[:])
	}
}

// exactly returns the expected result of kernel exact.
func exactly(a, b, c float32) [5]float32 {
	return [5]float32{
		float32(a*b) + c, float32(a*b) - c, fma32(a, b, c), a / b,
		float32(math.Sqrt(math.Abs(float64(a)))), // the root in double precision rounds to the right value
	}
}

// fma32 rounds a*b+c once. If the sum in double precision is not exact, its
// last bit is made odd.
func fma32(a, b, c float32) float32 {
	p, z := float64(a)*float64(b), float64(c) // the product is exact
	s := p + z
	bb := s - p
	if e := (p - (s - bb)) + (z - bb); e != 0 && math.Float64bits(s)&1 == 0 {
		if (e > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	return float32(s)
}

func exact64(w *driver.Work) {
	a, b, c := driver.Slice[float64](w, 0), driver.Slice[float64](w, 1), driver.Slice[float64](w, 2)
	out, s, n := driver.Slice[float64](w, 3), driver.Value[float64](w, 4), driver.Value[int32](w, 5)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(n)); i++ {
		r := exactly64(a[i], b[i], c[i], s)
		copy(out[6*i:], r[:])
	}
}

func exactly64(a, b, c, s float64) [6]float64 {
	return [6]float64{float64(a*b) + c, float64(a*b) - c, math.FMA(a, b, c), a / b, math.Sqrt(math.Abs(a)), a * s}
}

func low(w *driver.Work) {
	driver.Slice[uint32](w, 1)[0] = uint32(uintptr(unsafe.Pointer(&w.Args[0][0])) & 127)
}

func nothing(w *driver.Work) { count(w, 0) }
