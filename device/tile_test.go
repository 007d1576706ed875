package device

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// tile returns a random view of a model's array, and the indices of its
// elements.
func (m *model) tile(r *rand.Rand) (*Array[uint32], []int) {
	a, at := m.a, make([]int, len(m.want))
	for i := range at {
		at[i] = i
	}
	for range 1 + r.IntN(2) { // also views of views
		lo, hi := make([]int, len(a.dims)), make([]int, len(a.dims))
		for i, n := range a.dims {
			if lo[i], hi[i] = 0, n; r.IntN(3) > 0 {
				lo[i] = r.IntN(n)
				hi[i] = lo[i] + 1 + r.IntN(n-lo[i])
			}
		}
		var inside []int
		for k, x := range at {
			ok, rest := true, k
			for i := len(a.dims) - 1; i >= 0; i-- {
				c := rest % a.dims[i]
				rest /= a.dims[i]
				ok = ok && lo[i] <= c && c < hi[i]
			}
			if ok {
				inside = append(inside, x)
			}
		}
		a, at = a.View(lo, hi), inside
	}
	return a, at
}

// pick returns the elements at some indices.
func pick(want []uint32, at []int) []uint32 {
	out := make([]uint32, len(at))
	for i, x := range at {
		out[i] = want[x]
	}
	return out
}

// tileStep performs one random operation on views.
func tileStep(r *rand.Rand, ms []*model) error {
	m := ms[r.IntN(len(ms))]
	a, at := m.tile(r)
	if a.Len() != len(at) {
		return fmt.Errorf("a view of %v has %d elements, want %d", a.Dims(), a.Len(), len(at))
	}
	switch r.IntN(5) {
	case 0:
		p, err := a.Read()
		if err != nil {
			return err
		}
		if want := pick(m.want, at); !slices.Equal(p, want) {
			return fmt.Errorf("Read of %v: %v, want %v", a.dims, p, want)
		}
	case 1:
		k := r.Uint32()
		err := a.Update(func(p []uint32) {
			for i := range p {
				p[i] = p[i]*3 + k
			}
		})
		if err != nil {
			return err
		}
		for _, x := range at {
			m.want[x] = m.want[x]*3 + k
		}
	case 2, 3: // to a view of as many elements, also of the same array
		for range 20 {
			n := ms[r.IntN(len(ms))]
			b, bt := n.tile(r)
			if len(bt) != len(at) {
				continue
			}
			values := pick(m.want, at)
			if err := Copy(b, a); err != nil {
				return err
			}
			for i, x := range bt {
				n.want[x] = values[i]
			}
			break
		}
	case 4: // as a message
		p, err := a.parts()
		if err != nil {
			return err
		}
		values := make([]uint32, len(at))
		for i := range values {
			values[i] = r.Uint32()
		}
		list, err := p.Direct(true)
		if err != nil {
			return err
		}
		if list != nil {
			copy(a.elements(list), values)
			p.Release(len(list))
		} else if err := storeParts(r, p, a, values); err != nil {
			return err
		}
		for i, x := range at {
			m.want[x] = values[i]
		}
		if list, err = p.Direct(false); err != nil {
			return err
		}
		if got := a.elements(list); list != nil && !slices.Equal(got, values) {
			return fmt.Errorf("sent %v, want %v", got, values)
		}
	}
	return nil
}

// storeParts stores values in parts of random lengths.
func storeParts(r *rand.Rand, p *parts, a *Array[uint32], values []uint32) error {
	s, err := p.Slot(4 * len(values))
	if err != nil {
		return err
	}
	defer s.Free()
	for off := 0; off < len(values); {
		n := 1 + r.IntN(len(values)-off)
		copy(a.elements(s.Bytes()[:4*n]), values[off:])
		if err := s.Store(4*off, 4*n); err != nil {
			return err
		}
		off += n
	}
	p.Stored(4 * len(values))
	return nil
}

