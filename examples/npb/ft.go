package main

import (
	"fmt"
	"math"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

// FT, Fourier transform: a diffusion equation in three dimensions is solved in
// the space of wave numbers, and transformed back at every time step.
//
// In space, each rank has some planes of equal z, in the order [z][y][x]. Of
// the wave numbers, it has some planes of equal y, in the order [y][x][z]. A
// transform from one to the other is an exchange of all ranks with all.

const ftAlpha = 1e-6

var ftClasses = map[byte]struct {
	nx, ny, nz int
	sums       []complex128
}{
	'S': {64, 64, 64, []complex128{
		5.546087004964e+02 + 4.845363331978e+02i, 5.546385409189e+02 + 4.865304269511e+02i,
		5.546148406171e+02 + 4.883910722336e+02i, 5.545423607415e+02 + 4.901273169046e+02i,
		5.544255039624e+02 + 4.917475857993e+02i, 5.542683411902e+02 + 4.932597244941e+02i}},
	'W': {128, 128, 32, []complex128{
		5.673612178944e+02 + 5.293246849175e+02i, 5.631436885271e+02 + 5.282149986629e+02i,
		5.594024089970e+02 + 5.270996558037e+02i, 5.560698047020e+02 + 5.260027904925e+02i,
		5.530898991250e+02 + 5.249400845633e+02i, 5.504159734538e+02 + 5.239212247086e+02i}},
	'A': {256, 256, 128, []complex128{
		5.046735008193e+02 + 5.114047905510e+02i, 5.059412319734e+02 + 5.098809666433e+02i,
		5.069376896287e+02 + 5.098144042213e+02i, 5.077892868474e+02 + 5.101336130759e+02i,
		5.085233095391e+02 + 5.104914655194e+02i, 5.091487099959e+02 + 5.107917842803e+02i}},
	'B': {512, 256, 256, []complex128{
		5.177643571579e+02 + 5.077803458597e+02i, 5.154521291263e+02 + 5.088249431599e+02i,
		5.146409228649e+02 + 5.096208912659e+02i, 5.142378756213e+02 + 5.101023387619e+02i,
		5.139626667737e+02 + 5.103976610617e+02i, 5.137423460082e+02 + 5.105948019802e+02i,
		5.135547056878e+02 + 5.107404165783e+02i, 5.133910925466e+02 + 5.108576573661e+02i,
		5.132470705390e+02 + 5.109577278523e+02i, 5.131197729984e+02 + 5.110460304483e+02i,
		5.130070319283e+02 + 5.111252433800e+02i, 5.129070537032e+02 + 5.111968077718e+02i,
		5.128182883502e+02 + 5.112616233064e+02i, 5.127393733383e+02 + 5.113203605551e+02i,
		5.126691062020e+02 + 5.113735928093e+02i, 5.126064276004e+02 + 5.114218460548e+02i,
		5.125504076570e+02 + 5.114656139760e+02i, 5.125002331720e+02 + 5.115053595966e+02i,
		5.124551951846e+02 + 5.115415130407e+02i, 5.124146770029e+02 + 5.115744692211e+02i}},
}

func ft(c *mpi.Comm, class byte, g guard) (*report, error) {
	p, ok := ftClasses[class]
	if !ok {
		return nil, errClass(class)
	}
	if err := powerOfTwo(c); err != nil {
		return nil, err
	}
	if most := min(p.ny, p.nz); c.Size() > most {
		return nil, fmt.Errorf("class %c of ft has work for at most %d ranks", class, most)
	}
	f := newField(c, p.nx, p.ny, p.nz)
	decay := f.decay()

	var (
		step  int
		sums  = make([]complex128, len(p.sums))
		waves = make([]complex128, f.points())
	)
	resumed, err := g.restore(named("step", &step), named("sums", &sums), named("waves", &waves))
	if err != nil {
		return nil, err
	}
	space := make([]complex128, f.points())
	start := time.Now()
	if !resumed {
		f.initial(space)
		if err := f.toWaves(waves, space); err != nil {
			return nil, err
		}
	}
	for ; step < len(sums); step++ {
		if err := g.point(); err != nil {
			return nil, err
		}
		for i, d := range decay {
			waves[i] *= complex(d, 0)
		}
		if err := f.toSpace(space, waves); err != nil {
			return nil, err
		}
		if sums[step], err = f.checksum(space); err != nil {
			return nil, err
		}
	}

	points := float64(p.nx * p.ny * p.nz)
	steps := float64(len(sums))
	r := &report{
		size: fmt.Sprintf("%dx%dx%d", p.nx, p.ny, p.nz), iterations: len(sums), operation: "floating point",
		mop:      1e-6 * points * (14.8157 + 7.19641*math.Log(points) + (5.23518+7.21113*math.Log(points))*steps),
		verified: true, resumed: resumed, took: time.Since(start),
	}
	for i, s := range sums {
		r.compare(fmt.Sprintf("checksum %d", i+1), real(s), real(p.sums[i]), 1e-12)
		r.compare("", imag(s), imag(p.sums[i]), 1e-12)
	}
	return r, nil
}

// field is the shape of the problem, and memory to transform it.
type field struct {
	c            *mpi.Comm
	nx, ny, nz   int
	yHere, zHere int // planes of this rank
	x, y, z      *fft
	work         []complex128 // in the order of wave numbers, not yet transformed in z
	out, in      []complex128 // what is exchanged
}

func newField(c *mpi.Comm, nx, ny, nz int) *field {
	f := &field{
		c: c, nx: nx, ny: ny, nz: nz, yHere: ny / c.Size(), zHere: nz / c.Size(),
		x: newFFT(nx), y: newFFT(ny), z: newFFT(nz),
	}
	f.work = make([]complex128, f.points())
	f.out, f.in = make([]complex128, f.points()), make([]complex128, f.points())
	return f
}

// points returns how many points this rank has.
func (f *field) points() int { return f.nx * f.ny * f.zHere }

// initial fills u with random numbers.
func (f *field) initial(u []complex128) {
	random := newRandom(seed, 2*len(u)*f.c.Rank())
	for i := range u {
		re := random.next()
		u[i] = complex(re, random.next())
	}
}

// decay returns the factor by which a step multiplies each wave, in the order
// of wave numbers.
func (f *field) decay() []float64 {
	square := func(i, n int) float64 { // of the wave number at i
		k := float64((i+n/2)%n - n/2)
		return k * k
	}
	d := make([]float64, 0, f.points())
	for y := range f.yHere {
		yy := square(f.c.Rank()*f.yHere+y, f.ny)
		for x := range f.nx {
			xx := square(x, f.nx)
			for z := range f.nz {
				d = append(d, math.Exp(-4*ftAlpha*math.Pi*math.Pi*(xx+yy+square(z, f.nz))))
			}
		}
	}
	return d
}

// checksum adds up 1024 points of u.
func (f *field) checksum(u []complex128) (complex128, error) {
	first := f.c.Rank() * f.zHere
	var sum complex128
	for j := 1; j <= 1024; j++ {
		x, y, z := j%f.nx, 3*j%f.ny, 5*j%f.nz
		if z >= first && z < first+f.zHere {
			sum += u[((z-first)*f.ny+y)*f.nx+x]
		}
	}
	parts := []float64{real(sum), imag(sum)}
	err := mpi.Allreduce(f.c, parts, parts, mpi.Sum)
	n := float64(f.nx * f.ny * f.nz)
	return complex(parts[0]/n, parts[1]/n), err
}

// toWaves transforms space, which it overwrites, into waves.
func (f *field) toWaves(waves, space []complex128) error {
	f.planes(space, forward)
	// Each rank gets its rows y of all our planes.
	i := 0
	for y := range f.ny {
		for z := range f.zHere {
			i += copy(f.out[i:], space[(z*f.ny+y)*f.nx:][:f.nx])
		}
	}
	if err := mpi.Alltoall(f.c, f.out, f.in); err != nil {
		return err
	}
	i = 0
	for r := range f.c.Size() {
		for y := range f.yHere {
			for z := range f.zHere {
				for x := range f.nx {
					waves[(y*f.nx+x)*f.nz+r*f.zHere+z] = f.in[i]
					i++
				}
			}
		}
	}
	f.lines(waves, forward)
	return nil
}

// toSpace transforms waves into space.
func (f *field) toSpace(space, waves []complex128) error {
	copy(f.work, waves)
	f.lines(f.work, backward)
	// Each rank gets its part z of all our lines.
	i := 0
	for r := range f.c.Size() {
		for y := range f.yHere {
			for z := range f.zHere {
				for x := range f.nx {
					f.out[i] = f.work[(y*f.nx+x)*f.nz+r*f.zHere+z]
					i++
				}
			}
		}
	}
	if err := mpi.Alltoall(f.c, f.out, f.in); err != nil {
		return err
	}
	i = 0
	for y := range f.ny {
		for z := range f.zHere {
			i += copy(space[(z*f.ny+y)*f.nx:][:f.nx], f.in[i:])
		}
	}
	f.planes(space, backward)
	return nil
}

// planes transforms in x and y.
func (f *field) planes(u []complex128, d direction) {
	column := make([]complex128, f.ny)
	for z := range f.zHere {
		plane := u[z*f.ny*f.nx:][:f.ny*f.nx]
		for y := range f.ny {
			f.x.transform(plane[y*f.nx:][:f.nx], d)
		}
		for x := range f.nx {
			for y := range column {
				column[y] = plane[y*f.nx+x]
			}
			f.y.transform(column, d)
			for y := range column {
				plane[y*f.nx+x] = column[y]
			}
		}
	}
}

// lines transforms waves in z.
func (f *field) lines(u []complex128, d direction) {
	for i := 0; i < len(u); i += f.nz {
		f.z.transform(u[i:i+f.nz], d)
	}
}
