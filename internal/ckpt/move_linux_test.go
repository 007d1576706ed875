package ckpt

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// farState is an array on devices, and something beside it.
type farState struct {
	a *fakeArray
	b []byte
}

func (s *farState) roots() []graph.Root {
	return []graph.Root{{Name: "a", Ptr: s.a}, {Name: "b", Ptr: &s.b}}
}

// TestMoveFar moves arrays that lie on devices and on the host.
func TestMoveFar(t *testing.T) {
	mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) { return newFakeArray(n).ptr, nil })
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 9))
			devs := []*fakeDevice{{}, {}}
			size := 4 * (1 + r.Int64N(6<<20))
			if r.IntN(4) == 0 {
				size = 4 * (1 + r.Int64N(900)) // goes with the metadata of a set
			}
			v := &farState{newFakeArray(size), make([]byte, 1<<20)}
			defer mem.Unreserve(v.a.ptr)
			w := &farState{a: new(fakeArray)}
			inPlace := r.IntN(2) == 0
			if inPlace {
				w.a = newFakeArray(size)
				defer mem.Unreserve(w.a.ptr)
				for i := range w.a.data {
					w.a.data[i] = 7
				}
			}
			for range 5 {
				v.a.change(r)
			}
			v.a.scatter(r, devs)
			m := newMoving(t, MoveOptions{BatchSize: []int64{1, 1 << 20, 64 << 20}[r.IntN(3)]}, w.roots())
			for range r.IntN(3) {
				m.ahead(v.roots())
				v.b[r.IntN(len(v.b))]++
				v.a.change(r)
				v.a.upload(false)
			}
			s := m.finish(v.roots())
			if !bytes.Equal(w.a.data, v.a.data) || !bytes.Equal(v.b, w.b) {
				t.Fatal("other values")
			}
			if s.State < size {
				t.Errorf("%+v", s)
			}
			if v.a.held.Load() != 0 {
				t.Error("something is still held")
			}
		})
	}
}

// TestMoveFarFails lets each call of a device fail: both ends end with an
// error, and nothing is left.
func TestMoveFarFails(t *testing.T) {
	mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) { return newFakeArray(n).ptr, nil })
	r := rand.New(rand.NewPCG(1, 9))
	v := &farState{newFakeArray(12 << 20), make([]byte, 1<<20)}
	defer mem.Unreserve(v.a.ptr)
	for i := range v.a.data {
		v.a.data[i] = byte(r.Uint32())
	}
	for fail := 1; ; fail++ {
		dev := &fakeDevice{fail: fail}
		v.a.where = []fakePart{{n: 12 << 20, dev: dev}}
		v.a.upload(true)
		a, b := tcpPair(t)
		g := NewSource(a, MoveOptions{BatchSize: 4 << 20})
		w := &farState{a: new(fakeArray)}
		done := receive(b, MoveOptions{}, fit(w.roots()))
		_, err := g.Finish(ctx, collect(t, v.roots()), nil, Note{}, nil)
		g.Close()
		got := <-done
		if dev.calls < fail {
			if err != nil || got.err != nil || fail < 6 {
				t.Fatal(fail, err, got.err)
			}
			return
		}
		if !errors.Is(err, errFake) || got.err == nil || !strings.Contains(got.err.Error(), "device fake: "+errFake.Error()) {
			t.Fatalf("call %d failed: the source says %v, the newcomer %v", fail, err, got.err)
		}
	}
}

// TestAheadGone gives memory back to the system that is being sent.
func TestAheadGone(t *testing.T) {
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
	g := NewSource(a, MoveOptions{})
	defer g.Close()
	done := receive(b, MoveOptions{}, fit([]graph.Root{{Name: "p", Ptr: new([]byte)}}))
	if err := g.Precopy(img); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(ctx); err == nil || !strings.Contains(err.Error(), "given back to the system") {
		t.Errorf("the source says %v", err)
	}
	if r := <-done; r.err == nil || !strings.Contains(r.err.Error(), "given back to the system") {
		t.Errorf("the newcomer says %v", r.err)
	}
	syscall.Munmap(p)
}
