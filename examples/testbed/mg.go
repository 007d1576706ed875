package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

func init() { programs["mg"] = func() program { return new(mg) } }

// mg is the multigrid kernel of the NAS Parallel Benchmarks: V-cycles for
// Poisson's equation A·u = v on a periodic cubic grid. Grids are divided into
// slabs along z, one for each device, each with a plane of both neighbours.
// Grids that are too coarse for that are on the first device. mg is
// pseudo-malleable: each slab is an array, so a restart has as many slabs as
// before.
//
// Only the finest grid carries values from one cycle to the next. The others
// are made at every start, and never saved.
type mg struct {
	class   mgClass
	group   device.Group             // not a pointer: Restore sets the number and keeps the devices
	u, r, v []*device.Array[float64] // on the finest grid, by slab
	grids   []mgGrid                 // coarsest first

	residual, smooth, reduce, extend, ghosts, zero *device.Kernel
}

// mgClass is a size of the problem, with the published norm of the residual.
// The stencils have weights for the centre, the faces and the edges of a cube;
// the weights of the smoother's corners are zero.
type mgClass struct {
	levels   int // the finest grid has 2^levels points a side
	cycles   int // cycles that solve the problem as exactly as NPB requires
	times    int // how often the problem is solved, each time from the beginning
	smoother [3]float64
	norm     float64
}

var mgClasses = map[string]mgClass{
	"tiny":   {5, 4, 1, [3]float64{-3. / 8, 1. / 32, -1. / 64}, 0.5307707005734e-04},    // S
	"small":  {7, 4, 1, [3]float64{-3. / 8, 1. / 32, -1. / 64}, 0.6467329375339e-05},    // W
	"medium": {8, 4, 2, [3]float64{-3. / 8, 1. / 32, -1. / 64}, 0.2433365309069e-05},    // A
	"large":  {8, 20, 1, [3]float64{-3. / 17, 1. / 33, -1. / 61}, 0.1800564401355e-05},  // B
	"long":   {9, 20, 24, [3]float64{-3. / 17, 1. / 33, -1. / 61}, 0.5706732285740e-06}, // C
}

// mgGrid is a level's grid.
type mgGrid struct {
	side  int
	slabs []mgSlab
	u, r  []*device.Array[float64] // by slab; nil for the finest grid, which has those of mg
}

// mgSlab is planes first…last of a grid, on a device. Its arrays have one more
// plane below and above.
type mgSlab struct {
	dev         *device.Device
	first, last int
}

func (s *mgSlab) planes() int { return s.last - s.first }

// mgCharges is the number of points of each sign in v.
const mgCharges = 10

func (m *mg) setup(size string, devs []*device.Device) error {
	class, ok := mgClasses[size]
	if !ok {
		return fmt.Errorf("mg: there is no size %q: use tiny, small, medium, large or long", size)
	}
	if err := needDoubles("mg", devs); err != nil {
		return err
	}
	m.class = class
	m.residual, m.smooth = device.KernelOf(mgResidual), device.KernelOf(mgSmooth)
	m.reduce, m.extend = device.KernelOf(mgReduce), device.KernelOf(mgExtend)
	m.ghosts, m.zero = device.KernelOf(mgGhosts), device.KernelOf(mgZero)

	m.group = *device.NewGroup(devs[:min(len(devs), 1<<class.levels/4)]...)
	m.u, m.r, m.v = nil, nil, nil
	side := 1 << class.levels
	for _, b := range m.bounds(side) {
		m.u = append(m.u, device.New[float64](b[1]-b[0]+2, side, side))
		m.r = append(m.r, device.New[float64](b[1]-b[0]+2, side, side))
		m.v = append(m.v, device.NewConstant[float64](b[1]-b[0]+2, side, side))
	}
	return m.spread(devs) // so that slabs are restored on the devices that use them
}

// bounds returns where the slabs of a grid begin and end. Each slab has twice
// as many planes as that of the next coarser grid, so that both cover the same
// space.
func (m *mg) bounds(side int) [][2]int {
	n, top := m.group.Len(), 1<<m.class.levels
	// Find the finest grid that is not divided. The next one has a few
	// planes for every device, and can be divided evenly enough.
	whole := 2
	for whole < 4*n && whole < top/2 {
		whole *= 2
	}
	if side <= whole {
		return [][2]int{{0, side}}
	}
	bounds := make([][2]int, n)
	for i := range bounds {
		bounds[i] = [2]int{i * whole / n * (side / whole), (i + 1) * whole / n * (side / whole)}
	}
	return bounds
}

