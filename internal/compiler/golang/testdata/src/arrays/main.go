// A receive into an array is pending whenever an iteration begins.
package main

import (
	"context"
	"os"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/mpi"
)

func main() {
	run, err := cairn.Open(context.Background(), cairn.Options{})
	if err != nil {
		os.Exit(1)
	}
	c := run.World()
	grid, halo := device.New[float64](100, 100), device.New[float64](100)
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	req := mpi.IrecvArray(c, halo, left, 0) // because
	for range 100 {                         // unsafe
		mpi.SendArray(c, grid.Rows(99, 100), right, 0)
		req.Wait()
		grid.Update(relax)
		req = mpi.IrecvArray(c, halo, left, 0) // because
	}
	mpi.SendArray(c, grid.Rows(99, 100), right, 0)
	req.Wait()
}

func relax(x []float64) {
	for i := range x {
		x[i] *= 0.5
	}
}
