package device

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/host"
)

func TestMain(m *testing.M) {
	// Use two OpenCL devices if PoCL is installed.
	if os.Getenv("POCL_DEVICES") == "" {
		os.Setenv("POCL_DEVICES", "pthread pthread")
	}
	os.Exit(m.Run())
}

const testSource = `
__kernel void put(__global uint *out, uint v, uint n) {
	size_t i = get_global_id(0);
	if (i >= n) return;
	out[i] = v + (uint)i;
}
__kernel void axpy(__global const uint *x, __global uint *y, uint a, uint n) {
	size_t i = get_global_id(0);
	if (i >= n) return;
	y[i] = a * y[i] + x[i];
}
__kernel void blend(__global const uint *x, __global const uint *y, __global uint *out, uint n) {
	size_t i = get_global_id(0);
	if (i >= n) return;
	out[i] = (x[i] ^ y[i]) + 1u;
}
`

var (
	put = NewKernel(testSource, "put", func(w *Work) {
		out, v := Slice[uint32](w, 0), Value[uint32](w, 1)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			out[i] = v + uint32(i)
		}
	})
	axpy = NewKernel(testSource, "axpy", func(w *Work) {
		x, y, a := Slice[uint32](w, 0), Slice[uint32](w, 1), Value[uint32](w, 2)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			y[i] = a*y[i] + x[i]
		}
	})
	blend = NewKernel(testSource, "blend", func(w *Work) {
		x, y, out := Slice[uint32](w, 0), Slice[uint32](w, 1), Slice[uint32](w, 2)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			out[i] = (x[i] ^ y[i]) + 1
		}
	})
)

// use1 returns a Device for a test.
func use1(t testing.TB, drv driver.Device) *Device {
	t.Helper()
	d, err := newDevice(drv)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// discrete returns a host device with memory of its own.
func discrete(t testing.TB, i int, memory int64) *Device {
	return use1(t, host.New(host.Options{Index: i, Workers: 2, Discrete: true, Memory: memory}))
}

func shared(t testing.TB, i int) *Device {
	return use1(t, host.New(host.Options{Index: i, Workers: 2}))
}

// mixed returns devices of all available kinds.
func mixed(t testing.TB) []*Device {
	devs := []*Device{shared(t, 0), shared(t, 1), discrete(t, 2, 0), discrete(t, 3, 0)}
	for _, name := range []string{"cuda", "opencl"} {
		more, err := Open(name)
		if err != nil {
			t.Logf("without %s: %v", name, err)
		}
		devs = append(devs, more...)
	}
	return devs
}

// model is an array and its expected content.
type model struct {
	a    *Array[uint32]
	want []uint32
}

// view returns some rows of it.
func (m *model) view(r *rand.Rand) (*Array[uint32], []uint32) {
	if r.IntN(3) == 0 {
		return m.a, m.want
	}
	rows := m.a.dims[0]
	lo := r.IntN(rows)
	hi := lo + 1 + r.IntN(rows-lo)
	row := len(m.want) / rows
	return m.a.Rows(lo, hi), m.want[lo*row : hi*row]
}

// match returns a view of the same length, or nil.
func (m *model) match(r *rand.Rand, n int) (*Array[uint32], []uint32) {
	rows := m.a.dims[0]
	row := len(m.want) / rows
	k := n / row
	if n%row != 0 || k > rows {
		return nil, nil
	}
	lo := r.IntN(rows - k + 1)
	return m.a.Rows(lo, lo+k), m.want[lo*row : (lo+k)*row]
}

// step performs one random operation on arrays and on their expected contents.
func step(r *rand.Rand, devs []*Device, ms []*model) error {
	m := ms[r.IntN(len(ms))]
	d := devs[r.IntN(len(devs))]
	a, want := m.view(r)
	size := Size{len(want)}
	switch op := r.IntN(10); op {
	case 0, 1:
		v := r.Uint32()
		if err := d.Launch(put, size, Out(a), v, uint32(len(want))); err != nil {
			return err
		}
		for i := range want {
			want[i] = v + uint32(i)
		}
	case 2, 3, 4:
		x, xw := ms[r.IntN(len(ms))].match(r, len(want))
		k := r.Uint32()
		if x == nil || x.h == a.h && x.lo < a.hi && a.lo < x.hi {
			return nil
		}
		if err := d.Launch(axpy, size.In(1), In(x), InOut(a), k, uint32(len(want))); err != nil {
			return err
		}
		for i := range want {
			want[i] = k*want[i] + xw[i]
		}
	case 5, 6:
		x, xw := ms[r.IntN(len(ms))].match(r, len(want))
		y, yw := ms[r.IntN(len(ms))].match(r, len(want))
		if x == nil || y == nil || x.h == a.h && x.lo < a.hi && a.lo < x.hi || y.h == a.h && y.lo < a.hi && a.lo < y.hi {
			return nil
		}
		if err := d.Launch(blend, size, In(x), In(y), Out(a), uint32(len(want))); err != nil {
			return err
		}
		for i := range want {
			want[i] = (xw[i] ^ yw[i]) + 1
		}
	case 7:
		p, err := a.Read()
		if err != nil {
			return err
		}
		if !slices.Equal(p, want) {
			return fmt.Errorf("Read: %v, want %v", p, want)
		}
	case 8:
		p, err := a.Data()
		if err != nil {
			return err
		}
		if !slices.Equal(p, want) {
			return fmt.Errorf("Data: %v, want %v", p, want)
		}
		for range r.IntN(4) {
			i := r.IntN(len(p))
			p[i] = r.Uint32()
			want[i] = p[i]
		}
	case 9:
		got, err := gather(a.h.m, a.lo, a.hi)
		if err != nil {
			return err
		}
		if !slices.Equal(a.elements(got), want) {
			return fmt.Errorf("Places: %v, want %v", a.elements(got), want)
		}
	}
	return nil
}

// gather reads bytes as a checkpoint does.
func gather(m *memory, lo, hi int64) ([]byte, error) {
	places, err := m.Places(lo, hi)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, hi-lo)
	for _, p := range places {
		if p.Host != nil {
			out = append(out, p.Host[:p.Len]...)
			continue
		}
		b := make([]byte, p.Len)
		if p.Zero {
			out = append(out, b...)
			continue
		}
		if err := p.Device.(*checkpointSide).d.q.CopyOut(b, p.Buffer.(driver.Buffer), p.Off); err != nil {
			return nil, p.Device.(*checkpointSide).d.fail(err)
		}
		out = append(out, b...)
	}
	return out, nil
}

