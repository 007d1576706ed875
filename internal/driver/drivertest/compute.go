package drivertest

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
)

// positions visits every item once, in 1, 2 and 3 dimensions.
func (s *suite) positions(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "where3")
	for _, c := range []struct{ global, local [3]int }{
		{[3]int{1, 1, 1}, auto},
		{[3]int{1000, 1, 1}, auto},
		{[3]int{100003, 1, 1}, auto},
		{[3]int{1000, 1, 1}, [3]int{64, 1, 1}},
		{[3]int{37, 1, 1}, [3]int{64, 1, 1}},
		{[3]int{1, 777, 1}, auto},
		{[3]int{1, 1, 55}, auto},
		{[3]int{130, 70, 1}, auto},
		{[3]int{130, 70, 1}, [3]int{16, 4, 1}},
		{[3]int{33, 17, 9}, auto},
		{[3]int{33, 17, 9}, [3]int{8, 4, 2}},
		{[3]int{5, 1, 300}, [3]int{2, 1, 7}},
		{[3]int{128, 64, 2}, [3]int{1, 1, 1}},
	} {
		g := c.global
		n := g[0] * g[1] * g[2]
		want := make([]int32, n)
		b := put(t, s, q, want)
		must(t, q.Launch(k, g, c.local, []driver.Arg{all(b), val(int32(g[0])), val(int32(g[1])), val(int32(g[2]))}))
		for i := range want {
			want[i] = int32(i%g[0] + 1000*(i/g[0]%g[1]) + 1000000*(i/g[0]/g[1]))
		}
		got := get[int32](t, q, b, n)
		same(t, "positions", got, want)
		if t.Failed() {
			t.Fatalf("sizes %v in groups of %v", c.global, c.local)
		}
	}
}

func (s *suite) groupSizes(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "groups")
	for _, c := range []struct{ global, local [3]int }{
		{[3]int{256, 1, 1}, [3]int{64, 1, 1}},
		{[3]int{32, 12, 1}, [3]int{8, 6, 1}},
		{[3]int{6, 10, 8}, [3]int{3, 5, 2}},
		{[3]int{1, 1, 6}, [3]int{1, 1, 3}},
	} {
		g, l := c.global, c.local
		n := g[0] * g[1] * g[2]
		b := s.alloc(t, n*48)
		must(t, q.Launch(k, g, l, []driver.Arg{all(b)}))
		want := make([]int32, 0, n*12)
		for z := range g[2] {
			for y := range g[1] {
				for x := range g[0] {
					for _, v := range [12]int{
						x / l[0], y / l[1], z / l[2], x % l[0], y % l[1], z % l[2], l[0], l[1], l[2], g[0] / l[0], g[1] / l[1], g[2] / l[2],
					} {
						want = append(want, int32(v))
					}
				}
			}
		}
		same(t, "group and local positions", get[int32](t, q, b, n*12), want)
	}
}

func (s *suite) localMemory(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "reduce")
	for _, n := range []int{64, 100, 10000, 65536 + 1} {
		const group = 64
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i%1000) / 7
		}
		groups := (n + group - 1) / group
		want := make([]float32, groups)
		for g := range want {
			var part [group]float32
			copy(part[:], x[g*group:min((g+1)*group, n)])
			for size := group / 2; size > 0; size /= 2 {
				for l := range size {
					part[l] += part[l+size]
				}
			}
			want[g] = part[0]
		}
		in, out := put(t, s, q, x), s.alloc(t, 4*groups)
		must(t, q.Launch(k, dim(n), dim(group), []driver.Arg{all(in), all(out), {Local: 4 * group}, val(int32(n))}))
		same(t, "sums of groups", get[float32](t, q, out, groups), want)
	}

	const n, group = 640, 32
	x := ramp(n, 0)
	b := put(t, s, q, x)
	must(t, q.Launch(s.kernel(t, "turn"), dim(n), dim(group), []driver.Arg{all(b), {Local: group}, {Local: 8 * group}}))
	want := make([]int32, n)
	for i := range want {
		base, l := i/group*group, i%group
		m := int32(base + group - 1 - l)
		want[i] = int32(uint8(m)) + 3*m + int32(base+(l+1)%group)
	}
	same(t, "three local arrays", get[int32](t, q, b, n), want)
}

