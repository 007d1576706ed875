package device

import (
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
)

// onCopyIn calls a function at the first copy to the device.
type onCopyIn struct {
	driver.Queue
	done atomic.Bool
	do   func()
}

func (q *onCopyIn) CopyIn(dst driver.Buffer, off int64, src []byte) error {
	if !q.done.Swap(true) {
		q.do()
	}
	return q.Queue.CopyIn(dst, off, src)
}

// TestFill_NotEvicted restores one array while another one finds no room on the
// device. The first one keeps its place.
func TestFill_NotEvicted(t *testing.T) {
	d := discrete(t, 0, 1<<20)
	a, b := New[byte](700<<10), New[byte](700<<10)
	a.Prefer(d)
	b.Prefer(d)
	want := make([]byte, 700<<10)
	for i := range want {
		want[i] = byte(i % 251)
	}
	var other error
	d.q = &onCopyIn{Queue: d.q, do: func() { other = b.h.m.Fill(0, want) }}
	must(t, a.h.m.Fill(0, want), other)
	for _, x := range []*Array[byte]{a, b} {
		must(t, x.h.m.sound())
		if p, err := x.Read(); err != nil || string(p) != string(want) {
			t.Errorf("wrong bytes, %v", err)
		}
	}
}

// TestCopy_Staged copies large arrays through pinned memory in both directions,
// also while a kernel runs and after one has failed.
func TestCopy_Staged(t *testing.T) {
	d := discrete(t, 0, 0)
	d.staged = true
	const n = (5*chunk + 1236) / 4
	a := New[uint32](n)
	p, err := a.Data()
	must(t, err)
	for i := range p {
		p[i] = uint32(i)
	}
	add := NewKernel("", "add", func(w *Work) {
		x := Slice[uint32](w, 0)
		for i, hi := w.Range(0); i < hi; i++ {
			x[i] += 3
		}
	})
	must(t, d.Launch(add, Size{n}, InOut(a)))
	p, err = a.Read()
	must(t, err)
	for i, v := range p {
		if v != uint32(i)+3 {
			t.Fatalf("element %d is %d", i, v)
		}
	}
	if in, out := d.Moved(); in != 4*n || out != 4*n {
		t.Errorf("%d bytes in, %d out", in, out)
	}
	must(t, d.Launch(boom, Size{1}, InOut(a)))
	if _, err := a.Read(); err == nil {
		t.Error("what a kernel that failed wrote can be read")
	}
	must(t, d.Launch(put, Size{n}, Out(a), uint32(1), n32(n)))
	if p, err := a.Read(); err != nil || p[n-1] != n {
		t.Errorf("the device cannot be used after a failed kernel: %v", err)
	}
}
