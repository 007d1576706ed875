// Command gpu measures the cost of checkpoints of device state, as ratios to
// the device's own speed in the same run: its copy from memory to memory, and
// its copy to pinned host memory.
//
//	go run ./internal/bench/gpu [-part state,split,programs,torch] [-sizes 1,8,64] [-device LIST]
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
	parts  = flag.String("part", "state,split,programs,torch", "what is measured")
	sizes  = flag.String("sizes", "1,8,64", "GiB of state on the device")
	rounds = flag.Int("rounds", 7, "rounds; medians are shown")
	list   = flag.String("device", "", "the device, as in CAIRN_DEVICES (default: the first)")
	tmpDir = flag.String("dir", "", "where files are written (default: the temporary directory)")
	bed    = flag.String("testbed", "", "the testbed program (default: beside this one, else built)")
	size   = flag.String("size", "small", "problem sizes of the part programs")
	names  = flag.String("programs", "ft,floyd,spmv,ftmd,summa,mg,shwa", "programs of that part")
	one    = flag.Float64("one", 0, "measure one size, GiB, in this process (used by the part state)")
	prof   = flag.String("cpuprofile", "", "with -one: where to write a profile")
	file   = flag.Bool("file", true, "also write sets of up to 8 GiB to files")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpu:", err)
		os.Exit(1)
	}
}

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
	var errs []error
	for _, part := range strings.Split(*parts, ",") {
		var err error
		switch part {
		case "state":
			err = state(ctx)
		case "split":
			err = split(ctx)
		case "programs":
			err = testbed(ctx)
		case "torch":
			err = torch(ctx)
		default:
			err = fmt.Errorf("no part %q: there are state, split, programs and torch", part)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", part, err)
			fmt.Fprintln(os.Stderr, "gpu:", err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
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
		if err := cmd.Run(); err != nil {
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
	verdict := "ok"
	if !ok {
		verdict = "MISSED"
	}
	if bound == "" {
		verdict = ""
	}
	fmt.Fprintf(s.w, "  %s\t%s\t%s\t%s\n", what, value, bound, verdict)
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
