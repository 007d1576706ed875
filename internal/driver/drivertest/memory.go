package drivertest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

func (s *suite) info(t *testing.T) {
	i := s.d.Info()
	t.Logf("%+v", i)
	if i.Backend == "" || i.ID == "" || i.Name == "" || i.Version == "" {
		t.Errorf("something has no name: %+v", i)
	}
	if len(i.ID) <= len(i.Backend) || i.ID[:len(i.Backend)+1] != i.Backend+":" {
		t.Errorf("ID %q of backend %q", i.ID, i.Backend)
	}
	if i.Kind < driver.GPU || i.Kind > driver.CPU {
		t.Errorf("kind %v", i.Kind)
	}
	if i.Memory <= 0 || i.MaxAlloc <= 0 || i.MaxAlloc > i.Memory || i.Units < 1 || i.MaxGroup < 64 || i.LocalMemory < 4096 {
		t.Errorf("a size is wrong: %+v", i)
	}
	free, err := s.d.FreeMemory()
	must(t, err)
	if free <= 0 || free > i.Memory {
		t.Errorf("%d of %d bytes are free", free, i.Memory)
	}
}

func (s *suite) buffers(t *testing.T) {
	q := s.queue(t)
	for _, n := range []int{1, 3, 64, 255, 4096, 4097, 1<<20 + 13} {
		b := s.alloc(t, n)
		if b.Size() != int64(n) {
			t.Errorf("a buffer of %d bytes has %d", n, b.Size())
		}
		want := noise(n, uint64(n))
		must(t, q.CopyIn(b, 0, want))
		if !bytes.Equal(get[byte](t, q, b, n), want) {
			t.Errorf("a buffer of %d bytes does not keep them", n)
		}
	}
	k := s.kernel(t, "low")
	for _, n := range []int{1, 100, 300, 5000, 1 << 20} {
		at := s.alloc(t, 4)
		must(t, q.Launch(k, dim(1), auto, []driver.Arg{all(s.alloc(t, n)), all(at)}))
		if low := get[uint32](t, q, at, 1)[0]; low != 0 {
			t.Errorf("a buffer of %d bytes is not aligned to 128, but at %d", n, low)
		}
	}
	for _, n := range []int64{0, -1} {
		b, err := s.d.Alloc(n)
		s.refused(t, "Alloc of no bytes", err)
		if err == nil {
			b.Free()
		}
	}
	b, err := s.d.Alloc(100)
	must(t, err)
	must(t, b.Free())
	b.Free() // may return an error, but must do no harm
	s.refused(t, "CopyIn into a freed buffer", q.CopyIn(b, 0, make([]byte, 10)))
}

func (s *suite) copies(t *testing.T) {
	q := s.queue(t)
	const n = 10007
	model := noise(n, 1)
	b := put(t, s, q, model)
	r := rand.New(rand.NewPCG(2, 3))
	for i := range 200 {
		off := r.IntN(n)
		size := r.IntN(min(n-off, 3000) + 1)
		if i%10 == 0 {
			size = 0
		}
		if i%2 == 0 {
			p := noise(size, uint64(i))
			copy(model[off:], p)
			must(t, q.CopyIn(b, int64(off), p))
			for j := range p { // the memory may be changed again
				p[j] = 0
			}
			continue
		}
		guarded := make([]byte, size+2)
		guarded[0], guarded[size+1] = 17, 18
		must(t, q.CopyOut(guarded[1:size+1], b, int64(off)))
		if guarded[0] != 17 || guarded[size+1] != 18 {
			t.Fatalf("CopyOut of %d bytes wrote beyond them", size)
		}
		if !bytes.Equal(guarded[1:size+1], model[off:off+size]) {
			t.Fatalf("CopyOut of %d bytes from %d brought others", size, off)
		}
	}
	if !bytes.Equal(get[byte](t, q, b, n), model) {
		t.Error("in the end the buffer holds other bytes")
	}
	p := make([]byte, 100)
	s.refused(t, "CopyIn beyond the end", q.CopyIn(b, n-99, p))
	s.refused(t, "CopyOut beyond the end", q.CopyOut(p, b, n-99))
	s.refused(t, "CopyIn before the beginning", q.CopyIn(b, -1, p))
	s.refused(t, "CopyOut before the beginning", q.CopyOut(p, b, -1))
	s.refused(t, "CopyIn far beyond the end", q.CopyIn(b, 1<<62, p))
	must(t, q.Finish())
}

// pinned pins p and releases it after the test.
func (s *suite) pinned(t *testing.T, p []byte) {
	t.Helper()
	release, err := s.d.Pin(p)
	must(t, err)
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Errorf("release of pinned memory: %v", err)
		}
	})
}

func (s *suite) pinnedCopies(t *testing.T) {
	a, b := mem.Aligned(1<<20), mem.Aligned(1<<20)
	s.pinned(t, a)
	s.pinned(t, b)
	s.bounce(t, a, b)
	s.bounce(t, a[12345:700001], b[1:700001]) // inside
}

