package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

// MG, multigrid: V-cycles for Poisson's equation on a periodic cubic grid.

const mgCharges = 10 // of each sign

// stencil has the weights of the centre, faces, edges and corners of a cube
// of 27 points.
type stencil [4]float64

var (
	mgA        = stencil{-8. / 3, 0, 1. / 6, 1. / 12}     // the operator
	mgRestrict = stencil{1. / 2, 1. / 4, 1. / 8, 1. / 16} // to the coarser grid
	mgSmall    = stencil{-3. / 8, 1. / 32, -1. / 64, 0}   // the smoother of S, W and A
	mgLarge    = stencil{-3. / 17, 1. / 33, -1. / 61, 0}  // … and of B
)

var mgClasses = map[byte]struct {
	levels, iterations int // the grid has 2^levels points along each side
	smoother           stencil
	norm               float64
}{
	'S': {5, 4, mgSmall, 0.5307707005734e-04},
	'W': {7, 4, mgSmall, 0.6467329375339e-05},
	'A': {8, 4, mgSmall, 0.2433365309069e-05},
	'B': {8, 20, mgLarge, 0.1800564401355e-05},
}

func mg(c *mpi.Comm, class byte, g guard) (*report, error) {
	p, ok := mgClasses[class]
	if !ok {
		return nil, errClass(class)
	}
	if err := powerOfTwo(c); err != nil {
		return nil, err
	}
	grid, err := newGrid(c, 1<<p.levels)
	if err != nil {
		return nil, err
	}
	v, err := charges(grid)
	if err != nil {
		return nil, err
	}

	var (
		iteration int
		u         = grid.array()
		r         = slices.Clone(v) // the residual v − A·u
	)
	resumed, err := g.restore(named("iteration", &iteration), named("u", &u), named("r", &r))
	if err != nil {
		return nil, err
	}
	solver := newMultigrid(grid, p.levels, p.smoother)
	start := time.Now()
	for ; iteration < p.iterations; iteration++ {
		if err := g.point(); err != nil {
			return nil, err
		}
		if err := solver.cycle(u, v, r); err != nil {
			return nil, err
		}
		if err := grid.residual(r, v, u); err != nil {
			return nil, err
		}
	}
	norm, err := grid.norm(r)
	if err != nil {
		return nil, err
	}

	n := 1 << p.levels
	rep := &report{
		size: fmt.Sprintf("%dx%dx%d", n, n, n), iterations: p.iterations, operation: "floating point",
		mop: 58e-6 * float64(p.iterations) * math.Pow(float64(n), 3), verified: true, resumed: resumed, took: time.Since(start),
	}
	rep.compare("L2 norm", norm, p.norm, 1e-8)
	return rep, nil
}

// charges returns the right-hand side: 1 at the ten largest of random numbers
// on the grid, −1 at the ten smallest, and 0 elsewhere.
func charges(g *grid) ([]float64, error) {
	type place struct {
		value float64
		index int // in the whole grid, x first
	}
	// extremes sorts places and keeps the first and the last ones.
	extremes := func(places []place) []place {
		slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.value, b.value) })
		return slices.Delete(places, mgCharges, len(places)-mgCharges)
	}

	var ours []place
	low, high := 1.0, 0.0 // numbers between them are not among the extremes
	for z := range g.n[2] {
		for y := range g.n[1] {
			index := ((g.at[2]+z)*g.side+g.at[1]+y)*g.side + g.at[0]
			random := newRandom(seed, index)
			for x := range g.n[0] {
				if value := random.next(); value < low || value > high {
					ours = append(ours, place{value, index + x})
				}
			}
		}
		if len(ours) > 2*mgCharges {
			ours = extremes(ours)
			low, high = ours[mgCharges-1].value, ours[mgCharges].value
		}
	}
	all := make([]place, len(ours)*g.c.Size())
	if err := mpi.Allgather(g.c, ours, all); err != nil {
		return nil, err
	}

	v := g.array()
	for i, p := range extremes(all) {
		x, y, z := p.index%g.side-g.at[0], p.index/g.side%g.side-g.at[1], p.index/g.side/g.side-g.at[2]
		if x < 0 || x >= g.n[0] || y < 0 || y >= g.n[1] || z < 0 || z >= g.n[2] {
			continue
		}
		charge := -1.0
		if i >= mgCharges {
			charge = 1
		}
		v[g.row(z+1, y+1)+x+1] = charge
	}
	return v, g.exchange(v)
}

// multigrid is a grid and the coarser ones below it. Grids that are too small
// to be divided are on all ranks, and all ranks do the same work there. That is
// cheaper than to exchange messages of a few numbers.
type multigrid struct {
	smoother stencil
	levels   []level // the coarsest first; the last has no arrays of its own
	whole    *multigrid
	all      []float64 // all points of the coarsest divided grid
}

type level struct {
	*grid
	u, r []float64
}

// newMultigrid returns the grids for a grid of 2^levels points a side.
func newMultigrid(top *grid, levels int, smoother stencil) *multigrid {
	m := &multigrid{smoother: smoother}
	for l := 1; l < levels; l++ {
		g := top.coarse(1 << (levels - l))
		if g == nil {
			continue
		}
		if len(m.levels) == 0 && top.c != nil {
			w := &grid{side: g.side, n: [3]int{g.side, g.side, g.side}}
			m.whole = newMultigrid(w, l, smoother)
			m.whole.levels[l-1].u, m.whole.levels[l-1].r = w.array(), w.array()
			m.all = make([]float64, g.side*g.side*g.side)
		}
		m.levels = append(m.levels, level{g, g.array(), g.array()})
	}
	m.levels = append(m.levels, level{grid: top})
	return m
}

// cycle does a V-cycle: it improves u, an approximate solution of A·u = v. r is
// the residual v − A·u, and is overwritten.
func (m *multigrid) cycle(u, v, r []float64) error {
	top := len(m.levels) - 1
	m.levels[top].u, m.levels[top].r = u, r
	if top > 0 {
		if err := m.correct(top); err != nil {
			return err
		}
	}
	if err := m.levels[top].residual(r, v, u); err != nil {
		return err
	}
	return m.levels[top].smooth(u, r, m.smoother)
}

// correct adds to the u of a level the solution of the coarser levels for its
// r.
func (m *multigrid) correct(l int) error {
	fine, coarse := m.levels[l], m.levels[l-1]
	if err := coarse.restrict(coarse.r, fine.grid, fine.r); err != nil {
		return err
	}
	if err := m.solve(l - 1); err != nil {
		return err
	}
	fine.interpolate(fine.u, coarse.grid, coarse.u)
	return nil
}

// solve finds the u of a level for its r, which is overwritten.
func (m *multigrid) solve(l int) error {
	g := m.levels[l]
	if l == 0 && m.whole != nil {
		return m.solveWhole()
	}
	clear(g.u)
	if l > 0 {
		if err := m.correct(l); err != nil {
			return err
		}
		if err := g.residual(g.r, g.r, g.u); err != nil {
			return err
		}
	}
	return g.smooth(g.u, g.r, m.smoother)
}

// solveWhole solves the coarsest divided grid on every rank.
func (m *multigrid) solveWhole() error {
	part, top := m.levels[0], len(m.whole.levels)-1
	whole := m.whole.levels[top]
	if err := part.assemble(whole.r, part.r, m.all); err != nil {
		return err
	}
	if err := whole.exchange(whole.r); err != nil {
		return err
	}
	if err := m.whole.solve(top); err != nil {
		return err
	}
	part.cut(part.u, whole.u)
	return nil
}
