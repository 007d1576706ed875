package main

// shwaPlain is the same simulation without devices: it computes one face after
// the other.
type shwaPlain struct {
	shwaSize
	open  bool    // the basin is open to sea and river
	rise  float32 // amplitude of the tide
	u     []float32
	bed   []float32
	clock []float32
	gate  []float32 // water that came in, by row
	peak  float32

	cells       []water
	east, north []flow // of cell (i, j), with one more column and row before
}

func newShwaPlain(s shwaSize) *shwaPlain {
	n := s.nx * s.ny
	p := &shwaPlain{
		shwaSize: s,
		open:     true,
		rise:     shwaRise,
		u:        make([]float32, 4*n),
		bed:      make([]float32, n),
		clock:    make([]float32, clockLen),
		gate:     make([]float32, s.ny),
		cells:    make([]water, n),
		east:     make([]flow, (s.nx+1)*s.ny),
		north:    make([]flow, s.nx*(s.ny+1)),
	}
	s.ground(p.bed)
	s.start(p.u, p.bed)
	p.fastest()
	return p
}

// fastest returns the speed of the fastest wave in water at rest.
func (p *shwaPlain) fastest() {
	p.peak = 0
	for j := range p.ny {
		for i := range p.nx {
			p.peak = larger(p.peak, root(float32(shwaGravity*p.u[4*j*p.nx+i])))
		}
	}
}

func (p *shwaPlain) step() {
	nx, ny := p.nx, p.ny
	tick(p.clock, p.peak, p.cell(), p.rise)
	for j := range ny {
		row := p.u[4*j*nx:]
		for i := range nx {
			p.cells[j*nx+i] = still(row[i], row[nx+i], row[2*nx+i], row[3*nx+i], p.bed[j*nx+i])
		}
	}
	for j := range ny {
		line, east := p.cells[j*nx:][:nx], p.east[j*(nx+1):][:nx+1]
		sea, river := line[0].mirrored(), line[nx-1].mirrored()
		if p.open {
			sea, river = line[0].outside(p.clock[clockTide]), line[nx-1].outside(p.clock[clockRiver])
		}
		east[0] = face(sea, line[0])
		for i := 1; i < nx; i++ {
			east[i] = face(line[i-1], line[i])
		}
		east[nx] = face(line[nx-1], river)
		p.gate[j] += float32(p.clock[clockStep] * (east[0].mass - east[nx].mass))
	}
	for i := range nx {
		at := func(j int) water { return p.cells[j*nx+i].turned() }
		p.north[i] = face(at(0).mirrored(), at(0))
		for j := 1; j < ny; j++ {
			p.north[j*nx+i] = face(at(j-1), at(j))
		}
		p.north[ny*nx+i] = face(at(ny-1), at(ny-1).mirrored())
	}
	p.peak = 0
	si, sj, r2 := p.source()
	for j := range ny {
		row := p.u[4*j*nx:][:4*nx]
		for i := range nx {
			dh, dhu, dhv, dhc := change(p.east[j*(nx+1)+i], p.east[j*(nx+1)+i+1], p.north[j*nx+i], p.north[(j+1)*nx+i])
			at := (i-si)*(i-si)+(j-sj)*(j-sj) <= r2
			var speed float32
			row[i], row[nx+i], row[2*nx+i], row[3*nx+i], speed = settle(row[i], row[nx+i], row[2*nx+i], row[3*nx+i], dh, dhu, dhv, dhc, p.clock, at)
			p.peak = larger(p.peak, speed)
		}
	}
}

// shwaNumbers returns the results of a run: the time, the water that came in,
// by row, and the whole state.
func shwaNumbers(clock, came, u []float32) []float64 {
	out := make([]float64, 0, 1+len(came)+len(u))
	out = append(out, float64(clock[clockTime]))
	for _, v := range came {
		out = append(out, float64(v))
	}
	for _, v := range u {
		out = append(out, float64(v))
	}
	return out
}
