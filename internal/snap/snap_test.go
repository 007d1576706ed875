package snap

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/driver/opencl"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/zeebo/xxh3"
)

// Devices stay open from test to test: libraries start threads that they never
// end.
var opened []driver.Device

var backends = []func() ([]driver.Device, error){opencl.Open}

func TestMain(m *testing.M) {
	if os.Getenv("POCL_DEVICES") == "" {
		os.Setenv("POCL_DEVICES", "pthread")
	}
	opened = append(opened, host.New(host.Options{Discrete: true, Memory: 1 << 30}), host.New(host.Options{Index: 1}))
	for _, open := range backends {
		if devs, err := open(); err == nil {
			opened = append(opened, devs...)
		}
	}
	os.Exit(m.Run())
}

// onAll runs a test on every device, with an engine of its own.
func onAll(t *testing.T, f func(t *testing.T, w *world)) {
	for _, dev := range opened {
		t.Run(dev.Info().ID, func(t *testing.T) { f(t, newWorld(t, dev)) })
	}
}

// world is a device under test.
type world struct {
	*Engine
	t *testing.T
	q driver.Queue
}

func newWorld(t *testing.T, dev driver.Device) *world {
	t.Helper()
	q := must(dev.NewQueue())(t)
	e := must(New(dev, q))(t)
	t.Cleanup(func() {
		if err := errors.Join(q.Finish(), e.Close(), q.Close()); err != nil {
			t.Error(err)
		}
	})
	return &world{e, t, q}
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// buffer returns a buffer with this content.
func (w *world) buffer(p []byte) driver.Buffer {
	w.t.Helper()
	b := must(w.dev.Alloc(int64(len(p))))(w.t)
	w.t.Cleanup(func() { b.Free() })
	if err := w.q.CopyIn(b, 0, p); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// random returns random bytes with runs of zeros.
func random(n int, seed uint64) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(p)
	if n > 300_000 {
		clear(p[100_000:250_000])
	}
	return p
}

// want returns the expected digests of extents.
func want(data map[driver.Buffer][]byte, at []mem.Extent) (out []xxh3.Uint128) {
	for _, x := range at {
		p := data[x.Buffer.(driver.Buffer)][x.Off:][:x.Len]
		for len(p) > 0 {
			n := min(int64(len(p)), x.Block)
			out = append(out, xxh3.Hash128(p[:n]))
			p = p[n:]
		}
	}
	return out
}

// digests returns the digests of all blocks of extents.
func digests(e *Engine, at []mem.Extent) (out []xxh3.Uint128, err error) {
	f, err := e.Live(at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for i := range at {
		sums, err := f.Digests(i, 0, at[i].Blocks())
		if err != nil {
			return nil, err
		}
		out = append(out, sums...)
	}
	return out, nil
}

func compare(t *testing.T, what string, got, want []xxh3.Uint128) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d digests, want %d", what, len(got), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: block %d has digest %x, want %x", what, i, got[i], want[i])
		}
	}
}

// lengths returns lengths of blocks around all limits of XXH3 and of the
// kernels.
func lengths() []int64 {
	var out []int64
	add := func(n int64) {
		for d := int64(-2); d <= 2; d++ {
			if n+d > 0 {
				out = append(out, n+d)
			}
		}
	}
	for _, n := range []int64{1, 16, 128, 240, 256, 1024, 1024 + 64, 2048, 16 << 10, 17 << 10, 32 << 10, 33 << 10, 64 << 10, 65 << 10, 68 << 10, 128 << 10, 1 << 20} {
		add(n)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 80 {
		out = append(out, 1+r.Int64N(70_000))
	}
	return out
}

func (w *world) testDigests() {
	data := random(3<<20, 1)
	b, other := w.buffer(data), w.buffer(data[5:])
	all := map[driver.Buffer][]byte{b: data, other: data[5:]}
	check := func(at ...mem.Extent) {
		w.t.Helper()
		got, err := digests(w.Engine, at)
		if err != nil {
			w.t.Fatal(err)
		}
		compare(w.t, fmt.Sprint(at), got, want(all, at))
	}
	r := rand.New(rand.NewPCG(3, 4))
	var many []mem.Extent
	for i, n := range lengths() {
		off := []int64{0, 16, 256, 8, 4, 2, 1, r.Int64N(4096)}[i%8]
		x := mem.Extent{Buffer: b, Off: off, Len: n, Block: n}
		if i%5 == 4 {
			x.Buffer = other
		}
		if i%3 == 0 {
			check(x)
		}
		if n < 1000 {
			x.Len = min(10*n-n/2, int64(len(data))-10)
		}
		many = append(many, x)
	}
	check(many...)
	check(mem.Extent{Buffer: b, Len: 3 << 20, Block: 64 << 10})
	check(mem.Extent{Buffer: b, Off: 1, Len: 3<<20 - 1, Block: 64 << 10})
	check(mem.Extent{Buffer: b, Len: 3<<20 - 64<<10 + 100, Block: 64 << 10})
	check(mem.Extent{Buffer: b, Len: 0, Block: 64 << 10}, mem.Extent{Buffer: other, Len: 1000, Block: 100}, mem.Extent{Buffer: other, Len: 0, Block: 1})
	check()
}

// TestDigests compares the digests of blocks with those that the host computes.
func TestDigests(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) { w.testDigests() })
}

