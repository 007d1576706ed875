package erasure

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
)

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n:n]
}

// source returns an object to encode.
func source(object []byte) Source {
	return Source{bytes.NewReader(object), int64(len(object)), digestOf(xxh3.Hash128(object)), true}
}

// encoded returns all shards of an object.
func encoded(t testing.TB, object []byte, c Code) [][]byte {
	t.Helper()
	w := make([]io.Writer, c.total())
	bufs := make([]bytes.Buffer, c.total())
	for i := range w {
		w[i] = &bufs[i]
	}
	if err := Encode(source(object), c, w); err != nil {
		t.Fatal(err)
	}
	out := make([][]byte, c.total())
	for i := range out {
		out[i] = bufs[i].Bytes()
		if int64(len(out[i])) != ShardSize(c, int64(len(object))) {
			t.Fatalf("shard %d has %d bytes, not %d", i, len(out[i]), ShardSize(c, int64(len(object))))
		}
		if size, err := Verify(bytes.NewReader(out[i]), c, i, Digest{}); err != nil || size != int64(len(object)) {
			t.Fatalf("shard %d: %d, %v", i, size, err)
		}
	}
	return out
}

// rebuild rebuilds an object from some of its shards.
func rebuild(shards [][]byte, c Code, digest Digest) (object []byte, damage []Damage, err error) {
	in := make([]io.ReaderAt, len(shards))
	for i, s := range shards {
		if s != nil {
			in[i] = bytes.NewReader(s)
		}
	}
	var dst bytes.Buffer
	damage, err = Rebuild(in, c, digest, &dst)
	return dst.Bytes(), damage, err
}

