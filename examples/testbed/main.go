// Command testbed runs device programs to the end, saved on the way and
// brought back: the testbed of Losada et al. (a portable and adaptable fault
// tolerance solution for heterogeneous applications), written anew.
package main

import (
	"context"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

// program is one of the testbed. All of its state is in fields.
type program interface {
	// setup makes arrays and initial values for a problem of the named size
	// ("tiny" for tests, "small", "large" for measurements).
	setup(size string, devs []*device.Device) error
	// protect makes the state part of the run, before Restore.
	protect(p *cairn.Run)
	// spread is called when the state is there, new or restored, and after
	// devices were lost: it divides the work among devs.
	spread(devs []*device.Device) error
	// steps is how many iterations there are; step does one of them, and must
	// not wait for its kernels.
	steps() int
	step(ctx context.Context, i int) error
	// result returns the numbers that the run was for.
	result() ([]float64, error)
	// reference computes them on the host, plainly. How far result may be from
	// it, relative to the largest number, is tolerance.
	reference() []float64
	tolerance() float64
}

// programs by name.
var programs = map[string]func() program{}

func main() {}