// TestDigests_Shapes tests all shapes. On processors, where compiling is slow,
// it tests some.
func TestDigests_Shapes(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) {
		for i, s := range append([]shape{alone}, shapes...) {
			if s.Alone && w.info.Backend == "cuda" || s.items() > w.info.MaxGroup || s.local() > w.info.LocalMemory ||
				w.info.Kind == driver.CPU && i%10 != 0 {
				continue
			}
			t.Run(s.String(), func(t *testing.T) {
				w := newWorld(t, w.dev)
				w.shape = s
				w.testDigests()
				w.testGather()
				w.testDiff()
			})
		}
	})
}

func (w *world) testGather() {
	data := random(9<<17, 13)
	a, b := w.buffer(data), w.buffer(data[5:])
	at := scattered(a, b)
	f := must(w.Freeze(at))(w.t)
	defer f.Close()
	got, _ := read(w.t, w, f, at)
	all := map[driver.Buffer][]byte{a: data, b: data[5:]}
	for i, x := range at {
		if !bytes.Equal(got[i], all[x.Buffer.(driver.Buffer)][x.Off:][:x.Len]) {
			w.t.Fatalf("extent %d, %v, is wrong", i, x)
		}
	}
}

// TestEngine_BadExtents refuses extents outside of their buffer, and of other
// memory.
func TestEngine_BadExtents(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) {
		b := w.buffer(make([]byte, 1000))
		for _, x := range []mem.Extent{
			{Buffer: "memory", Len: 1, Block: 1}, {Len: 1, Block: 1},
			{Buffer: b, Off: -1, Len: 1, Block: 1}, {Buffer: b, Off: 1, Len: 1000, Block: 1},
			{Buffer: b, Off: 1001, Block: 1}, {Buffer: b, Len: 1}, {Buffer: b, Len: -1, Block: 1},
		} {
			if _, err := digests(w.Engine, []mem.Extent{x}); err == nil {
				t.Errorf("Digests of %v", x)
			}
			if _, err := w.Freeze([]mem.Extent{x}); err == nil {
				t.Errorf("Freeze of %v", x)
			}
			if _, err := w.Diff(x, 1); err == nil {
				t.Errorf("Diff of %v", x)
			}
			if _, err := w.Live([]mem.Extent{x}); err == nil {
				t.Errorf("Live of %v", x)
			}
		}
		f := must(w.Live([]mem.Extent{{Buffer: b, Len: 1000, Block: 300}}))(t)
		defer f.Close()
		for _, err := range []error{
			f.Read(make([]byte, 1), 0, 1000), f.Read(make([]byte, 1), 1, 0), f.Read(make([]byte, 1), -1, 0), f.Read(make([]byte, 1), 0, -1),
			second(f.Digests(0, 0, 5)), second(f.Digests(0, -1, 2)), second(f.Digests(1, 0, 0)), second(f.Digests(0, 2, 1)),
		} {
			if err == nil {
				t.Error("what is not there was read")
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// read reads all of a Frozen in steps, and its digests.
func read(t *testing.T, w *world, f mem.Frozen, at []mem.Extent) (data [][]byte, sums []xxh3.Uint128) {
	t.Helper()
	for i, x := range at {
		p := mem.Aligned(int(x.Len) + 1)[:x.Len]
		if err := w.Pin(p); err != nil {
			t.Fatal(err)
		}
		defer w.Unpin(p)
		for off := int64(0); off < x.Len; off += 100_000 {
			if err := f.Read(p[off:min(off+100_000, x.Len)], i, off); err != nil {
				t.Fatal(err)
			}
		}
		n := x.Blocks()
		sums = append(sums, must(f.Digests(i, 0, n/2))(t)...)
		sums = append(sums, must(f.Digests(i, n/2, n))(t)...)
		data = append(data, p)
	}
	wait := must(f.Mark())(t)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	return data, sums
}

// overwrite is a kernel of the program that takes a while.
const overwrite = `
__kernel void overwrite(__global uchar *p, uint n, uint rounds) {
	uint i = (uint)get_global_id(0);
	if (i >= n) return;
	uint x = p[i];
	for (uint r = 0; r < rounds; r++) x = x * 1664525u + 1013904223u + r;
	p[i] = (uchar)(x >> 24);
}
`

func overwriteGo(w *driver.Work) {
	p, n, rounds := driver.Slice[byte](w, 0), int(driver.Value[uint32](w, 1)), driver.Value[uint32](w, 2)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, n); i++ {
		p[i] = scrambled(p[i], rounds)
	}
}

func scrambled(b byte, rounds uint32) byte {
	x := uint32(b)
	for r := range rounds {
		x = x*1664525 + 1013904223 + r
	}
	return byte(x >> 24)
}

func scrambledAll(p []byte, rounds uint32) []byte {
	var table [256]byte
	for i := range table {
		table[i] = scrambled(byte(i), rounds)
	}
	out := make([]byte, len(p))
	for i, b := range p {
		out[i] = table[b]
	}
	return out
}

func (w *world) overwrite() func(b driver.Buffer, rounds uint32) {
	p := must(w.dev.Build(driver.Source{OpenCL: overwrite, Go: map[string]func(*driver.Work){"overwrite": overwriteGo}}))(w.t)
	w.t.Cleanup(func() { p.Close() })
	k := must(p.Kernel("overwrite"))(w.t)
	return func(b driver.Buffer, rounds uint32) {
		w.t.Helper()
		err := w.q.Launch(k, [3]int{int(b.Size()), 1, 1}, [3]int{}, []driver.Arg{whole(b), value(uint32(b.Size())), value(rounds)})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// scattered returns extents of one or two buffers: a long one, or scattered
// ones of all alignments.
func scattered(a, b driver.Buffer) []mem.Extent {
	r := rand.New(rand.NewPCG(5, 6))
	out := []mem.Extent{{Buffer: a, Off: 3, Len: 1<<20 + 17, Block: 64 << 10}, {Buffer: b, Block: 1}}
	for i := range 60 {
		x := mem.Extent{Buffer: a, Off: r.Int64N(1 << 20), Len: 1 + r.Int64N(100_000), Block: 64 << 10}
		if i%3 == 0 {
			x.Buffer = b
		}
		switch i % 4 {
		case 0:
			x.Off &^= 15
		case 1:
			x.Off &^= 3
		case 2:
			x.Off, x.Len = x.Off&^255, 64<<10
		}
		out = append(out, x)
	}
	return out
}

// TestFreeze shows that a snapshot has the effect of kernels before it, and not
// of kernels behind it, repeatedly in the same memory.
func TestFreeze(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) {
		run := w.overwrite()
		one, two := random(9<<17, 3), random(9<<17, 4)
		a, b := w.buffer(one), w.buffer(two)
		w.Reserve(8 << 20)
		for round, at := range [][]mem.Extent{
			{{Buffer: a, Len: 9 << 17, Block: 64 << 10}},
			scattered(a, b),
			{{Buffer: a, Off: 4096, Len: 300_000, Block: 64 << 10}, {Buffer: b, Off: 1, Len: 9<<17 - 1, Block: 1 << 20}},
			scattered(a, b)[:4],
			{},
		} {
			run(a, 20)
			run(b, 10)
			one, two = scrambledAll(one, 20), scrambledAll(two, 10)
			f := must(w.Freeze(at))(t)
			run(a, 5)
			run(b, 5)
			all := map[driver.Buffer][]byte{a: one, b: two}
			data, sums := read(t, w, f, at)
			for i, x := range at {
				if p := all[x.Buffer.(driver.Buffer)][x.Off:][:x.Len]; !bytes.Equal(p, data[i]) {
					t.Fatalf("round %d: extent %d, %v, is not as it was when it was frozen", round, i, x)
				}
			}
			compare(t, fmt.Sprint("round ", round), sums, want(all, at))
			f.Close()
			f.Close()
			one, two = scrambledAll(one, 5), scrambledAll(two, 5)
			if e := w.Engine; e.spare == nil || e.spare.buffer.Size() != 8<<20 {
				t.Fatalf("round %d: the room was not kept", round)
			}
		}
		w.Release()
		if w.spare != nil {
			t.Error("Release kept the room")
		}
	})
}

// TestLive_ReadsAndDigests reads memory that is not frozen, after the kernels
// before it.
func TestLive_ReadsAndDigests(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) {
		run := w.overwrite()
		one, two := random(9<<17, 5), random(9<<17, 6)
		a, b := w.buffer(one), w.buffer(two)
		run(a, 30)
		run(b, 30)
		at := scattered(a, b)
		f := must(w.Live(at))(t)
		defer f.Close()
		all := map[driver.Buffer][]byte{a: scrambledAll(one, 30), b: scrambledAll(two, 30)}
		data, sums := read(t, w, f, at)
		for i, x := range at {
			if p := all[x.Buffer.(driver.Buffer)][x.Off:][:x.Len]; !bytes.Equal(p, data[i]) {
				t.Fatalf("extent %d, %v, is not what kernels left", i, x)
			}
		}
		compare(t, "live", sums, want(all, at))
		if w.spare != nil {
			t.Error("Live took room")
		}
	})
}

