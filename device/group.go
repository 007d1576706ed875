package device

import (
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/internal/graph"
)

// Spread returns n devices, taken from devs in turn. With it, a program written
// for n devices runs on any number of them.
func Spread(n int, devs []*Device) []*Device {
	if len(devs) == 0 {
		panic("device: Spread: no devices; Devices returns at least one")
	}
	out := make([]*Device, n)
	for i := range out {
		out[i] = devs[i%len(devs)]
	}
	return out
}

// Group is a fixed number of devices, for programs that divide their work among
// that many. After a restart on other devices, the group still has Len members,
// some of which may be the same device.
type Group struct {
	n    int
	devs []*Device
}

// NewGroup returns a group of the given devices. There must be at least one.
func NewGroup(devs ...*Device) *Group {
	if len(devs) == 0 {
		panic("device: NewGroup: no devices")
	}
	return &Group{n: len(devs), devs: slices.Clone(devs)}
}

// Len returns the number of members: the number of devices that NewGroup was
// given when the run began.
func (g *Group) Len() int { return g.n }

// At returns member i, 0 ≤ i < Len. It is one of the devices that NewGroup was
// given in this process, and not lost unless all of them are.
func (g *Group) At(i int) *Device {
	if i < 0 || i >= g.n {
		panic(fmt.Sprintf("device: At(%d) of a group of %d devices", i, g.n))
	}
	if len(g.devs) == 0 {
		panic("device: a group that was not made with NewGroup in this process")
	}
	if d := g.devs[i%len(g.devs)]; !d.lost() {
		return d
	}
	var live []*Device
	for _, d := range g.devs {
		if !d.lost() {
			live = append(live, d)
		}
	}
	if len(live) == 0 {
		return g.devs[i%len(g.devs)]
	}
	return live[i%len(live)]
}

// state saves and restores the group. A checkpoint holds only its length.
func (g *Group) state(c *graph.Coder) error {
	n := g.n
	graph.Field(c, "devices", &n)
	if !c.Restoring() || c.Err() != nil {
		return c.Err()
	}
	if n < 0 || n > 1<<20 {
		return fmt.Errorf("a group of %d devices", n)
	}
	g.n = n
	if len(g.devs) == 0 {
		devs, err := Devices()
		if err != nil {
			return err
		}
		g.devs = devs
	}
	return nil
}
