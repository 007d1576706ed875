package kernel_test

import (
	"math"
	"math/bits"

	"github.com/cairnrun/cairn/device"
)

// The kernels of this file are translated by TestFeatures, which runs them on
// the host and on OpenCL devices. Argument 0 is what they compute; args makes
// the others.

const (
	featureItems = 257 // no multiple of a group
	featureGroup = 32
	big          = 1 << 40
	third        = 1.0 / 3 // exact until it is used
)

type pair struct {
	a float32
	b int16
	c bool
	d [3]uint8
	e float64
}

type point struct{ x, y float64 }

func (p point) swapped() point       { return point{p.y, p.x} }
func (p point) plus(q point) point   { return point{x: p.x + q.x, y: p.y + q.y} }
func divmod(a, b int32) (q, r int32) { q = a / b; r = a % b; return }
func both(a, b int64) (int64, int64) { return divs(a, b), a % b }
func divs(a, b int64) int64          { return a / b }
func sumOf(v []float64, n int) (s float64) {
	for i := 0; i < n; i++ {
		s += v[i]
	}
	return s
}

func put(v []int64, at int, x int64) int64 { v[at] = x; return x + 1 }

func k_ints(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a, b := in[2*i], in[2*i+1]
		x := a + b
		x = x*31 ^ (a - b*b)
		x ^= a &^ b
		x += -a | ^b&a
		if b != 0 {
			x ^= a/b + a%b
		}
		out[i] = x
	}
}

func k_narrow(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a, b := in[2*i], in[2*i+1]
		i8, u8 := int8(a), uint8(b)
		i16, u16 := int16(a), uint16(b)
		i32, u32 := int32(a), uint32(b)
		i8 = i8*i8 + int8(b)
		u8 = u8*u8 - uint8(a)
		i16 *= int16(b)
		u16 *= u16
		i32 *= int32(b) + 7
		u32 -= uint32(a) * 3
		i8++
		u8--
		r := int64(i8) ^ int64(u8)<<8 ^ int64(i16)<<16 ^ int64(u16)<<24 ^ int64(i32)<<20 ^ int64(u32)<<30
		if i8 != 0 {
			r += int64(int8(-128) / i8)
			r += int64(int8(a) % i8)
		}
		if u16 != 0 {
			r -= int64(uint16(a) / u16)
		}
		out[i] = r ^ int64(-i8) ^ int64(^u8)
	}
}

func k_minint(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		least, by := int64(math.MinInt64), in[2*i]%2|-1
		r := least/by + least%by + -least
		l32, b32 := int32(math.MinInt32), int32(by)
		r ^= int64(l32/b32) + int64(l32%b32)
		out[i] = r ^ least/-1 ^ least%-1
	}
}

func k_shifts(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a, s := in[2*i], uint(in[2*i+1])%130
		r := a << s
		r ^= a >> s
		r ^= int64(uint64(a) >> s)
		r ^= int64(int8(a) >> s)
		r ^= int64(int8(a) << s)
		r ^= int64(int32(a)<<s) ^ int64(uint16(a)>>s)
		n := int32(s)
		r ^= a>>n ^ a<<3 ^ a>>63 ^ a>>7 ^ int64(uint32(a)>>31)
		r <<= 2
		r >>= s
		out[i] = r
	}
}

func k_float64(w *device.Work) {
	out, in := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a, b := in[2*i], in[2*i+1]
		x := float64(a*b) + a/b - third
		x += math.Sqrt(math.Abs(a)) * 1e-3
		x -= math.Floor(b) + math.Ceil(a) - math.Trunc(b) + math.Copysign(a, b)
		x = math.FMA(x, a, b)
		if math.IsNaN(x) || math.IsInf(x, 0) {
			x = -1
		}
		x += math.Round(a*10) + math.Mod(a, 0.7)
		out[i] = max(min(x, 1e300, a), b, -x)
	}
}

