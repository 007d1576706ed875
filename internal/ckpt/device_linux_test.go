package ckpt

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// A device made of host memory, which counts what crosses the bus, and fails
// when asked to.

var errFake = errors.New("the fake device failed")

type fakeDevice struct {
	mu    sync.Mutex
	room  int64
	read  int64 // bytes
	froze int64
	calls int
	fail  int // the call that fails, and all after it
	open  int // sieves and what is frozen
	over  int // sieves with too much in them
}

func (d *fakeDevice) call() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls++; d.fail > 0 && d.calls >= d.fail {
		return errFake
	}
	return nil
}

func (d *fakeDevice) Name() string       { return "fake" }
func (d *fakeDevice) Pin(p []byte) error { return d.call() }
func (d *fakeDevice) Unpin(p []byte)     {}
func (d *fakeDevice) Reserve(int64)      {}

func fakeDigests(b []byte, block int64) (out []xxh3.Uint128) {
	for len(b) > 0 {
		n := min(int64(len(b)), block)
		out = append(out, mem.Digest(b[:n]))
		b = b[n:]
	}
	return out
}

func (d *fakeDevice) Diff(at mem.Extent, most int) (mem.Diff, error) {
	if d.room == 0 {
		return nil, mem.ErrNoRoom
	}
	if err := d.call(); err != nil {
		return nil, err
	}
	data := (*at.Buffer.(*[]byte))[at.Off : at.Off+at.Len]
	d.open++
	return &fakeDiff{d: d, at: at, most: most, data: data, sums: fakeDigests(data, at.Block), expect: make([]xxh3.Uint128, at.Blocks())}, nil
}

type fakeDiff struct {
	d            *fakeDevice
	at           mem.Extent
	most         int
	data         []byte
	sums, expect []xxh3.Uint128
	list         []mem.Changed
	frozen       *fakeFrozen
}

func (v *fakeDiff) Expect() []xxh3.Uint128 { return v.expect }

func (v *fakeDiff) Start() error {
	var copies []byte
	for _, i := range rand.Perm(len(v.sums)) {
		sum := v.sums[i]
		if sum == v.expect[i] {
			continue
		}
		p := make([]byte, v.at.Block)
		copy(p, v.data[int64(i)*v.at.Block:])
		copies = append(copies, p...)
		v.list = append(v.list, mem.Changed{Block: uint64(i), Digest: sum})
	}
	err := v.d.call()
	if err == nil && int64(v.most)*v.at.Block > v.d.room {
		err = mem.ErrNoRoom
	}
	if err != nil {
		v.Close()
		return err
	}
	if len(v.list) > 0 && len(v.list) <= v.most {
		v.frozen = &fakeFrozen{d: v.d, data: [][]byte{copies}, block: []int64{v.at.Block}}
		v.d.froze += int64(len(copies))
	}
	return nil
}

func (v *fakeDiff) Wait() ([]mem.Changed, mem.Frozen, error) {
	defer v.Close()
	if len(v.list) > v.most {
		v.d.over++
		return nil, nil, mem.ErrNoRoom
	}
	if err := v.d.call(); v.frozen == nil || err != nil {
		return nil, nil, err
	}
	v.d.open++
	return v.list, v.frozen, nil
}

func (v *fakeDiff) Close() {
	if v.d != nil {
		v.d.open--
		v.d = nil
	}
}

func (d *fakeDevice) Freeze(at []mem.Extent) (mem.Frozen, error) {
	f := &fakeFrozen{d: d}
	n := int64(0)
	for _, e := range at {
		n += e.Len
		f.data = append(f.data, bytes.Clone((*e.Buffer.(*[]byte))[e.Off:e.Off+e.Len]))
		f.block = append(f.block, e.Block)
	}
	if n > d.room {
		return nil, mem.ErrNoRoom
	}
	if err := d.call(); err != nil {
		return nil, err
	}
	d.froze += n
	d.open++
	return f, nil
}

func (d *fakeDevice) Live(at []mem.Extent) (mem.Frozen, error) {
	f := &fakeFrozen{d: d}
	for _, e := range at {
		f.data = append(f.data, (*e.Buffer.(*[]byte))[e.Off:e.Off+e.Len])
		f.block = append(f.block, e.Block)
	}
	if err := d.call(); err != nil {
		return nil, err
	}
	d.open++
	return f, nil
}

