// Package tiertest has the tests that every tier must pass, a tier in memory,
// and one that fails on request.
package tiertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/tier"
)

// Pattern returns n bytes that a seed determines.
func Pattern(seed uint64, n int) []byte {
	p := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(n)}).Read(p)
	return p
}

// All returns the names of the objects under prefix, in order.
func All(t testing.TB, m tier.Tier, prefix string) []string {
	t.Helper()
	var names []string
	for info, err := range m.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		names = append(names, info.Name)
	}
	slices.Sort(names)
	return names
}

// Content returns the content of an object.
func Content(t testing.TB, m tier.Tier, name string) []byte {
	t.Helper()
	p, err := read(t.Context(), m, name, 0, -1)
	if err != nil {
		t.Fatalf("get %s: %v", name, err)
	}
	return p
}

func read(ctx context.Context, m tier.Tier, name string, off, n int64) ([]byte, error) {
	r, err := m.Get(ctx, name, off, n)
	if err != nil {
		return nil, err
	}
	p, err := io.ReadAll(r)
	return p, errors.Join(err, r.Close())
}

// Options are what differs between tiers.
type Options struct {
	// Open returns a tier that is empty.
	Open func(t *testing.T) tier.Tier
	// Reopen returns the same place as another process sees it; nil: the same
	// value is used.
	Reopen func(t *testing.T, m tier.Tier) tier.Tier
	// Sizes are sizes of objects, besides the usual ones, at which something
	// changes.
	Sizes []int
}

// Run checks a tier.
func Run(t *testing.T, o Options) {
	if o.Reopen == nil {
		o.Reopen = func(t *testing.T, m tier.Tier) tier.Tier { return m }
	}
	for _, c := range []struct {
		name string
		f    func(*testing.T, Options)
	}{
		{"content", testContent}, {"replaces nothing", testReplace}, {"create", testCreate}, {"race", testRace}, {"list", testList},
		{"remove", testRemove}, {"names", testNames}, {"missing", testMissing}, {"canceled", testCanceled}, {"source fails", testSource}, {"sweep", testSweep}, {"parallel", testParallel},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, o) })
	}
}

func testContent(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	sizes := append([]int{0, 1, 4095, 4096, 4097, 1 << 20, 1<<20 + 1}, o.Sizes...)
	for i, size := range sizes {
		name, want := fmt.Sprintf("r/files/%d.h5", i), Pattern(uint64(i), size)
		if err := m.Put(ctx, name, tier.BytesSource(want)); err != nil {
			t.Fatalf("put %d bytes: %v", size, err)
		}
	}
	m = o.Reopen(t, m)
	for i, size := range sizes {
		name, want := fmt.Sprintf("r/files/%d.h5", i), Pattern(uint64(i), size)
		info, err := m.Stat(ctx, name)
		if err != nil || info.Size != int64(size) || info.Name != name {
			t.Errorf("stat of %d bytes: %+v, %v", size, info, err)
		}
		if got := Content(t, m, name); !bytes.Equal(got, want) {
			t.Errorf("get of %d bytes: %d other bytes", size, len(got))
		}
		for _, r := range ranges(size) {
			off, n := r[0], r[1]
			got, err := read(ctx, m, name, int64(off), int64(n))
			if err != nil || !bytes.Equal(got, want[off:off+n]) {
				t.Errorf("get %d from %d on, of %d bytes: %d bytes, %v", n, off, size, len(got), err)
			}
		}
		if got, err := read(ctx, m, name, int64(size/2), -1); err != nil || !bytes.Equal(got, want[size/2:]) {
			t.Errorf("get the rest from %d on, of %d bytes: %d bytes, %v", size/2, size, len(got), err)
		}
		for _, r := range [][2]int{{0, size + 1}, {size, 1}, {size + 1, 0}, {size + 1, -1}, {size/2 + 1, size}} {
			if _, err := read(ctx, m, name, int64(r[0]), int64(r[1])); !errors.Is(err, tier.ErrDamaged) {
				t.Errorf("get %d from %d on, of %d bytes: %v, want ErrDamaged", r[1], r[0], size, err)
			}
		}
	}
}

