package main

import (
	"slices"
	"testing"

	"github.com/cairnrun/cairn/device"
)

func TestSumma(t *testing.T)            { verifyMesh(t, "summa") }
func TestSumma_DeviceLost(t *testing.T) { loseMesh(t, "summa") }

// TestSumma_Restart shows that the program sees as many devices after a restart
// as before, and has as many blocks.
func TestSumma_Restart(t *testing.T) {
	restartOn(t, "summa", func(t *testing.T, p program, began, others []*device.Device) {
		s := p.(*summa)
		var seen []*device.Device
		for i := range s.c {
			seen = append(seen, s.group.At(i))
		}
		usedInTurn(t, seen, len(began), others)
	})
}

// TestSumma_QuickReference shows that the quick check of larger sizes agrees
// with the plain product.
func TestSumma_QuickReference(t *testing.T) {
	s := &summa{n: 128, times: 1, tiny: true}
	want := s.reference()
	s.tiny = false
	if off, err := deviation(s.reference(), want); err != nil || off > s.tolerance() {
		t.Errorf("off by %v (%v)", off, err)
	}
}

// TestSumma_Repeated has narrow panels, and computes the product more than
// once.
func TestSumma_Repeated(t *testing.T) {
	s := &summa{n: 256, panels: 16, times: 3}
	devs := slices.Repeat(openList(t, "host"), 6)
	if err := firstOf(
		func() error { return s.prepare(devs) },
		func() error { return s.begin(devs) },
		func() error { return s.spread(devs) },
	); err != nil {
		t.Fatal(err)
	}
	for i := range s.steps() {
		if err := s.step(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.result()
	if err != nil {
		t.Fatal(err)
	}
	if off, err := deviation(got, s.reference()); err != nil || off > s.tolerance() || s.steps() != 48 {
		t.Errorf("%d steps, off by %v (%v)", s.steps(), off, err)
	}
}

// TestSumma_Grid shows that the grid of any number of devices is within its
// limits and the same after a restart, and that each panel has one owner.
func TestSumma_Grid(t *testing.T) {
	for n := 1; n <= 200; n++ {
		rows, columns := summaGrid(n)
		if rows < 1 || rows > summaMost || columns < rows || columns > summaMost || rows*columns > n {
			t.Fatalf("%d devices: a grid of %d × %d", n, rows, columns)
		}
		if r, c := summaGrid(rows * columns); r != rows || c != columns {
			t.Fatalf("%d devices: a grid of %d × %d becomes one of %d × %d after a restart", n, rows, columns, r, c)
		}
	}
	for _, panels := range []int{8, 64} {
		s := &summa{panels: panels}
		for n := 1; n <= summaMost; n++ {
			for k := range panels {
				part, at := s.owner(k, n)
				if first, last := s.part(part, n); first+at != k || k >= last {
					t.Fatalf("panel %d of %d parts: number %d of part %d", k, n, at, part)
				}
			}
		}
	}
}