func (s *suite) scalarTypes(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "scalars")
	for _, sign := range []int64{1, -1} {
		out, f := s.alloc(t, 64), s.alloc(t, 4)
		l, x := sign*0x123456789abcdef0, float32(sign)*math.MaxFloat32
		must(t, q.Launch(k, dim(1), auto, []driver.Arg{
			all(out), all(f), val(int8(sign * 100)), val(uint8(sign * 200)), val(int16(sign * 30000)), val(uint16(sign * 60000)),
			val(int32(sign * 2000000000)), val(uint32(sign * 4000000000)), val(l), val(uint64(l)), val(x),
		}))
		same(t, "scalars", get[int64](t, q, out, 8), []int64{
			int64(int8(sign * 100)), int64(uint8(sign * 200)), int64(int16(sign * 30000)), int64(uint16(sign * 60000)),
			int64(int32(sign * 2000000000)), int64(uint32(sign * 4000000000)), l, l,
		})
		same(t, "float", get[float32](t, q, f, 1), []float32{x})
	}
}

// argumentParts passes parts of buffers to kernels.
func (s *suite) argumentParts(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "add")
	x := ramp(5000, 0)
	b := put(t, s, q, x)
	for i, c := range []struct{ off, n int }{{0, 10}, {64, 100}, {1024, 500}, {3, 1}, {7, 1000}, {1023, 2000}, {4999, 1}, {2048, 2952}} {
		arg := driver.Arg{Buffer: b, Off: int64(4 * c.off), Len: int64(4 * c.n)}
		if i%2 == 1 && c.off+c.n == len(x) {
			arg.Len = 0 // to the end of the buffer
		}
		must(t, q.Launch(k, dim(c.n), auto, []driver.Arg{arg, val(int32(c.n)), val(int32(1000 * i))}))
		for j := c.off; j < c.off+c.n; j++ {
			x[j] += int32(1000 * i)
		}
	}
	same(t, "parts of a buffer", get[int32](t, q, b, len(x)), x)

	// Two parts of one buffer: one is read, the other written.
	must(t, q.Launch(s.kernel(t, "affine"), dim(1001), auto, []driver.Arg{
		{Buffer: b, Off: 4, Len: 4004}, {Buffer: b, Off: 4 * 3001, Len: 4004}, val(int32(1001)), val(int32(2)), val(int32(9)),
	}))
	for j := range 1001 {
		x[3001+j] = 2*x[1+j] + 9
	}
	same(t, "from one part to another", get[int32](t, q, b, len(x)), x)
}

func (s *suite) atomics(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "atomics")
	for _, n := range []int{10, 20000} {
		x := make([]uint32, n)
		r := rand.New(rand.NewPCG(11, uint64(n)))
		want := make([]int32, 9)
		want[2] = math.MaxInt32
		out := put(t, s, q, want)
		for i := range x {
			v := int32(r.Uint32N(1 << 20))
			x[i] = uint32(v)
			want[0] += v
			want[1]++
			want[2], want[3] = min(want[2], v), max(want[3], v)
			want[4] |= v
			want[5] ^= v
			want[6] += 3 * v
			want[7] -= v
			want[8]++
		}
		in := put(t, s, q, x)
		must(t, q.Launch(k, dim(n), dim(32), []driver.Arg{all(in), all(out), val(int32(n))}))
		same(t, "atomics", get[int32](t, q, out, 9), want)
	}
}

