package device

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"
)

// TestRaw_HostNotGuarded shows that a checkpoint copies raw host memory at
// once, even after a launch that reads it, because others may write it at any
// time.
func TestRaw_HostNotGuarded(t *testing.T) {
	d := discrete(t, 0, 0)
	p := heap[byte](4000)
	a, err := rawOn[uint32]([]*Device{d}, uintptr(unsafe.Pointer(&p[0])), []int{1000})
	must(t, err)
	nothing := NewKernel("", "nothing", func(*Work) {})
	must(t, d.Launch(nothing, Size{1}, In(a)))
	places, err := a.h.m.Places(0, 4000)
	if err != nil || len(places) != 1 || places[0].Host == nil || places[0].Guard != nil {
		t.Fatal(places, err)
	}
}

// TestGuard_Random runs random operations on an array while a checkpoint reads
// parts of it. The parts do not change, and all operations continue after the
// release.
func TestGuard_Random(t *testing.T) {
	discreteDev := discrete(t, 0, 0)
	sharedDev := shared(t, 1)
	const n = 64 // elements
	inc := NewKernel("", "inc", func(w *Work) {
		x := Slice[uint32](w, 0)
		for i, hi := w.Range(0); i < min(hi, len(x)); i++ {
			x[i]++
		}
	})
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		a := New[uint32](n)
		view := func() *Array[uint32] {
			lo := r.IntN(n)
			return a.Rows(lo, lo+1+r.IntN(n-lo))
		}
		type op struct {
			name string
			do   func() error
		}
		pick := func(free bool) op {
			v, word := view(), r.Uint32()
			size := v.hi - v.lo
			fill := func(p []byte) {
				for i := range p {
					p[i] = byte(word) + byte(i)
				}
			}
			ops := []op{
				{"Data", func() error {
					p, err := v.Data()
					for i := range p {
						p[i] = word
					}
					return err
				}},
				{"Read", func() error { _, err := v.Read(); return err }},
				{"Update", func() error {
					return v.Update(func(p []uint32) {
						for i := range p {
							p[i] = word
						}
					})
				}},
				{"discreteDev in", func() error { return discreteDev.Launch(inc, Size{1}, InOut(New[uint32](1)), In(v)) }},
				{"discreteDev", func() error { return discreteDev.Launch(inc, Size{n}, InOut(v)) }},
				{"sharedDev", func() error { return sharedDev.Launch(inc, Size{n}, InOut(v)) }},
				{"Fill", func() error {
					p := make([]byte, size)
					fill(p)
					return a.h.m.Fill(v.lo, p)
				}},
				{"Target", func() error {
					p, err := a.h.m.Target(v.lo, v.hi)
					fill(p)
					return err
				}},
				{"evict", func() error { discreteDev.evict(nil, false); return nil }},
				{"prefer", func() error { v.Prefer(sharedDev); return nil }},
				{"Free", func() error { a.Free(); return nil }},
			}
			if !free {
				ops = ops[:len(ops)-1]
			}
			return ops[r.IntN(len(ops))]
		}
		for range 4 + r.IntN(8) {
			must(t, pick(false).do())
		}
		places, err := a.h.m.Places(0, 4*n)
		must(t, err)
		var locked, were [][]byte
		var release []func()
		for _, p := range places {
			if p.Guard != nil {
				locked, were = append(locked, p.Host), append(were, bytes.Clone(p.Host))
				release = append(release, p.Guard(nil))
			}
		}
		var names []string
		todo := make([]op, 4)
		for i := range todo {
			todo[i] = pick(i == len(todo)-1)
			names = append(names, todo[i].name)
		}
		done := make(chan error, 1)
		go func() {
			for _, o := range todo {
				if err := o.do(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		ended := false
		select {
		case err := <-done:
			must(t, err)
			ended = true
		case <-time.After(5 * time.Millisecond):
		}
		for i := range locked {
			if !bytes.Equal(locked[i], were[i]) {
				t.Fatalf("seed %d: %v changed bytes that a checkpoint reads", seed, names)
			}
			release[i]()
		}
		if !ended {
			must(t, <-done)
		}
		if !a.h.m.freed {
			must(t, a.h.m.sound())
		}
	}
}
