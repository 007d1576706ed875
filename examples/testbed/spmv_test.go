package main

import (
	"slices"
	"testing"

	"github.com/cairnrun/cairn/device"
)

func TestSpmv(t *testing.T)            { verifyMesh(t, "spmv") }
func TestSpmv_DeviceLost(t *testing.T) { loseMesh(t, "spmv") }

// TestSpmv_Restart resumes on other devices, and expects that the rows are
// divided among them in turn.
func TestSpmv_Restart(t *testing.T) {
	restartOn(t, "spmv", func(t *testing.T, p program, _, others []*device.Device) {
		var seen []*device.Device
		for _, r := range p.(*spmv).shares {
			seen = append(seen, r.dev)
		}
		usedInTurn(t, seen, len(others), others)
	})
}

// TestSpmv_EveryIterationCounts shows that a lost or repeated iteration shows
// in the result.
func TestSpmv_EveryIterationCounts(t *testing.T) {
	s := new(spmv)
	devs := openList(t, "host")
	if err := s.setup("tiny", devs); err != nil {
		t.Fatal(err)
	}
	want := s.reference()
	for _, n := range []int{s.iterations - 1, s.iterations + 1} {
		other := *s
		other.iterations = n
		if off, err := deviation(other.reference(), want); err != nil || off < 0.1 {
			t.Errorf("%d iterations instead of %d: the result is off by only %v (%v)", n, s.iterations, off, err)
		}
	}
}

// TestSpmv_EachRowOnOneDevice shows that each row is on exactly one device, for
// any number of devices.
func TestSpmv_EachRowOnOneDevice(t *testing.T) {
	s := new(spmv)
	one := openList(t, "host")
	if err := s.setup("tiny", one); err != nil {
		t.Fatal(err)
	}
	if err := s.begin(one); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < 40; n++ {
		if err := s.spread(slices.Repeat(one, n)); err != nil {
			t.Fatal(err)
		}
		row, elements := 0, 0
		for _, r := range s.shares {
			if r.first != row || r.last <= r.first {
				t.Fatalf("%d devices: rows %d…%d after %d", n, r.first, r.last, row)
			}
			row = r.last
			elements += r.value.Len()
		}
		if row != s.n || elements != s.value.Len() {
			t.Fatalf("%d devices: %d rows of %d, %d elements of %d", n, row, s.n, elements, s.value.Len())
		}
	}
}
