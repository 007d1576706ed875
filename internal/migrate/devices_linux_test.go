package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// arrayState is an array on devices and a slice.
type arrayState struct {
	a *ckpttest.Array
	b []byte
}

func (s *arrayState) roots() []graph.Root {
	return []graph.Root{{Name: "a", Ptr: s.a}, {Name: "b", Ptr: &s.b}}
}

// TestMigrate_OnDevices migrates arrays on devices and on the host.
func TestMigrate_OnDevices(t *testing.T) {
	mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) { return ckpttest.NewArray(n).Ptr, nil })
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			devs := []*ckpttest.Device{{}, {}}
			size := 4 * (1 + r.Int64N(6<<20))
			if r.IntN(4) == 0 {
				size = 4 * (1 + r.Int64N(900)) // goes with the metadata of a checkpoint
			}
			v := &arrayState{ckpttest.NewArray(size), make([]byte, 1<<20)}
			defer mem.Unreserve(v.a.Ptr)
			w := &arrayState{a: new(ckpttest.Array)}
			inPlace := r.IntN(2) == 0
			if inPlace {
				w.a = ckpttest.NewArray(size)
				defer mem.Unreserve(w.a.Ptr)
				for i := range w.a.Data {
					w.a.Data[i] = 7
				}
			}
			for range 5 {
				v.a.Change(r)
			}
			v.a.Scatter(r, devs)
			m := newMigration(t, Options{BatchSize: []int64{1, 1 << 20, 64 << 20}[r.IntN(3)]}, w.roots())
			for range r.IntN(3) {
				m.precopy(v.roots())
				v.b[r.IntN(len(v.b))]++
				v.a.Change(r)
				v.a.Upload(false)
			}
			s := m.finish(v.roots())
			if !bytes.Equal(w.a.Data, v.a.Data) || !bytes.Equal(v.b, w.b) {
				t.Fatal("other values")
			}
			if s.State < size {
				t.Errorf("%+v", s)
			}
			if v.a.Guarded.Load() != 0 {
				t.Error("something is still held")
			}
		})
	}
}

// TestMigrate_DeviceFails lets each call of a device fail: both ends return an
// error.
func TestMigrate_DeviceFails(t *testing.T) {
	mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) { return ckpttest.NewArray(n).Ptr, nil })
	r := rand.New(rand.NewPCG(1, 9))
	v := &arrayState{ckpttest.NewArray(12 << 20), make([]byte, 1<<20)}
	defer mem.Unreserve(v.a.Ptr)
	for i := range v.a.Data {
		v.a.Data[i] = byte(r.Uint32())
	}
	for fail := 1; ; fail++ {
		dev := &ckpttest.Device{Fail: fail}
		v.a.Parts = []ckpttest.Part{{Len: 12 << 20, Dev: dev}}
		v.a.Upload(true)
		a, b := tcpPair(t)
		g := NewSource(a, Options{BatchSize: 4 << 20})
		w := &arrayState{a: new(ckpttest.Array)}
		done := receive(b, Options{}, fit(w.roots()))
		_, err := g.Finish(ctx, collect(t, v.roots()), nil, ckpt.Note{}, nil)
		g.Close()
		got := <-done
		if dev.Calls < fail {
			if err != nil || got.err != nil || fail < 6 {
				t.Fatal(fail, err, got.err)
			}
			return
		}
		if !errors.Is(err, ckpttest.ErrDevice) || got.err == nil || !strings.Contains(got.err.Error(), "device fake: "+ckpttest.ErrDevice.Error()) {
			t.Fatalf("call %d failed: the source says %v, the destination %v", fail, err, got.err)
		}
	}
}

// TestPrecopy_MemoryGone unmaps memory while it is sent.
func TestPrecopy_MemoryGone(t *testing.T) {
	p, err := syscall.Mmap(-1, 0, 4<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p {
		p[i] = byte(i)
	}
	roots := []graph.Root{{Name: "p", Ptr: &p}}
	img := collect(t, roots)
	if err := syscall.Mprotect(p, syscall.PROT_NONE); err != nil { // as if it were gone
		t.Fatal(err)
	}
	a, b := tcpPair(t)
	g := NewSource(a, Options{})
	defer g.Close()
	done := receive(b, Options{}, fit([]graph.Root{{Name: "p", Ptr: new([]byte)}}))
	if err := g.Precopy(img); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(ctx); err == nil || !strings.Contains(err.Error(), "given back to the system") {
		t.Errorf("the source says %v", err)
	}
	if r := <-done; r.err == nil || !strings.Contains(r.err.Error(), "given back to the system") {
		t.Errorf("the destination says %v", r.err)
	}
	syscall.Munmap(p)
}
