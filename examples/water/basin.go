package main

import (
	"math"
	"math/rand/v2"
)

// Units: cells are 1 wide, still water is 1 deep, and gravity is 1. So waves
// travel about one cell in a unit of time.
const (
	dt      = 0.3  // time step
	drag    = 3e-4 // share of the momentum that is lost in a step
	dropsPM = 25   // drops in 1000 steps, on average
)

// basin is the state of the simulation: the shallow-water equations' height
// and momenta on n×n cells with a border of one cell around them.
type basin struct {
	N, Step int
	H       []float64  // height
	U, V    []float64  // momentum along rows and columns
	Drops   *rand.Rand // when and where drops fall
	Fallen  []drop     // the drops that have fallen so far
}

// drop is a drop of water.
type drop struct {
	Step         int
	X, Y         float64 // centre, in cells
	Radius, Size float64
}

// newBasin returns still water into which a drop falls at the first step.
func newBasin(n int, seed uint64) *basin {
	size := (n + 2) * (n + 2)
	b := &basin{
		N: n, H: make([]float64, size), U: make([]float64, size), V: make([]float64, size),
		Drops: rand.New(rand.NewPCG(seed, 0)),
	}
	for i := range b.H {
		b.H[i] = 1
	}
	return b
}

// rain lets a drop fall in some steps, at random.
func (b *basin) rain() {
	if b.Step > 0 && b.Drops.IntN(1000) >= dropsPM {
		return
	}
	n := float64(b.N)
	d := drop{
		Step: b.Step, X: n * (0.1 + 0.8*b.Drops.Float64()), Y: n * (0.1 + 0.8*b.Drops.Float64()),
		Radius: n * (0.015 + 0.02*b.Drops.Float64()), Size: 0.05 + 0.15*b.Drops.Float64(),
	}
	b.Fallen = append(b.Fallen, d)
	reach := 5 * d.Radius
	for y := max(1, int(d.Y-reach)); y <= min(b.N, int(d.Y+reach)); y++ {
		for x := max(1, int(d.X-reach)); x <= min(b.N, int(d.X+reach)); x++ {
			dx, dy := (float64(x)-d.X)/d.Radius, (float64(y)-d.Y)/d.Radius
			b.H[y*(b.N+2)+x] += d.Size * math.Exp(-(dx*dx+dy*dy)/2)
		}
	}
}

// walls sets the border so that it reflects waves.
func (b *basin) walls() {
	n, w := b.N, b.N+2
	for i := 1; i <= n; i++ {
		for _, at := range [][2]int{{i * w, i*w + 1}, {i*w + n + 1, i*w + n}} {
			b.H[at[0]], b.U[at[0]], b.V[at[0]] = b.H[at[1]], -b.U[at[1]], b.V[at[1]]
		}
		for _, at := range [][2]int{{i, w + i}, {(n+1)*w + i, n*w + i}} {
			b.H[at[0]], b.U[at[0]], b.V[at[0]] = b.H[at[1]], b.U[at[1]], -b.V[at[1]]
		}
	}
}

// totals returns the amount of water in the basin, and how much more energy it
// has than still water.
func (b *basin) totals() (mass, energy float64) {
	w := b.N + 2
	for y := 1; y <= b.N; y++ {
		for i := y*w + 1; i <= y*w+b.N; i++ {
			h := b.H[i]
			mass += h
			energy += ((b.U[i]*b.U[i]+b.V[i]*b.V[i])/h + (h-1)*(h-1)) / 2
		}
	}
	return mass, energy
}

// solver advances a basin by the two-step Lax-Wendroff scheme. Every step
// overwrites its memory, so it is not part of the state.
type solver struct {
	hx, ux, vx []float64 // at half a step, between a cell and its right neighbour
	hy, uy, vy []float64 // … and between a cell and the one below
}

func newSolver(n int) *solver {
	var a [6][]float64
	for i := range a {
		a[i] = make([]float64, (n+2)*(n+2))
	}
	return &solver{a[0], a[1], a[2], a[3], a[4], a[5]}
}

// advance does one time step.
func (s *solver) advance(b *basin) {
	b.rain()
	b.walls()
	n, w := b.N, b.N+2
	h, u, v := b.H, b.U, b.V
	for y := 0; y <= n; y++ {
		for i := y * w; i <= y*w+n; i++ {
			j, k := i+1, i+w
			s.hx[i] = (h[i]+h[j])/2 - dt/2*(u[j]-u[i])
			s.ux[i] = (u[i]+u[j])/2 - dt/2*(flux(h[j], u[j])-flux(h[i], u[i]))
			s.vx[i] = (v[i]+v[j])/2 - dt/2*(u[j]*v[j]/h[j]-u[i]*v[i]/h[i])
			s.hy[i] = (h[i]+h[k])/2 - dt/2*(v[k]-v[i])
			s.uy[i] = (u[i]+u[k])/2 - dt/2*(u[k]*v[k]/h[k]-u[i]*v[i]/h[i])
			s.vy[i] = (v[i]+v[k])/2 - dt/2*(flux(h[k], v[k])-flux(h[i], v[i]))
		}
	}
	for y := 1; y <= n; y++ {
		for i := y*w + 1; i <= y*w+n; i++ {
			l, a := i-1, i-w
			h[i] -= dt * (s.ux[i] - s.ux[l] + s.vy[i] - s.vy[a])
			u[i] -= dt*(flux(s.hx[i], s.ux[i])-flux(s.hx[l], s.ux[l])+s.uy[i]*s.vy[i]/s.hy[i]-s.uy[a]*s.vy[a]/s.hy[a]) + drag*u[i]
			v[i] -= dt*(s.ux[i]*s.vx[i]/s.hx[i]-s.ux[l]*s.vx[l]/s.hx[l]+flux(s.hy[i], s.vy[i])-flux(s.hy[a], s.vy[a])) + drag*v[i]
		}
	}
	b.Step++
}

// flux is the flow of momentum q in its own direction, in water h deep.
func flux(h, q float64) float64 { return q*q/h + h*h/2 }
