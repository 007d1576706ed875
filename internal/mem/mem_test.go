package mem

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/zeebo/xxh3"
)

func TestIsZero(t *testing.T) {
	for _, n := range []int{0, 1, 7, 8, 255, 256, 257, 4096, 4352, 4353, 10000, 65536} {
		p := make([]byte, n)
		if !IsZero(p) {
			t.Fatalf("%d zero bytes: not zero", n)
		}
		for i := 0; i < n; i += max(1, n/97) {
			p[i] = 1
			if IsZero(p) {
				t.Fatalf("%d bytes, byte %d set: zero", n, i)
			}
			p[i] = 0
		}
		if n > 0 {
			p[n-1] = 0x80
			if IsZero(p) {
				t.Fatalf("%d bytes, last byte set: zero", n)
			}
		}
	}
}

// TestStaging checks that segments are distinct and limited in number, and come
// back.
func TestStaging(t *testing.T) {
	s := NewStaging(3)
	defer s.Close()
	if err := s.Grow(2); err != nil {
		t.Fatal(err)
	}
	if err := s.Grow(10); err != nil {
		t.Fatal(err)
	}
	if s.Len() != 3 {
		t.Fatalf("Len = %d, want the limit 3", s.Len())
	}
	seen := map[int]bool{}
	for range 3 {
		i := <-s.Free()
		seen[i] = true
		s.Segment(i)[SegmentSize-1] = byte(i)
	}
	if len(seen) != 3 {
		t.Fatalf("segments %v, want three different ones", seen)
	}
	s.Release(1)
	if i := <-s.Free(); i != 1 {
		t.Fatalf("got segment %d back, want 1", i)
	}
}

// TestTracker compares the kernel's report with what was written.
func TestTracker(t *testing.T) {
	tr, err := NewTracker()
	if err != nil {
		t.Skip(err)
	}
	defer tr.Close()
	p := make([]byte, 8<<20+123)[17:]
	for i := range p {
		p[i] = byte(i)
	}
	if err := tr.Watch(p); err != nil {
		t.Fatal(err)
	}
	all := 0
	if err := tr.Scan(p, func(lo, hi int) { all += hi - lo }); err != nil {
		t.Fatal(err)
	}
	if all != len(p) {
		t.Fatalf("first scan reports %d bytes, want all %d", all, len(p))
	}
	for round := range 20 {
		var at []int
		for range 50 {
			i := rand.IntN(len(p))
			at = append(at, i)
			p[i]++
		}
		got := make([]bool, len(p))
		n := 0
		if err := tr.Scan(p, func(lo, hi int) {
			n += hi - lo
			for i := lo; i < hi; i++ {
				got[i] = true
			}
		}); err != nil {
			t.Fatal(err)
		}
		for _, i := range at {
			if !got[i] {
				t.Fatalf("round %d: a write at %d was not reported", round, i)
			}
		}
		if n > 50*4096*2 {
			t.Fatalf("round %d: %d bytes reported for 50 writes", round, n)
		}
	}
	tr.Unwatch(uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if err := tr.Scan(p, func(int, int) {}); err == nil {
		t.Fatal("a scan of memory that is not watched must fail")
	}
}

// TestDigest compares Digest with the library that it replaces.
func TestDigest(t *testing.T) {
	p := make([]byte, 200_000)
	for i := range p {
		p[i] = byte(rand.Uint32())
	}
	for n := range 9000 {
		if Digest(p[:n]) != xxh3.Hash128(p[:n]) {
			t.Fatalf("%d bytes: digests differ", n)
		}
	}
	for range 300 {
		q := p[rand.IntN(5000):]
		q = q[:rand.IntN(len(q))]
		if Digest(q) != xxh3.Hash128(q) {
			t.Fatalf("%d bytes: digests differ", len(q))
		}
	}
}

// BenchmarkDigest compares Digest with the library.
func BenchmarkDigest(b *testing.B) {
	p := make([]byte, 512<<20)
	for i := range p {
		p[i] = byte(i)
	}
	for _, c := range []struct {
		name string
		f    func([]byte) xxh3.Uint128
	}{{"Digest", Digest}, {"xxh3", xxh3.Hash128}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				var wg sync.WaitGroup
				for _, half := range [][]byte{p[:len(p)/2], p[len(p)/2:]} {
					wg.Go(func() {
						for o := 0; o < len(half); o += 64 << 10 {
							c.f(half[o : o+64<<10])
						}
					})
				}
				wg.Wait()
			}
		})
	}
}

// TestCopy compares Copy with the builtin, and checks that no other bytes are
// written.
func TestCopy(t *testing.T) {
	src := make([]byte, 70_000)
	for i := range src {
		src[i] = byte(rand.Uint32())
	}
	dst := Aligned(80_000)
	for range 2000 {
		n, from, to := rand.IntN(60_000), rand.IntN(5000), rand.IntN(5000)
		if rand.IntN(2) == 0 {
			to &^= 63
		}
		clear(dst)
		Copy(dst[to:to+n], src[from:from+n])
		if !bytes.Equal(dst[to:to+n], src[from:from+n]) || !IsZero(dst[:to]) || !IsZero(dst[to+n:]) {
			t.Fatalf("%d bytes from %d to %d: copied wrongly", n, from, to)
		}
	}
}

// BenchmarkCopy compares Copy with the builtin.
func BenchmarkCopy(b *testing.B) {
	src, dst := make([]byte, 512<<20), Aligned(512<<20)
	clear(dst)
	for i := range src {
		src[i] = byte(i)
	}
	for _, c := range []struct {
		name string
		f    func(dst, src []byte)
	}{{"Copy", Copy}, {"builtin", func(dst, src []byte) { copy(dst, src) }}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				var wg sync.WaitGroup
				for h := range 2 {
					wg.Go(func() {
						for o := h * len(src) / 2; o < (h+1)*len(src)/2; o += 64 << 10 {
							c.f(dst[o:o+64<<10], src[o:o+64<<10])
						}
					})
				}
				wg.Wait()
			}
		})
	}
}
