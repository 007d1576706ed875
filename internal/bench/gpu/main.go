// Command gpu measures the cost of checkpoints of device state, as ratios to
// the device's own speed in the same run: its copy from memory to memory, and
// its copy to pinned host memory.
//
//	go run ./internal/bench/gpu [-sizes 1,8,64] [-device LIST] [-o DIR]
//		[-part state,split,kernels,programs,restart,torch] [-strict]
//
// The parts split, programs and restart measure what papers have measured:
// split is figure 2 of Parasyris and Bautista Gomez, programs is table 5 and
// figure 7 of Losada et al., restart is their figures 8 to 11. The part kernels
// compares kernels that are translated from Go with hand-written ones. The
// paper's values stand beside ours. With -o they write the figures as SVG, and
// their numbers as JSON; -redraw draws them again.
//
// A line whose bound is missed says so. With -strict, the exit status is 1
// then.
//
// The machine with the device need not have Go: go build -o gpu
// ./internal/bench/gpu. For the part programs, also run go build
// ./examples/testbed, and put the program beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/cuda"
	"github.com/cairnrun/cairn/internal/driver/opencl"
)

var (
	parts  = flag.String("part", "state,split,kernels,programs,restart,torch", "what is measured")
	sizes  = flag.String("sizes", "1,8,64", "GiB of state on the device")
	rounds = flag.Int("rounds", 7, "rounds; medians are shown")
	list   = flag.String("device", "", "the device, as in CAIRN_DEVICES (default: the first)")
	tmpDir = flag.String("dir", "", "where files are written (default: the temporary directory)")
	bed    = flag.String("testbed", "", "the testbed program (default: beside this one, else built)")
	size   = flag.String("size", "long", "problem sizes of the parts programs and restart; of small ones, a checkpoint is a large part of the run")
	names  = flag.String("programs", "ft,floyd,spmv,ftmd,summa,mg,shwa", "programs of these parts")
	strict = flag.Bool("strict", false, "fail if a bound is missed")
	outDir = flag.String("o", "", "where figures are written (default: nowhere)")
	again  = flag.Bool("redraw", false, "measure nothing: draw the figures whose JSON files are the arguments")
	states = flag.String("states", "1,4", "of the part split: numbers of processes")
	total  = flag.Float64("total", 2, "of the part split: GiB of state of all processes together")
	member = flag.String("member", "", "be a process of the part split")

	otherSize     = flag.String("other-size", "medium", "problem sizes of the part restart where programs also run on processors")
	programRounds = flag.Int("program-rounds", 3, "rounds of the part programs")
	restartRounds = flag.Int("restart-rounds", 1, "rounds of the part restart")
	one           = flag.Float64("one", 0, "measure one size, GiB, in this process (used by the part state)")
	prof          = flag.String("cpuprofile", "", "with -one: where to write a profile")
	file          = flag.Bool("file", true, "also write sets of up to 8 GiB to files")
)

