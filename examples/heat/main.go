// Heat computes how heat spreads in a square plate that is hot at one edge. If
// it is killed, start it again with the same flags: it resumes from its last
// checkpoint and gives the same result, byte for byte.
//
//	cairn run -n 4 ./heat -n 1000 -steps 20000 -png plate.png
//
// Each rank has some of the plate's rows. In every step, neighbours exchange
// their outermost rows. Rank 0 prints how much the temperatures still change,
// and at the end a digest of the plate, which does not depend on the number of
// ranks. The exit status is 1 if the run failed, 2 for wrong usage, and 75 if a
// signal stopped it after a checkpoint.
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

// exitStopped is the exit status after a signal to save and stop (EX_TEMPFAIL:
// try again).
const exitStopped = 75

type config struct {
	n, steps    int
	check       int
	tolerance   float64
	png, out    string
	dir         string
	every       time.Duration
	everyPoints int
}

func main() {
	var c config
	flag.IntVar(&c.n, "n", 256, "points along each side of the plate, without its edges")
	flag.IntVar(&c.steps, "steps", 1000, "time steps")
	flag.IntVar(&c.check, "check", 100, "steps between looks at how much still changes")
	flag.Float64Var(&c.tolerance, "tolerance", 0, "stop when nothing changes by more than this in a step")
	flag.StringVar(&c.png, "png", "", "file for a picture of the result; none if empty")
	flag.StringVar(&c.out, "out", "", "file for the lines; none: standard output")
	flag.StringVar(&c.dir, "dir", "", "directory for checkpoints; not needed under cairn run")
	flag.DurationVar(&c.every, "every", 0, "time between checkpoints; 0: as -every-points says, or the optimum for the measured cost")
	flag.IntVar(&c.everyPoints, "every-points", 0, "steps between checkpoints")
	flag.Parse()
	if flag.NArg() > 0 || c.n < 1 || c.steps < 0 || c.check < 1 {
		fmt.Fprintln(os.Stderr, "heat: it takes flags only, -n and -check of at least 1 and -steps of at least 0")
		os.Exit(2)
	}
	if err := simulate(context.Background(), c); err != nil {
		fmt.Fprintln(os.Stderr, "heat:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(exitStopped)
		}
		os.Exit(1)
	}
}

// simulate runs the plate to the end.
func simulate(ctx context.Context, c config) (err error) {
	p, err := cairn.Open(ctx, cairn.Options{
		Dir: c.dir, Every: c.every, EveryPoints: c.everyPoints,
		OnError: func(err error) { fmt.Fprintln(os.Stderr, "heat: continuing without a checkpoint:", err) },
	})
	if err != nil {
		if errors.Is(err, cairn.ErrFinished) { // the results are there
			fmt.Fprintln(os.Stderr, "heat:", err)
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()

	// Only rank 0 writes. A restart truncates the file to the size that it
	// had at the checkpoint.
	world := p.World()
	out := io.Discard
	if world.Rank() == 0 {
		out = os.Stdout
		if c.out != "" {
			f, err := p.OpenFile(c.out, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
			if err != nil {
				return err
			}
			defer f.Close()
			out = f
		}
	}

	plate, err := newPlate(world, c.n)
	if err != nil {
		return err
	}
	if err := cairn.Protect(p, "plate", &plate); err != nil {
		return err
	}
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	if plate.N != c.n || plate.Step > c.steps {
		return fmt.Errorf("the checkpoints are of a run with -n %d at step %d: give those flags again, or another -dir", plate.N, plate.Step)
	}
	point := func() error { return p.Point(ctx) }
	if err := plate.run(world, c.steps, c.check, c.tolerance, out, point); err != nil {
		return err
	}

	field, err := plate.gather(world)
	if err != nil {
		return err
	}
	if world.Rank() == 0 {
		if _, err := fmt.Fprintf(out, "heat ok n=%d steps=%d digest=%s\n", plate.N, plate.Step, digest(field)); err != nil {
			return err
		}
		if c.png != "" {
			if err := writePicture(c.png, field, c.n); err != nil {
				return err
			}
		}
	}
	p.Finish()
	return nil
}