type fakeFrozen struct {
	d     *fakeDevice
	data  [][]byte
	block []int64
	under []chan struct{} // copies; closed when done
}

func (f *fakeFrozen) Wait() error { return f.d.call() }

func (f *fakeFrozen) Digests(i, lo, hi int) ([]xxh3.Uint128, error) {
	b := f.data[i]
	return fakeDigests(b[int64(lo)*f.block[i]:min(int64(hi)*f.block[i], int64(len(b)))], f.block[i]), f.d.call()
}

func (f *fakeFrozen) Read(dst []byte, i int, off int64) error {
	f.d.read += int64(len(dst))
	done := make(chan struct{})
	f.under = append(f.under, done)
	go func() {
		defer close(done)
		copy(dst, f.data[i][off:off+int64(len(dst))])
	}()
	return f.d.call()
}

func (f *fakeFrozen) Mark() (func() error, error) {
	under := f.under[:len(f.under):len(f.under)]
	return func() error { await(under); return f.d.call() }, f.d.call()
}

func (f *fakeFrozen) Close() {
	await(f.under)
	if f.d != nil {
		f.d.open--
		f.d = nil
	}
}

func await(list []chan struct{}) {
	for _, done := range list {
		<-done
	}
}

// fakeArray is a variable of bytes that lie here and there.
type fakeArray struct {
	data  []byte // what it holds; devices see other memory with the same content
	where []fakePart
	ptr   unsafe.Pointer
	held  atomic.Int64 // parts that must stand still
	yield []func([]byte)
}

type fakePart struct {
	n       int64
	dev     *fakeDevice // nil: host
	buf     []byte
	version uint64
	still   bool // a host copy that the program does not change
}

type fakeCell struct{ V float32 }

func (fakeCell) CairnCell() {}

func (a *fakeArray) CairnState(c *graph.Coder) error {
	var cells []fakeCell
	if !c.Restoring() {
		cells = unsafe.Slice((*fakeCell)(a.ptr), len(a.data)/4)
	}
	graph.Field(c, "data", &cells)
	if c.Restoring() && len(cells) > 0 {
		r, _ := mem.FindRemote(unsafe.Pointer(&cells[0]))
		a.data = r.(*fakeArray).data
	}
	return nil
}

func (a *fakeArray) CairnMemory() (unsafe.Pointer, int64) { return a.ptr, int64(len(a.data)) }

func (a *fakeArray) Shape() []uint64 { return []uint64{uint64(len(a.data) / 4)} }

func (a *fakeArray) Places(lo, hi int64) (out []mem.Place, err error) {
	at := int64(0)
	for i := range a.where {
		w := &a.where[i]
		l, h := max(lo, at), min(hi, at+w.n)
		if l < h {
			p := mem.Place{Len: h - l, Version: w.version}
			if w.dev == nil {
				p.Host = a.data[l:h]
				if w.still {
					p.Guard = func(yield func([]byte)) func() {
						a.held.Add(1)
						a.yield = append(a.yield, yield)
						return func() { a.held.Add(-1) }
					}
				}
			} else {
				p.Device, p.Buffer, p.Off = w.dev, &w.buf, l-at
			}
			out = append(out, p)
		}
		at += w.n
	}
	return out, nil
}

func (a *fakeArray) Host(lo, hi int64) ([]byte, error)   { return a.data[lo:hi], nil }
func (a *fakeArray) Target(lo, hi int64) ([]byte, error) { return a.data[lo:hi], nil }
func (a *fakeArray) Fill(off int64, p []byte) error      { copy(a.data[off:], p); return nil }

func newFakeArray(n int64) *fakeArray {
	a := &fakeArray{data: make([]byte, n)}
	var err error
	if a.ptr, err = mem.Reserve(a, n); err != nil {
		panic(err)
	}
	return a
}

var fakeVersion uint64