// sizes are lengths of objects at and around the borders of units and stripes.
func sizes(c Code) (out []int) {
	u, s := c.unit(), c.unit()*c.Data
	for _, n := range []int{0, 1, align, align + 1, align * c.Data, u, s, 2 * s} {
		for _, d := range []int{-1, 0, 1} {
			if n+d >= 0 {
				out = append(out, n+d)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestRebuild loses every combination of up to Parity shards.
func TestRebuild(t *testing.T) {
	for _, c := range []Code{{2, 1}, {4, 2}, {3, 3}} {
		r := rand.New(rand.NewPCG(1, uint64(c.Data)))
		for _, size := range sizes(c) {
			object := randomBytes(r, size)
			whole := encoded(t, object, c)
			for lost := range 1 << c.total() {
				shards := slices.Clone(whole)
				n := 0
				for i := range shards {
					if lost>>i&1 == 1 {
						shards[i] = nil
						n++
					}
				}
				if n > c.Parity+1 || n > 0 && n < c.Parity && size > 100000 {
					continue
				}
				got, damage, err := rebuild(shards, c, Digest{})
				if n > c.Parity {
					if !errors.Is(err, ErrTooFew) || len(got) > 0 {
						t.Fatalf("%v, %d bytes, %d lost: %v", c, size, n, err)
					}
					continue
				}
				if err != nil || len(damage) > 0 || !bytes.Equal(got, object) {
					t.Fatalf("%v, %d bytes, lost %b: %v, %v", c, size, lost, damage, err)
				}
			}
		}
	}
}

// TestEncode_ShardsIndependent checks that a shard does not depend on which
// others are written.
func TestEncode_ShardsIndependent(t *testing.T) {
	c := Code{4, 3}
	object := randomBytes(rand.New(rand.NewPCG(2, 2)), c.unit()*c.Data*2+777)
	whole := encoded(t, object, c)
	for some := 1; some < 1<<c.total(); some++ {
		w := make([]io.Writer, c.total())
		bufs := make([]bytes.Buffer, c.total())
		for i := range w {
			if some>>i&1 == 1 {
				w[i] = &bufs[i]
			}
		}
		if err := Encode(source(object), c, w); err != nil {
			t.Fatal(err)
		}
		for i := range w {
			if w[i] != nil && !bytes.Equal(bufs[i].Bytes(), whole[i]) {
				t.Fatalf("shard %d of %b differs", i, some)
			}
		}
	}
}

// TestRebuild_Damage damages random bytes of random shards: as long as every
// stripe has enough sound units, the object is rebuilt, otherwise that is an
// error. What is rebuilt is never wrong.
func TestRebuild_Damage(t *testing.T) {
	c := Code{3, 2}
	n := 300
	if os.Getenv("CAIRN_LONG") != "" {
		n = 20000
	}
	good, bad := 0, 0
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 3))
		object := randomBytes(r, 1+r.IntN(c.unit()*c.Data*2))
		shards := encoded(t, object, c)
		lost, hurt := map[int]bool{}, map[int]map[int64]bool{}
		h := header{Code: c, unit: c.unit(), size: int64(len(object))}
		for range 1 + r.IntN(6) {
			i := r.IntN(c.total())
			switch r.IntN(4) {
			case 0:
				lost[i] = true
				shards[i] = nil
			case 1: // it is cut
				if len(shards[i]) == 0 {
					continue
				}
				to := r.IntN(len(shards[i]))
				shards[i] = shards[i][:to]
				if to < headerSize {
					lost[i] = true
				}
				for s := range h.stripes() {
					_, unit := h.data(s)
					if int64(to) < h.offset(s)+int64(unit)+digestSize {
						mark(hurt, i, s)
					}
				}
			default:
				if len(shards[i]) == 0 {
					continue
				}
				at := r.IntN(len(shards[i]))
				shards[i][at] ^= 1 << r.IntN(8)
				if at < headerSize {
					lost[i] = true
				} else {
					mark(hurt, i, int64(at-headerSize)/int64(h.unit+digestSize))
				}
			}
		}
		enough := true
		for s := range h.stripes() {
			sound := 0
			for i := range shards {
				if !lost[i] && !hurt[i][s] {
					sound++
				}
			}
			enough = enough && sound >= c.Data
		}
		got, damage, err := rebuild(shards, c, Digest{})
		switch {
		case err == nil:
			good++
			if !bytes.Equal(got, object) {
				t.Fatalf("seed %d: a wrong object", seed)
			}
			if !enough {
				t.Fatalf("seed %d: too much is damaged, and it was rebuilt", seed)
			}
		case enough:
			t.Fatalf("seed %d: %v, %v", seed, damage, err)
		default:
			bad++
			if !errors.Is(err, ErrTooFew) {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
	if good < n/10 || bad < n/10 {
		t.Errorf("%d rebuilt, %d refused: the cases are too simple", good, bad)
	}
}

func mark(m map[int]map[int64]bool, i int, s int64) {
	if m[i] == nil {
		m[i] = map[int64]bool{}
	}
	m[i][s] = true
}

// TestVerify_EveryByte changes every byte of a shard.
func TestVerify_EveryByte(t *testing.T) {
	c := Code{2, 2}
	object := randomBytes(rand.New(rand.NewPCG(4, 4)), 500)
	for i, s := range encoded(t, object, c) {
		for at := range s {
			s[at] ^= 0x10
			if _, err := Verify(bytes.NewReader(s), c, i, Digest{}); !errors.Is(err, ErrDamaged) {
				t.Fatalf("shard %d, byte %d: %v", i, at, err)
			}
			s[at] ^= 0x10
		}
		for n := range len(s) {
			if _, err := Verify(bytes.NewReader(s[:n]), c, i, Digest{}); !errors.Is(err, ErrDamaged) {
				t.Fatalf("shard %d, %d bytes: %v", i, n, err)
			}
		}
	}
}

// TestRebuild_ForeignShards gives shards of other objects, other numbers and
// other codes.
func TestRebuild_ForeignShards(t *testing.T) {
	c := Code{2, 2}
	r := rand.New(rand.NewPCG(5, 5))
	a, b := randomBytes(r, 1000), randomBytes(r, 1000)
	sa, sb := encoded(t, a, c), encoded(t, b, c)
	da := digestOf(xxh3.Hash128(a))
	got, damage, err := rebuild([][]byte{sb[0], sa[1], sa[2], nil}, c, Digest{})
	if err != nil || !bytes.Equal(got, a) || len(damage) != 1 || damage[0].Shard != 0 || damage[0].Stripe != -1 {
		t.Errorf("a shard of another object: %v, %v", damage, err)
	}
	got, _, err = rebuild([][]byte{sb[0], sb[1], sa[2], sa[3]}, c, da)
	if err != nil || !bytes.Equal(got, a) {
		t.Errorf("two and two, with a digest: %v", err)
	}
	if _, damage, err = rebuild([][]byte{sa[1], sa[0], nil, nil}, c, da); !errors.Is(err, ErrTooFew) || len(damage) != 2 || !strings.Contains(damage[0].Err.Error(), "it is shard 1 of 2+2, not 0 of 2+2") {
		t.Errorf("exchanged: %v, %v", damage, err)
	}
	other := encoded(t, a, Code{2, 1})
	if _, _, err = rebuild([][]byte{other[0], other[1], nil, nil}, c, da); !errors.Is(err, ErrTooFew) {
		t.Errorf("another code: %v", err)
	}
	// A unit of another stripe, with its own digest.
	big := randomBytes(r, c.unit()*c.Data*2)
	sb = encoded(t, big, c)
	u := c.unit() + digestSize
	copy(sb[0][headerSize:headerSize+u], sb[0][headerSize+u:])
	if _, err := Verify(bytes.NewReader(sb[0]), c, 0, Digest{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a unit of another stripe: %v", err)
	}
}

// TestEncode_Errors checks sources and writers that fail.
func TestEncode_Errors(t *testing.T) {
	c := Code{2, 1}
	object := make([]byte, 10*c.unit())
	w := []io.Writer{io.Discard, io.Discard, io.Discard}
	src := source(object)
	src.Digest[3]++
	if err := Encode(src, c, w); !errors.Is(err, ErrSource) {
		t.Errorf("another object: %v", err)
	}
	src.Size++
	if err := Encode(src, c, w); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short object: %v", err)
	}
	for n := range 8 {
		full := &limited{left: n * c.unit()}
		if err := Encode(source(object), c, []io.Writer{io.Discard, full, nil}); n < 6 != errors.Is(err, errFull) {
			t.Errorf("a writer that takes %d units: %v", n, err)
		}
	}
	for _, c := range []Code{{}, {0, 1}, {1, 0}, {200, 57}, {-1, 2}} {
		if err := Encode(source(nil), c, make([]io.Writer, max(0, c.total()))); err == nil {
			t.Errorf("code %v was accepted", c)
		}
	}
	if err := Encode(source(nil), c, w[:2]); err == nil {
		t.Error("too few writers were accepted")
	}
}

var errFull = errors.New("full")

type limited struct{ left int }

func (l *limited) Write(b []byte) (int, error) {
	if l.left -= len(b); l.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestMemory_IndependentOfSize checks that memory does not grow with the
// object.
func TestMemory_IndependentOfSize(t *testing.T) {
	c := Code{8, 3}
	alloc := func(size int64) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := make([]io.Writer, c.total())
		for i := range w {
			w[i] = io.Discard
		}
		if err := Encode(Source{ReaderAt: zeros{}, Size: size}, c, w); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	alloc(1 << 20)
	if n := alloc(512 << 20); n > 24<<20 {
		t.Errorf("%d MiB for an object of 512 MiB", n>>20)
	}
}

type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// FuzzRebuild checks that no shard, however made, is a panic.
func FuzzRebuild(f *testing.F) {
	c := Code{2, 1}
	for _, s := range encoded(f, []byte("an object of a few bytes"), c) {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		in := []io.ReaderAt{bytes.NewReader(a), bytes.NewReader(b), nil}
		var dst bytes.Buffer
		if _, err := Rebuild(in, c, Digest{}, &dst); err == nil {
			for i, s := range [][]byte{a, b} {
				if _, err := Verify(bytes.NewReader(s), c, i, Digest{}); err != nil {
					t.Fatalf("rebuilt from a shard that is damaged: %v", err)
				}
			}
		}
		Verify(bytes.NewReader(a), c, 0, Digest{})
	})
}

func ExampleCode() {
	fmt.Println(Code{4, 2}, ShardSize(Code{4, 2}, 1<<30))
	// Output: 4+2 268501056
}