func (s *suite) integers64(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "int64s")
	x := []uint64{0, 1, 1 << 63, 1<<64 - 1, 1<<32 - 1, 1 << 32, 0x9e3779b97f4a7c15}
	var a, b []uint64
	for _, v := range x {
		for _, w := range x {
			a, b = append(a, v), append(b, w)
		}
	}
	r := rand.New(rand.NewPCG(12, 13))
	for range 1000 {
		a, b = append(a, r.Uint64()), append(b, r.Uint64()>>r.IntN(64))
	}
	high := func(x, y *big.Int) uint64 { // bits 64…127 of the product
		p := new(big.Int).Mul(x, y)
		return new(big.Int).And(p.Rsh(p, 64), new(big.Int).SetUint64(1<<64-1)).Uint64()
	}
	var want []uint64
	for i := range a {
		v, w := a[i], b[i]
		quotient := uint64(0)
		if w != 0 {
			quotient = v / w
		}
		want = append(want, v+w, v*w,
			high(new(big.Int).SetUint64(v), new(big.Int).SetUint64(w)), high(big.NewInt(int64(v)), big.NewInt(int64(w))),
			quotient, v<<(w&63)^v>>17, uint64(int64(v)>>7), uint64(uint32(v))*uint64(uint32(w)))
	}
	out := s.alloc(t, 8*len(want))
	must(t, q.Launch(k, dim(len(a)), auto, []driver.Arg{all(put(t, s, q, a)), all(put(t, s, q, b)), all(out), val(int32(len(a)))}))
	same(t, "64-bit integers", get[uint64](t, q, out, len(want)), want)
}

func (s *suite) vectorTypes(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "vectors")
	const n = 1000
	a, b, product := make([][2]float32, n), make([][2]float32, n), make([][2]float32, n)
	p, v := make([][4]float32, n), make([][4]float32, n)
	u := make([][4]uint32, n)
	r := rand.New(rand.NewPCG(14, 15))
	f := func() float32 { return float32(r.NormFloat64()) }
	for i := range n {
		a[i], b[i] = [2]float32{f(), f()}, [2]float32{f(), f()}
		p[i], v[i] = [4]float32{f(), f(), f(), f()}, [4]float32{f(), f(), f(), f()}
		u[i] = [4]uint32{r.Uint32(), r.Uint32(), r.Uint32(), r.Uint32()}
	}
	bp, bv, bu := s.alloc(t, 8*n), put(t, s, q, v), put(t, s, q, u)
	must(t, q.Launch(k, dim(n), auto, []driver.Arg{
		all(put(t, s, q, a)), all(put(t, s, q, b)), all(bp), all(put(t, s, q, p)), all(bv), all(bu), val(float32(1.1)), val(int32(n)),
	}))
	for i := range n {
		product[i] = complexProduct(a[i], b[i])
		var w [4]float32
		for j := range w {
			w[j] = float32(p[i][j]*1.1) + float32(j+1)
		}
		w[3] = w[0]
		for j := range w {
			v[i][j] = w[j] - v[i][j]
		}
		u[i] = [4]uint32{u[i][3] + 4, u[i][2] + 3, u[i][1] + 2, u[i][0] + 1}
	}
	same(t, "float2", get[[2]float32](t, q, bp, n), product)
	same(t, "float4", get[[4]float32](t, q, bv, n), v)
	same(t, "uint4", get[[4]uint32](t, q, bu, n), u)
}