// TestView_Model compares views with gaps with slices, over random launches,
// reads, copies and messages.
func TestView_Model(t *testing.T) {
	devs := mixed(t)
	sets := map[string][]*Device{"all": devs, "shared": devs[:2], "discrete": devs[2:4], "one": devs[2:3]}
	if len(devs) > 4 {
		sets["accelerators"] = devs[4:]
	}
	for name, devs := range sets {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 2))
			ms := models()
			ms[3].a.Prefer(devs[0])
			for i := range 2000 {
				err := error(nil)
				if r.IntN(2) == 0 {
					err = step(r, devs, ms)
				} else {
					err = tileStep(r, ms)
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

// TestView_Large passes a large view through several staging buffers, and a
// copy through memory of a device that is full.
func TestView_Large(t *testing.T) {
	for _, memory := range []int64{0, 13 << 20} {
		d := discrete(t, 0, memory)
		a := New[uint32](1100, 2000)
		if err := d.Launch(put, Size{a.Len()}, Out(a), uint32(7), uint32(a.Len())); err != nil {
			t.Fatal(err)
		}
		inner := a.View([]int{20, 7}, []int{1080, 1990})
		b := New[uint32](inner.Dims()...)
		if err := Copy(b, inner); err != nil {
			t.Fatal(err)
		}
		got, err := b.Read()
		same, err2 := inner.Read()
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if want := uint32(7 + (20+i/1983)*2000 + 7 + i%1983); got[i] != want || same[i] != want {
				t.Fatalf("element %d is %d and %d, want %d", i, got[i], same[i], want)
			}
		}
	}
}

// TestView_Refused refuses operations that a view with gaps, a constant, or an
// array of another size cannot do.
func TestView_Refused(t *testing.T) {
	a, constant := New[uint32](6, 8), NewConstant[uint32](2)
	column := a.View([]int{0, 3}, []int{6, 4})
	_, data := column.Data()
	for what, err := range map[string]error{
		"has gaps":          shared(t, 0).Launch(put, Size{6}, Out(column), uint32(1), uint32(6)),
		"no slice":          data,
		"numbers differ":    Copy(a, column),
		"constant":          Copy(constant, constant),
		"not made with New": Copy(nil, a),
	} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want an error with %q: %v", what, err)
		}
	}
	for _, x := range [][2][]int{{{0}, {6}}, {{0, 3}, {6, 3}}, {{0, -1}, {6, 4}}, {{0, 0}, {7, 8}}, {{}, {}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a view from %v to %v", x[0], x[1])
				}
			}()
			a.View(x[0], x[1])
		}()
	}
	if v := a.View([]int{2, 0}, []int{4, 8}); v.strides != nil {
		t.Error("whole rows have gaps")
	}
	a.Free()
	if _, err := column.Read(); !errors.Is(err, errFreed) {
		t.Error(err)
	}
}

// TestTransfer_Peers copies between devices without the host, and reports a
// kernel that failed as an error of its device.
func TestTransfer_Peers(t *testing.T) {
	d, e := discrete(t, 0, 0), discrete(t, 1, 0)
	a := New[uint32](1000)
	if err := d.Launch(put, Size{1000}, Out(a), uint32(7), uint32(1000)); err != nil {
		t.Fatal(err)
	}
	if err := e.Launch(axpy, Size{1000}, In(a), InOut(New[uint32](1000)), uint32(1), uint32(1000)); err != nil {
		t.Fatal(err)
	}
	if len(d.staging.free[0])+len(d.staging.free[1])+len(e.staging.free[0])+len(e.staging.free[1]) > 0 {
		t.Error("the bytes passed through the host")
	}
	if _, out := d.Moved(); out != 4000 {
		t.Errorf("%d bytes were moved", out)
	}
	bad := NewKernel("", "bad", func(w *Work) { panic("bad") })
	if err := d.Launch(bad, Size{1000}, Out(a)); err != nil {
		t.Fatal(err)
	}
	if err := e.Launch(axpy, Size{1000}, In(a), InOut(New[uint32](1000)), uint32(1), uint32(1000)); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("a kernel on the other device failed: %v", err)
	}
	if err := e.Finish(); err != nil {
		t.Errorf("a kernel on another device failed: %v", err)
	}
}