func k_float32(w *device.Work) {
	out, in := device.Slice[float32](w, 0), device.Slice[float64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a, b := float32(in[2*i]), float32(in[2*i+1])
		x := float32(a*b) + a/b - third*a
		x += float32(math.Sqrt(float64(x * x)))
		x -= float32(math.Floor(float64(a))) + float32(math.Sqrt(float64(a)*float64(a)))
		x++
		out[i] = max(x, a) + min(b, 0.1)
	}
}

func k_signs(w *device.Work) {
	out, in := device.Slice[uint64](w, 0), device.Slice[float64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		zero := in[i] * 0
		r := math.Float64bits(min(zero, -zero)) ^ math.Float64bits(max(-zero, zero))>>1
		r ^= math.Float64bits(-in[i]) ^ uint64(math.Float32bits(float32(in[i])))
		if math.Signbit(in[i]) {
			r++
		}
		if min(in[i], math.NaN()) != min(in[i], math.NaN()) {
			r += 16
		}
		if max(math.Inf(-1), in[i]) == in[i] && math.Inf(1) > in[i] && !math.IsInf(in[i], 1) && !math.IsInf(in[i], -1) {
			r += 32
		}
		out[i] = r + math.Float64bits(math.Float64frombits(r)) + uint64(math.Float32bits(math.Float32frombits(uint32(r>>40))))
	}
}

func k_convert(w *device.Work) {
	out, in, fl := device.Slice[int64](w, 0), device.Slice[int64](w, 1), device.Slice[float64](w, 2)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a, f := in[2*i], fl[2*i]*1e6
		r := int64(f) ^ int64(int32(f)) ^ int64(float32(a>>1)) ^ int64(float64(a)/2)
		r += int64(math.Float32bits(float32(a))) + int64(math.Float64bits(float64(uint64(a)))>>3)
		r ^= int64(math.Float32bits(float32(uint64(a))))
		r ^= int64(uint8(int64(f))) + int64(float32(f)) + int64(int16(a))
		out[i] = r
	}
}

func k_control(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		n := in[2*i] & 15
		r := int64(0)
		if n == 3 {
			out[i] = -3
			continue
		}
	outer:
		for a := int64(0); a < n; a++ {
			for b := range n {
				if b == 7 {
					break
				}
				if a*b == 12 {
					continue outer
				}
				if a+b == 20 {
					break outer
				}
				switch {
				case b == 2:
					continue
				case b > 5, a > 9:
					r += 100
					if a == 4 {
						break
					}
					r++
				default:
					r += a
				}
			}
			switch x := a % 4; x {
			case 0:
				r *= 3
			case 1, 2:
				r -= x
			}
		}
		for range 3 {
			r = r*5 + 1
		}
		x, y := r, n
		for x > 0 && y < 40 {
			x, y = y-x/3, x+y
		}
		for p, q := 0, 9; p < q; p, q = p+1, q-1 {
			if p == 2 {
				continue
			}
			r += int64(p * q)
		}
		if z := x ^ y; z > 5 {
			r += z
		} else if z < 0 {
			r -= z
		} else {
			r ^= z
		}
		out[i] = r
	}
}

func k_shadow(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		x, y := in[2*i], in[2*i+1]
		{
			x := x + 1
			y, x := x, y
			x, z := y+1, x
			out[i] = x + 3*y + 5*z
		}
		int, float, global, kernel, half, template, cairn, é := x, y, x+1, y+1, x+2, y+2, x+3, y+3
		out[i] += int + 3*float + 5*global + 7*kernel + 11*half + 13*template + 17*cairn + 19*é
		out[i], x, y = x, y+out[i], out[i]
		out[i] += x + 2*y
	}
}

func k_structs(w *device.Work) {
	out, in, ps := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.Slice[pair](w, 2)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		p := ps[i]
		q := point{in[2*i], in[2*i+1]}.swapped().plus(point{x: 1})
		var zero point
		p.a += float32(q.x)
		p.b++
		p.c = !p.c && q.y > 0
		p.d[1] += uint8(p.b)
		sum := p.e
		for k, v := range p.d {
			sum += float64(k) * float64(v)
		}
		p.e = sum
		ps[i] = p
		ps[i].e += zero.x + q.y
		out[i] = p.e + float64(p.a)
		if p.c {
			out[i]++
		}
	}
}