// begin sets v: 1 at the ten largest of random numbers on the grid, −1 at the
// ten smallest, 0 elsewhere. The first step does the rest.
func (m *mg) begin([]*device.Device) error {
	type place struct {
		value float64
		index int
	}
	// NPB's generator.
	const multiplier, modulus = 1220703125, 1 << 46
	state := uint64(314159265)

	side := 1 << m.class.levels
	var places []place
	extremes := func() {
		slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.value, b.value) })
		places = slices.Delete(places, mgCharges, len(places)-mgCharges)
	}
	low, high := 1.0, 0.0 // numbers between them are not among the extremes
	for i := range side * side * side {
		state = state * multiplier % modulus
		if v := float64(state) / modulus; v < low || v > high {
			if places = append(places, place{v, i}); len(places) > 4096 {
				extremes()
				low, high = places[mgCharges-1].value, places[mgCharges].value
			}
		}
	}
	extremes()

	for i, b := range m.bounds(side) {
		v, err := m.v[i].Data()
		if err != nil {
			return err
		}
		for plane := range b[1] - b[0] + 2 {
			z := (b[0] + plane - 1 + side) % side
			for k, p := range places {
				if p.index/side/side != z {
					continue
				}
				at := plane*side*side + p.index%(side*side)
				if v[at] = -1; k >= mgCharges {
					v[at] = 1
				}
			}
		}
	}
	return nil
}

func (m *mg) protect(p *cairn.Run) {
	cairn.Protect(p, "slabs", &m.group)
	cairn.Protect(p, "u", &m.u)
	cairn.Protect(p, "r", &m.r)
	cairn.Protect(p, "v", &m.v)
}

// spread does not change the slabs: the group knows which device has which.
func (m *mg) spread(_ []*device.Device) error {
	for _, g := range m.grids {
		for i := range g.u {
			g.u[i].Free()
			g.r[i].Free()
		}
	}
	m.grids = nil
	for side := 2; side <= 1<<m.class.levels; side *= 2 {
		g := mgGrid{side: side}
		bounds := m.bounds(side)
		finest := side == 1<<m.class.levels
		if n := len(bounds); finest && (n != len(m.u) || n != len(m.r) || n != len(m.v)) {
			return fmt.Errorf("mg: %d, %d and %d slabs for %d devices", len(m.u), len(m.r), len(m.v), n)
		}
		for i, b := range bounds {
			s := mgSlab{dev: m.group.At(i), first: b[0], last: b[1]}
			if finest {
				m.u[i].Prefer(s.dev)
				m.r[i].Prefer(s.dev)
				m.v[i].Prefer(s.dev)
			} else {
				g.u = append(g.u, device.New[float64](b[1]-b[0]+2, side, side))
				g.r = append(g.r, device.New[float64](b[1]-b[0]+2, side, side))
			}
			g.slabs = append(g.slabs, s)
		}
		m.grids = append(m.grids, g)
	}
	return nil
}

// mgU and mgR return an array of a slab.
func mgU(m *mg, level, slab int) *device.Array[float64] {
	if level == len(m.grids)-1 {
		return m.u[slab]
	}
	return m.grids[level].u[slab]
}

func mgR(m *mg, level, slab int) *device.Array[float64] {
	if level == len(m.grids)-1 {
		return m.r[slab]
	}
	return m.grids[level].r[slab]
}

// own returns an array of a slab without the neighbours' planes.
func own(a *device.Array[float64], s mgSlab) *device.Array[float64] {
	return a.Rows(1, s.planes()+1)
}

func (m *mg) steps() int { return m.class.cycles * m.class.times }

// restart sets u to zero, and r to the residual, which is then v.
func (m *mg) restart() error {
	top := len(m.grids) - 1
	for i, s := range m.grids[top].slabs {
		u := m.u[i]
		if err := s.dev.Launch(m.zero, device.Size{u.Len()}, device.Out(u)); err != nil {
			return err
		}
	}
	return m.rest(top)
}

// step does a V-cycle, and computes the residual after it.
func (m *mg) step(_ context.Context, i int) error {
	if i%m.class.cycles == 0 {
		if err := m.restart(); err != nil {
			return err
		}
	}
	top := len(m.grids) - 1
	for l := top - 1; l >= 0; l-- {
		if err := m.down(l); err != nil {
			return err
		}
	}
	if err := m.relax(0, false); err != nil {
		return err
	}
	for l := 1; l < top; l++ {
		if err := firstOf(
			func() error { return m.up(l, false) },
			func() error { return m.rest(l) },
			func() error { return m.relax(l, true) },
		); err != nil {
			return err
		}
	}
	return firstOf(
		func() error { return m.up(top, true) },
		func() error { return m.rest(top) },
		func() error { return m.relax(top, true) },
		func() error { return m.rest(top) },
	)
}