func (s *suite) stagingCopies(t *testing.T) {
	st := mem.NewStaging(2)
	must(t, st.Grow(2))
	defer st.Close()
	a, b := st.Segment(0), st.Segment(1)
	s.bounce(t, a[:1<<20], b[:1<<20]) // not pinned
	release, err := s.d.Pin(unsafe.Slice(&a[0], 2*mem.SegmentSize))
	if &b[0] != &unsafe.Slice(&a[0], 2*mem.SegmentSize)[mem.SegmentSize] {
		t.Fatal("the segments of one mapping are not neighbours")
	}
	must(t, err)
	s.bounce(t, a, b)
	must(t, release())
	s.bounce(t, a[:100000], b[:100000]) // not pinned any more
	for range 3 {
		release, err := s.d.Pin(a)
		must(t, err)
		s.bounce(t, a[:100000], b[:100000]) // only one of the two is pinned
		must(t, release())
	}
	release, err = s.d.Pin(a[:1<<20])
	must(t, err)
	s.bounce(t, a[1<<19:3<<19], b[:1<<20]) // partly pinned
	must(t, release())
}

// bounce copies bytes from a through buffers of the device to b, several times,
// and waits only where it must.
func (s *suite) bounce(t *testing.T, a, b []byte) {
	t.Helper()
	q := s.queue(t)
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	buf := s.alloc(t, n+7)
	for round := range 2 {
		want := noise(n, uint64(round+n))
		copy(a, want)
		clear(b)
		must(t, q.CopyIn(buf, 7, a))
		in, err := q.Record()
		must(t, err)
		must(t, q.CopyOut(b[:n/2], buf, 7))
		must(t, q.CopyOut(b[n/2:], buf, int64(7+n/2)))
		out, err := q.Record()
		must(t, err)
		must(t, in.Wait())
		clear(a) // the event has passed, so the memory may be changed
		must(t, out.Wait())
		if done, err := out.Done(); !done || err != nil {
			t.Errorf("an event that was waited for has not passed: %v %v", done, err)
		}
		if !bytes.Equal(b, want) {
			t.Errorf("round %d: %d bytes came back as others", round, n)
		}
	}
	must(t, q.Finish())
}

func (s *suite) deviceCopies(t *testing.T) {
	q := s.queue(t)
	const n = 50000
	m1, m2 := noise(n, 5), noise(n, 6)
	b1, b2 := put(t, s, q, m1), put(t, s, q, m2)
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 100 {
		size := r.IntN(n / 2)
		if i%10 == 0 {
			size = 0
		}
		from, to := r.IntN(n-size+1), r.IntN(n-size+1)
		switch {
		case i%3 == 0:
			must(t, q.Copy(b2, int64(to), b1, int64(from), int64(size)))
			copy(m2[to:], m1[from:from+size])
		case i%3 == 1:
			must(t, q.Copy(b1, int64(to), b2, int64(from), int64(size)))
			copy(m1[to:], m2[from:from+size])
		case from+size <= to || to+size <= from: // inside one buffer
			must(t, q.Copy(b1, int64(to), b1, int64(from), int64(size)))
			copy(m1[to:], m1[from:from+size])
		}
	}
	same(t, "first buffer", get[byte](t, q, b1, n), m1)
	same(t, "second buffer", get[byte](t, q, b2, n), m2)
	s.refused(t, "Copy of parts that overlap", q.Copy(b1, 10, b1, 0, 100))
	s.refused(t, "Copy of parts that overlap", q.Copy(b1, 0, b1, 10, 100))
	s.refused(t, "Copy beyond the end", q.Copy(b1, n-10, b2, 0, 11))
	s.refused(t, "Copy from beyond the end", q.Copy(b1, 0, b2, n-10, 11))
	s.refused(t, "Copy of -1 bytes", q.Copy(b1, 0, b2, 0, -1))
	must(t, q.Finish())
	same(t, "first buffer after errors", get[byte](t, q, b1, n), m1)
}

func (s *suite) wrap(t *testing.T) {
	w, ok := s.d.(driver.Wrapper)
	if ok != s.d.Info().Shared {
		t.Fatalf("has Wrap: %v, Shared: %v", ok, s.d.Info().Shared)
	}
	if !ok {
		t.Skip("the device has memory of its own")
	}
	q := s.queue(t)
	x := ramp(10000, 0)
	b := w.Wrap(raw(x))
	must(t, q.Launch(s.kernel(t, "add"), dim(len(x)), auto, []driver.Arg{all(b), val(int32(len(x))), val(int32(5))}))
	must(t, q.Finish())
	same(t, "wrapped memory", x, ramp(10000, 5))
	must(t, q.CopyIn(b, 4, raw([]int32{77})))
	must(t, q.Copy(b, 8, b, 4, 4))
	must(t, q.Finish())
	if x[1] != 77 || x[2] != 77 {
		t.Errorf("copies into wrapped memory gave %v", x[:4])
	}
	must(t, b.Free())
	if x[0] != 5 || x[9999] != 9999+5 {
		t.Error("Free changed wrapped memory")
	}
}

