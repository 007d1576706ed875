package ckpt

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

func restoreFake(t testing.TB, dir *store.Dir, index uint64, size int64, inPlace bool) *ckpttest.Array {
	t.Helper()
	mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) { return ckpttest.NewArray(n).Ptr, nil })
	s, err := Open(dir.FS(), dir.File(index))
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
	b := new(ckpttest.Array)
	if inPlace {
		b = ckpttest.NewArray(size)
		defer mem.Unreserve(b.Ptr)
	}
	if err := s.Load(ctx, img, []graph.Root{{Name: "a", Ptr: b}}, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSave_OnDevices saves an array on devices and on the host, changes it, and
// saves again, several times. Every checkpoint must have the values of its
// time.
func TestSave_OnDevices(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		over, first, last := 0, uint64(4), uint64(6) // the diff of 6 has too much in it
		if os.Getenv("CAIRN_LONG") != "" {
			first, last = 0, 11
		}
		for seed := first; seed <= last; seed++ {
			r := rand.New(rand.NewPCG(seed, 7))
			devs := []*ckpttest.Device{{Room: 1 << 30}, {Room: r.Int64N(3 << 20)}}
			fsys := vfstest.NewMem()
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
			a := ckpttest.NewArray(size)
			a.Change(r)
			a.Scatter(r, devs)
			for step := range 8 {
				if r.IntN(2) == 0 {
					s.Prefetch()
					switch r.IntN(3) {
					case 0: // without effect
						a.Change(r)
						a.Upload(false)
					case 1: // move the data; nothing is written
						a.Parts = slices.Clone(a.Parts)
						for i := range a.Parts {
							old := a.Parts[i].Buf
							a.Parts[i].Buf = bytes.Clone(old)
							clear(old)
						}
					}
				}
				img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				index, err := s.Save(ctx, img, nil, Note{})
				if err != nil {
					t.Fatal(err)
				}
				want := bytes.Clone(a.Data)
				for _, w := range a.Parts { // the program continues and changes the data
					clear(w.Buf)
				}
				res := <-s.Done()
				s.Collect(res)
				if res.Err != nil || a.Guarded.Load() != 0 {
					t.Fatal(res.Err, a.Guarded.Load())
				}
				at := int64(0)
				for i, w := range a.Parts { // restore the values: no kernel ran
					copy(a.Parts[i].Buf, a.Data[at:at+w.Len])
					at += w.Len
				}
				b := restoreFake(t, dir, index, size, step%2 == 0)
				if !bytes.Equal(b.Data, want) {
					t.Fatalf("seed %d, step %d: other values", seed, step)
				}
				a.Change(r)
				if step == 5 {
					for i := range a.Data { // change more than before
						a.Data[i]++
					}
				}
				if r.IntN(3) == 0 {
					a.Scatter(r, devs)
				} else {
					a.Upload(false)
				}
			}
			s.Close()
			dir.Close()
			mem.Unreserve(a.Ptr)
			for i, d := range devs {
				if over += d.Over; d.Open != 0 {
					t.Fatalf("seed %d: device %d has %d things open", seed, i, d.Open)
				}
			}
		}
		if over == 0 {
			t.Error("no diff had too much in it")
		}
	})
}

// TestSave_OnDevicesCopiesOnlyChanges saves an array on a device when little
// has changed.
func TestSave_OnDevicesCopiesOnlyChanges(t *testing.T) {
	dev := &ckpttest.Device{Room: 1 << 30}
	dir, err := store.Create(vfstest.NewMem(), "/ckpt", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, err := NewSaver(dir, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a := ckpttest.NewArray(64 << 20)
	defer mem.Unreserve(a.Ptr)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range a.Data[:32<<20] { // the other half stays zero
		a.Data[i] = byte(r.Uint32()) | 1
	}
	a.Parts = []ckpttest.Part{{Len: 64 << 20, Dev: dev}}
	a.Upload(true)
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
		dev.Read, dev.Froze = 0, 0
		save()
		if dev.Read != want {
			t.Errorf("save %d moved %d bytes, want %d", i, dev.Read, want)
		}
		if i > 1 && dev.Froze != want {
			t.Errorf("save %d froze %d bytes, want %d", i, dev.Froze, want)
		}
		switch i {
		case 0, 1:
			a.Data[i<<20]++
			a.Upload(false)
		case 2:
			a.Upload(true) // kernels write the same values again
		}
	}
}

// TestSave_DeviceFails makes every call of the device fail in turn. The save
// must fail, no segment may be lost, and earlier checkpoints must be intact.
func TestSave_DeviceFails(t *testing.T) {
	for _, room := range []int64{1 << 30, 0} {
		for fail := 1; ; fail++ {
			dev := &ckpttest.Device{Room: room}
			dir, err := store.Create(vfstest.NewMem(), "/ckpt", 0)
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSaver(dir, nil, Options{Memory: 16 << 20})
			if err != nil {
				t.Fatal(err)
			}
			a := ckpttest.NewArray(20 << 20)
			r := rand.New(rand.NewPCG(1, 2))
			for i := 0; i < len(a.Data); i += 1000 {
				a.Data[i] = byte(r.Uint32())
			}
			a.Parts = []ckpttest.Part{{Len: 10 << 20, Dev: dev}, {Len: 10 << 20}}
			a.Upload(true)
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
			for range 2 { // the device diffs from the third save on
				a.Data[3]++
				a.Upload(false)
				if err := save(); err != nil {
					t.Fatal(err)
				}
			}
			want := bytes.Clone(a.Data)
			a.Data[5]++
			a.Upload(false)
			dev.Calls, dev.Fail = 0, fail
			err = save()
			calls := dev.Calls
			if err != nil && !errors.Is(err, ckpttest.ErrDevice) || err == nil && calls >= fail {
				t.Fatalf("call %d: %v", fail, err)
			}
			if n := len(s.staging.Free()) + len(s.staging.Ring()); n != s.staging.Len() {
				t.Fatalf("call %d: %d of %d segments came back", fail, n, s.staging.Len())
			}
			if dev.Open != 0 {
				t.Fatalf("call %d: %d things are open", fail, dev.Open)
			}
			if err != nil {
				if b := restoreFake(t, dir, 2, 0, false); !bytes.Equal(b.Data, want) {
					t.Fatal("the checkpoint before has other values")
				}
			}
			dev.Fail = 0
			a.Data[7]++
			a.Upload(false)
			if err := save(); err != nil {
				t.Fatal(err)
			}
			if b := restoreFake(t, dir, s.Next()-1, 0, false); !bytes.Equal(b.Data, a.Data) {
				t.Fatalf("call %d: the next checkpoint has other values", fail)
			}
			s.Close()
			dir.Close()
			mem.Unreserve(a.Ptr)
			if calls < fail {
				break
			}
		}
	}
}