// models makes arrays of different forms.
func models() []*model {
	var ms []*model
	for _, dims := range [][]int{{24, 5}, {24, 5}, {12, 5}, {40}, {2, 3, 4}} {
		a := New[uint32](dims...)
		ms = append(ms, &model{a, make([]uint32, a.Len())})
	}
	return ms
}

// sound checks the invariants of spans and buffers.
func (m *memory) sound() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := int64(0)
	for _, s := range m.spans {
		if s.lo != at || s.hi <= s.lo {
			return fmt.Errorf("span %d…%d after %d", s.lo, s.hi, at)
		}
		at = s.hi
		if !s.zero && !s.host && len(s.on) == 0 && s.gone == nil {
			return fmt.Errorf("span %d…%d is nowhere", s.lo, s.hi)
		}
		for _, b := range s.on {
			if b.lo > s.lo || b.hi < s.hi || !slices.Contains(m.bufs, b) {
				return fmt.Errorf("span %d…%d is in a buffer of %d…%d", s.lo, s.hi, b.lo, b.hi)
			}
		}
	}
	if at != m.size {
		return fmt.Errorf("spans end at %d of %d", at, m.size)
	}
	for i, b := range m.bufs {
		for _, c := range m.bufs[:i] {
			if b.d == c.d && b.lo < c.hi && c.lo < b.hi {
				return errors.New("two buffers of a device overlap")
			}
		}
	}
	return nil
}

// TestArray_Model compares arrays with slices, over random launches and reads.
func TestArray_Model(t *testing.T) {
	devs := mixed(t)
	sets := map[string][]*Device{
		"all": devs, "shared": devs[:2], "discrete": devs[2:4], "one": devs[2:3],
		"small": {discrete(t, 4, 900), discrete(t, 5, 1300), devs[0]},
	}
	if len(devs) > 4 {
		sets["accelerators"] = devs[4:]
	}
	for name, devs := range sets {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 1))
			ms := models()
			steps := 3000
			if name == "small" {
				steps = 200 // every failure runs the collector
			}
			for i := range steps {
				err := step(r, devs, ms)
				if name == "small" && errors.Is(err, ErrMemory) {
					continue
				}
				for _, m := range ms {
					err = errors.Join(err, m.a.h.m.sound())
				}
				if err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, i, err)
				}
			}
			for _, m := range ms {
				p, err := m.a.Read()
				if err != nil || !slices.Equal(p, m.want) {
					t.Fatalf("seed %d: at the end %v, %v, want %v", seed, p, err, m.want)
				}
			}
		})
	}
}
