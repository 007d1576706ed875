// Survivor is the program that the end-to-end tests start, kill and start
// again. Its state has values of many kinds, and its result is the same on
// every architecture: no product is added to anything before it was converted
// to float64, which keeps the compiler from fusing the two.
//
// With -drive it does what standard input says, a command per line:
//
//	run N    do N steps, with a point before each
//	save     save now
//	finish   write the results and end
//	done     the same, and say that the work is done
//
// and answers "ok STEP" to each. Sets that became safe are reported as they
// are found, with a line that begins with "saved".
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

// exitStopped is the exit status after a signal that said save and stop.
const exitStopped = 75

type config struct {
	cairn.Options
	out           string
	dense, sparse int
	steps         int
	drive         bool
	incremental   int
}

func main() {
	var c config
	full := flag.Bool("full", false, "full checkpoints only")
	compress := flag.String("compress", "", "zstd or gzip")
	flag.StringVar(&c.Dir, "dir", "", "checkpoint directory; none: run without Cairn")
	flag.StringVar(&c.Tiers, "tiers", "", "storage tiers")
	flag.StringVar(&c.out, "out", ".", "directory for results")
	flag.IntVar(&c.dense, "dense", 1000, "numbers that change in every step")
	flag.IntVar(&c.sparse, "sparse", 1000, "numbers of which few change in a step")
	flag.IntVar(&c.steps, "steps", 100, "steps")
	flag.BoolVar(&c.drive, "drive", false, "do what standard input says")
	flag.IntVar(&c.incremental, "incremental", 0, "steps between incremental checkpoints; 0: none")
	flag.DurationVar(&c.Every, "every", time.Hour, "time between checkpoints")
	flag.IntVar(&c.EveryPoints, "every-points", 0, "points between checkpoints")
	flag.Int64Var(&c.Memory, "memory", 0, "bound on memory for copies")
	flag.BoolVar(&c.NoTracking, "no-tracking", false, "do not let the kernel track writes")
	flag.Parse()
	c.Compression = cairn.Compression(*compress)
	if *full {
		c.MaxBases = -1
	}
	c.OnSaved = func(s cairn.CheckpointInfo) {
		fmt.Printf("saved checkpoint=%d reason=%q state=%d written=%d\n", s.Index, s.Reason, s.StateBytes, s.WrittenBytes)
	}
	err := run(context.Background(), c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "survivor:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(exitStopped)
		}
		os.Exit(1)
	}
}

// program is a run of the survivor.
type program struct {
	*state
	p      *cairn.Run // nil: without Cairn
	series *bufio.Writer
	out    string
	every  int // steps between incremental checkpoints
}

func run(ctx context.Context, c config) (err error) {
	if err := os.MkdirAll(c.out, 0o777); err != nil {
		return err
	}
	g := &program{state: newState(c.dense, c.sparse), out: c.out, every: c.incremental}
	openFile := os.OpenFile
	if c.Dir != "" {
		if g.p, err = cairn.Open(ctx, c.Options); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, g.p.Close()) }()
		openFile = g.p.OpenFile
	}
	file, err := openFile(filepath.Join(c.out, "series.txt"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	g.series = bufio.NewWriter(file)
	resumed := false
	if g.p != nil {
		sparse := g.Sparse // the same memory, reached by a name of its own
		cairn.Protect(g.p, "sparse", &sparse)
		cairn.Protect(g.p, "state", &g.state)
		cairn.Protect(g.p, "series", &g.series)
		if resumed, err = g.p.Restore(ctx); err != nil {
			return err
		}
	}
	fmt.Printf("ready step=%d resumed=%t\n", g.Step, resumed)
	if c.drive {
		return g.obey(ctx)
	}
	for g.Step < c.steps {
		if err := g.step(ctx); err != nil {
			return err
		}
	}
	return g.finish()
}

// obey does what standard input says.
func (g *program) obey(ctx context.Context) error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		n := 0
		switch cmd := in.Text(); {
		case cmd == "save":
			if err := g.p.Checkpoint(ctx); err != nil {
				if !errors.Is(err, cairn.ErrNotSaved) {
					return err
				}
				fmt.Println("not saved:", err)
			}
		case cmd == "finish", cmd == "done":
			if err := g.finish(); err != nil {
				return err
			}
			if cmd == "done" {
				g.p.Finish()
			}
			fmt.Println("ok", g.Step)
			return nil
		default:
			if _, err := fmt.Sscanf(cmd, "run %d", &n); err != nil {
				return fmt.Errorf("command %q: %w", cmd, err)
			}
		}
		for range n {
			if err := g.step(ctx); err != nil {
				return err
			}
		}
		fmt.Println("ok", g.Step)
	}
	return in.Err()
}

func (g *program) step(ctx context.Context) error {
	if g.p != nil && g.every > 0 && g.Step%g.every == 0 {
		return g.stepIncremental(ctx)
	}
	if g.p != nil {
		if err := g.p.Point(ctx); errors.Is(err, cairn.ErrNotSaved) {
			fmt.Println("not saved:", err)
		} else if err != nil {
			return err
		}
	}
	g.advance()
	_, err := fmt.Fprintln(g.series, g.line())
	return err
}

// stepIncremental does a step while the state before it is being saved.
func (g *program) stepIncremental(ctx context.Context) error {
	if err := errors.Join(g.p.Begin(ctx), g.p.Add("state", "sparse")); err != nil {
		return err
	}
	g.advance()
	if err := g.p.Commit(ctx); errors.Is(err, cairn.ErrNotSaved) {
		fmt.Println("not saved:", err)
	} else if err != nil {
		return err
	}
	_, err := fmt.Fprintln(g.series, g.line())
	return err
}

// finish writes the result. The checkpoints stay, so that tests can look at
// them.
func (g *program) finish() error {
	if err := g.series.Flush(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(g.out, "result.txt"), []byte(g.describe()), 0o666)
}
