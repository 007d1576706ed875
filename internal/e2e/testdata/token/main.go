// Token passes numbers around a ring of ranks, so that messages are in flight
// and a receive is pending wherever it is interrupted. It does not use
// checkpoints: 'cairn build' finds its points.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

// sim is a rank's part.
type sim struct {
	run    *cairn.Run
	ctx    context.Context
	world  *mpi.Comm
	half   *mpi.Comm // ranks of the same parity
	sum    uint64
	row    []float64
	halo   []float64
	sent   int
	traced map[int]uint64
}

var errOdd = errors.New("odd")

func main() {
	steps := flag.Int("steps", 400, "steps")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if err := work(ctx, *steps); err != nil {
		fmt.Fprintln(os.Stderr, "token:", err)
		os.Exit(1)
	}
}

func work(ctx context.Context, steps int) error {
	run, err := cairn.Open(ctx, cairn.Options{EveryPoints: 7})
	if err != nil {
		return err
	}
	defer run.Close()
	world := run.World()
	half, err := world.Split(world.Rank()%2, world.Rank())
	if err != nil {
		return err
	}
	s := &sim{run: run, ctx: ctx, world: world, half: half, row: make([]float64, 64), halo: make([]float64, 64), traced: map[int]uint64{}}
	for i := range s.row {
		s.row[i] = float64(world.Rank()*100 + i)
	}
	if err := s.loop(steps); err != nil && !errors.Is(err, errOdd) {
		return err
	}
	total := []uint64{s.sum}
	if err := mpi.Allreduce(world, total, total, mpi.Sum); err != nil {
		return err
	}
	if world.Rank() == 0 {
		fmt.Println("sum", total[0], "row", s.row[0], s.row[63], "world", s.world == run.World(), "ranks", run.Ranks(), "traced", len(s.traced))
	}
	return nil
}

// loop sends before it receives, and a receive is always pending.
func (s *sim) loop(steps int) error {
	n, me := s.world.Size(), s.world.Rank()
	right, left := (me+1)%n, (me+n-1)%n
	in := make([]uint64, 1)
	pending := mpi.Irecv(s.world, in, left, 5)
	if err := mpi.Send(s.world, []uint64{uint64(me)}, right, 5); err != nil {
		return err
	}
	for step := 0; step < steps; step++ {
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if _, err := pending.Wait(); err != nil {
			return err
		}
		got := in[0]
		pending = mpi.Irecv(s.world, in, left, 5)
		if err := mpi.Send(s.world, []uint64{got*6364136223846793005 + uint64(step)}, right, 5); err != nil {
			return err
		}
		s.sum = s.sum*31 + got
		if step%50 == 0 {
			s.traced[step] = s.sum
			if me == 0 {
				fmt.Println("step", step, s.sum)
			}
		}
		for i := range s.row {
			s.row[i] = s.row[i]*0.999 + float64(got%17)
		}
		if step%3 == 0 {
			if err := mpi.Allreduce(s.half, s.row[:4], s.halo[:4], mpi.Max); err != nil {
				return err
			}
			s.row[0] += s.halo[0] * 1e-3
		}
	}
	_, err := pending.Wait()
	if err == nil {
		s.sum += in[0]
	}
	return err
}