func (s *suite) pointers(t *testing.T) {
	p, ok := s.d.(driver.Pointers)
	if !ok {
		t.Skip("the device's memory has no addresses")
	}
	own := make([]byte, 4096)
	attr, known, err := p.Attributes(uintptr(unsafe.Pointer(&own[100])))
	must(t, err)
	if known {
		t.Errorf("ordinary memory is taken for %+v", attr)
	}
	q, b := s.queue(t), s.alloc(t, 1<<20)
	must(t, q.CopyIn(b, 0, make([]byte, 1<<20)))
	ev, err := q.Record()
	must(t, err)
	must(t, p.Synchronize())
	if done, err := ev.Done(); !done || err != nil {
		t.Errorf("after Synchronize a queue has work: %v, %v", done, err)
	}
}

func (s *suite) noMemory(t *testing.T) {
	for _, n := range []int64{s.d.Info().Memory + s.d.Info().Memory/2, 1 << 55, 1<<63 - 1} {
		b, err := s.d.Alloc(n)
		s.refused(t, "Alloc of more than there is", err)
		if err == nil {
			b.Free()
		} else if !errors.Is(err, driver.ErrMemory) || errors.Is(err, driver.ErrLost) {
			t.Errorf("Alloc of %d bytes: %v, want ErrMemory", n, err)
		}
	}
	b := s.alloc(t, 1<<20)
	q := s.queue(t)
	must(t, q.CopyIn(b, 0, make([]byte, 1<<20)))
	must(t, q.Finish())
}

// freeInUse frees buffers that kernels have not read yet, and allocates the
// memory again.
func (s *suite) freeInUse(t *testing.T) {
	q, other := s.queue(t), s.queue(t)
	k := s.kernel(t, "spin")
	const n, rounds, times = 1 << 13, 200, 20
	junk := noise(4*n, 99)
	var outs []driver.Buffer
	for i := range times {
		x := make([]uint32, n)
		for j := range x {
			x[j] = uint32(i*n + j)
		}
		in, err := s.d.Alloc(4 * n)
		must(t, err)
		must(t, q.CopyIn(in, 0, raw(x)))
		out := s.alloc(t, 4*n)
		must(t, q.Launch(k, dim(n), auto, []driver.Arg{all(in), all(out), val(int32(n)), val(int32(rounds))}))
		must(t, in.Free())
		again := s.alloc(t, 4*n)
		must(t, other.CopyIn(again, 0, junk))
		outs = append(outs, out)
	}
	must(t, q.Finish())
	must(t, other.Finish())
	for i, out := range outs {
		for j, v := range get[uint32](t, q, out, n) {
			if want := spun(uint32(i*n+j), rounds); v != want {
				t.Fatalf("launch %d, whose input was freed: element %d is %d, want %d", i, j, v, want)
			}
		}
	}
}

// sourceKept copies memory that nothing else refers to, behind a kernel. It
// must not be collected before it is copied.
func (s *suite) sourceKept(t *testing.T) {
	q := s.queue(t)
	const n, rounds = 1 << 13, 10000
	in, out, to := s.alloc(t, 4*n), s.alloc(t, 4*n), s.alloc(t, 4*n)
	must(t, q.Launch(s.kernel(t, "spin"), dim(n), auto, []driver.Arg{all(in), all(out), val(int32(n)), val(int32(rounds))}))
	kernel, err := q.Record()
	must(t, err)
	var gone atomic.Bool
	done := make(chan error)
	go func() {
		p := make([]byte, 4*n)
		runtime.AddCleanup(&p[0], func(int) { gone.Store(true) }, 0)
		done <- q.CopyIn(to, 0, p)
	}()
	for {
		select {
		case err := <-done:
			must(t, err)
			return
		default:
		}
		runtime.GC()
		if !gone.Load() {
			continue
		}
		if over, err := kernel.Done(); err != nil || !over {
			t.Errorf("the memory was collected before it was copied (%v)", err)
		}
		must(t, <-done)
		return
	}
}

func (s *suite) many(t *testing.T) {
	k := s.kernel(t, "add")
	var queues []driver.Queue
	for range 24 {
		queues = append(queues, s.queue(t))
	}
	var bufs []driver.Buffer
	for i := range 600 {
		q := queues[i%len(queues)]
		b := put(t, s, q, ramp(100+i%50, int32(i)))
		must(t, q.Launch(k, dim(100), auto, []driver.Arg{all(b), val(int32(100)), val(int32(1000 * i))}))
		bufs = append(bufs, b)
	}
	for i, b := range bufs {
		q := queues[i%len(queues)]
		got := get[int32](t, q, b, 100)
		if got[0] != int32(1001*i) || got[99] != int32(1001*i+99) {
			t.Fatalf("buffer %d holds %d … %d", i, got[0], got[99])
		}
	}
}