func k_arrays(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		var a [8]int64
		b := [3]int64{in[2*i], 2, in[2*i+1]}
		var m [2][3]int32
		for k := range a {
			a[(k*3)%8] += b[k%3] + int64(k)
			m[k%2][k%3] = int32(a[k])
		}
		r := int64(len(a))
		for k := 7; k >= 0; k-- {
			r = r*3 + a[k]
		}
		for row := range m {
			for v := range 3 {
				r += int64(m[row][v])
			}
		}
		out[i] = r
	}
}

func k_helpers(w *device.Work) {
	out, in, fl := device.Slice[int64](w, 0), device.Slice[int64](w, 1), device.Slice[float64](w, 2)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		q, r := divmod(int32(in[2*i]), int32(in[2*i+1]|1))
		a, b := both(in[2*i], in[2*i+1]|1)
		s := sumOf(fl[2*i:], 2)
		x := put(out, i, int64(q)+int64(r))
		put(out, i, out[i]+a-b)
		row := fl[2*i : 2*i+2]
		for _, v := range row {
			s += v
		}
		out[i] += x + int64(s) + int64(len(row)) + int64(len(fl[3:]))
	}
}

func k_bits(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		u := uint64(in[2*i])
		r := bits.OnesCount64(u) + bits.LeadingZeros64(u)*64 + bits.OnesCount32(uint32(u)) + bits.LeadingZeros32(uint32(u))
		out[i] = int64(r) ^ int64(bits.RotateLeft64(u, 13)) ^ int64(bits.RotateLeft32(uint32(u), -7))
	}
}

func k_consts(w *device.Work) {
	out := device.Slice[float64](w, 0)
	lo, hi := w.Range(0)
	const local = big * big / (big - 1)
	for i := lo; i < hi; i++ {
		out[i] = third*3 + float64(i)*(local/1e9) + float64(uint8(255)) + float64(int64(math.MinInt64)) + math.Pi*math.MaxInt64
		if i%3 == 0 {
			out[i] = float64(float32(third)) - 1e-320 + 'a'
		}
	}
}

func k_values(w *device.Work) {
	out := device.Slice[float64](w, 0)
	a, b, c := device.Value[int32](w, 1), device.Value[uint32](w, 2), device.Value[int64](w, 3)
	d, e, n := device.Value[uint64](w, 4), device.Value[float32](w, 5), int(device.Value[float64](w, 6))
	for i := w.Lo[0]; i < w.Hi[0]; i++ {
		out[i] = float64(a) + float64(b)*2 + float64(c)*3 + float64(d)*5 + float64(e)*7 + float64(n*i) + float64(w.Global[0])
	}
}

func k_complex(w *device.Work) {
	out, in := device.Slice[complex128](w, 0), device.Slice[complex128](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		u, v := in[i], complex(real(in[i/2]), 2)
		u = u + v - 1i
		out[i] = complex(float64(real(u)*imag(v))-imag(u), real(u)/3)
	}
}

func k_bools(w *device.Work) {
	out, in := device.Slice[uint8](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a, b := in[2*i] > 0, in[2*i+1]%2 == 0
		c := a && b || !a && in[2*i] < -5
		d := a == b != c
		out[i] = 1
		if c != d {
			out[i] = 7
		}
		if d {
			out[i] += 8
		}
	}
}

// k_sum adds up the elements of each group, in a tree.
func k_sum(w *device.Work) {
	out, in, part := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.LocalSlice[float64](w, 2)
	for g := range w.Groups() {
		lo, hi := g.Range(0)
		for i := lo; i < hi; i++ {
			part[i-lo] = in[i]
		}
		for half := featureGroup / 2; half > 0; half /= 2 {
			for i := lo; i < min(hi, lo+half, hi-half); i++ {
				part[i-lo] += part[i-lo+half]
			}
		}
		for i := lo; i < hi; i++ {
			out[i] = part[0] + part[hi-1-i]
		}
	}
}

