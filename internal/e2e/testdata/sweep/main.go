// Sweep takes incremental checkpoints: each rank adds its fields when they are
// ready, and uses their memory for something else until the checkpoint is
// committed. A message between any two neighbours is always on its way.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

func main() {
	steps := flag.Int("steps", 400, "steps")
	size := flag.Int("size", 100_000, "numbers in a field")
	flag.Parse()
	if err := sweep(context.Background(), *steps, *size); err != nil {
		fmt.Fprintln(os.Stderr, "sweep:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(75)
		}
		os.Exit(1)
	}
}

// fields are a rank's state.
type fields struct {
	u, v []uint64
	seen map[int]uint64
	step int
	sum  uint64
}

func sweep(ctx context.Context, steps, size int) (err error) {
	run, err := cairn.Open(ctx, cairn.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	f := &fields{u: make([]uint64, size), v: make([]uint64, size), seen: map[int]uint64{}, sum: uint64(run.Rank())}
	cairn.Protect(run, "u", &f.u)
	cairn.Protect(run, "v", &f.v)
	cairn.Protect(run, "seen", &f.seen)
	cairn.Protect(run, "step", &f.step)
	cairn.Protect(run, "sum", &f.sum)
	resumed, err := run.Restore(ctx)
	if err != nil {
		return err
	}
	world := run.World()
	n, r := world.Size(), world.Rank()
	send := func() error { return mpi.Send(world, []uint64{f.sum + uint64(f.step)}, (r+1)%n, 1) }
	if !resumed {
		if err := send(); err != nil {
			return err
		}
	}
	for f.step < steps {
		if err := run.Point(ctx); err != nil && !errors.Is(err, cairn.ErrNotSaved) {
			return err
		}
		if err := f.advance(ctx, run, send); err != nil {
			return err
		}
	}
	if _, err := mpi.Recv(world, []uint64{0}, (r+n-1)%n, 1); err != nil {
		return err
	}
	for i, x := range f.u {
		f.sum = f.sum*31 + x ^ f.v[i]
	}
	all := make([]uint64, n)
	if err := mpi.Gather(world, []uint64{f.sum}, all, 0); err != nil {
		return err
	}
	if r == 0 {
		fmt.Printf("sweep ok %x\n", all)
	}
	run.Finish()
	return nil
}

// advance does a step. Two of three are saved.
func (f *fields) advance(ctx context.Context, run *cairn.Run, send func() error) error {
	saved, mine := f.step%3 != 0, run.Rank() != 1 // rank 1 adds nothing
	if saved {
		if err := run.Begin(ctx); err != nil {
			return err
		}
	}
	world, n := run.World(), run.Ranks()
	in := []uint64{0}
	if _, err := mpi.Recv(world, in, (run.Rank()+n-1)%n, 1); err != nil {
		return err
	}
	for i := range f.u {
		f.u[i] += in[0] ^ uint64(i)
	}
	if saved && mine {
		if err := run.Add("u"); err != nil {
			return err
		}
	}
	invert := func(p []uint64) {
		for i := range p {
			p[i] = ^p[i]
		}
	}
	f.seen[f.step%10] = in[0]
	for i := range f.v {
		f.v[i] += f.u[i] / 3
	}
	if saved && mine {
		if err := run.Add("v", "seen"); err != nil {
			return err
		}
	}
	f.sum = f.sum*31 + in[0] + f.u[f.step%len(f.u)] + f.seen[(f.step+5)%10]
	f.step++
	if err := send(); err != nil {
		return err
	}
	if !saved {
		return nil
	}
	kept := f.seen
	if mine {
		invert(f.u)
		invert(f.v)
		f.seen = nil
	}
	err := run.Commit(ctx)
	if mine {
		invert(f.u)
		invert(f.v)
		f.seen = kept
	}
	if errors.Is(err, cairn.ErrNotSaved) && !errors.Is(err, cairn.ErrStopped) {
		err = nil // the next one may succeed
	}
	return err
}
