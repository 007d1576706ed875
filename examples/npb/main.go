// Npb runs five of the NAS Parallel Benchmarks: EP, CG, IS, FT and MG, written
// in Go from their specification (Bailey and others, RNR-94-007). After it was
// killed, it resumes from its last checkpoint.
//
//	cairn run -n 4 ./npb -kernel cg -class A
//	mpirun -n 4 ./npb -kernel cg -class A -dir ckpt -every 10s
//
// Rank 0 prints a report. The exit status is 1 if the results differ from the
// official ones or the benchmark could not be run, 2 for wrong usage, and 75
// after a signal to save and stop.
//
// Each kernel is in the file of its name. Before its main loop, it passes the
// variables that the loop carries to restore; each iteration begins with a call
// of point. guard.go turns these into calls of Cairn. Nothing else in a kernel
// has to do with checkpoints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

// exitStopped is the exit status after a signal to save and stop (EX_TEMPFAIL:
// try again).
const exitStopped = 75

// kernel runs a benchmark on the ranks of c. All ranks call it, and all get
// the same report.
type kernel func(c *mpi.Comm, class byte, g guard) (*report, error)

var kernels = map[string]kernel{"ep": ep, "cg": cg, "is": is, "ft": ft, "mg": mg}

var errVerification = errors.New("the results are not the official ones")

type config struct {
	kernel, class string
	dir           string
	every         time.Duration
	everyPoints   int
	verbose       bool
}

func main() {
	var c config
	flag.StringVar(&c.kernel, "kernel", "", "benchmark: ep, cg, is, ft or mg")
	flag.StringVar(&c.class, "class", "S", "size of the problem: S, W, A or B")
	flag.StringVar(&c.dir, "dir", "", "directory for checkpoints; not needed under cairn run")
	flag.DurationVar(&c.every, "every", 0, "time between checkpoints; 0: as -every-points says, or the optimum for the measured cost")
	flag.IntVar(&c.everyPoints, "every-points", 0, "iterations between checkpoints")
	flag.BoolVar(&c.verbose, "v", false, "tell of every checkpoint")
	flag.Parse()
	if flag.NArg() > 0 || kernels[c.kernel] == nil || len(c.class) != 1 || !strings.Contains("SWAB", c.class) {
		fmt.Fprintf(os.Stderr, "npb: it takes flags only, -kernel %s and -class S, W, A or B\n",
			strings.Join(slices.Sorted(maps.Keys(kernels)), ", "))
		os.Exit(2)
	}
	if err := benchmark(context.Background(), c); err != nil {
		fmt.Fprintln(os.Stderr, "npb:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(exitStopped)
		}
		os.Exit(1)
	}
}

// benchmark runs a kernel to its end and prints the report.
func benchmark(ctx context.Context, c config) (err error) {
	o := cairn.Options{
		Dir: c.dir, Every: c.every, EveryPoints: c.everyPoints,
		OnError: func(err error) { fmt.Fprintln(os.Stderr, "npb: continuing without a checkpoint:", err) },
	}
	if c.verbose {
		o.OnSaved = func(s cairn.CheckpointInfo) {
			fmt.Fprintf(os.Stderr, "saved checkpoint=%d reason=%q state=%d written=%d pause=%v write=%v\n",
				s.Index, s.Reason, s.StateBytes, s.WrittenBytes, s.Pause, s.WriteTime)
		}
	}
	p, err := cairn.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()

	world := p.World()
	g := &running{ctx: ctx, run: p, what: c.kernel + "." + c.class}
	r, err := kernels[c.kernel](world, c.class[0], g)
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		if err := r.print(os.Stdout, strings.ToUpper(c.kernel), c.class[0], world.Size()); err != nil {
			return err
		}
	}
	p.Finish()
	if !r.verified {
		return errVerification
	}
	return nil
}

func errClass(class byte) error {
	return fmt.Errorf("this benchmark has no class %c: use S, W, A or B", class)
}

// powerOfTwo returns an error if the number of ranks is not a power of two.
func powerOfTwo(c *mpi.Comm) error {
	if n := c.Size(); n&(n-1) != 0 {
		return fmt.Errorf("this benchmark runs on 1, 2, 4, 8 … ranks, not on %d", n)
	}
	return nil
}
