package device

import (
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/driver/host"
)

// TestGuard_WhileCheckpointReads shows that neither the program nor a kernel
// changes host memory while a checkpoint reads it.
func TestGuard_WhileCheckpointReads(t *testing.T) {
	discreteDev, err := newDevice(host.New(host.Options{Discrete: true}))
	if err != nil {
		t.Fatal(err)
	}
	sharedDev, err := newDevice(host.New(host.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	k := NewKernel("", "inc", func(w *Work) {
		x := Slice[uint32](w, 0)
		lo, hi := w.Range(0)
		for i := lo; i < min(hi, len(x)); i++ {
			x[i]++
		}
	})
	sum := NewKernel("", "nothing", func(*Work) {})
	for name, change := range map[string]func(a *Array[uint32]) error{
		"Update": func(a *Array[uint32]) error { return a.Update(func(v []uint32) { v[0] = 99 }) },
		"the program": func(a *Array[uint32]) error {
			v, err := a.Data()
			if err == nil {
				v[0] = 99
			}
			return err
		},
		"a kernel": func(a *Array[uint32]) error { return sharedDev.Launch(k, Size{1000}, InOut(a)) },
	} {
		t.Run(name, func(t *testing.T) {
			a := New[uint32](1000)
			v, err := a.Data()
			if err != nil {
				t.Fatal(err)
			}
			for i := range v {
				v[i] = uint32(i)
			}
			if places, err := a.h.m.Places(0, 4000); err != nil || len(places) != 1 || places[0].Guard != nil {
				t.Fatal("what only the host has may be changed at any time", places, err)
			}
			if err := discreteDev.Launch(sum, Size{1000}, In(a)); err != nil {
				t.Fatal(err)
			}
			places, err := a.h.m.Places(0, 4000)
			if err != nil || len(places) != 1 || places[0].Guard == nil || places[0].Host == nil {
				t.Fatal(places, err)
			}
			release := places[0].Guard(nil)
			changed := make(chan error, 1)
			go func() { changed <- change(a) }()
			select {
			case <-changed:
				t.Fatal("it was changed while a checkpoint read it")
			case <-time.After(20 * time.Millisecond): // nothing should come
			}
			// A kernel that writes the device's own copy need not
			// wait.
			b := New[uint32](1000)
			if err := discreteDev.Launch(k, Size{1000}, InOut(b)); err != nil {
				t.Fatal(err)
			}
			for i, p := range Slice[uint32](&Work{Args: [][]byte{places[0].Host}}, 0) {
				if p != uint32(i) {
					t.Fatalf("element %d is %d", i, p)
				}
			}
			release()
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestUpdate_Guarded shows that a checkpoint may read an array later if only
// Update changes it, but not if the program has called Data.
func TestUpdate_Guarded(t *testing.T) {
	still := func(a *Array[uint32]) bool {
		t.Helper()
		places, err := a.h.m.Places(0, 4*100)
		if err != nil || len(places) != 1 || places[0].Host == nil {
			t.Fatal(places, err)
		}
		return places[0].Guard != nil
	}
	a := New[uint32](100)
	must(t, a.Update(func(v []uint32) {
		v[7] = 7
		if still(a) {
			t.Error("the array is guarded during Update")
		}
	}))
	if !still(a) {
		t.Error("the array is not guarded after Update")
	}
	places, err := a.h.m.Places(0, 4*100)
	must(t, err)
	yielded := 0
	release := places[0].Guard(func(p []byte) { yielded += len(p) })
	must(t, a.Rows(10, 20).Update(func(v []uint32) { v[0] = 10 }))
	if release(); yielded != 40 {
		t.Errorf("%d bytes were asked for, not 40", yielded)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		a.Update(func([]uint32) { panic("on purpose") })
	}()
	if again, err := a.h.m.Places(0, 4*100); err != nil || again[0].Guard == nil {
		t.Error("the array is not guarded after a panic", err)
	}
	v, err := a.Data()
	must(t, err)
	if v[7] != 7 || v[10] != 10 {
		t.Error(v)
	}
	must(t, a.Update(func([]uint32) {}))
	if still(a) {
		t.Error("the program has a slice that it may write to")
	}
}
