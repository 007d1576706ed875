// Ring sends a message around a ring of all ranks, repeatedly, and reports how
// long it takes: the continuous latency test of Hursey, Mattox and Lumsdaine
// (Interconnect agnostic checkpoint/restart in Open MPI, 2009). A run that is
// killed resumes from its last checkpoint, with other transports between the
// ranks if necessary. The message shows whether any message was lost,
// duplicated or altered.
//
//	cairn run -n 8 ./ring -steps 100000 -report 1000 -out latency.txt
//
// Each line of the output has the last step that it counts, and the mean, the
// minimum and the maximum time of a hop in those steps, in microseconds. The
// last line says "ring ok" and the message's checksum, which depends only on
// the number of ranks and steps and the length. The exit status is 1 if the
// checksum is wrong or the run failed, 2 for wrong usage, and 75 if a signal
// made the run save and stop.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cairnrun/cairn"
)

// exitStopped is the exit status after a signal that said save and stop.
// (EX_TEMPFAIL: try again.)
const exitStopped = 75

type config struct {
	steps, bytes int
	report       int
	out          string
	dir          string
	every        time.Duration
	everyPoints  int
	routes       bool
}

func main() {
	var c config
	flag.IntVar(&c.steps, "steps", 1000, "times that the message goes around")
	flag.IntVar(&c.bytes, "bytes", 8192, "length of the message, a multiple of 8 and at least 32")
	flag.IntVar(&c.report, "report", 100, "steps between lines of output; 0: none")
	flag.StringVar(&c.out, "out", "", "file for the lines; none: standard output")
	flag.StringVar(&c.dir, "dir", "", "directory for checkpoints; not needed under cairn run")
	flag.DurationVar(&c.every, "every", 0, "time between checkpoints; 0: as -every-points says, or the optimum for the measured cost")
	flag.IntVar(&c.everyPoints, "every-points", 0, "steps between checkpoints")
	flag.BoolVar(&c.routes, "routes", false, "begin each start with a line that names the transport of each hop, from rank 0 on")
	flag.Parse()
	if flag.NArg() > 0 || c.steps < 0 || c.bytes < 8*(header+1) || c.bytes%8 != 0 || c.report < 0 {
		fmt.Fprintln(os.Stderr, "ring: it takes flags only, -steps and -report of at least 0, and -bytes of at least 32 that 8 divides")
		os.Exit(2)
	}
	if err := simulate(context.Background(), c); err != nil {
		fmt.Fprintln(os.Stderr, "ring:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(exitStopped)
		}
		os.Exit(1)
	}
}

// simulate runs the ring to its end.
func simulate(ctx context.Context, c config) (err error) {
	p, err := cairn.Open(ctx, cairn.Options{
		Dir: c.dir, Every: c.every, EveryPoints: c.everyPoints,
		OnError: func(err error) { fmt.Fprintln(os.Stderr, "ring: continuing without a checkpoint:", err) },
	})
	if err != nil {
		if errors.Is(err, cairn.ErrFinished) { // the results are there
			fmt.Fprintln(os.Stderr, "ring:", err)
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()

	// Only rank 0 writes. The file is cut back on a restart to where the
	// checkpoint was.
	world := p.World()
	out := io.Writer(os.Stdout)
	if c.out != "" && world.Rank() == 0 {
		f, err := p.OpenFile(c.out, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		defer f.Close()
		out = f
	}

	r := newRing(c.bytes)
	if err := cairn.Protect(p, "ring", &r); err != nil {
		return err
	}
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	if len(r.Token) != c.bytes/8 || r.Step > c.steps {
		return fmt.Errorf("the checkpoints are of a run with -bytes %d at step %d: give those flags again, or another -dir", 8*len(r.Token), r.Step)
	}
	if c.routes {
		if err := r.routes(world, out); err != nil {
			return err
		}
	}
	point := func() error { return p.Point(ctx) }
	if err := r.run(world, c.steps, c.report, out, point); err != nil {
		return err
	}
	p.Finish()
	return nil
}