// ranges returns offsets and lengths inside size bytes.
func ranges(size int) [][2]int {
	out := [][2]int{{0, 0}, {size, 0}, {0, size}}
	if size > 1 {
		out = append(out, [2]int{1, size - 1}, [2]int{0, 1}, [2]int{size - 1, 1}, [2]int{size / 3, size / 3})
	}
	return out
}

func testReplace(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	for _, size := range append([]int{0, 5, 70_000}, o.Sizes...) {
		name, want := fmt.Sprintf("a/%d", size), Pattern(1, size)
		for range 2 {
			if err := m.Put(ctx, name, tier.BytesSource(want)); err != nil {
				t.Fatalf("put %d equal bytes: %v", size, err)
			}
		}
		others := [][]byte{append(bytes.Clone(want), 0)}
		if size > 0 {
			last, first := bytes.Clone(want), bytes.Clone(want)
			last[size-1] ^= 1
			first[0] ^= 128
			others = append(others, last, first, want[:size-1], nil)
		}
		for _, other := range others {
			if err := m.Put(ctx, name, tier.BytesSource(other)); !errors.Is(err, tier.ErrExists) || errors.Is(err, tier.ErrTemporary) {
				t.Errorf("put %d other bytes over %d: %v, want ErrExists", len(other), size, err)
			}
			if err := m.Create(ctx, name, other); !errors.Is(err, tier.ErrExists) || errors.Is(err, tier.ErrTemporary) {
				t.Errorf("create %d other bytes over %d: %v, want ErrExists", len(other), size, err)
			}
		}
		if got := Content(t, m, name); !bytes.Equal(got, want) {
			t.Errorf("the %d bytes were replaced", size)
		}
	}
}

func testCreate(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	if err := m.Create(ctx, "x/manifest.json", []byte("mine")); err != nil {
		t.Fatal(err)
	}
	other := o.Reopen(t, m)
	if err := other.Create(ctx, "x/manifest.json", []byte("theirs")); !errors.Is(err, tier.ErrExists) {
		t.Errorf("the second writer: %v, want ErrExists", err)
	}
	if err := other.Create(ctx, "x/manifest.json", []byte("mine")); err != nil {
		t.Errorf("the same write again: %v", err)
	}
	if got := Content(t, other, "x/manifest.json"); string(got) != "mine" {
		t.Errorf("content %q", got)
	}
	if err := m.Remove(ctx, "x/manifest.json"); err != nil {
		t.Fatal(err)
	}
	if err := other.Create(ctx, "x/manifest.json", []byte("theirs")); err != nil {
		t.Errorf("after the removal: %v", err)
	}
}

func testRace(t *testing.T, o Options) {
	m := o.Open(t)
	for i := range 5 {
		name := fmt.Sprintf("race/%d", i)
		const writers = 6
		won := make([]bool, writers)
		var wg sync.WaitGroup
		for w := range writers {
			other := o.Reopen(t, m)
			wg.Go(func() {
				err := other.Create(t.Context(), name, fmt.Appendf(nil, "writer %d", w))
				won[w] = err == nil
				if err != nil && !errors.Is(err, tier.ErrExists) {
					t.Errorf("writer %d: %v", w, err)
				}
			})
		}
		wg.Wait()
		winner := slices.Index(won, true)
		if winner < 0 || slices.Index(won[winner+1:], true) >= 0 {
			t.Fatalf("winners: %v", won)
		}
		if got := Content(t, m, name); string(got) != fmt.Sprintf("writer %d", winner) {
			t.Errorf("writer %d won, and the content is %q", winner, got)
		}
	}
}