// firstOf calls functions until one fails.
func firstOf(fs ...func() error) error {
	for _, f := range fs {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// mgSize returns the size of a launch for planes of n × n points. A group is a
// row.
func mgSize(n, planes int) device.Groups { return device.Size{n, n, planes}.In(n, 1, 1) }

// down sets r of level l to weighted means of r of the next finer level.
func (m *mg) down(l int) error {
	coarse, fine := m.grids[l], m.grids[l+1]
	for i, s := range fine.slabs {
		// If the coarser grid is not divided, each device computes a
		// part of it.
		to := coarse.r[0]
		if len(coarse.slabs) == len(fine.slabs) {
			to = own(coarse.r[i], coarse.slabs[i])
		} else {
			to = to.Rows(s.first/2+1, s.last/2+1)
		}
		err := s.dev.Launch(m.reduce, mgSize(coarse.side, s.planes()/2),
			device.Out(to), device.In(mgR(m, l+1, i)), int32(coarse.side),
			device.Local[float64](2*coarse.side), device.Local[float64](2*coarse.side))
		if err != nil {
			return err
		}
	}
	return m.exchange(l, mgR)
}

// up interpolates u of the next coarser level to level l, in all planes.
func (m *mg) up(l int, add bool) error {
	coarse, fine := m.grids[l-1], m.grids[l]
	for i, s := range fine.slabs {
		from := coarse.u[0]
		if len(coarse.slabs) == len(fine.slabs) {
			from = coarse.u[i]
		} else {
			from = from.Rows(s.first/2, s.last/2+2)
		}
		err := s.dev.Launch(m.extend, mgSize(fine.side, s.planes()+2),
			written(mgU(m, l, i), add), device.In(from), int32(fine.side), asInt(add), device.Local[float64](fine.side/2))
		if err != nil {
			return err
		}
	}
	return nil
}

// rest sets r of level l to v − A·u. On coarser grids, r takes the place of v.
func (m *mg) rest(l int) error {
	side, coarse := m.grids[l].side, l < len(m.grids)-1
	for i, s := range m.grids[l].slabs {
		r := own(mgR(m, l, i), s)
		v := r
		if !coarse {
			v = own(m.v[i], s)
		}
		err := s.dev.Launch(m.residual, mgSize(side, s.planes()),
			written(r, coarse), device.In(v), device.In(mgU(m, l, i)), int32(side), -8./3, 1./6, 1./12,
			device.Local[float64](side), device.Local[float64](side))
		if err != nil {
			return err
		}
	}
	return m.exchange(l, mgR)
}

// relax smooths u of level l. If add is false, u was zero.
func (m *mg) relax(l int, add bool) error {
	w, side := m.class.smoother, m.grids[l].side
	for i, s := range m.grids[l].slabs {
		err := s.dev.Launch(m.smooth, mgSize(side, s.planes()),
			written(own(mgU(m, l, i), s), add), device.In(mgR(m, l, i)), int32(side), asInt(add), w[0], w[1], w[2],
			device.Local[float64](side), device.Local[float64](side))
		if err != nil {
			return err
		}
	}
	return m.exchange(l, mgU)
}

// exchange copies the neighbours' planes into arrays of level l.
func (m *mg) exchange(l int, of func(m *mg, level, slab int) *device.Array[float64]) error {
	g := m.grids[l]
	n := len(g.slabs)
	for i, s := range g.slabs {
		to, below, above := of(m, l, i), (i+n-1)%n, (i+1)%n
		end, last := s.planes()+1, g.slabs[below].planes()
		err := s.dev.Launch(m.ghosts, device.Size{g.side * g.side},
			device.Out(to.Rows(0, 1)), device.Out(to.Rows(end, end+1)),
			device.In(of(m, l, below).Rows(last, last+1)), device.In(of(m, l, above).Rows(1, 2)))
		if err != nil {
			return err
		}
	}
	return nil
}

func written(a *device.Array[float64], add bool) device.Arg {
	if add {
		return device.InOut(a)
	}
	return device.Out(a)
}

func asInt(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// result returns the norm of the residual. The host adds it up, in the order of
// the points, so that it does not depend on the number of slabs.
func (m *mg) result() ([]float64, error) {
	side := 1 << m.class.levels
	sum := 0.0
	for _, r := range m.r {
		data, err := r.Read()
		if err != nil {
			return nil, err
		}
		for _, v := range data[side*side : len(data)-side*side] {
			sum += float64(v * v)
		}
	}
	return []float64{math.Sqrt(sum / float64(side*side*side))}, nil
}

// reference returns the norm that NPB publishes, and tolerance the deviation
// that NPB allows.
func (m *mg) reference() []float64 { return []float64{m.class.norm} }
func (m *mg) tolerance() float64   { return 1e-8 }