// scatter puts the bytes somewhere, and devices' copies up to date.
func (a *fakeArray) scatter(r *rand.Rand, devs []*fakeDevice) {
	a.where = nil
	for left := int64(len(a.data)); left > 0; {
		n := left
		if r.IntN(3) > 0 {
			n = min(left, 4*(1+r.Int64N(100_000)))
		}
		w := fakePart{n: n}
		if k := r.IntN(len(devs) + 2); k < len(devs) {
			w.dev = devs[k]
		} else if w.still = k == len(devs); w.still {
			fakeVersion++
			w.version = fakeVersion
		}
		a.where = append(a.where, w)
		left -= n
	}
	a.upload(true)
}

// upload gives devices the present content; kernels wrote it.
func (a *fakeArray) upload(all bool) {
	at := int64(0)
	for i := range a.where {
		w := &a.where[i]
		if now := a.data[at : at+w.n]; (w.dev != nil || w.still) && (all || !bytes.Equal(w.buf, now)) {
			fakeVersion++
			w.buf, w.version = bytes.Clone(now), fakeVersion
		}
		at += w.n
	}
}

func (a *fakeArray) change(r *rand.Rand) {
	for range r.IntN(4) {
		lo := r.IntN(len(a.data))
		p := a.data[lo:min(len(a.data), lo+1+r.IntN(200_000))]
		switch r.IntN(3) {
		case 0:
			clear(p)
		default:
			for i := range p {
				p[i] = byte(r.Uint32())
			}
		}
	}
}

func restoreFake(t testing.TB, dir *store.Dir, set uint64, size int64, inPlace bool) *fakeArray {
	t.Helper()
	mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) { return newFakeArray(n).ptr, nil })
	s, err := Open(dir.FS(), dir.File(set))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if bad, err := s.Verify(ctx, nil); err != nil || len(bad) > 0 {
		t.Fatal(bad, err)
	}
	img, err := s.Image()
	if err != nil {
		t.Fatal(err)
	}
	b := new(fakeArray)
	if inPlace {
		b = newFakeArray(size)
		defer mem.Unreserve(b.ptr)
	}
	if err := s.Load(ctx, img, []graph.Root{{Name: "a", Ptr: b}}, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFar saves an array that lies on devices and on the host, changes it, and
// saves again; every set holds what it held then.
func TestFar(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		over := 0
		for seed := range uint64(12) {
			r := rand.New(rand.NewPCG(seed, 7))
			devs := []*fakeDevice{{room: 1 << 30}, {room: r.Int64N(3 << 20)}}
			fsys := vfs.NewMem()
			dir, err := store.Create(fsys, "/ckpt", 0)
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{MaxBases: 1 + r.IntN(3), Compression: []Compression{None, Zstd}[r.IntN(2)]}
			if r.IntN(2) == 0 {
				opts.Memory = 8 << 20
			}
			h.open(t, fsys, &opts)
			s, err := NewSaver(dir, nil, opts)
			if err != nil {
				t.Fatal(err)
			}
			size := 4 * (1 + r.Int64N(3<<20))
			a := newFakeArray(size)
			a.change(r)
			a.scatter(r, devs)
			for step := range 8 {
				if r.IntN(2) == 0 {
					s.Prefetch()
					switch r.IntN(3) {
					case 0: // in vain
						a.change(r)
						a.upload(false)
					case 1: // it moves, and nothing is written
						a.where = slices.Clone(a.where)
						for i := range a.where {
							old := a.where[i].buf
							a.where[i].buf = bytes.Clone(old)
							clear(old)
						}
					}
				}
				img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				set, err := s.Save(ctx, img, nil, Note{})
				if err != nil {
					t.Fatal(err)
				}
				want := bytes.Clone(a.data)
				for _, w := range a.where { // the program goes on
					clear(w.buf)
				}
				res := <-s.Done()
				s.Collect(res)
				if res.Err != nil || a.held.Load() != 0 {
					t.Fatal(res.Err, a.held.Load())
				}
				at := int64(0)
				for i, w := range a.where { // … and has the same values again: no kernel ran
					copy(a.where[i].buf, a.data[at:at+w.n])
					at += w.n
				}
				b := restoreFake(t, dir, set, size, step%2 == 0)
				if !bytes.Equal(b.data, want) {
					t.Fatalf("seed %d, step %d: other values", seed, step)
				}
				a.change(r)
				if step == 5 {
					for i := range a.data { // more than before
						a.data[i]++
					}
				}
				if r.IntN(3) == 0 {
					a.scatter(r, devs)
				} else {
					a.upload(false)
				}
			}
			s.Close()
			dir.Close()
			mem.Unreserve(a.ptr)
			for i, d := range devs {
				if over += d.over; d.open != 0 {
					t.Fatalf("seed %d: device %d has %d things open", seed, i, d.open)
				}
			}
		}
		if over == 0 {
			t.Error("no sieve had too much in it")
		}
	})
}

