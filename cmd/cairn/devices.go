package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

func devicesCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "devices [--list] [LIST]",
		Short: "list the devices that programs can compute on, and test each",
		Long: `Shows the devices that package device finds on this machine, in the order in which
programs get them. It tests each: it allocates memory, compiles and runs a kernel,
compares the result and the digests that checkpoints use with the host's, and
measures copies.
LIST is a value of CAIRN_DEVICES: backends or IDs, as "cuda,host".`,
		Example: `  cairn devices                                  # all devices
  cairn devices opencl                           # those of one backend
  CAIRN_DEVICES=opencl:0.0,host cairn run ./sim  # a run that uses these two`,
		Annotations: map[string]string{exitCodes: `  0  all devices work
  1  a device failed its test
  2  the command line is wrong
  3  the command failed: no such device, an error of the system, or interrupted
`},
		Args:              takes(0, 1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f := cmd.Flags()
	list := f.Bool("list", false, "list devices without testing them")
	cmd.RunE = c.does(func(_ context.Context, c *call) error { return devices(c, !*list) })
	return cmd
}

// deviceInfo is a device in the document of devices --json.
type deviceInfo struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Kind    string  `json:"kind"`
	Backend string  `json:"backend"`
	Version string  `json:"version"`
	Memory  int64   `json:"memory"`
	Units   int     `json:"units"`
	Doubles bool    `json:"doubles"`
	In      float64 `json:"inGBs,omitempty"`
	Out     float64 `json:"outGBs,omitempty"`
	Error   string  `json:"error,omitempty"`
}

type devicesDocument struct {
	Devices []deviceInfo      `json:"devices"`
	LeftOut []string          `json:"leftOut,omitempty"` // used only if they are named
	Missing map[string]string `json:"missing,omitempty"`
}

func devices(c *call, test bool) error {
	var devs []*device.Device
	var err error
	if len(c.args) > 0 {
		devs, err = device.Open(c.args[0])
	} else {
		devs, err = device.Devices()
	}
	if err != nil {
		return err
	}
	doc := devicesDocument{Missing: make(map[string]string)}
	failed := false
	for _, d := range devs {
		i := d.Info()
		row := deviceInfo{ID: i.ID, Name: i.Name, Kind: i.Kind.String(), Backend: i.Backend, Version: i.Version, Memory: i.Memory, Units: i.Units, Doubles: i.Doubles}
		if test {
			if row.In, row.Out, err = tryInTime(d, tryTime); err != nil {
				row.Error, failed = err.Error(), true
			}
		}
		doc.Devices = append(doc.Devices, row)
	}
	if len(c.args) == 0 && os.Getenv("CAIRN_DEVICES") == "" {
		others, _ := device.Open("opencl") // the others are always taken
		for _, d := range others {
			if !slices.Contains(devs, d) {
				doc.LeftOut = append(doc.LeftOut, d.String())
			}
		}
	}
	for name, err := range device.Missing() {
		doc.Missing[name] = err.Error()
	}
	if c.json {
		err = c.document(doc)
	} else {
		doc.print(c, test)
	}
	if err == nil && failed {
		err = errFound
	}
	return err
}

func (doc *devicesDocument) print(c *call, test bool) {
	head := []string{"ID", "KIND", "MEMORY", "UNITS", "NAME"}
	if test {
		head = append(head, "TEST")
	}
	t := c.table("", head...)
	for _, d := range doc.Devices {
		row := []string{d.ID, d.Kind, control.BytesText(d.Memory), fmt.Sprint(d.Units), d.Name}
		if test && d.Error != "" {
			row = append(row, "failed: "+d.Error)
		} else if test {
			speed := fmt.Sprintf("; %.1f GB/s in, %.1f out", d.In, d.Out)
			if d.Backend == "host" { // nothing is copied
				speed = ""
			}
			row = append(row, "passed"+speed)
		}
		t.row(row...)
	}
	t.flush()
	for _, name := range doc.LeftOut {
		c.printf("not used: %s; to use it, name it or its backend\n", name)
	}
	for _, name := range slices.Sorted(maps.Keys(doc.Missing)) {
		some := slices.ContainsFunc(doc.Devices, func(d deviceInfo) bool { return d.Backend == name })
		c.printf("%s %s: %s\n", map[bool]string{false: "no", true: "not all of"}[some], name, doc.Missing[name])
	}
}

