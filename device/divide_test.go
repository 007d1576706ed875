package device

import (
	"errors"
	"slices"
	"testing"
)

// restartOn makes the machine one with some host devices, as after the restart
// of a program that had n of them.
func restartOn(t *testing.T, n, there int) {
	t.Helper()
	var list []*Device
	for i := range there {
		machine.Lock()
		d, err := hostDevice("host", 40+i)
		machine.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, d)
	}
	machine.Lock()
	chosen, seen, subs := machine.chosen, machine.seen, machine.substitutes
	machine.chosen, machine.seen, machine.substitutes = list, n, nil
	machine.Unlock()
	t.Cleanup(func() {
		machine.Lock()
		machine.chosen, machine.seen, machine.substitutes = chosen, seen, subs
		machine.Unlock()
		division.stage.Store(int32(divided))
		division.keep, division.begin, division.failed, division.unwritten = false, nil, nil, nil
	})
	dividesAnew(n)
}

// divideInto calls f as the compiler's code does, and returns how many devices
// each call had.
func divideInto(t *testing.T, f func(devs []*Device)) (numbers []int) {
	t.Helper()
	for CairnDivides() {
		devs, err := Devices()
		if err != nil {
			t.Fatal(err)
		}
		f(devs)
		numbers = append(numbers, len(devs))
	}
	return numbers
}

// TestDivide_AmongMoreDevices divides an array, whose parts overlap, among more
// devices than before.
func TestDivide_AmongMoreDevices(t *testing.T) {
	restartOn(t, 2, 3)
	a := New[float32](12)
	begun := false
	new(deviceCount).CairnDivision(func() { begun = true }, nil, nil)
	n := divideInto(t, func(devs []*Device) {
		for k := range devs {
			lo, hi := 12*k/len(devs), 12*(k+1)/len(devs)
			a.Rows(max(lo-1, 0), min(hi+1, 12)) // they overlap
		}
	})
	if !slices.Equal(n, []int{2, 3}) || !begun {
		t.Errorf("it was divided among %v devices; begun %v", n, begun)
	}
	if devs, err := Devices(); err != nil || len(devs) != 3 || devs[0] != machine.chosen[0] {
		t.Errorf("devices: %v, %v", devs, err)
	}
	if CairnDivides() {
		t.Error("it is divided again")
	}
}

// TestDivide_FallsBackToOldDivision shows that elements that belong to one
// device are not those of another division.
func TestDivide_FallsBackToOldDivision(t *testing.T) {
	for _, there := range []int{1, 3} {
		restartOn(t, 2, there)
		a := New[float32](12)
		n := divideInto(t, func(devs []*Device) {
			for k := range devs {
				a.Rows(k, k+1)
			}
		})
		if !slices.Equal(n, []int{2, there, 2}) {
			t.Errorf("it was divided among %v devices", n)
		}
		if devs, err := Devices(); err != nil || len(devs) != 2 {
			t.Errorf("devices: %v, %v", devs, err)
		}
	}
}

// TestDivide_Kept shows what keeps the division of a checkpoint: as many
// devices as before, CAIRN_KEEP_DEVICES, and CairnKeep.
func TestDivide_Kept(t *testing.T) {
	restartOn(t, 2, 2)
	if CairnDivides() {
		t.Error("as many devices as before are divided anew")
	}
	t.Setenv("CAIRN_KEEP_DEVICES", "1")
	restartOn(t, 2, 3)
	if CairnDivides() {
		t.Error("CAIRN_KEEP_DEVICES has no effect")
	}
	t.Setenv("CAIRN_KEEP_DEVICES", "")
	division.keep = true
	restartOn(t, 2, 3)
	if CairnDivides() {
		t.Error("CairnKeep has no effect")
	}
}

// scratch is an array that was made for new devices, with the memory that has
// no values yet.
type scratch struct {
	A     *Array[uint32]
	Count *deviceCount
}

// TestDivide_UnwrittenNotReadable shows that what is in an array that was made
// for new devices does not count until it is overwritten: neither its zeros,
// nor after another restart.
func TestDivide_UnwrittenNotReadable(t *testing.T) {
	restartOn(t, 2, 1)
	s := &scratch{Count: new(deviceCount)}
	divideInto(t, func([]*Device) { s.A = New[uint32](1000) })
	d := machine.chosen[0]
	fill := NewKernel("", "fill", func(w *Work) {
		x := Slice[uint32](w, 0)
		for i := range x {
			x[i] = 7
		}
	})
	refused := func(a *Array[uint32]) {
		t.Helper()
		if _, err := a.Read(); !errors.Is(err, errUnwritten) {
			t.Errorf("Read: %v", err)
		}
		if _, err := a.Data(); !errors.Is(err, errUnwritten) {
			t.Errorf("Data: %v", err)
		}
		for _, arg := range []Arg{In(a), InOut(a)} {
			if err := d.Launch(fill, Size{1}, arg); !errors.Is(err, errUnwritten) {
				t.Errorf("Launch: %v", err)
			}
		}
		if !slices.ContainsFunc(unwritten(), func(x any) bool { return x.(view).part().h == a.h }) {
			t.Error("a checkpoint would not know what is unwritten")
		}
	}
	refused(s.A)
	if err := d.Launch(fill, Size{1}, Out(s.A.Rows(0, 400))); err != nil {
		t.Fatal(err)
	}
	refused(s.A)

	// A checkpoint holds the part that was written, and knows the other.
	h := &handles{Array: s.A, Roster: s.Count}
	restored, err := h.reload(t, d)
	if err != nil {
		t.Fatal(err)
	}
	division.stage.Store(int32(divided))
	refused(restored.Array)
	if v, err := restored.Array.Rows(0, 400).Read(); err != nil || v[0] != 7 || v[399] != 7 {
		t.Errorf("the written part: %v", err)
	}
	if err := d.Launch(fill, Size{1}, Out(restored.Array.Rows(400, 1000))); err != nil {
		t.Fatal(err)
	}
	if v, err := restored.Array.Read(); err != nil || v[0] != 7 || v[999] != 7 {
		t.Errorf("after all was written: %v", err)
	}

	// A program that Cairn's compiler made ends. Why depends on whether its
	// work was divided anew.
	var failed, leftOut error
	new(deviceCount).CairnDivision(nil, func(err error) { failed = err }, func(err error) { leftOut = err })
	for _, anew := range []bool{true, false} {
		failed, leftOut, division.anew = nil, nil, anew
		if _, err := s.A.Read(); err == nil || (failed == nil) == anew || (leftOut == nil) != anew {
			t.Errorf("Read, with anew = %v: %v, %v, %v", anew, err, failed, leftOut)
		}
	}
}
