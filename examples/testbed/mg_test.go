package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/device"
)

func TestMG(t *testing.T)            { verifyMesh(t, "mg") }
func TestMG_DeviceLost(t *testing.T) { loseMesh(t, "mg") }

// TestMG_Restart shows that the program sees as many devices after a restart as
// before, and has as many slabs.
func TestMG_Restart(t *testing.T) {
	restartOn(t, "mg", func(t *testing.T, p program, began, others []*device.Device) {
		m := p.(*mg)
		var seen []*device.Device
		for _, s := range m.grids[len(m.grids)-1].slabs {
			seen = append(seen, s.dev)
		}
		usedInTurn(t, seen, len(began), others)
	})
}

// TestMG_AnyNumberOfSlabs shows that the solution is the same to the last bit
// for any number of slabs, and in the planes of the neighbours as well.
func TestMG_AnyNumberOfSlabs(t *testing.T) {
	host := openList(t, "host")
	var first []float64
	for _, n := range []int{1, 2, 3, 5, 8, 20} {
		m := new(mg)
		runMesh(t, m, slices.Repeat(host, n))
		if want := min(n, 8); m.group.Len() != want {
			t.Errorf("%d devices: %d slabs, not %d", n, m.group.Len(), want)
		}
		side := 1 << m.class.levels
		plane := side * side
		u := make([]float64, side*plane)
		for i, b := range m.bounds(side) {
			data, err := m.u[i].Read()
			if err != nil {
				t.Fatal(err)
			}
			copy(u[b[0]*plane:b[1]*plane], data[plane:])
		}
		if first == nil {
			first = u
		}
		sameBits(t, u, first)
		for i, b := range m.bounds(side) {
			data, err := m.u[i].Read()
			if err != nil {
				t.Fatal(err)
			}
			below, above := (b[0]+side-1)%side, b[1]%side
			sameBits(t, data[:plane], u[below*plane:(below+1)*plane])
			sameBits(t, data[len(data)-plane:], u[above*plane:(above+1)*plane])
		}
	}
}

// twice is MG that solves its problem two times.
type twice struct{ mg }

func (m *twice) setup(size string, devs []*device.Device) error {
	err := m.mg.setup(size, devs)
	m.class.times = 2
	return err
}

// TestMG_SolvedTwice shows that the second solution equals the first, also if
// the run was interrupted.
func TestMG_SolvedTwice(t *testing.T) {
	want := runMesh(t, new(mg), openList(t, "host"))
	programs["twice"] = func() program { return new(twice) }
	defer delete(programs, "twice")
	c := plain("twice")
	c.dir, c.result = t.TempDir(), filepath.Join(t.TempDir(), "result")
	for _, stop := range []float64{0.5, 0.75, never} {
		c.stopAt = stop
		h, _, err := runOn(t, c, "host,host")
		if err != nil {
			t.Fatal(err)
		}
		if h.report.Steps != 8 {
			t.Errorf("%d steps", h.report.Steps)
		}
	}
	sameBits(t, readResult(t, c.result, 1), want)
}

// TestMG_SlabsCoverGrids shows that the slabs of every grid cover it without
// gaps, and that each begins at an even plane.
func TestMG_SlabsCoverGrids(t *testing.T) {
	host := openList(t, "host")
	for n := 1; n <= 64; n++ {
		m := &mg{class: mgClasses["large"], group: *device.NewGroup(slices.Repeat(host, n)...)}
		for side := 2; side <= 1<<m.class.levels; side *= 2 {
			at := 0
			for _, b := range m.bounds(side) {
				if b[0] != at || b[1]-b[0] < 2 || b[0]%2 != 0 {
					t.Fatalf("%d devices, side %d: a slab of planes %d…%d after %d", n, side, b[0], b[1], at)
				}
				at = b[1]
			}
			if at != side {
				t.Fatalf("%d devices, side %d: slabs end at plane %d", n, side, at)
			}
		}
	}
}
