package main

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

func init() { programs["shwa"] = func() program { return new(shwa) } }

//go:embed shwa.cl
var shwaText string

// shwaGroup is the number of cells of a row that form a group in the update;
// shwaReducers is the number of items that find the fastest wave.
const (
	shwaGroup    = 64
	shwaReducers = 256
)

// shwaPlainSteps is the largest number of steps that the reference computes.
const shwaPlainSteps = 20_000

// shwa is a simulation of shallow water with a contaminant in an estuary,
// after Viñas et al. (a multi-GPU shallow-water simulation with transport of
// contaminants): finite volumes of first order, explicit in time.
//
// A step launches three kernels on each device. The first finds the length of
// the step from the fastest wave, and sets the clock: on the first device that
// of the next step, on the others a copy of it. The second adds up the
// flows through the faces of each cell. The third updates the cells, and finds
// the fastest wave of each group of 64. The fastest wave on all devices decides
// how long the step is. The host does not read it: with one device, the host
// never waits. With several, it waits once in a step, when rows and fastest
// waves are copied from one device to another.
//
// Each device computes a band of rows. It has views of arrays that all devices
// share; the view of the state has one more row on either side. A minimum does
// not depend on the order, so any number of devices gives the same bits.
type shwa struct {
	shwaSize
	open bool    // the basin is open to sea and river
	rise float32 // amplitude of the tide

	// The state. u holds for each row four lines: depth, momentum to the
	// east and to the north, contaminant.
	u     *device.Array[float32]    // ny × 4 × nx
	clock [2]*device.Array[float32] // after an even and after an odd number of steps
	gate  *device.Array[float32]    // ny × 3: flow from the sea, flow to the river, and all water that came in
	peak  *device.Array[float32]    // ny × groups: fastest waves

	bed  *device.Array[float32] // ny × nx
	rate *device.Array[float32] // ny × 4 × nx

	limit, fluxes, update *device.Kernel
	bands                 []shwaBand

	dir   string // directory for pictures
	every int
}

// shwaBand is the part of a device: rows lo…hi, and its views of the arrays.
type shwaBand struct {
	dev       *device.Device
	lo, hi    int
	skip      int // rows of around before lo
	view      int // rows of around
	around    *device.Array[float32]
	aroundBed *device.Array[float32]

	u, gate, peak, rate *device.Array[float32]
	clock               [2]*device.Array[float32] // the device's own, except for the first
}

// shwaSource is the kernels' source with the constants before it.
func shwaSource() string {
	var b strings.Builder
	for _, c := range []struct {
		name  string
		value float64
	}{
		{"GRAVITY", shwaGravity}, {"HALF_GRAVITY", shwaGravity / 2}, {"DRY", shwaDry}, {"DRAG", shwaDrag},
		{"COURANT", shwaCourant}, {"NOTHING", shwaNothing}, {"PERIOD", shwaPeriod}, {"SWELL", shwaSwell}, {"DOSE", shwaDose},
		{"SLOWEST", shwaSlowest},
	} {
		fmt.Fprintf(&b, "#define %s %sf\n", c.name, strconv.FormatFloat(c.value, 'e', -1, 64))
	}
	for i, name := range []string{"TIME", "PHASE", "RATIO", "STEP", "TIDE", "RIVER", "SOURCE"} {
		fmt.Fprintf(&b, "#define %s %d\n", name, i)
	}
	return b.String() + "#line 1\n" + shwaText // so that errors name the line in the file
}

func (s *shwa) groups() int { return (s.nx + shwaGroup - 1) / shwaGroup }

func (s *shwa) setup(size string, devs []*device.Device) error {
	of, ok := shwaSizes[size]
	if !ok {
		return fmt.Errorf("shwa: there is no size %q; there are tiny, small, medium, large and long", size)
	}
	s.shwaSize, s.open, s.rise = of, true, shwaRise
	return s.prepare(devs)
}

// prepare makes the arrays, and the ground.
func (s *shwa) prepare(devs []*device.Device) error {
	s.u = device.New[float32](s.ny, 4, s.nx)
	s.clock = [2]*device.Array[float32]{device.New[float32](clockLen), device.New[float32](clockLen)}
	s.gate = device.New[float32](s.ny, 3)
	s.peak = device.New[float32](s.ny, s.groups())
	s.bed = device.NewConstant[float32](s.ny, s.nx)
	s.rate = device.New[float32](s.ny, 4, s.nx)
	source := shwaSource()
	s.limit = device.NewKernel(source, "shwa_limit", shwaLimit)
	s.fluxes = device.NewKernel(source, "shwa_fluxes", shwaFluxes)
	s.update = device.NewKernel(source, "shwa_update", shwaUpdate)

	bed, err := s.bed.Data()
	if err != nil {
		return err
	}
	s.ground(bed)
	s.divide(devs) // so that rows are restored on the devices that use them
	return nil
}

// begin fills the basin with water at rest.
func (s *shwa) begin([]*device.Device) error {
	bed, err := s.bed.Read()
	if err != nil {
		return err
	}
	u, err := s.u.Data()
	if err != nil {
		return err
	}
	peak, err := s.peak.Data()
	if err != nil {
		return err
	}
	s.start(u, bed)
	for j := range s.ny {
		for i := range s.nx {
			p := &peak[j*s.groups()+i/shwaGroup]
			*p = larger(*p, root(float32(shwaGravity*u[4*j*s.nx+i])))
		}
	}
	return nil
}

