package ckpt

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// nullDevice does nothing and returns at once, so that only the host's part is
// measured.
type nullDevice struct {
	*ckpttest.Device
	digests []xxh3.Uint128
	expect  []xxh3.Uint128
	changed []mem.Changed
}

func (d *nullDevice) Diff(at mem.Extent, most int) (mem.Diff, error) {
	if len(d.expect) != at.Blocks() {
		d.expect = make([]xxh3.Uint128, at.Blocks())
	}
	return d, nil
}

func (d *nullDevice) Expect() []xxh3.Uint128 { return d.expect }
func (d *nullDevice) Start() error           { return nil }
func (d *nullDevice) Close()                 {}

func (d *nullDevice) Wait() ([]mem.Changed, mem.Frozen, error) {
	if d.changed == nil {
		return nil, nil, nil
	}
	return d.changed, &nullFrozen{d}, nil
}

func (d *nullDevice) Freeze(at []mem.Extent) (mem.Frozen, error) { return &nullFrozen{d}, nil }

type nullFrozen struct{ d *nullDevice }

func (f *nullFrozen) Digests(i, lo, hi int) ([]xxh3.Uint128, error) { return f.d.digests[:hi-lo], nil }
func (f *nullFrozen) Read([]byte, int, int64) error                 { return nil }
func (f *nullFrozen) Mark() (func() error, error)                   { return func() error { return nil }, nil }
func (f *nullFrozen) Wait() error                                   { return nil }
func (f *nullFrozen) Close()                                        {}

// nullArray is an array of any size on a nullDevice.
type nullArray struct {
	dev     mem.Device
	n       int64
	version uint64
	ptr     unsafe.Pointer
}

func (a *nullArray) CairnState(c *graph.Coder) error {
	cells := unsafe.Slice((*ckpttest.Cell)(a.ptr), a.n/4)
	graph.Field(c, "data", &cells)
	return nil
}
func init() { graph.DescribeMemory((*nullArray).addresses) }

func (a *nullArray) addresses() (unsafe.Pointer, int64)  { return a.ptr, a.n }
func (a *nullArray) Shape() []uint64                     { return []uint64{uint64(a.n / 4)} }
func (a *nullArray) Host(lo, hi int64) ([]byte, error)   { panic("host") }
func (a *nullArray) Target(lo, hi int64) ([]byte, error) { panic("host") }
func (a *nullArray) Fill(off int64, p []byte) error      { return nil }
func (a *nullArray) Places(lo, hi int64) ([]mem.Place, error) {
	return []mem.Place{{Len: hi - lo, Device: a.dev, Off: lo, Version: a.version}}, nil
}

// BenchmarkPause_Devices measures the host's part of the pause.
func BenchmarkPause_Devices(b *testing.B) {
	for _, gib := range []int64{1, 8, 64} {
		for _, mode := range []string{"all", "few", "none"} {
			b.Run(fmt.Sprintf("%dGiB/%s", gib, mode), func(b *testing.B) {
				n := gib << 30
				dev := &nullDevice{Device: &ckpttest.Device{}, digests: make([]xxh3.Uint128, n>>16)}
				a := &nullArray{dev: dev, n: n}
				var err error
				if a.ptr, err = mem.Reserve(a, n); err != nil {
					b.Fatal(err)
				}
				defer mem.Unreserve(a.ptr)
				dir, err := store.Create(vfstest.Discard(nil), "/ckpt", 0)
				if err != nil {
					b.Fatal(err)
				}
				defer dir.Close()
				s, err := NewSaver(dir, nil, Options{NoTracking: true})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				var col graph.Collector
				roots := []graph.Root{{Name: "a", Ptr: a}}
				seed := uint64(0)
				change := func(every int) {
					seed++
					a.version++
					dev.changed = dev.changed[:0]
					for i := 0; i < len(dev.digests); i += every {
						dev.digests[i] = xxh3.Uint128{Lo: seed, Hi: uint64(i)}
						dev.changed = append(dev.changed, mem.Changed{Block: uint64(i), Digest: dev.digests[i]})
					}
				}
				change(1)
				save := func() {
					s.Prefetch()
					img, err := col.Collect(roots, nil)
					if err == nil {
						_, err = s.Save(ctx, img, nil, Note{})
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				finish := func() {
					r := <-s.Done()
					if s.Collect(r); r.Err != nil {
						b.Fatal(r.Err)
					}
				}
				s.prev = nil
				save()
				finish()
				if mode != "all" {
					change(100)
					save()
					finish()
				}
				for b.Loop() {
					b.StopTimer()
					switch mode {
					case "all":
						s.prev = nil
						a.version++
					case "few":
						change(100)
					}
					b.StartTimer()
					save()
					b.StopTimer()
					finish()
					b.StartTimer()
				}
			})
		}
	}
}
