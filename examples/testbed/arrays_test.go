package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
)

// meshLists are the devices that programs are tried on. Two OpenCL
// devices are there with POCL_DEVICES="pthread pthread".
var meshLists = []string{
	"host", "host,host", "host,host,host", "opencl:0.0", "opencl:0.0,opencl:0.1", "host,opencl:0.0", "discrete", "discrete,host,discrete,discrete",
	"cuda:0", "host,cuda:0,discrete",
}

// openList opens devices. It skips the test if this machine has none of them.
func openList(t *testing.T, list string) []*device.Device {
	t.Helper()
	devs, err := device.Open(list)
	if err != nil && (strings.Contains(list, "opencl") || strings.Contains(list, "cuda")) {
		t.Skipf("no devices %s here: %v", list, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return devs
}

// runMesh runs a program without protection on the devices.
func runMesh(t *testing.T, p program, devs []*device.Device) []float64 {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(p.setup("tiny", devs))
	check(p.begin(devs))
	check(p.spread(devs))
	for i := range p.steps() {
		check(p.step(t.Context(), i))
	}
	values, err := p.result()
	check(err)
	return values
}

// verifyMesh runs a program on every list of devices. The result must be within
// the tolerance, and have the same bits everywhere.
func verifyMesh(t *testing.T, name string) {
	var first []float64
	for _, list := range meshLists {
		t.Run(list, func(t *testing.T) {
			p := programs[name]()
			got := runMesh(t, p, openList(t, list))
			off, err := deviation(got, p.reference())
			if err != nil {
				t.Fatal(err)
			}
			if off > p.tolerance() {
				t.Errorf("off by %v, allowed are %v", off, p.tolerance())
			}
			if first == nil {
				first = append(first, got...)
			}
			sameBits(t, got, first)
		})
	}
}

func sameBits(t *testing.T, got, want []float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d numbers, not %d", len(got), len(want))
	}
	for i := range got {
		if math.Float64bits(got[i]) != math.Float64bits(want[i]) {
			t.Fatalf("number %d is %v, and %v on the first devices", i, got[i], want[i])
		}
	}
}

// restartMesh stops a program halfway on some devices, and resumes it on
// others. It calls seen at the end of each part.
func restartMesh(t *testing.T, name string, seen func(t *testing.T, p program, began []*device.Device)) {
	restartOn(t, name, func(t *testing.T, p program, began, _ []*device.Device) { seen(t, p, began) })
}

// restartOn is like restartMesh; seen is given the other devices too.
func restartOn(t *testing.T, name string, seen func(t *testing.T, p program, began, others []*device.Device)) {
	want := runMesh(t, programs[name](), openList(t, "host"))
	for _, lists := range [][2]string{
		{"host", "host,host,host"},
		{"host,host", "host"},
		{"host,host,host", "host,host"},
		{"host,host,host", "opencl:0.0"},
		{"discrete,discrete,discrete", "host,discrete"},
		{"opencl:0.0", "host,host"},
		{"opencl:0.0,opencl:0.1", "opencl:0.0"},
		{"host,host", "cuda:0"},
		{"cuda:0", "host,discrete"},
		{"cuda:0,host", "cuda:0"},
	} {
		t.Run(lists[0]+" to "+lists[1], func(t *testing.T) {
			began, others := openList(t, lists[0]), openList(t, lists[1])
			file := filepath.Join(t.TempDir(), "result")
			c := config{name: name, size: "tiny", dir: t.TempDir(), stopAt: 0.5, checkpointAt: never}
			h := &harness{config: c, log: io.Discard, find: func() ([]*device.Device, error) { return began, nil }}
			if err := h.run(context.Background()); err != nil {
				t.Fatal(err)
			}
			if !h.report.Stopped || h.i != h.p.steps()/2 {
				t.Fatalf("it did not stop half-way but at step %d of %d", h.i, h.p.steps())
			}
			c.stopAt, c.verify, c.result = never, true, file
			h = &harness{config: c, log: io.Discard, find: func() ([]*device.Device, error) { return others, nil }}
			if err := h.run(context.Background()); err != nil {
				t.Fatal(err)
			}
			if !h.report.Resumed || h.report.From != h.p.steps()/2 {
				t.Fatalf("it was not resumed half-way but at step %d", h.report.From)
			}
			seen(t, h.p, began, others)
			sameBits(t, readResult(t, file, len(want)), want)
		})
	}
}

// usedInTurn checks that a program saw n devices: those given, in turn.
func usedInTurn(t *testing.T, got []*device.Device, n int, devs []*device.Device) {
	t.Helper()
	if len(got) != n {
		t.Errorf("it resumed on %d devices, not %d", len(got), n)
	}
	for i, d := range got {
		if want := devs[i%len(devs)]; d != want {
			t.Errorf("device %d is %v, not %v", i, d, want)
		}
	}
}

// loseMesh runs a program on two devices, and the first is lost at some moment.
// The run returns to its checkpoint and ends on the other device, with the same
// bits.
func loseMesh(t *testing.T, name string) {
	want := runMesh(t, programs[name](), openList(t, "host"))
	try := func(t *testing.T, f *faulty.Fault) *harness {
		bad, err := driver.Expose[*device.Device](faulty.Wrap(host.New(host.Options{Index: 7, Discrete: true}), f))
		if err != nil && f.At > 0 && errors.Is(err, device.ErrLost) {
			return nil // lost before it was opened
		}
		if err != nil {
			t.Fatal(err)
		}
		devs := append([]*device.Device{bad}, openList(t, "discrete")...)
		h := &harness{
			config: config{name: name, size: "tiny", dir: t.TempDir(), stopAt: never, checkpointAt: 0.5},
			log:    io.Discard,
			find: func() ([]*device.Device, error) {
				return slices.DeleteFunc(slices.Clone(devs), func(d *device.Device) bool { return d.Err() != nil }), nil
			},
		}
		h.result = filepath.Join(t.TempDir(), "result")
		if err := h.run(context.Background()); err != nil {
			t.Fatalf("call %d (%s) failed: %v", f.At, f.Name(f.At), err)
		}
		sameBits(t, readResult(t, h.result, len(want)), want)
		return h
	}
	var count faulty.Fault
	try(t, &count)
	calls, back := count.Calls(), 0
	for _, kind := range []faulty.Kind{faulty.Lost, faulty.Late} {
		t.Run(kind.String(), func(t *testing.T) {
			for k := range 5 {
				f := &faulty.Fault{At: 1 + calls*(2*k+1)/10, Kind: kind}
				if h := try(t, f); h != nil {
					back += h.report.Rollbacks
				}
			}
		})
	}
	if back == 0 {
		t.Error("no run went back to a checkpoint")
	}
}

func readResult(t *testing.T, file string, n int) []float64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]float64, n)
	if err := binary.Read(f, binary.LittleEndian, got); err != nil {
		t.Fatal(err)
	}
	return got
}
