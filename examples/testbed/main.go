// Testbed runs programs on devices, saves their state while they run, and
// restores it. It is a new implementation of the testbed of Losada and others
// (A portable and adaptable fault tolerance solution for heterogeneous
// applications).
//
//	testbed -size small ft                             without checkpoints
//	testbed -size small -dir ckpt -stop-at 0.75 ftmd   saves at 75 % and ends
//	testbed -size small -dir ckpt -devices host ftmd   resumes on other devices
//
// # Programs
//
//	ft     NPB's FT: a diffusion equation by Fourier transforms, on one device
//	ftmd   the same on all devices
//	floyd  Floyd and Warshall's shortest paths between all nodes, on one device
//	spmv   a sparse matrix times a vector, again and again
//	summa  van de Geijn and Watts' product of two matrices
//	mg     NPB's MG: V-cycles of multigrid for Poisson's equation
//	shwa   shallow water with a contaminant in an estuary; it draws pictures
//
// A program on several devices is malleable if its checkpoints do not depend on
// the number of devices: after a restart it divides the work among the devices
// that it finds. It is pseudo-malleable if the division is part of its state:
// then it sees as many devices as before, some of which may be the same one.
//
//	       restart on        because
//	ft     any one device    all is on the first
//	ftmd   any number        the waves are one array; devices have planes of it
//	floyd  any one device    all is on the first
//	spmv   any number        matrix and vector are one image; devices have rows
//	summa  as many as before a device's blocks are arrays of its own, in a grid
//	mg     as many as before a device's slab is an array of its own, with its
//	                         neighbours' planes
//	shwa   any number        the water is one array; devices have bands of rows
//
// # Sizes
//
// tiny is for tests, small for a first try, and medium (between small and
// large) for measurements on a few processors: 6 to 12 s on two. large is the
// problem of the paper, or similar. long is for measurements on a large GPU,
// where its loop takes 3 to 13 seconds. Only what later steps read is saved;
// the column "state" shows its size, for large and long. Steps are iterations
// of the main loop.
//
//	       tiny       small    large            long              state
//	ft     64³        128²·32  512·256² (B)     512³ (C)          512 MiB, 2 GiB
//	       6 steps    6        20               500
//	ftmd   as ft
//	floyd  128 nodes  1024     16384            16384             2 GiB
//	       128 steps  1024     16384            16384
//	spmv   1024 rows  8192     32768, 1 % full  32768, 3.4 %      124, 412 MiB
//	       50 steps   500      10000            25000
//	summa  128²       1024²    8192²            16384²            1.5, 6 GiB
//	       8 steps    8        8                128: 64 panels,
//	                                            2 products
//	mg     32³        128³     256³ (B)         512³ (C)          387 MiB, 3 GiB
//	       4 steps    4        20               480: 24 solutions
//	shwa   64·48      400²     800²             800²              10 MiB
//	       200 steps  2000     20000            100000
//
// The state of ft and ftmd is the waves; of floyd, distances and paths; of
// spmv, matrix and vector; of summa, three matrices; of mg, u, r and v of the
// finest grid; of shwa, depth, momenta and contaminant.
//
// The checkpoints of the paper (table 5) have 770 MB for FT (the waves, and a
// factor for each), 2048 for Floyd, 410 for Spmv, 1536 for Summa, 300 for MG (u
// and r of all grids), and 6 and 21 for two meshes of Shwa. All but 20 points
// of MG's v are zero, so it takes no room in a checkpoint.
//
// # Results
//
// The kernels are in OpenCL C, and in Go for the host. The result of a program
// has the same bits on all devices, on any number of them, resumed or not. With
// -verify it is compared with a computation that uses no device, or with
// published numbers:
//
//	       compared with                                       allowed, of the
//	                                                           largest number
//	ft     NPB's checksums; beyond them, sums of the waves     1e-12, as NPB
//	       that the checksum sees
//	floyd  the same algorithm; from 2049 nodes on, Dijkstra's  0
//	       from some nodes
//	spmv   the same sums in the same order; long: nothing      0
//	summa  tiny: the plain product; else A·(B·w) for C·w       0; 1e-12
//	mg     NPB's norm of the residual                          1e-8, as NPB
//	shwa   the same operations cell by cell; long: nothing     0
//
// If there is nothing to compare with, compare the digests of two runs.
//
// Each program is in the file of its name and implements the interface
// program; harness.go runs it. The exit status is 1 if the run failed or the
// result is wrong, 2 for wrong usage, and 75 after a signal to save and stop.
package main

//go:generate go run ../../cmd/cairn kernels

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