// TestFreeze_TwoAtOnce shows that two snapshots can exist at the same time.
func TestFreeze_TwoAtOnce(t *testing.T) {
	onAll(t, func(t *testing.T, w *world) {
		run := w.overwrite()
		one := random(1<<20, 7)
		a := w.buffer(one)
		at := []mem.Extent{{Buffer: a, Len: 1 << 20, Block: 64 << 10}}
		f := must(w.Freeze(at))(t)
		run(a, 10)
		g := must(w.Freeze(at))(t)
		run(a, 10)
		later := scrambledAll(one, 10)
		for range 2 {
			if data, _ := read(t, w, g, at); !bytes.Equal(data[0], later) {
				t.Fatal("the second snapshot")
			}
			if data, _ := read(t, w, f, at); !bytes.Equal(data[0], one) {
				t.Fatal("the first snapshot")
			}
		}
		f.Close()
		g.Close()
	})
}

// TestFreeze_NoRoom shows that a snapshot which does not fit is reported, and
// that smaller ones still work.
func TestFreeze_NoRoom(t *testing.T) {
	dev := host.New(host.Options{Discrete: true, Memory: 10 << 20})
	t.Cleanup(func() { dev.Close() })
	w := newWorld(t, dev)
	data := random(4<<20, 8)
	a := w.buffer(data)
	at := []mem.Extent{{Buffer: a, Len: 4 << 20, Block: 64 << 10}}
	w.Reserve(20 << 20)
	if w.spare != nil {
		t.Fatal("there is more room than memory")
	}
	w.Reserve(3 << 20)
	w.Reserve(7 << 20) // replaces the spare room: not even that fits
	if w.spare == nil || w.spare.buffer.Size() != 3<<20 {
		t.Fatal("the old room is gone")
	}
	f := must(w.Freeze(at))(t) // replaces the spare room
	if _, err := w.Freeze(at); !errors.Is(err, mem.ErrNoRoom) || !errors.Is(err, driver.ErrMemory) {
		t.Fatalf("a second snapshot: %v", err)
	}
	if got, _ := read(t, w, f, at); !bytes.Equal(got[0], data) {
		t.Fatal("the snapshot is wrong")
	}
	f.Close()
	must(w.Freeze(at))(t).Close()
}