// rounding compares results with IEEE 754, bit for bit.
func (s *suite) rounding(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "exact")
	const n = 20000
	a, b, c := make([]float32, n), make([]float32, n), make([]float32, n)
	r := rand.New(rand.NewPCG(16, 17))
	for i := range n {
		a[i], b[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
		c[i] = -a[i] * b[i] * (1 + float32(r.IntN(3)-1)/(1<<20)) // the sum is mostly the rounding error
	}
	e := float32(1) / (1 << 12)
	a[0], b[0], c[0] = 1+e, 1+e, -(1 + 2*e)
	var want []float32
	fused := 0
	for i := range n {
		w := exactly(a[i], b[i], c[i])
		want = append(want, w[:]...)
		if w[0] != w[2] {
			fused++
		}
	}
	if want[0] != 0 || want[2] != e*e || fused < n/4 {
		t.Fatalf("the values do not tell: %v, %v, %d", want[0], want[2], fused)
	}
	out := s.alloc(t, 20*n)
	must(t, q.Launch(k, dim(n), auto, []driver.Arg{all(put(t, s, q, a)), all(put(t, s, q, b)), all(put(t, s, q, c)), all(out), val(int32(n))}))
	got := get[float32](t, q, out, 5*n)
	for i, what := range []string{"a*b+c is contracted", "t-c is contracted", "fma is not exact", "division is not correctly rounded", "sqrt is not correctly rounded"} {
		bad := 0
		for j := i; j < 5*n; j += 5 {
			if got[j] != want[j] {
				bad++
			}
		}
		if bad > 0 {
			t.Errorf("%s: %d of %d values", what, bad, n)
		}
	}
}

func (s *suite) rounding64(t *testing.T) {
	if !s.d.Info().Doubles {
		t.Skip("no double precision")
	}
	p, err := s.d.Build(doubles)
	must(t, err)
	defer p.Close()
	k, err := p.Kernel("exact64")
	must(t, err)
	q := s.queue(t)
	const n = 20000
	a, b, c := make([]float64, n), make([]float64, n), make([]float64, n)
	r := rand.New(rand.NewPCG(18, 19))
	for i := range n {
		a[i], b[i] = r.NormFloat64(), r.NormFloat64()
		c[i] = -a[i] * b[i] * (1 + float64(r.IntN(3)-1)/(1<<50))
	}
	e := float64(1) / (1 << 27)
	a[0], b[0], c[0] = 1+e, 1+e, -(1 + 2*e)
	var want []float64
	for i := range n {
		w := exactly64(a[i], b[i], c[i], 0.1)
		want = append(want, w[:]...)
	}
	if want[0] != 0 || want[2] != e*e {
		t.Fatalf("the values do not tell: %v, %v", want[0], want[2])
	}
	out := s.alloc(t, 48*n)
	must(t, q.Launch(k, dim(n), auto, []driver.Arg{
		all(put(t, s, q, a)), all(put(t, s, q, b)), all(put(t, s, q, c)), all(out), val(0.1), val(int32(n)),
	}))
	same(t, "a*b+c, t-c, fma, a/b, sqrt, a*0.1", get[float64](t, q, out, 6*n), want)
}

// contract allows the compiler to fuse operations. It may do so, or not.
func (s *suite) contract(t *testing.T) {
	src := source
	src.Contract = true
	p, err := s.d.Build(src)
	must(t, err)
	defer p.Close()
	k, err := p.Kernel("exact")
	must(t, err)
	q := s.queue(t)
	e := float32(1) / (1 << 12)
	out := s.alloc(t, 20)
	must(t, q.Launch(k, dim(1), auto, []driver.Arg{
		all(put(t, s, q, []float32{1 + e})), all(put(t, s, q, []float32{1 + e})), all(put(t, s, q, []float32{-(1 + 2*e)})), all(out), val(int32(1)),
	}))
	if got := get[float32](t, q, out, 1); got[0] != 0 && got[0] != e*e {
		t.Errorf("a*b+c is %v", got[0])
	}
}

func (s *suite) noArguments(t *testing.T) {
	p, err := s.d.Build(empty)
	must(t, err)
	defer p.Close()
	k, err := p.Kernel("nothing")
	must(t, err)
	q := s.queue(t)
	for range 1000 {
		must(t, q.Launch(k, dim(1), auto, nil))
	}
	must(t, q.Finish())
}