// TestFarMovesLittle saves an array on a device of which little changes.
func TestFarMovesLittle(t *testing.T) {
	dev := &fakeDevice{room: 1 << 30}
	dir, err := store.Create(vfs.NewMem(), "/ckpt", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, err := NewSaver(dir, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := newFakeArray(64 << 20)
	defer mem.Unreserve(a.ptr)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range a.data[:32<<20] { // half of it stays zero
		a.data[i] = byte(r.Uint32()) | 1
	}
	a.where = []fakePart{{n: 64 << 20, dev: dev}}
	a.upload(true)
	save := func() {
		t.Helper()
		img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
		if err == nil {
			_, err = s.Save(ctx, img, nil, Note{})
		}
		if err != nil {
			t.Fatal(err)
		}
		res := <-s.Done()
		if s.Collect(res); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	for i, want := range []int64{32 << 20, 64 << 10, 64 << 10, 0, 0} {
		dev.read, dev.froze = 0, 0
		save()
		if dev.read != want {
			t.Errorf("save %d moved %d bytes, want %d", i, dev.read, want)
		}
		if i > 1 && dev.froze != want {
			t.Errorf("save %d froze %d bytes, want %d", i, dev.froze, want)
		}
		switch i {
		case 0, 1:
			a.data[i<<20]++
			a.upload(false)
		case 2:
			a.upload(true) // kernels wrote what was there
		}
	}
}

// TestFarFails lets every call of the device fail in turn: the save fails, no
// segment is lost, and what was saved before is intact.
func TestFarFails(t *testing.T) {
	for _, room := range []int64{1 << 30, 0} {
		for fail := 1; ; fail++ {
			dev := &fakeDevice{room: room}
			dir, err := store.Create(vfs.NewMem(), "/ckpt", 0)
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSaver(dir, nil, Options{Memory: 16 << 20})
			if err != nil {
				t.Fatal(err)
			}
			a := newFakeArray(20 << 20)
			r := rand.New(rand.NewPCG(1, 2))
			for i := 0; i < len(a.data); i += 1000 {
				a.data[i] = byte(r.Uint32())
			}
			a.where = []fakePart{{n: 10 << 20, dev: dev}, {n: 10 << 20}}
			a.upload(true)
			save := func() error {
				img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
				if err == nil {
					_, err = s.Save(ctx, img, nil, Note{})
				}
				if err != nil {
					return err
				}
				res := <-s.Done()
				s.Collect(res)
				return res.Err
			}
			for range 2 { // the device sifts from the third on
				a.data[3]++
				a.upload(false)
				if err := save(); err != nil {
					t.Fatal(err)
				}
			}
			want := bytes.Clone(a.data)
			a.data[5]++
			a.upload(false)
			dev.calls, dev.fail = 0, fail
			err = save()
			calls := dev.calls
			if err != nil && !errors.Is(err, errFake) || err == nil && calls >= fail {
				t.Fatalf("call %d: %v", fail, err)
			}
			if n := len(s.staging.Free()) + len(s.staging.Ring()); n != s.staging.Len() {
				t.Fatalf("call %d: %d of %d segments came back", fail, n, s.staging.Len())
			}
			if dev.open != 0 {
				t.Fatalf("call %d: %d things are open", fail, dev.open)
			}
			if err != nil {
				if b := restoreFake(t, dir, 2, 0, false); !bytes.Equal(b.data, want) {
					t.Fatal("the set before has other values")
				}
			}
			dev.fail = 0
			a.data[7]++
			a.upload(false)
			if err := save(); err != nil {
				t.Fatal(err)
			}
			if b := restoreFake(t, dir, s.Next()-1, 0, false); !bytes.Equal(b.data, a.data) {
				t.Fatalf("call %d: the next set has other values", fail)
			}
			s.Close()
			dir.Close()
			mem.Unreserve(a.ptr)
			if calls < fail {
				break
			}
		}
	}
}