// k_own uses an element of local memory for each item, which becomes a
// variable.
func k_own(w *device.Work) {
	out, in, own := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.LocalSlice[float64](w, 2)
	tile := device.LocalSlice[float64](w, 3)
	for g := range w.Groups() {
		lo, hi := g.Range(0)
		for i := lo; i < hi; i++ {
			own[i-lo] = 0
		}
		for t := 0; t < 64; t += featureGroup {
			for i := lo; i < hi; i++ {
				tile[i-lo] = in[t+i-lo]
			}
			for k := 0; k < hi-lo; k++ {
				for i := lo; i < hi; i++ {
					own[i-lo] += float64(tile[k] * in[i])
				}
			}
		}
		for i := lo; i < hi; i++ {
			out[i] = own[i-lo]
		}
	}
}

// k_rows has two dimensions, and values of a row outside of the inner loop.
func k_rows(w *device.Work) {
	out, in := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	n := int(device.Value[int32](w, 2))
	xlo, xhi := w.Range(0)
	ylo, yhi := w.Range(1)
	for y := ylo; y < yhi; y++ {
		first := in[y*n]
		if first > 2 {
			continue
		}
		row, to := in[y*n:][:n], out[y*n:][:n]
		for x := max(xlo, 1); x < min(xhi, n-1); x++ {
			to[x] = first + row[x-1] + row[x+1]
		}
	}
}

// k_blocks exchanges values in groups of two dimensions.
func k_blocks(w *device.Work) {
	out, in, tile := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.LocalSlice[float64](w, 2)
	n := int(device.Value[int32](w, 3))
	for g := range w.Groups() {
		x0, x1 := g.Range(0)
		y0, y1 := g.Range(1)
		wide := g.Local[0]
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				tile[(y-y0)*wide+x-x0] = in[y*n+x]
			}
		}
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				out[y*n+x] = tile[(y1-1-y)*wide+x1-1-x] + float64(x1-x0)
			}
		}
	}
}

// k_items numbers the items of a group from 0, in all forms of loops, and
// exchanges values between them.
func k_items(w *device.Work) {
	out, in, tile := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.LocalSlice[float64](w, 2)
	own, n := device.LocalSlice[float64](w, 3), int(device.Value[int32](w, 4))
	for g := range w.Groups() {
		x0, _ := g.Range(0)
		y0, _ := g.Range(1)
		wide, high := g.Items(0), g.Items(1)
		for y := range high {
			row := in[(y0+y)*n+x0:][:wide]
			for x := range wide {
				tile[y*wide+x], own[y*wide+x] = row[x], 1
			}
		}
		for k := 0; k < 3; k++ {
			for y := 0; y < high; y++ {
				line := tile[(high-1-y)*wide:][:wide]
				for x := range min(wide, n-1-x0, 6-k) {
					own[y*wide+x] += line[wide-1-x]
				}
			}
			for y := range min(high, k+1) {
				for x := max(k-1, 0); x < min(wide, n-k); x++ {
					tile[y*wide+x] += float64(own[y*wide+x] * 0.25)
				}
			}
		}
		for half := 4; half > 0; half /= 2 { // a tree in each row
			for y := range high {
				line := tile[y*wide:][:wide]
				for x := range min(wide, half, wide-half) {
					line[x] += line[x+half]
				}
			}
		}
		for y := range high {
			to := out[(y0+y)*n+x0:][:wide]
			for x := range wide {
				to[x] = tile[y*wide+x] + own[y*wide+x] + float64(wide*high)
			}
		}
	}
}

// k_part numbers the items of a part from 0.
func k_part(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, _ := w.Range(0)
	k, l := int64(1), int64(2)
	n, k, l := w.Items(0), l, k+5
	to, from := out[lo:][:n], in[lo:]
	for i := range n {
		to[i] = from[i]*k + l - int64(lo+i)
	}
	last := featureItems - 1 - lo
items:
	for i := 0; i < min(n, last); i++ {
		for k := range 5 {
			if from[i]%5 == int64(k) {
				continue items
			}
		}
		to[i] ^= 3 * to[i]
	}
}

