package main

import (
	"context"
	"fmt"
	"math"
	"math/cmplx"
	"slices"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

func init() {
	programs["ft"] = func() program { return &ft{} }
	programs["ftmd"] = func() program { return &ft{many: true} }
}

// ftClass is a problem: sides that are powers of two, of which nx is the
// longest, and the published checksums.
type ftClass struct {
	nx, ny, nz int
	iterations int
	sums       []complex128
}

// ftClasses are those of the NAS Parallel Benchmarks.
var ftClasses = map[string]ftClass{
	"tiny": {64, 64, 64, 6, []complex128{ // S
		5.546087004964e+02 + 4.845363331978e+02i, 5.546385409189e+02 + 4.865304269511e+02i,
		5.546148406171e+02 + 4.883910722336e+02i, 5.545423607415e+02 + 4.901273169046e+02i,
		5.544255039624e+02 + 4.917475857993e+02i, 5.542683411902e+02 + 4.932597244941e+02i}},
	"small": {128, 128, 32, 6, []complex128{ // W
		5.673612178944e+02 + 5.293246849175e+02i, 5.631436885271e+02 + 5.282149986629e+02i,
		5.594024089970e+02 + 5.270996558037e+02i, 5.560698047020e+02 + 5.260027904925e+02i,
		5.530898991250e+02 + 5.249400845633e+02i, 5.504159734538e+02 + 5.239212247086e+02i}},
	"medium": {256, 256, 128, 24, []complex128{ // A, which has 6 iterations
		5.046735008193e+02 + 5.114047905510e+02i, 5.059412319734e+02 + 5.098809666433e+02i,
		5.069376896287e+02 + 5.098144042213e+02i, 5.077892868474e+02 + 5.101336130759e+02i,
		5.085233095391e+02 + 5.104914655194e+02i, 5.091487099959e+02 + 5.107917842803e+02i}},
	"large": {512, 256, 256, 20, []complex128{ // B
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
	"long": {512, 512, 512, 500, []complex128{ // C, which has 20 iterations
		5.195078707457e+02 + 5.149019699238e+02i, 5.155422171134e+02 + 5.127578201997e+02i,
		5.144678022222e+02 + 5.122251847514e+02i, 5.140150594328e+02 + 5.121090289018e+02i,
		5.137550426810e+02 + 5.121143685824e+02i, 5.135811056728e+02 + 5.121496764568e+02i,
		5.134569343165e+02 + 5.121870921893e+02i, 5.133651975661e+02 + 5.122193250322e+02i,
		5.132955192805e+02 + 5.122454735794e+02i, 5.132410471738e+02 + 5.122663649603e+02i,
		5.131971141679e+02 + 5.122830879827e+02i, 5.131605205716e+02 + 5.122965869718e+02i,
		5.131290734194e+02 + 5.123075927445e+02i, 5.131012720314e+02 + 5.123166486553e+02i,
		5.130760908195e+02 + 5.123241541685e+02i, 5.130528295923e+02 + 5.123304037599e+02i,
		5.130310107773e+02 + 5.123356167976e+02i, 5.130103090133e+02 + 5.123399592211e+02i,
		5.129905029333e+02 + 5.123435588985e+02i, 5.129714421109e+02 + 5.123465164008e+02i}},
}

// ft is NPB's FT: a diffusion equation in three dimensions is solved in the
// space of wave numbers. Every step transforms the solution back and computes a
// checksum. The order of wave numbers is [y][z][x], that of space is [z][y][x].
// If there are several devices (see ftmd.go), each has some planes of equal y
// of the waves, and some of equal z of space. All devices use the same tables,
// which are made here, and compute in the same order. So the checksums have the
// same bits on any number of any devices.
type ft struct {
	many    bool // devices
	ftClass      // the problem

	waves *device.Array[complex128]
	found *device.Array[complex128] // checksums, by step

	decay [3]*device.Array[float64] // factors of a step, for x, y and z
	roots map[ftRoots]*device.Array[complex128]
	where *device.Array[int32]      // positions of the checksum's points in their planes, by z
	picks *device.Array[complex128] // … and the values there
	slabs []*slab
}

// ftRoots names the complex roots of unity for a direction.
type ftRoots struct {
	n    int
	back bool
}

func (f *ft) setup(size string, devs []*device.Device) error {
	c, ok := ftClasses[size]
	if !ok {
		return fmt.Errorf("ft has no size %q", size)
	}
	return f.prepare(c, devs)
}

// prepare is setup for a class.
func (f *ft) prepare(c ftClass, devs []*device.Device) error {
	if err := needDoubles("ft", devs); err != nil {
		return err
	}
	f.ftClass = c
	f.waves = device.New[complex128](f.ny, f.nz, f.nx)
	f.found = device.New[complex128](f.iterations)
	f.picks = device.New[complex128](f.nz, ftPoints/f.nz)
	if err := f.tables(); err != nil {
		return err
	}
	return f.spread(devs) // so that planes are restored on the devices that use them
}

// begin makes NPB's initial state.
func (f *ft) begin(devs []*device.Device) error {
	if err := f.spread(devs); err != nil {
		return err
	}
	return f.toWaves()
}

// tables makes the tables of the kernels.
func (f *ft) tables() error {
	for i, n := range []int{f.nx, f.ny, f.nz} {
		d := make([]float64, n)
		for j := range d {
			k := float64((j+n/2)%n - n/2) // wave number
			d[j] = math.Exp(-4e-6 * math.Pi * math.Pi * k * k)
		}
		f.decay[i] = device.NewConstant[float64](n)
		if err := put(f.decay[i], d); err != nil {
			return err
		}
	}
	f.roots = make(map[ftRoots]*device.Array[complex128])
	for _, n := range []int{f.nx, f.ny, f.nz} {
		forward, backward := make([]complex128, n/2), make([]complex128, n/2)
		for k := range forward {
			sin, cos := math.Sincos(2 * math.Pi * float64(k) / float64(n))
			forward[k] = complex(cos, -sin)
			backward[k] = cmplx.Conj(forward[k])
		}
		for _, r := range []struct {
			back   bool
			values []complex128
		}{{false, forward}, {true, backward}} {
			a := device.NewConstant[complex128](n / 2)
			if err := put(a, r.values); err != nil {
				return err
			}
			f.roots[ftRoots{n, r.back}] = a
		}
	}
	where := make([]int32, 0, ftPoints)
	for z := range f.nz {
		for j := 1; j <= ftPoints; j++ {
			if 5*j%f.nz == z {
				where = append(where, int32(3*j%f.ny*f.nx+j%f.nx))
			}
		}
	}
	f.where = device.NewConstant[int32](f.nz, ftPoints/f.nz)
	return put(f.where, where)
}

func (f *ft) protect(p *cairn.Run) {
	cairn.Protect(p, "waves", f.waves)
	cairn.Protect(p, "sums", f.found)
}

func (f *ft) spread(devs []*device.Device) error {
	if err := needDoubles("ft", devs); err != nil {
		return err
	}
	if !f.many {
		devs = devs[:1]
	}
	return f.cut(devs)
}

func (f *ft) steps() int { return f.iterations }

func (f *ft) step(_ context.Context, i int) error {
	for _, s := range f.slabs {
		err := s.dev.Launch(ftEvolve, device.Size{f.nx, f.nz, s.y1 - s.y0}, device.InOut(s.waves),
			device.In(f.decay[0]), device.In(f.decay[1]), device.In(f.decay[2]), int32(f.nx), int32(s.y1-s.y0), int32(f.nz), int32(s.y0))
		if err != nil {
			return err
		}
	}
	if err := f.toSpace(); err != nil {
		return err
	}
	per := ftPoints / f.nz
	for _, s := range f.slabs {
		err := s.dev.Launch(ftPick, device.Size{per, s.z1 - s.z0}, device.In(s.space), device.In(s.where), device.Out(s.picks),
			int32(per), int32(s.z1-s.z0), int32(f.ny*f.nx))
		if err != nil {
			return err
		}
	}
	return f.slabs[0].dev.Launch(ftSum, device.Size{ftGroup}.In(ftGroup), device.In(f.picks), device.InOut(f.found),
		device.Local[complex128](ftGroup), int32(i), float64(f.nx*f.ny*f.nz))
}

// result returns the checksums, real and imaginary parts.
func (f *ft) result() ([]float64, error) {
	sums, err := f.found.Read()
	if err != nil {
		return nil, err
	}
	return parts(sums), nil
}

// reference returns NPB's checksums, which have 13 digits, and computes those
// of the iterations for which NPB has none.
func (f *ft) reference() []float64 {
	known := slices.Clone(f.sums)
	if len(known) < f.iterations {
		known = append(known, ftSums(f.ftClass, len(known)+1, f.iterations)...)
	}
	return parts(known)
}

// tolerance is that of NPB, which adds in another order.
func (f *ft) tolerance() float64 { return 1e-12 }

func parts(sums []complex128) []float64 {
	v := make([]float64, 0, 2*len(sums))
	for _, s := range sums {
		v = append(v, real(s), imag(s))
	}
	return v
}

// lines says where lines of numbers are in memory: number j of line l is at
// a·(l/q) + b·(l%q) + step·j.
type lines struct{ a, b, step int }

// transform transforms count lines of n numbers on a device, from in to out,
// or in place if in is nil.
func (f *ft) transform(d *device.Device, in, out *device.Array[complex128], n, count, q int, from, to lines, back bool) error {
	width := max(1, 128/(n/2)) // lines in a group
	if to.b == 1 {
		width = max(4, width) // neighbours in memory
	}
	// A group of more than 512 items may need more registers than there
	// are.
	for most := min(d.Info().MaxGroup, 512); width*n/2 > most; width /= 2 {
		if width == 1 {
			return fmt.Errorf("ft: %v has groups of at most %d items, and %d are needed: choose other devices with -devices", d, d.Info().MaxGroup, n/2)
		}
	}
	size := device.Size{count * n / 2}.In(width * n / 2)
	roots, local := device.In(f.roots[ftRoots{n, back}]), device.Local[complex128](width*n)
	if in == nil {
		return d.Launch(ftLinesHere, size, device.InOut(out), roots, local, int32(n), int32(width), int32(q),
			int32(to.a), int32(to.b), int32(to.step))
	}
	return d.Launch(ftLines, size, device.In(in), device.Out(out), roots, local, int32(n), int32(width), int32(q),
		int32(from.a), int32(from.b), int32(from.step), int32(to.a), int32(to.b), int32(to.step))
}