func main() {
	flag.Parse()
	if *again {
		if err := redraw(flag.Args()); err != nil {
			fmt.Fprintln(os.Stderr, "gpu:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if *one > 0 && err == nil && missed > 0 {
		os.Exit(exitMissed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
}

// exitMissed is the exit status of a process with -one that has missed a bound.
const exitMissed = 3

func run(ctx context.Context) error {
	if *tmpDir == "" {
		dir, err := os.MkdirTemp("", "cairn-gpu")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		*tmpDir = dir
	}
	if *one > 0 {
		d, err := pick()
		if err != nil {
			return err
		}
		if *prof != "" {
			f, err := os.Create(*prof)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		return measureState(ctx, d, int64(*one*(1<<30)))
	}
	if *member != "" {
		return splitMember(ctx, *member)
	}
	if *outDir != "" {
		if err := os.MkdirAll(*outDir, 0o777); err != nil {
			return err
		}
	}
	var errs []error
	for _, part := range strings.Split(*parts, ",") {
		var err error
		switch part {
		case "state":
			err = state(ctx)
		case "split":
			err = split(ctx)
		case "kernels":
			err = translated(ctx)
		case "programs":
			err = testbed(ctx)
		case "restart":
			err = restarts(ctx)
		case "torch":
			err = torch(ctx)
		default:
			err = fmt.Errorf("no part %q: there are state, split, kernels, programs, restart and torch", part)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", part, err)
			fmt.Fprintln(os.Stderr, "gpu:", err)
			errs = append(errs, err)
		}
	}
	if missed > 0 && *strict {
		errs = append(errs, fmt.Errorf("%d bounds were missed", missed))
	}
	return errors.Join(errs...)
}

// missed is the number of bounds that were missed.
var missed int

// verdict says whether a bound is met.
func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return missedBound("MISSED")
}

// missedBound counts a missed bound, and returns what.
func missedBound(what string) string {
	missed++
	return what
}

// target is the device that is measured. It counts the bytes that are read from
// it.
type target struct {
	*device.Device
	drv  *counting
	last atomic.Int64 // time of the last write to a file, in nanoseconds
}

func (t *target) wrote(int) { t.last.Store(time.Now().UnixNano()) }

type counting struct {
	driver.Device
	out atomic.Int64
}

type countingQueue struct {
	driver.Queue
	c *counting
}

func (c *counting) NewQueue() (driver.Queue, error) {
	q, err := c.Device.NewQueue()
	return countingQueue{q, c}, err
}

func (q countingQueue) CopyOut(dst []byte, src driver.Buffer, off int64) error {
	q.c.out.Add(int64(len(dst)))
	return q.Queue.CopyOut(dst, src, off)
}

// pick opens the device that is measured: the first one that is not the host,
// or one of the requested backend or ID.
func pick() (*target, error) {
	var all []driver.Device
	var errs []error
	for _, open := range []func() ([]driver.Device, error){cuda.Open, opencl.Open} {
		devs, err := open()
		all = append(all, devs...)
		errs = append(errs, err)
	}
	for _, d := range all {
		if i := d.Info(); *list == "" || *list == i.ID || *list == i.Backend {
			c := &counting{Device: d}
			dev, err := driver.Expose[*device.Device](c)
			return &target{Device: dev, drv: c}, err
		}
	}
	return nil, fmt.Errorf("no such device is there: %w", errors.Join(errs...))
}

// state measures each size in a process of its own, so that its memory can be
// measured.
func state(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, s := range strings.Split(*sizes, ",") {
		if _, err := strconv.ParseFloat(s, 64); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, self, "-one", s, "-rounds", fmt.Sprint(*rounds), "-device", *list, "-dir", *tmpDir, fmt.Sprintf("-file=%v", *file))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		err := cmd.Run()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitMissed {
			missed++
			continue
		}
		if err != nil {
			return fmt.Errorf("%s GiB: %w", s, err)
		}
	}
	return nil
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// seconds measures f.
func seconds(f func() error) (float64, error) {
	t := time.Now()
	err := f()
	return time.Since(t).Seconds(), err
}

// sheet is a table with the columns what, value, ratio, bound, verdict.
type sheet struct{ w *tabwriter.Writer }

func newSheet(title string) *sheet {
	fmt.Printf("\n%s\n", title)
	return &sheet{tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
}

func (s *sheet) line(what, value, bound string, ok bool) {
	met := ""
	if bound != "" {
		met = verdict(ok)
	}
	fmt.Fprintf(s.w, "  %s\t%s\t%s\t%s\n", what, value, bound, met)
}

func (s *sheet) flush() { s.w.Flush() }

// memory returns the value of a line of /proc/self/status in bytes.
func memory(key string) int64 {
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10
		}
	}
	return 0
}

func mib(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

func processors() int { return runtime.GOMAXPROCS(0) }
