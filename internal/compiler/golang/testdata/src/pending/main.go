// A receive is pending whenever an iteration begins.
package main

import (
	"context"
	"os"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

func main() {
	run, err := cairn.Open(context.Background(), cairn.Options{})
	if err != nil {
		os.Exit(1)
	}
	c := run.World()
	in, out := make([]float64, 10), make([]float64, 10)
	right, left := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	req := mpi.Irecv(c, in, left, 0) // because
	for range 100 {                  // unsafe
		mpi.Send(c, out, right, 0)
		req.Wait()
		copy(out, in)
		for i := range out {
			out[i] *= 0.5
		}
		req = mpi.Irecv(c, in, left, 0) // because
	}
	mpi.Send(c, out, right, 0)
	req.Wait()
}