const trySource = `
__kernel void cairn_try(__global const float *x, __global float *y, float a, int n)
{
	int i = get_global_id(0);
	if (i < n) y[i] = a * x[i] + y[i];
}
`

// tryTime is enough for compilers that are slow at first use.
const tryTime = 2 * time.Minute

// tryInTime calls tryDevice, which may hang, and gives up after limit. The
// goroutine that hangs is left behind.
func tryInTime(d *device.Device, limit time.Duration) (in, out float64, err error) {
	done := make(chan struct{})
	var i, o float64
	var failed error
	go func() {
		defer close(done)
		i, o, failed = tryDevice(d)
	}()
	select {
	case <-done:
		return i, o, failed
	case <-time.After(limit):
		return 0, 0, fmt.Errorf("no answer for %v: the device hangs; exclude it with CAIRN_DEVICES, and restart its driver or the machine", limit)
	}
}

// tryDevice computes a known result, and returns the speed of copies in GB/s.
func tryDevice(d *device.Device) (in, out float64, err error) {
	const n, rounds = 4 << 20, 3
	k := device.NewKernel(trySource, "cairn_try", func(w *device.Work) {
		x, y, a := device.Slice[float32](w, 0), device.Slice[float32](w, 1), device.Value[float32](w, 2)
		lo, hi := w.Range(0)
		for i := lo; i < min(hi, n); i++ {
			y[i] = a*x[i] + y[i]
		}
	})
	x, y := device.New[float32](n), device.New[float32](n)
	defer x.Free()
	defer y.Free()
	for round := range rounds {
		xs, err := x.Data()
		if err != nil {
			return 0, 0, err
		}
		ys, err := y.Data()
		if err != nil {
			return 0, 0, err
		}
		for i := range xs {
			xs[i], ys[i] = float32(i&1023), float32(round)
		}
		begin := time.Now()
		if err := d.Launch(k, device.Size{n}, device.In(x), device.InOut(y), float32(2), int32(n)); err != nil {
			return 0, 0, err
		}
		if err := d.Finish(); err != nil {
			return 0, 0, err
		}
		middle := time.Now()
		got, err := y.Read()
		if err != nil {
			return 0, 0, err
		}
		in = max(in, 8*n/1e9/middle.Sub(begin).Seconds())
		out = max(out, 4*n/1e9/time.Since(middle).Seconds())
		for i, v := range got {
			if want := 2*float32(i&1023) + float32(round); v != want {
				return 0, 0, fmt.Errorf("element %d is %v, not %v: the device computes wrong results; do not use it", i, v, want)
			}
		}
	}
	return in, out, tryDigests(d, k, x, y)
}

// tryDigests lets the device compute the digests that a checkpoint of y needs,
// if it computes them itself, and compares them with the host's.
func tryDigests(d *device.Device, k *device.Kernel, x, y *device.Array[float32]) error {
	const block = 64 << 10
	if err := d.Launch(k, device.Size{y.Len()}, device.In(x), device.InOut(y), float32(2), int32(y.Len())); err != nil {
		return err
	}
	addr, n := graph.MemoryOf(y)
	r, off := mem.FindRemote(addr)
	if r == nil {
		return nil
	}
	places, err := r.Places(off, off+n)
	if err != nil {
		return err
	}
	type found struct {
		at   int64
		len  int64
		sums []xxh3.Uint128
	}
	var all []found
	for _, p := range places {
		if p.Device != nil {
			x := mem.Extent{Buffer: p.Buffer, Off: p.Off, Len: p.Len, Block: block}
			live, err := p.Device.Live([]mem.Extent{x})
			if err != nil {
				return err
			}
			sums, err := live.Digests(0, 0, x.Blocks())
			live.Close()
			if err != nil {
				return err
			}
			all = append(all, found{off, p.Len, sums})
		}
		off += p.Len
	}
	for _, f := range all {
		host, err := r.Host(f.at, f.at+f.len)
		if err != nil {
			return err
		}
		i := 0
		for p := range slices.Chunk(host, block) {
			if i >= len(f.sums) || f.sums[i] != xxh3.Hash128(p) {
				return fmt.Errorf("the digest of bytes %d to %d differs from the host's: the device computes wrong results; do not use it", i*block, i*block+len(p))
			}
			i++
		}
	}
	return nil
}
