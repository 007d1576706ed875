package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
)

// TestShwa shows that the plain simulation and all devices agree to the last
// bit.
func TestShwa(t *testing.T) { verifyMesh(t, "shwa") }

// TestShwa_Restart resumes the simulation on other devices: the result is the
// same.
func TestShwa_Restart(t *testing.T) {
	restartMesh(t, "shwa", func(*testing.T, program, []*device.Device) {})
}

// newShwa returns a tiny simulation on the devices of the list, after change
// was called for it.
func newShwa(t *testing.T, list string, change func(*shwa)) *shwa {
	t.Helper()
	devs := openList(t, list)
	s := &shwa{shwaSize: shwaSizes["tiny"], open: true, rise: shwaRise}
	change(s)
	if err := s.prepare(devs); err != nil {
		t.Fatal(err)
	}
	if err := s.begin(devs); err != nil {
		t.Fatal(err)
	}
	if err := s.spread(devs); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shwa) mustStep(t *testing.T, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := s.step(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
}

func mustRead(t *testing.T, a *device.Array[float32]) []float32 {
	t.Helper()
	v, err := a.Read()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sums adds up the water and the contaminant, in cells.
func (s shwaSize) sums(u []float32) (water, dye float64) {
	for j := range s.ny {
		for i := range s.nx {
			water += float64(u[4*j*s.nx+i])
			dye += float64(u[(4*j+3)*s.nx+i])
		}
	}
	return
}

// TestShwa_WaterAtRest shows that without tide and river nothing ever moves,
// between hills and on slopes.
func TestShwa_WaterAtRest(t *testing.T) {
	for _, list := range []string{"host,host", "opencl:0.0"} {
		t.Run(list, func(t *testing.T) {
			s := newShwa(t, list, func(s *shwa) { s.rise = 0 })
			before := append([]float32(nil), mustRead(t, s.u)...)
			s.mustStep(t, 0, 100)
			after := mustRead(t, s.u)
			dye := 0
			for k, v := range after {
				if k/s.nx%4 == 3 {
					if v != 0 {
						dye++
					}
				} else if v != before[k] {
					t.Fatalf("cell %d of row %d, line %d: %v became %v", k%s.nx, k/s.nx/4, k/s.nx%4, before[k], v)
				}
			}
			if dye == 0 {
				t.Error("there is no source")
			}
		})
	}
}

// TestShwa_WaterConserved shows that water is neither created nor lost: water
// in addition to that at the start has come from outside. Depths and
// concentrations stay within bounds, land falls dry and is flooded, and the
// contaminant remains when its source is closed.
func TestShwa_WaterConserved(t *testing.T) {
	s := newShwa(t, "host,host", func(s *shwa) { s.rise = 2 * shwaRise })
	start, _ := s.sums(mustRead(t, s.u))
	began := append([]float32(nil), mustRead(t, s.u)...)
	flooded, fell := 0, 0
	var closed float64
	for i := 0; i < 300; i += 20 {
		s.mustStep(t, i, i+20)
		u, clock := mustRead(t, s.u), mustRead(t, s.clock[0])
		in, most := 0.0, 0.0
		for j, g := range mustRead(t, s.gate) {
			if j%3 == 2 {
				in += float64(g)
				most = max(most, math.Abs(in))
			}
		}
		water, dye := s.sums(u)
		if off := math.Abs(water - start - in/float64(s.cell())); off > 1e-6*start {
			t.Errorf("step %d: %v cells of water were there, %v came in, and now there are %v", i+20, start, in/float64(s.cell()), water)
		}
		if i == 0 && most == 0 {
			t.Error("nothing comes in")
		}
		for k, h := range u {
			if k/s.nx%4 != 0 {
				continue
			}
			hc := u[k+3*s.nx]
			if !(h >= 0) || !(hc >= 0) || !(hc <= h) || !(h < 100) {
				t.Fatalf("step %d: depth %v and contaminant %v in cell %d of row %d", i+20, h, hc, k%s.nx, k/s.nx/4)
			}
			if began[k] == 0 && h > 0.1 {
				flooded++
			}
			if began[k] > 0.1 && h < 0.05 {
				fell++
			}
		}
		switch {
		case clock[clockSource] > 0:
			if dye == 0 {
				t.Fatalf("step %d: no contaminant", i+20)
			}
		case closed == 0:
			closed = dye
		case math.Abs(dye-closed) > 1e-4*closed:
			t.Errorf("step %d: there was %v of the contaminant when its source was closed, now %v", i+20, closed, dye)
		}
	}
	if flooded == 0 || fell == 0 {
		t.Errorf("land was flooded %d times, and fell dry %d times", flooded, fell)
	}
	if closed == 0 {
		t.Error("the source was never closed")
	}
}

// tank is a plain simulation with level ground and walls.
func tank(nx, ny int, depth func(i, j int) float32) *shwaPlain {
	p := newShwaPlain(shwaSize{nx: nx, ny: ny})
	p.open = false
	clear(p.u)
	clear(p.bed)
	for j := range ny {
		for i := range nx {
			p.u[4*j*nx+i] = depth(i, j)
		}
	}
	p.fastest()
	return p
}

// TestShwa_DamBreak breaks a dam: a wave runs back into the deep water, a shock
// forward into the shallow one, and between them the depth is constant (Stoker
// 1957).
func TestShwa_DamBreak(t *testing.T) {
	const n, deep, shallow = 1600, 10.0, 5.0
	p := tank(n, 2, func(i, _ int) float32 {
		if i < n/2 {
			return deep
		}
		return shallow
	})
	before, _ := p.sums(p.u)
	for p.clock[clockTime] < 60 {
		p.step()
	}
	after, _ := p.sums(p.u)
	if math.Abs(after-before) > 1e-6*before {
		t.Errorf("%v cells of water became %v", before, after)
	}
	// In between, the depth is such that the speeds behind the wave and
	// behind the shock are equal.
	c := math.Sqrt(shwaGravity * deep)
	lo, hi := shallow, deep
	for range 60 {
		h := (lo + hi) / 2
		if 2*(c-math.Sqrt(shwaGravity*h)) > (h-shallow)*math.Sqrt(shwaGravity*(h+shallow)/(2*h*shallow)) {
			lo = h
		} else {
			hi = h
		}
	}
	cm := math.Sqrt(shwaGravity * lo)
	um := 2 * (c - cm)
	shock := lo * um / (lo - shallow)
	off := 0.0
	for i := range n {
		r := (float64(i) + 0.5 - n/2) * float64(p.cell()) / float64(p.clock[clockTime])
		want := shallow
		switch {
		case r < -c:
			want = deep
		case r < um-cm:
			want = (2*c - r) * (2*c - r) / (9 * shwaGravity)
		case r < shock:
			want = lo
		}
		off += math.Abs(float64(p.u[i])-want) / n
	}
	if off > 0.002*deep {
		t.Errorf("depths are off by %v m on average", off)
	}
}

// TestShwa_AxesAlike shows that the axes are treated alike.
func TestShwa_AxesAlike(t *testing.T) {
	depth := func(i, j int) float32 {
		d := float32((i-9)*(i-9) + (j-14)*(j-14))
		return 2 + 6/(1+d/16)
	}
	const n = 32
	a, b := tank(n, n, depth), tank(n, n, func(i, j int) float32 { return depth(j, i) })
	for range 40 {
		a.step()
		b.step()
	}
	moved := false
	for j := range n {
		for i := range n {
			ra, rb := a.u[4*j*n:], b.u[4*i*n:]
			near := func(x, y float32) bool { return math.Abs(float64(x-y)) < 1e-4 }
			if !near(ra[i], rb[j]) || !near(ra[n+i], rb[2*n+j]) || !near(ra[2*n+i], rb[n+j]) {
				t.Fatalf("cell %d of row %d: %v, %v, %v and turned %v, %v, %v", i, j, ra[i], ra[n+i], ra[2*n+i], rb[j], rb[2*n+j], rb[n+j])
			}
			moved = moved || ra[n+i] > 0.1
		}
	}
	if !moved {
		t.Error("nothing moves")
	}
}

// TestShwa_CopiesOnlyBounds shows that a step copies rows at the bounds of
// bands, the fastest waves and the clock between devices, and nothing else.
// With one device it copies nothing.
func TestShwa_CopiesOnlyBounds(t *testing.T) {
	for _, list := range []string{"discrete", "discrete,discrete", "discrete,discrete,discrete"} {
		t.Run(list, func(t *testing.T) {
			s := newShwa(t, list, func(*shwa) {})
			moved := func() (in, out int64) {
				for _, b := range s.bands {
					if err := b.dev.Finish(); err != nil {
						t.Fatal(err)
					}
					i, o := b.dev.Moved()
					in, out = in+i, out+o
				}
				return
			}
			s.mustStep(t, 0, 2)
			in, out := moved()
			const steps = 10
			s.mustStep(t, 2, 2+steps)
			in2, out2 := moved()
			n := int64(len(s.bands))
			rows := 2 * (n - 1) * int64(4*s.nx*4)
			peaks := (n - 1) * int64(s.ny*s.groups()*4)
			all := rows + peaks + (n-1)*clockLen*4
			if in2-in != steps*all {
				t.Errorf("%d bytes went to devices in a step, not %d", (in2-in)/steps, all)
			}
			if out2-out > steps*all || n > 1 && out2 == out {
				t.Errorf("%d bytes came from devices in a step, not %d", (out2-out)/steps, all)
			}
		})
	}
}

// TestShwa_PicturesAfterRestart shows that a resumed run draws the same
// pictures.
func TestShwa_PicturesAfterRestart(t *testing.T) {
	base := t.TempDir()
	whole, parts := filepath.Join(base, "all", "whole"), filepath.Join(base, "parts") // which are not there
	run := func(list, dir, pictures string, stop float64) {
		t.Helper()
		c := plain("shwa")
		c.dir, c.stopAt, c.pictures, c.everyPicture = dir, stop, pictures, 100
		h, _, err := runOn(t, c, list)
		if err != nil {
			t.Fatal(err)
		}
		if h.report.Stopped != (stop != never) {
			t.Fatalf("%+v", h.report)
		}
	}
	dir := t.TempDir()
	run("host", "", whole, never)
	run("host,host,host", dir, parts, 0.75)
	run("discrete,discrete", dir, parts, never)
	var last []byte
	for step := 100; step <= 200; step += 100 {
		name := fmt.Sprintf("shwa-%06d.png", step)
		want, err := os.ReadFile(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(parts, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s is another picture", name)
		}
		if string(got) == string(last) {
			t.Errorf("%s is the picture before", name)
		}
		last = got
	}
	left, err := os.ReadDir(parts)
	if err != nil || len(left) != 2 {
		t.Errorf("%d files, %v", len(left), err)
	}
}

// TestShwa_KernelErrorLines shows that errors in the kernels name the line in
// shwa.cl.
func TestShwa_KernelErrorLines(t *testing.T) {
	dev := openList(t, "opencl:0.0")[0]
	at := 1 + strings.Count(shwaText, "\n")
	source := shwaSource() + "__kernel void broken(__global float *a) { a[0] = nowhere; }\n"
	err := dev.Launch(device.NewKernel(source, "broken", nil), device.Size{1}, device.Out(device.New[float32](1)))
	if !errors.Is(err, device.ErrBuild) || !strings.Contains(err.Error(), fmt.Sprintf(":%d:", at)) {
		t.Errorf("an error in line %d: %v", at, err)
	}
}

// TestShwa_DeviceLost shows that when a device is lost, the run continues
// without it, and the result is the same.
func TestShwa_DeviceLost(t *testing.T) {
	run := func(f *faulty.Fault) *harness {
		t.Helper()
		var devs []*device.Device
		for i := range 3 {
			drv := host.New(host.Options{Index: 200 + i, Workers: 1, Discrete: true})
			if i == 1 {
				drv = faulty.Wrap(drv, f)
			}
			d, err := driver.Expose[*device.Device](drv)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { drv.Close() })
			devs = append(devs, d)
		}
		c := plain("shwa")
		c.dir, c.checkpointAt = t.TempDir(), 0.2
		h := &harness{config: c, log: io.Discard, find: func() ([]*device.Device, error) {
			var left []*device.Device
			for _, d := range devs {
				if d.Err() == nil {
					left = append(left, d)
				}
			}
			return left, nil
		}}
		if err := h.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h
	}
	var count faulty.Fault
	want := run(&count)
	for _, f := range []*faulty.Fault{
		{Kind: faulty.Lost, At: count.Calls() * 2 / 3},
		{Kind: faulty.Late, At: count.Calls() / 2},
		{Kind: faulty.Lost, At: count.Calls() / 20}, // nothing was saved yet
	} {
		got := run(f)
		if !f.Fired() || len(got.report.Devices) != 2 {
			t.Errorf("%v at call %d: the devices at the end were %v", f.Kind, f.At, got.report.Devices)
		}
		if got.report.Digest != want.report.Digest {
			t.Errorf("%v at call %d: the result is another one", f.Kind, f.At)
		}
	}
}

// TestShwa_LettersComplete shows that every letter that pictures use is there.
func TestShwa_LettersComplete(t *testing.T) {
	for _, r := range "0123456789:.step water depth land contaminant m" {
		if _, ok := letters[r]; !ok && r != ' ' {
			t.Errorf("there is no letter %c", r)
		}
	}
}