func (s *shwa) protect(p *cairn.Run) {
	cairn.Protect(p, "water", s.u)
	cairn.Protect(p, "clock0", s.clock[0])
	cairn.Protect(p, "clock1", s.clock[1])
	cairn.Protect(p, "gate", s.gate)
	cairn.Protect(p, "peak", s.peak)
}

func (s *shwa) spread(devs []*device.Device) error {
	s.divide(devs)
	return nil
}

// divide gives each device its band.
func (s *shwa) divide(devs []*device.Device) {
	s.bands = nil
	n := min(len(devs), s.ny)
	for k := range n {
		lo, hi := s.ny*k/n, s.ny*(k+1)/n
		from, to := max(lo-1, 0), min(hi+1, s.ny)
		clock := s.clock
		if k > 0 {
			clock[0] = device.New[float32](clockLen)
			clock[1] = clock[0]
		}
		s.bands = append(s.bands, shwaBand{
			dev: devs[k], lo: lo, hi: hi,
			skip: lo - from, view: to - from,
			around: s.u.Rows(from, to), aroundBed: s.bed.Rows(from, to),
			u: s.u.Rows(lo, hi), gate: s.gate.Rows(lo, hi),
			peak: s.peak.Rows(lo, hi), rate: s.rate.Rows(lo, hi), clock: clock,
		})
		s.bands[k].u.Prefer(devs[k])
	}
}

func (s *shwa) steps() int { return s.shwaSize.steps }

func (s *shwa) step(_ context.Context, i int) error {
	nx, open := int32(s.nx), int32(0)
	if s.open {
		open = 1
	}
	wide := s.groups() * shwaGroup
	now := (i + 1) % 2 // of the two clocks
	// These launches copy what devices need from each other. They also copy
	// the neighbours' rows, which this kernel does not read, so that all
	// copies are done before any device is busy.
	for _, b := range s.bands {
		err := b.dev.Launch(s.limit, device.Size{shwaReducers}.In(shwaReducers),
			device.In(s.peak), int32(s.ny*s.groups()), device.Local[float32](shwaReducers),
			device.In(s.clock[i%2]), device.Out(b.clock[now]), s.cell(), s.rise, device.In(b.around))
		if err != nil {
			return err
		}
	}
	for _, b := range s.bands {
		err := b.dev.Launch(s.fluxes, device.Size{wide, b.hi - b.lo}.In(shwaGroup, 1),
			device.In(b.around), device.In(b.aroundBed), device.In(b.clock[now]),
			device.Out(b.rate), device.InOut(b.gate),
			nx, int32(b.hi-b.lo), int32(b.skip), int32(b.view), open)
		if err != nil {
			return err
		}
	}
	si, sj, r2 := s.source()
	for _, b := range s.bands {
		err := b.dev.Launch(s.update, device.Size{wide, b.hi - b.lo}.In(shwaGroup, 1),
			device.InOut(b.u), device.In(b.rate), device.In(b.clock[now]),
			device.InOut(b.gate), device.Out(b.peak), device.Local[float32](shwaGroup),
			nx, int32(b.hi-b.lo), int32(b.lo), int32(si), int32(sj), int32(r2))
		if err != nil {
			return err
		}
	}
	if s.every > 0 && (i+1)%s.every == 0 {
		return s.paint(i + 1)
	}
	return nil
}

func (s *shwa) result() ([]float64, error) {
	u, err := s.u.Read()
	if err != nil {
		return nil, err
	}
	clock, err := s.clock[s.steps()%2].Read()
	if err != nil {
		return nil, err
	}
	gate, err := s.gate.Read()
	if err != nil {
		return nil, err
	}
	came := make([]float32, s.ny)
	for j := range came {
		came[j] = gate[3*j+2]
	}
	return shwaNumbers(clock, came, u), nil
}

// reference computes the same without devices. For the longest run that would
// take hours.
func (s *shwa) reference() []float64 {
	if s.steps() > shwaPlainSteps {
		return slices.Repeat([]float64{math.NaN()}, 1+s.ny+4*s.nx*s.ny)
	}
	p := newShwaPlain(s.shwaSize)
	for range s.steps() {
		p.step()
	}
	return shwaNumbers(p.clock, p.gate, p.u)
}

// tolerance is 0: all devices do the same operations in the same order.
func (s *shwa) tolerance() float64 { return 0 }

func (s *shwa) pictures(dir string, every int) { s.dir, s.every = dir, every }

// paint draws the state after the given number of steps. It waits for the
// devices.
func (s *shwa) paint(step int) error {
	u, err := s.u.Read()
	if err != nil {
		return err
	}
	bed, err := s.bed.Read()
	if err != nil {
		return err
	}
	clock, err := s.clock[step%2].Read()
	if err != nil {
		return err
	}
	c := chart{shwaSize: s.shwaSize, u: u, bed: bed, time: clock[clockTime], step: step}
	return c.save(s.dir)
}
