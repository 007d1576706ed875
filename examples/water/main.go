// Water simulates drops that fall into a square basin. If it is killed, start
// it again with the same flags: it resumes from its last checkpoint and gives
// the same result, byte for byte.
//
//	go run ./examples/water -n 512 -steps 2000 -dir ckpt -every 2s -out out
//
// It writes out/series.txt (step, mass and energy, a line per step),
// out/field.f64 (the final height of the water, n×n little-endian float64) and
// out/field.png. Without -dir it runs without Cairn. The five numbered places
// in simulate are all that Cairn needs.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnrun/cairn"
)

// exitStopped is the exit status after a signal to save and stop: not a
// failure, but the result is not there yet (EX_TEMPFAIL: try again).
const exitStopped = 75

type config struct {
	n, steps    int
	seed        uint64
	dir, out    string
	every       time.Duration
	everyPoints int
	compress    string
}

func main() {
	var c config
	flag.IntVar(&c.n, "n", 256, "cells along each side of the basin")
	flag.IntVar(&c.steps, "steps", 1000, "time steps")
	flag.Uint64Var(&c.seed, "seed", 1, "seed of the drops")
	flag.StringVar(&c.dir, "dir", "", "directory for checkpoints; none: run without Cairn")
	flag.DurationVar(&c.every, "every", 0, "time between checkpoints; 0: as -every-points says, or the optimum for the measured cost")
	flag.IntVar(&c.everyPoints, "every-points", 0, "steps between checkpoints")
	flag.StringVar(&c.compress, "compress", "", "compression of checkpoints: zstd or gzip; none if empty")
	flag.StringVar(&c.out, "out", ".", "directory for the results")
	flag.Parse()
	if flag.NArg() > 0 || c.n < 4 || c.steps < 0 {
		fmt.Fprintln(os.Stderr, "water: it takes flags only, -n of at least 4 and -steps of at least 0")
		os.Exit(2)
	}
	if err := simulate(context.Background(), c); err != nil {
		fmt.Fprintln(os.Stderr, "water:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(exitStopped)
		}
		os.Exit(1)
	}
}

// simulate runs the basin to the end and writes the results.
func simulate(ctx context.Context, c config) (err error) {
	if err := os.MkdirAll(c.out, 0o777); err != nil {
		return err
	}
	var p *cairn.Run // nil: without Cairn
	openFile := os.OpenFile
	if c.dir != "" {
		// 1. Open the run.
		p, err = cairn.Open(ctx, cairn.Options{
			Dir: c.dir, Every: c.every, EveryPoints: c.everyPoints,
			Compression: cairn.Compression(c.compress), OnSaved: report,
		})
		if err != nil {
			if errors.Is(err, cairn.ErrFinished) { // the results are there
				fmt.Fprintln(os.Stderr, "water:", err)
				return nil
			}
			return err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
		// 2. Open output files through it. A restart truncates them to their
		// size at the checkpoint, so that no line is lost or written twice.
		openFile = p.OpenFile
	}
	file, err := openFile(filepath.Join(c.out, "series.txt"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	b := newBasin(c.n, c.seed)
	series := bufio.NewWriter(file)
	if p != nil {
		// 3. Name the state: the basin with its random numbers, and the
		// writer with the lines that are still in its buffer.
		cairn.Protect(p, "basin", &b)
		cairn.Protect(p, "series", &series)
		// 4. Restore the last checkpoint, if there is one.
		resumed, err := p.Restore(ctx)
		if err != nil {
			return err
		}
		if b.N != c.n || b.Step > c.steps {
			return fmt.Errorf("%s holds a run with -n %d at step %d: give those flags again, or another -dir", c.dir, b.N, b.Step)
		}
		if resumed {
			fmt.Printf("resumed step=%d\n", b.Step)
		}
	}
	s := newSolver(c.n)
	for b.Step < c.steps {
		if p != nil {
			// 5. All variables are consistent here: save, if a checkpoint is
			// due.
			if err := p.Point(ctx); errors.Is(err, cairn.ErrNotSaved) && !errors.Is(err, cairn.ErrStopped) {
				fmt.Fprintln(os.Stderr, "water: continuing without a checkpoint:", err)
			} else if err != nil {
				return err
			}
		}
		s.advance(b)
		mass, energy := b.totals()
		if _, err := fmt.Fprintln(series, b.Step, mass, energy); err != nil {
			return err
		}
	}
	if err := series.Flush(); err != nil {
		return err
	}
	if err := writeResults(c.out, b); err != nil {
		return err
	}
	if p != nil {
		p.Finish() // the results are written: the checkpoints are not needed any more
	}
	return nil
}

// report says what a checkpoint cost, one line for each.
func report(s cairn.CheckpointInfo) {
	fmt.Printf("saved checkpoint=%d reason=%q state=%d written=%d pause=%v write=%v\n",
		s.Index, s.Reason, s.StateBytes, s.WrittenBytes, s.Pause, s.WriteTime)
}
