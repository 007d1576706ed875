package main

import "math"

// The numbers of the simulation, in metres and seconds. Kernels get them as
// macros, see shwaSource.
const (
	shwaGravity = 9.81
	shwaDry     = 1e-3  // depth up to which water does not move
	shwaDrag    = 0.003 // friction of the ground
	shwaCourant = 0.45  // below ½, so that no cell loses more water than it has
	shwaNothing = 1e-12 // smaller momenta and amounts are 0: no device meets denormal numbers
	shwaPeriod  = 2400  // period of the tide
	shwaSwell   = 300   // time that the river takes to rise
	shwaDose    = 1800  // time for which the source is open
	shwaSlowest = 0.1   // speed of the slowest wave that limits a step
)

// The elements of a clock.
const (
	clockTime   = iota
	clockPhase  // of the tide, 0…1
	clockRatio  // time step divided by cell size
	clockStep   // time step
	clockTide   // level of the sea outside
	clockRiver  // … of the river
	clockSource // 1: open
	clockLen
)

// Products are converted to float32 before they are added to something. So the
// compiler does not fuse the two operations, where the processor could. The
// kernels in shwa.cl do the same operations in the same order.

func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func smaller(a, b float32) float32 {
	if a < b {
		return a
	}
	return b
}

func larger(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}

// trim returns 0 for numbers that are too small to matter.
func trim(x float32) float32 {
	if x < shwaNothing && x > -shwaNothing {
		return 0
	}
	return x
}

// water is the state of a cell from which flows are computed: depth, speeds,
// concentration, and the level of the ground.
type water struct{ h, u, v, c, bed float32 }

func still(h, hu, hv, hc, bed float32) water {
	if h < shwaDry {
		return water{h, 0, 0, 0, bed}
	}
	return water{h, hu / h, hv / h, hc / h, bed}
}

// turned exchanges the axes.
func (w water) turned() water { return water{w.h, w.v, w.u, w.c, w.bed} }

// mirrored returns the mirror image of a cell behind a wall across the first
// axis.
func (w water) mirrored() water { return water{w.h, -w.u, w.v, w.c, w.bed} }

// outside returns the sea or the river, at the given level, beside a cell of an
// open boundary.
func (w water) outside(level float32) water {
	return water{larger(0, level-w.bed), 0, 0, 0, w.bed}
}

// flow is the flow through a face, per metre and second: water; momentum across
// the face, one number for the cell on each side; momentum along the face;
// contaminant.
type flow struct{ mass, before, behind, along, dye float32 }

// face computes the flow from l to r, with the fluxes of Harten, Lax and van
// Leer on depths that are reconstructed over the higher ground of the two
// (Audusse et al. 2004). The pressure of each side is subtracted here, as its
// part of the slope of the ground. So water at rest gives exactly 0.
func face(l, r water) flow {
	bed := larger(l.bed, r.bed)
	hl := larger(0, (l.h+l.bed)-bed)
	hr := larger(0, (r.h+r.bed)-bed)
	cl := root(float32(shwaGravity * hl))
	cr := root(float32(shwaGravity * hr))
	sl := smaller(0, smaller(l.u-cl, r.u-cr))
	sr := larger(0, larger(l.u+cl, r.u+cr))
	d := sr - sl
	if d < shwaNothing {
		return flow{}
	}
	w := sl / d
	ql := float32(hl * l.u)
	qr := float32(hr * r.u)
	pl := float32(float32(shwaGravity/2*hl) * hl)
	pr := float32(float32(shwaGravity/2*hr) * hr)
	fl := float32(ql*l.u) + pl
	fr := float32(qr*r.u) + pr
	mass := ql + float32(w*(float32(sr*(hr-hl))-(qr-ql)))
	push := fl + float32(w*(float32(sr*(qr-ql))-(fr-fl)))
	from := r
	if mass > 0 {
		from = l
	}
	return flow{mass, push - pl, push - pr, float32(mass * from.v), float32(mass * from.c)}
}

// change adds up the flows into a cell through its faces.
func change(west, east, south, north flow) (h, hu, hv, hc float32) {
	h = (west.mass - east.mass) + (south.mass - north.mass)
	hu = (west.behind - east.before) + (south.along - north.along)
	hv = (west.along - east.along) + (south.behind - north.before)
	hc = (west.dye - east.dye) + (south.dye - north.dye)
	return
}

// tick sets the clock for the next step, given the speed of the fastest wave.
// rise is the amplitude of the tide, and how much the river rises.
func tick(clock []float32, fastest, cell, rise float32) {
	t, phase := clock[clockTime], clock[clockPhase]
	ratio := shwaCourant / larger(fastest, shwaSlowest)
	step := float32(ratio * cell)
	// Two parabolas approximate a sine.
	half := phase
	if phase > 0.5 {
		half = phase - 0.5
	}
	tide := float32(float32(float32(16*half)*(0.5-half)) * rise)
	if phase > 0.5 {
		tide = -tide
	}
	phase = phase + step/shwaPeriod
	if phase >= 1 {
		phase = phase - 1
	}
	source := float32(0)
	if t < shwaDose {
		source = 1
	}
	clock[clockTime] = t + step
	clock[clockPhase] = phase
	clock[clockRatio] = ratio
	clock[clockStep] = step
	clock[clockTide] = tide
	clock[clockRiver] = float32(smaller(1, t/shwaSwell) * rise)
	clock[clockSource] = source
}

// settle returns the state of a cell after a step, given the state before and
// its change, and the speed of waves there. at says that the source is in this
// cell.
func settle(h, hu, hv, hc, dh, dhu, dhv, dhc float32, clock []float32, at bool) (h1, hu1, hv1, hc1, speed float32) {
	k := clock[clockRatio]
	h1 = larger(0, h+float32(k*dh))
	hc1 = smaller(h1, trim(larger(0, hc+float32(k*dhc))))
	speed = root(float32(shwaGravity * h1))
	if h1 < shwaDry {
		return h1, 0, 0, hc1, speed
	}
	if at && clock[clockSource] > 0 {
		hc1 = h1
	}
	hu1 = hu + float32(k*dhu)
	hv1 = hv + float32(k*dhv)
	v := root(float32(hu1*hu1)+float32(hv1*hv1)) / h1
	brake := 1 + float32(float32(clock[clockStep]*shwaDrag)*v)/h1
	hu1 = trim(hu1 / brake)
	hv1 = trim(hv1 / brake)
	speed = speed + larger(larger(hu1, -hu1), larger(hv1, -hv1))/h1
	return
}
