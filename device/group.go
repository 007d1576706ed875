package device

import (
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/internal/graph"
)

// Spread returns n devices, taken from devs in turn: a program that is written
// for as many sees them whatever is there.
func Spread(n int, devs []*Device) []*Device {
	if len(devs) == 0 {
		panic("device: no devices to spread over; Devices returns one at least")
	}
	out := make([]*Device, n)
	for i := range out {
		out[i] = devs[i%len(devs)]
	}
	return out
}

// Group is a fixed number of devices, for programs whose work was divided
// among as many: after a restart on other devices there are still Len of them,
// some of which may be the same.
type Group struct {
	n    int
	devs []*Device
}

// NewGroup makes a group of as many devices as are given, one at least.
func NewGroup(devs ...*Device) *Group {
	if len(devs) == 0 {
		panic("device: a group of no devices")
	}
	return &Group{n: len(devs), devs: slices.Clone(devs)}
}

// Len is the number of devices that the program sees: as many as NewGroup was
// given when the run began.
func (g *Group) Len() int { return g.n }

// At returns device i, 0 ≤ i < Len: one of those given to NewGroup in this
// process that are not lost. If all are, it returns a lost one.
func (g *Group) At(i int) *Device {
	if i < 0 || i >= g.n {
		panic(fmt.Sprintf("device: device %d of a group of %d", i, g.n))
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

// CairnState makes a Group savable. A set has only its length.
func (g *Group) CairnState(c *graph.Coder) error {
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
