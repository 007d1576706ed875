package opencl

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
)

// TestRounding_ProductBeforeSum shows that a product is rounded before it is
// added, unless the source allows otherwise.
func TestRounding_ProductBeforeSum(t *testing.T) {
	b := newBench(t, false)
	const n = 4096
	rnd := rand.New(rand.NewPCG(3, 4))
	a, m, c := make([]float32, n), make([]float32, n), make([]float32, n)
	fused := 0
	for i := range a {
		a[i], m[i] = rnd.Float32()+1, rnd.Float32()+1
		c[i] = -(a[i] * m[i]) // a fused result is the rounding error, otherwise 0
		if float64(a[i])*float64(m[i])+float64(c[i]) != 0 {
			fused++
		}
	}
	if fused < n/2 {
		t.Fatal("the test's numbers are too simple:", fused)
	}
	mem := func(p []byte) driver.Buffer {
		x := must(b.d.Alloc(int64(len(p))))(t)
		check(t, b.q.CopyIn(x, 0, p))
		return x
	}
	r, s := mem(raw(a)), mem(raw(a))
	b.launch("muladd", n, 64, whole(mem(raw(a))), whole(mem(raw(m))), whole(mem(raw(c))), whole(r))
	for i, v := range read[float32](b, r) {
		if v != 0 {
			t.Fatalf("float %g*%g-%g is %g", a[i], m[i], -c[i], v)
		}
	}
	b.launch("divide", n, 64, whole(mem(raw(a))), whole(mem(raw(m))), whole(r), whole(s))
	q, root := read[float32](b, r), read[float32](b, s)
	for i := range q {
		if b.d.rounded && (q[i] != a[i]/m[i] || root[i] != float32(math.Sqrt(float64(a[i])))) {
			t.Fatalf("%g/%g is %g, its root %g", a[i], m[i], q[i], root[i])
		}
	}
	if !b.d.info.Doubles {
		return
	}
	x, y, z := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range x {
		x[i], y[i] = rnd.Float64()+1, rnd.Float64()+1
		z[i] = x[i] * y[i]
	}
	w := mem(raw(x))
	b.launch("muladds", n, 64, whole(mem(raw(x))), whole(mem(raw(y))), whole(mem(raw(z))), whole(w))
	for i, v := range read[float64](b, w) {
		if v != 0 {
			t.Fatalf("double %g*%g-%g is %g", x[i], y[i], z[i], v)
		}
	}
}

// TestContract_MayFuse shows that with Contract the compiler may fuse
// operations, which it does if the processor can.
func TestContract_MayFuse(t *testing.T) {
	b := newBench(t, true)
	a := []float32{1 + 0x1p-12}
	c := []float32{-(a[0] * a[0])}
	x, y, r := must(b.d.Alloc(4))(t), must(b.d.Alloc(4))(t), must(b.d.Alloc(4))(t)
	check(t, b.q.CopyIn(x, 0, raw(a)))
	check(t, b.q.CopyIn(y, 0, raw(c)))
	b.launch("muladd", 1, 1, whole(x), whole(x), whole(y), whole(r))
	if v := read[float32](b, r); v[0] != 0 && v[0] != 0x1p-24 {
		t.Error(v)
	} else {
		t.Log("fused:", v[0] != 0)
	}
}
