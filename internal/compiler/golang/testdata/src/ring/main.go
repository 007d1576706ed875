// Nothing is in flight when an iteration of the main loop begins.
package main

import (
	"context"
	"os"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

type worker struct {
	c       *mpi.Comm
	in, out []float64
	err     float64
}

func (w *worker) step() error {
	size := w.c.Size()
	right, left := (w.c.Rank()+1)%size, (w.c.Rank()+size-1)%size
	if _, err := mpi.Sendrecv(w.c, w.out, right, 3, w.in, left, 3); err != nil {
		return err
	}
	sum := []float64{w.in[0]}
	if err := mpi.Allreduce(w.c, sum, sum, mpi.Sum); err != nil {
		return err
	}
	w.err = sum[0]
	return nil
}

func main() {
	run, err := cairn.Open(context.Background(), cairn.Options{})
	if err != nil {
		os.Exit(1)
	}
	w := &worker{c: run.World(), in: make([]float64, 10), out: make([]float64, 10), err: 1}
	for w.err > 1e-9 { // safe
		if err := w.step(); err != nil {
			os.Exit(1)
		}
		for i := range w.in {
			w.out[i] = w.in[i] * 0.5
		}
	}
}
