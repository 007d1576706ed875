package main

import (
	"math"
	"math/cmplx"
	"slices"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/device"
)

func TestFT(t *testing.T)    { verifyMesh(t, "ft") }
func TestFTMD(t *testing.T)  { verifyMesh(t, "ftmd") }
func TestFloyd(t *testing.T) { verifyMesh(t, "floyd") }

func nothingMore(*testing.T, program, []*device.Device) {}

func TestFTMD_Restart(t *testing.T)    { restartMesh(t, "ftmini", nothingMore) }
func TestFloyd_Restart(t *testing.T)   { restartMesh(t, "floyd", nothingMore) }
func TestFTMD_DeviceLost(t *testing.T) { loseMesh(t, "ftmini") }

// mini is FTMD with a problem that takes little time.
type mini struct{ ft }

func init() { programs["ftmini"] = func() program { return &mini{ft{many: true}} } }

func (m *mini) setup(_ string, devs []*device.Device) error { return m.prepare(miniClass(), devs) }

// miniClass computes the checksums from the benchmark's definition, with sums
// for the Fourier transforms.
var miniClass = sync.OnceValue(func() ftClass {
	c := ftClass{nx: 32, ny: 16, nz: 16, iterations: 6}
	u := make([]complex128, c.nx*c.ny*c.nz) // [z][y][x]
	seed := uint64(314159265)
	random := func() float64 {
		seed = seed * 1220703125 % (1 << 46)
		return float64(seed) / (1 << 46)
	}
	for i := range u {
		re := random()
		u[i] = complex(re, random())
	}
	transform := func(u []complex128, sign float64) []complex128 {
		for _, d := range [][2]int{{c.nx, 1}, {c.ny, c.nx}, {c.nz, c.nx * c.ny}} { // length and distance
			n, step := d[0], d[1]
			v := make([]complex128, len(u))
			for i := range u {
				k := i / step % n
				for j := range n {
					v[i] += u[i+(j-k)*step] * cmplx.Exp(complex(0, sign*2*math.Pi*float64(j*k%n)/float64(n)))
				}
			}
			u = v
		}
		return u
	}
	waves := transform(u, -1)
	square := func(i, n int) float64 {
		if i >= n/2 {
			i -= n
		}
		return float64(i * i)
	}
	for t := 1; t <= c.iterations; t++ {
		w := slices.Clone(waves)
		for i := range w {
			k := square(i%c.nx, c.nx) + square(i/c.nx%c.ny, c.ny) + square(i/c.nx/c.ny, c.nz)
			w[i] *= complex(math.Exp(-4e-6*math.Pi*math.Pi*k*float64(t)), 0)
		}
		w = transform(w, 1)
		var sum complex128
		for j := 1; j <= 1024; j++ {
			sum += w[(5*j%c.nz*c.ny+3*j%c.ny)*c.nx+j%c.nx]
		}
		c.sums = append(c.sums, sum/complex(float64(len(u)), 0))
	}
	return c
})

// TestFTMD_SmallProblem runs FTMD with the problem of mini, whose checksums
// follow from the definition.
func TestFTMD_SmallProblem(t *testing.T) { verifyMesh(t, "ftmini") }

// TestFT_ReferenceChecksums shows that the reference for iterations without a
// published checksum agrees with the published ones.
func TestFT_ReferenceChecksums(t *testing.T) {
	for name, c := range map[string]ftClass{"mini": miniClass(), "tiny": ftClasses["tiny"], "small": ftClasses["small"]} {
		off, err := deviation(parts(ftSums(c, 1, c.iterations)), parts(c.sums))
		if err != nil || off > 1e-12 {
			t.Errorf("%s: off by %v (%v)", name, off, err)
		}
	}
	c := miniClass()
	if off, err := deviation(parts(ftSums(c, 5, 6)), parts(c.sums[4:])); err != nil || off > 1e-12 {
		t.Errorf("the last two: off by %v (%v)", off, err)
	}
}

