package xxh3

import (
	"fmt"
	"math/rand/v2"
	"testing"

	real "github.com/zeebo/xxh3"
)

// TestHash_SameAsLibrary compares the digests of texts of many lengths and
// alignments with those of the library.
func TestHash_SameAsLibrary(t *testing.T) {
	r := rand.NewChaCha8([32]byte{1})
	p := make([]byte, 1<<20+77)
	r.Read(p)
	lengths := []int{1<<16 - 1, 1 << 16, 1<<16 + 1, 1<<20 - 1, 1 << 20, len(p)}
	for n := range 4097 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		for _, at := range []int{0, 1, 7} { // with several alignments
			if at+n > len(p) {
				continue
			}
			q := p[at : at+n]
			got, want := Hash128(q), real.Hash128(q)
			if got.Lo != want.Lo || got.Hi != want.Hi || got.Bytes() != want.Bytes() {
				t.Fatalf("%d bytes: %x, not %x", n, got.Bytes(), want.Bytes())
			}
		}
	}
}

func FuzzHash_SameAsLibrary(f *testing.F) {
	f.Add([]byte("abc"), uint16(1))
	f.Fuzz(func(t *testing.T, p []byte, times uint16) {
		q := p
		for len(q) < int(times) && len(p) > 0 {
			q = append(q[:len(q):len(q)], p...)
		}
		if got, want := Hash128(q), real.Hash128(q); got.Bytes() != want.Bytes() {
			t.Fatalf("%d bytes: %x, not %x", len(q), got.Bytes(), want.Bytes())
		}
	})
}

func BenchmarkHash128(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 64 << 10, 16 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				Hash128(p)
			}
		})
	}
}