// k_complete relies on it that a part is complete in all dimensions but the
// last one.
func k_complete(w *device.Work) {
	out, in := device.Slice[float64](w, 0), device.Slice[float64](w, 1)
	y0, _ := w.Range(1)
	x0, x1 := w.Range(0)
	wide, high := w.Items(0), w.Items(1)
	for y := range high {
		for x := range min(wide, 20) {
			out[(y0+y)*wide+x] = in[(y0+y)*(x1-x0)+x] + 1
		}
	}
}

// at has an index whose terms do not fit into 32 bits, nor their sum and
// product into 64.
func at(v []int64, a, b, i int) int64 { return v[a*b+a-b*(a+1)+b+i-a] }

// k_index has indexes of all types. Their terms wrap, and are negative, but
// they are valid.
func k_index(w *device.Work) {
	out, in := device.Slice[int64](w, 0), device.Slice[int64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a, b := int(in[2*i]), int(in[2*i+1])
		u, v := uint64(a), uint32(b)
		r := at(in, a, b, i)
		r = r*3 + in[a+i-a] + in[(i-1)+1] + in[i+1] + in[-1+(i+2)] + in[7-(5-i)]
		r = r*3 + in[u*3-u*4+u+uint64(i)] + in[v*v-v*v+uint32(i)] + in[uint8(i)] + in[int32(i)+1] //nolint:staticcheck // zero, as the translation must find out
		r = r*3 + in[u+2-u] + in[v+7-v] + in[i+1<<40-1<<40] + in[a*1<<20+i-a*1<<20] + in[(i+1<<20)-1<<20]
		row := in[a+i-a:][b-b+1:]                                                 //nolint:staticcheck // zero, as the translation must find out
		r = r*3 + row[a-a] + row[i*2-i*2] + at(row[:], b, a, 0) + in[i+a&1-a%2&1] //nolint:staticcheck // zero, as the translation must find out
		out[i] = r
		if i > 0 && i < featureItems-1 {
			out[a+i-a] = r + in[i-1] + in[i+1]
		}
	}
}

// k_tile has local memory of which an item uses its own element, if groups are
// at most 8 items wide, or one row high.
func k_tile(w *device.Work) {
	out, in, own := device.Slice[float64](w, 0), device.Slice[float64](w, 1), device.LocalSlice[float64](w, 2)
	n := int(device.Value[int32](w, 3))
	for g := range w.Groups() {
		x0, x1 := g.Range(0)
		y0, y1 := g.Range(1)
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				own[(y-y0)*8+x-x0] = in[y*n+x] + 1
			}
		}
		for k := range 3 {
			for y := y0; y < y1; y++ {
				for x := x0; x < x1; x++ {
					own[(y-y0)*8+x-x0] += float64(in[y*n+x] * float64(k))
				}
			}
		}
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				out[y*n+x] = own[(y-y0)*8+x-x0]
			}
		}
	}
}

// k_far writes the elements from first on, and item i at most mark.
func k_far(w *device.Work) {
	out, first, mark := device.Slice[uint8](w, 0), int(device.Value[int64](w, 1)), int(device.Value[int64](w, 2))
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		if at := i - mark; at >= 0 {
			out[first+at] = uint8(7*at + 1)
		}
	}
}

var far = device.KernelOf(k_far)

func features() []*device.Kernel {
	return []*device.Kernel{
		device.KernelOf(k_ints), device.KernelOf(k_narrow), device.KernelOf(k_minint), device.KernelOf(k_shifts),
		device.KernelOf(k_float64), device.KernelOf(k_float32), device.KernelOf(k_signs), device.KernelOf(k_convert),
		device.KernelOf(k_control), device.KernelOf(k_shadow), device.KernelOf(k_structs), device.KernelOf(k_arrays),
		device.KernelOf(k_helpers), device.KernelOf(k_bits), device.KernelOf(k_consts), device.KernelOf(k_values),
		device.KernelOf(k_complex), device.KernelOf(k_bools), device.KernelOf(k_sum), device.KernelOf(k_own),
		device.KernelOf(k_rows), device.KernelOf(k_blocks), device.KernelOf(k_index), device.KernelOf(k_tile),
		device.KernelOf(k_items), device.KernelOf(k_part), device.KernelOf(k_complete),
	}
}