func testList(t *testing.T, o Options) {
	m := o.Open(t)
	if names := All(t, m, ""); len(names) != 0 {
		t.Fatalf("not empty: %v", names)
	}
	var want []string
	for _, dir := range []string{"run-a/files/", "run-a/parts/", "run-b/files/", "runs/"} {
		for i := range 7 {
			name := fmt.Sprintf("%sobject-%04d-x_y.h5", dir, i)
			want = append(want, name)
			if err := m.Create(t.Context(), name, []byte(name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(want)
	m = o.Reopen(t, m)
	for _, prefix := range []string{"", "run", "run-", "run-a", "run-a/", "run-a/f", "run-a/files/object-0003", "run-a/files/object-0003-x_y.h5", "runs/", "none", "none/", "run-a/files/object-0003-x_y.h5/"} {
		var some []string
		for _, name := range want {
			if strings.HasPrefix(name, prefix) {
				some = append(some, name)
			}
		}
		if got := All(t, m, prefix); !slices.Equal(got, some) {
			t.Errorf("list %q: %d names, want %d: %v", prefix, len(got), len(some), got)
		}
	}
	for info := range m.List(t.Context(), "") {
		if info.Size != int64(len(info.Name)) {
			t.Errorf("%s: size %d", info.Name, info.Size)
		}
		break // ends early
	}
}

func testRemove(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	for _, name := range []string{"a/b/c", "a/b/d", "e"} {
		if err := m.Create(ctx, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a/b/c", "a/b/c", "none", "none/none", "a/b", "e/f"} {
		if err := m.Remove(ctx, name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
	}
	if got := All(t, o.Reopen(t, m), ""); !slices.Equal(got, []string{"a/b/d", "e"}) {
		t.Errorf("left: %v", got)
	}
	for _, name := range []string{"a/b/d", "e"} {
		if err := m.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	if err := m.Create(ctx, "a/b", []byte("a directory before")); err != nil {
		t.Errorf("create in place of an empty directory: %v", err)
	}
}

func testNames(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	for _, name := range []string{"", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", ".", "./a", "a//b", "a/", ".hidden", "a/.tmp-1", "a b", "a\x00", "a\n", "ü", "a\\b", "C:x", "a*", "a?b=c", "a%2e", strings.Repeat("x", 201), strings.Repeat("abcdefghi/", 80)} {
		errs := map[string]error{
			"put": m.Put(ctx, name, tier.BytesSource(nil)), "create": m.Create(ctx, name, nil), "remove": m.Remove(ctx, name),
		}
		_, errs["get"] = m.Get(ctx, name, 0, -1)
		_, errs["stat"] = m.Stat(ctx, name)
		for op, err := range errs {
			if err == nil || errors.Is(err, tier.ErrNotExist) || errors.Is(err, tier.ErrTemporary) {
				t.Errorf("%s %q: %v; it has to be refused", op, name, err)
			}
		}
	}
	for _, prefix := range []string{"/", "..", "../", "a/../", ".", "a//", "a b"} {
		refused := false
		for _, err := range m.List(ctx, prefix) {
			refused = err != nil
		}
		if err := m.Sweep(ctx, prefix, time.Now()); err == nil || !refused {
			t.Errorf("list and sweep %q: it has to be refused", prefix)
		}
	}
	long := strings.Repeat("abcdefgh/", 77) + strings.Repeat("z", 7)
	for _, name := range []string{long, strings.Repeat("x", 200), "A-Z_0.9", "-", "_"} {
		if err := m.Create(ctx, name, []byte("x")); err != nil {
			t.Errorf("create %q: %v", name, err)
		}
	}
	if err := m.Create(ctx, "file", nil); err != nil {
		t.Error(err)
	}
}

func testMissing(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	if err := m.Create(ctx, "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"c", "a", "a/c", "a/b/c"} {
		_, gerr := read(ctx, m, name, 0, -1)
		_, serr := m.Stat(ctx, name)
		for _, err := range []error{gerr, serr} {
			if !errors.Is(err, tier.ErrNotExist) || errors.Is(err, tier.ErrTemporary) {
				t.Errorf("%s: %v, want ErrNotExist", name, err)
			}
		}
	}
}

func testCanceled(t *testing.T, o Options) {
	m := o.Open(t)
	if err := m.Create(t.Context(), "a", Pattern(1, 1<<20)); err != nil {
		t.Fatal(err)
	}
	later, cancel := context.WithCancel(t.Context())
	r, err := m.Get(later, "a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v", err)
	}
	ctx := later
	errs := map[string]error{
		"put": m.Put(ctx, "b", tier.BytesSource(Pattern(1, 100_000))), "create": m.Create(ctx, "c", []byte("x")),
		"remove": m.Remove(ctx, "a"), "sweep": m.Sweep(ctx, "", time.Now()),
	}
	_, errs["get"] = read(ctx, m, "a", 0, -1)
	_, errs["stat"] = m.Stat(ctx, "a")
	for _, err := range m.List(ctx, "") {
		errs["list"] = err
	}
	if len(errs) != 7 {
		t.Error("a list without an error")
	}
	for op, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", op, err)
		}
	}
	if got := All(t, m, ""); !slices.Equal(got, []string{"a"}) {
		t.Errorf("objects: %v", got)
	}
	// Canceled in the middle of a Put, by its source.
	ctx, cancel = context.WithCancel(t.Context())
	src := tier.BytesSource(Pattern(2, 3<<20))
	src.ReaderAt = &endingReader{src.ReaderAt, func() error { cancel(); return nil }}
	if err := m.Put(ctx, "d", src); !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v, want context.Canceled", err)
	}
	if got := All(t, m, ""); !slices.Equal(got, []string{"a"}) {
		t.Errorf("objects: %v", got)
	}
}

// endingReader calls end when bytes past the first mebibyte are read.
type endingReader struct {
	io.ReaderAt
	end func() error
}

func (r *endingReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > 1<<20 {
		if err := r.end(); err != nil {
			return 0, err
		}
	}
	return r.ReaderAt.ReadAt(p, off)
}

func testSource(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	want := Pattern(3, 3<<20)
	src := tier.BytesSource(want)
	broken := errors.New("the disk is broken")
	src.ReaderAt = &endingReader{src.ReaderAt, func() error { return broken }}
	if err := m.Put(ctx, "a", src); !errors.Is(err, broken) || errors.Is(err, tier.ErrTemporary) {
		t.Errorf("put: %v, want the source's error", err)
	}
	short := tier.BytesSource(want)
	short.Size++
	if err := m.Put(ctx, "a", short); err == nil {
		t.Error("put of a source that is too short succeeded")
	}
	if got := All(t, m, ""); len(got) != 0 {
		t.Errorf("objects: %v", got)
	}
	if err := m.Put(ctx, "a", tier.BytesSource(want)); err != nil {
		t.Error(err)
	}
	if got := Content(t, m, "a"); !bytes.Equal(got, want) {
		t.Error("other content")
	}
}

func testSweep(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	src := tier.BytesSource(Pattern(3, 3<<20))
	src.ReaderAt = &endingReader{src.ReaderAt, func() error { return io.ErrClosedPipe }}
	if err := m.Put(ctx, "a/b", src); err == nil {
		t.Fatal("no error")
	}
	if err := m.Create(ctx, "a/c", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"a/", ""} {
		if err := m.Sweep(ctx, prefix, time.Now().Add(time.Hour)); err != nil {
			t.Errorf("sweep %q: %v", prefix, err)
		}
	}
	if got := All(t, m, ""); !slices.Equal(got, []string{"a/c"}) {
		t.Errorf("objects: %v", got)
	}
}

func testParallel(t *testing.T, o Options) {
	m := o.Open(t)
	ctx := t.Context()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name, want := fmt.Sprintf("p/%d/x", i%4), Pattern(uint64(i%4), 300_000)
			if err := m.Put(ctx, name, tier.BytesSource(want)); err != nil {
				t.Error(err)
			}
			if got, err := read(ctx, m, name, 0, -1); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v", name, err)
			}
			// Directories come and vanish beside it.
			own := fmt.Sprintf("q/%d", i%2)
			if err := m.Create(ctx, own, []byte("x")); err != nil {
				t.Error(err)
			}
			if err := m.Remove(ctx, own); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := All(t, m, ""); len(got) != 4 {
		t.Errorf("objects: %v", got)
	}
}