// program is one of the testbed. All of its state is in fields.
type program interface {
	// setup makes what every start needs for a problem of the given size:
	// tables, and arrays that take no memory because they are not yet
	// filled. It uses no device, because a checkpoint may be restored.
	setup(size string, devs []*device.Device) error
	// protect makes the state part of the run, before Restore.
	protect(p *cairn.Run)
	// begin makes the initial state. It is called if there was no
	// checkpoint.
	begin(devs []*device.Device) error
	// spread divides the work among devs. It is called when the state was
	// made or restored, and after devices were lost.
	spread(devs []*device.Device) error
	// steps returns the number of iterations. step does one of them; it
	// must not wait for its kernels.
	steps() int
	step(ctx context.Context, i int) error
	// result returns the numbers that the run computes.
	result() ([]float64, error)
	// reference computes these numbers on the host in a simple way, or
	// returns published ones; NaN stands for numbers that would take too
	// long. tolerance is how much result may differ, relative to the
	// largest number.
	reference() []float64
	tolerance() float64
}

// programs by name.
var programs = map[string]func() program{}

// sizes of problems.
var sizes = []string{"tiny", "small", "medium", "large", "long"}

// exitStopped is the exit status after a signal to save and stop (EX_TEMPFAIL:
// try again).
const exitStopped = 75

const usage = `usage: testbed [flags] NAME

NAME is one of %s.

Without -dir the program is plain and calls nothing of Cairn. With it, the
state is protected, and a checkpoint in that directory is restored. The state is
saved where -checkpoint-at and -stop-at say, every -every, and on SIGTERM and
SIGUSR1. When the work is done, the checkpoints are removed.

  testbed -size large -json plain.json ft
  testbed -size large -dir ckpt -checkpoint-at 0.75 -json saved.json ft
  testbed -dir ckpt -devices cuda -stop-at 0.5 floyd
  testbed -dir ckpt -devices host -verify floyd
  testbed -size small -pictures png -pictures-every 50 shwa

`

func main() {
	c, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(2)
	}
	if c.devices != "" {
		if err := os.Setenv("CAIRN_DEVICES", c.devices); err != nil {
			fmt.Fprintln(os.Stderr, "testbed:", err)
			os.Exit(1)
		}
	}
	h := &harness{config: *c, find: device.Devices, log: os.Stderr}
	if err := h.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		if errors.Is(err, cairn.ErrStopped) {
			os.Exit(exitStopped)
		}
		os.Exit(1)
	}
}

// parse reads the command line. It reports wrong flags to w.
func parse(args []string, w io.Writer) (*config, error) {
	c := &config{stopAt: never, checkpointAt: never}
	f := flag.NewFlagSet("testbed", flag.ContinueOnError)
	f.SetOutput(w)
	f.Usage = func() {
		fmt.Fprintf(w, usage, strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
		f.PrintDefaults()
	}
	f.StringVar(&c.size, "size", "tiny", "size of the problem: "+strings.Join(sizes, ", "))
	f.StringVar(&c.devices, "devices", "", "devices to use, as in CAIRN_DEVICES: cuda, opencl:0.1, host,host …")
	f.StringVar(&c.dir, "dir", "", "directory for checkpoints; none: nothing is protected")
	f.DurationVar(&c.every, "every", 0, "time between checkpoints; 0: none is due by time")
	f.Float64Var(&c.stopAt, "stop-at", never, "save at that fraction of the steps, 0 to 1, and end")
	f.Float64Var(&c.checkpointAt, "checkpoint-at", never, "save at that fraction of the steps, 0 to 1, and continue")
	f.BoolVar(&c.verify, "verify", false, "compare the result with that of a plain computation on the host")
	f.StringVar(&c.json, "json", "", "file for a report")
	f.StringVar(&c.result, "result", "", "file for the result's numbers, as float64 in little-endian order")
	f.StringVar(&c.pictures, "pictures", "", "directory for pictures of the state")
	f.IntVar(&c.everyPicture, "pictures-every", 100, "steps from one picture to the next")
	f.Lookup("stop-at").DefValue = "0" // which PrintDefaults leaves out
	f.Lookup("checkpoint-at").DefValue = "0"
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() != 1 || programs[f.Arg(0)] == nil {
		return nil, fmt.Errorf("give one program after the flags: %s; see -help", strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
	}
	c.name = f.Arg(0)
	if !slices.Contains(sizes, c.size) {
		return nil, fmt.Errorf("there is no size %q; there are %s", c.size, strings.Join(sizes, ", "))
	}
	if c.everyPicture <= 0 {
		return nil, fmt.Errorf("-pictures-every is a number of steps, at least 1, not %d", c.everyPicture)
	}
	for _, at := range []struct {
		flag  string
		value float64
	}{{"stop-at", c.stopAt}, {"checkpoint-at", c.checkpointAt}} {
		if at.value == never {
			continue
		}
		if !(at.value >= 0 && at.value <= 1) {
			return nil, fmt.Errorf("-%s is a fraction of the steps, from 0 to 1, not %v", at.flag, at.value)
		}
		if c.dir == "" {
			return nil, fmt.Errorf("-%s needs -dir, a directory for the checkpoint", at.flag)
		}
	}
	if c.every < 0 || c.every > 0 && c.dir == "" {
		return nil, errors.New("-every is a positive time and needs -dir, a directory for the checkpoints")
	}
	return c, nil
}