// TestFT_ManyIterations shows that a run of more iterations than are published
// is right to its end.
func TestFT_ManyIterations(t *testing.T) {
	c := miniClass()
	c.iterations = 300
	f := new(ft)
	devs := openList(t, "host")
	if err := firstOf(
		func() error { return f.prepare(c, devs) },
		func() error { return f.begin(devs) },
		func() error { return f.spread(devs) },
	); err != nil {
		t.Fatal(err)
	}
	for i := range f.steps() {
		if err := f.step(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.result()
	if err != nil {
		t.Fatal(err)
	}
	if off, err := deviation(got, f.reference()); err != nil || off > f.tolerance() || len(got) != 600 {
		t.Errorf("%d numbers, off by %v (%v)", len(got), off, err)
	}
	if got[598] == got[596] {
		t.Error("nothing changes any more")
	}
}

// TestFTMD_AnyNumberOfDevices shows that any number of devices computes the
// same.
func TestFTMD_AnyNumberOfDevices(t *testing.T) {
	host := openList(t, "host")
	want := runMesh(t, programs["ftmini"](), host)
	for _, n := range []int{3, 7, 20} {
		got := runMesh(t, programs["ftmini"](), slices.Repeat(host, n))
		sameBits(t, got, want)
	}
}

// TestFTMD_EachPlaneOnOneDevice shows that each plane is on exactly one device.
func TestFTMD_EachPlaneOnOneDevice(t *testing.T) {
	host := openList(t, "host")
	f := &ft{many: true}
	if err := f.setup("small", host); err != nil {
		t.Fatal(err)
	}
	for n := 1; n < 40; n++ {
		if err := f.spread(slices.Repeat(host, n)); err != nil {
			t.Fatal(err)
		}
		y, z := 0, 0
		for _, s := range f.slabs {
			if s.y0 != y || s.z0 != z || s.y1 <= y || s.z1 <= z {
				t.Fatalf("%d devices: %+v after y %d and z %d", n, s, y, z)
			}
			y, z = s.y1, s.z1
		}
		if y != f.ny || z != f.nz {
			t.Fatalf("%d devices: planes to y %d and z %d", n, y, z)
		}
	}
}

// TestFTPasses_FourierTransform shows that the passes compute a Fourier
// transform of each line.
func TestFTPasses_FourierTransform(t *testing.T) {
	const n, width = 16, 3
	from, to := make([]complex128, n*width), make([]complex128, n*width)
	random := splitMix(1)
	for i := range from {
		from[i] = complex(random.signed(), random.signed())
	}
	in := slices.Clone(from)
	roots := make([]complex128, n/2)
	for k := range roots {
		roots[k] = cmplx.Exp(complex(0, -2*math.Pi*float64(k)/n))
	}
	got := ftPasses(from, to, roots, n, width)
	for line := range width {
		for k := range n {
			var want complex128
			for j := range n {
				want += in[j*width+line] * cmplx.Exp(complex(0, -2*math.Pi*float64(j*k)/n))
			}
			if d := cmplx.Abs(got[k*width+line] - want); d > 1e-13 {
				t.Fatalf("line %d, number %d is off by %v", line, k, d)
			}
		}
	}
}

// uneven is floyd with any number of nodes.
type uneven struct {
	floyd
	nodes int
}

func (u *uneven) setup(_ string, devs []*device.Device) error {
	u.prepare(u.nodes, devs)
	return nil
}

// TestFloyd_UnevenRows has numbers of nodes with which the last item has fewer
// rows than the others.
func TestFloyd_UnevenRows(t *testing.T) {
	for _, list := range []string{"host", "discrete", "opencl:0.0", "cuda:0"} {
		t.Run(list, func(t *testing.T) {
			devs := openList(t, list)
			for _, n := range []int{1, 2, 3, 21, 38, 59, 60} {
				u := &uneven{nodes: n}
				sameBits(t, runMesh(t, u, devs), u.reference())
			}
		})
	}
}

// TestDijkstra_AgreesWithFloyd shows that the reference for large graphs agrees
// with the complete one on a small graph.
func TestDijkstra_AgreesWithFloyd(t *testing.T) {
	f := new(floyd)
	runMesh(t, f, openList(t, "host"))
	dist, err := f.dist.Read()
	if err != nil {
		t.Fatal(err)
	}
	n := uint32(f.n)
	reached := 0
	for i := uint32(0); i < n; i += 9 {
		got := dijkstra(i, n, func(i uint32) []uint32 {
			row := make([]uint32, n)
			for j := range n {
				row[j] = floydWeight(i, j, n, floydLimit(f.n))
			}
			return row
		})
		for j, d := range got {
			if d != dist[int(i*n)+j] {
				t.Fatalf("from %d to %d it is %d, not %d", i, j, d, dist[int(i*n)+j])
			}
			if d < floydFar {
				reached++
			}
		}
	}
	if reached < 1000 {
		t.Errorf("only %d paths", reached)
	}
}
