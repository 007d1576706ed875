// Last is a program whose ranks kill themselves, right after all of them have
// copied their part of a checkpoint: what of it is on the disk then, only the writer
// has put there. Started again it continues, and says from where.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

func main() {
	bytes := flag.Int("bytes", 8<<20, "state of each rank")
	points := flag.Int("points", 3, "points until the last checkpoint of the first start")
	die := flag.Int("die", -1, "the rank that dies; -1: all")
	flag.Parse()
	if err := run(context.Background(), *bytes/8, *points, *die); err != nil {
		fmt.Fprintln(os.Stderr, "last:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, words, points, die int) (err error) {
	p, err := cairn.Open(ctx, cairn.Options{EveryPoints: points})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	step, data := 0, make([]uint64, words)
	cairn.Protect(p, "step", &step)
	cairn.Protect(p, "data", &data)
	resumed, err := p.Restore(ctx)
	if err != nil {
		return err
	}
	c := p.World()
	if resumed && c.Rank() == 0 {
		fmt.Fprintf(os.Stderr, "last: resumed at step %d\n", step)
	}
	for ; step < 2*points; step++ {
		if err := p.Point(ctx); err != nil {
			return err
		}
		if step == points-1 && !resumed {
			if err := mpi.Allreduce(c, []int{1}, []int{0}, mpi.Sum); err != nil { // all have copied
				return err
			}
			if die < 0 || die == c.Rank() {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		for i := range data {
			data[i] = data[i]*6364136223846793005 + uint64(step*i+c.Rank()+1)
		}
	}
	sum := []uint64{0}
	for _, d := range data {
		sum[0] = sum[0]*31 + d
	}
	if err := mpi.Allreduce(c, sum, sum, mpi.Sum); err != nil {
		return err
	}
	if c.Rank() == 0 {
		fmt.Printf("last ok steps=%d sum=%016x\n", step, sum[0])
	}
	p.Finish()
	return nil
}