// TestFreeze_DeviceFull digests and drains a device without free memory,
// slowly.
func TestFreeze_DeviceFull(t *testing.T) {
	dev := host.New(host.Options{Discrete: true, Memory: 5<<20 + 50})
	t.Cleanup(func() { dev.Close() })
	w := newWorld(t, dev)
	data := random(5<<20+50, 10)
	a := w.buffer(data)
	w.Reserve(1)
	at := []mem.Extent{{Buffer: a, Len: 5<<20 + 50, Block: 64 << 10}, {Buffer: a, Off: 3, Len: 1000, Block: 100}, {Buffer: a, Block: 1}}
	all := map[driver.Buffer][]byte{a: data}
	compare(t, "full", must(digests(w.Engine, at))(t), want(all, at))
	if _, err := w.Freeze(at); !errors.Is(err, mem.ErrNoRoom) {
		t.Fatal(err)
	}
	f := must(w.Live(at))(t)
	defer f.Close()
	got, sums := read(t, w, f, at)
	if !bytes.Equal(got[0], data) {
		t.Error("the bytes are wrong")
	}
	compare(t, "live", sums, want(all, at))
}

// TestFreeze_LittleRoom has room for a snapshot, but not for a table.
func TestFreeze_LittleRoom(t *testing.T) {
	dev := host.New(host.Options{Discrete: true, Memory: 3 << 20})
	t.Cleanup(func() { dev.Close() })
	w := newWorld(t, dev)
	data := random(2<<20, 12)
	a := w.buffer(data)
	var at []mem.Extent
	for off := int64(0); off < 2<<20; off += 128 << 10 {
		at = append(at, mem.Extent{Buffer: a, Off: off, Len: 64 << 10, Block: 64 << 10})
	}
	f := must(w.Freeze(at))(t)
	if err := w.q.CopyIn(a, 0, make([]byte, 2<<20)); err != nil {
		t.Fatal(err)
	}
	got, sums := read(t, w, f, at)
	for i, x := range at {
		if !bytes.Equal(got[i], data[x.Off:][:x.Len]) {
			t.Fatalf("extent %d is wrong", i)
		}
	}
	compare(t, "little room", sums, want(map[driver.Buffer][]byte{a: data}, at))
	f.Close()
}
