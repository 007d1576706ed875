package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/mpi"
)

// stir changes each number by itself and by one of another array.
var stir = device.NewKernel(`
__kernel void stir(__global ulong *a, __global const ulong *b, int n, int m, ulong salt)
{
	int i = get_global_id(0);
	if (i < n) a[i] = a[i] * 3 + b[i % m] * 5 + salt + i;
}`, "stir", func(w *device.Work) {
	a, b := device.Slice[uint64](w, 0), device.Slice[uint64](w, 1)
	m, salt := int(device.Value[int32](w, 3)), device.Value[uint64](w, 4)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		a[i] = a[i]*3 + b[i%m]*5 + salt + uint64(i)
	}
})

// arrayRing is a program whose ranks pass tiles of arrays to their neighbours,
// some of which are received much later.
type arrayRing struct {
	Step             int
	Grid, Halo, Late *device.Array[uint64]
	Pending          *mpi.Request
	Seen             uint64
}

const ringRows, ringWidth = 9, 33

func newArrayRing(late int) *arrayRing {
	return &arrayRing{Grid: device.New[uint64](ringRows, ringWidth), Halo: device.New[uint64](ringRows), Late: device.New[uint64](late, 5)}
}

func (s *arrayRing) column(i int) *device.Array[uint64] {
	return s.Grid.View([]int{0, i}, []int{ringRows, i + 1})
}

// loop is the program from a step on.
func (s *arrayRing) loop(p *Run, d *device.Device, steps int, at func(p *Run, step int) error) error {
	w := p.World()
	n, r := w.Size(), w.Rank()
	right, left := (r+1)%n, (r+n-1)%n
	launch := func(a, b *device.Array[uint64], salt int) error {
		return d.Launch(stir, device.Size{a.Len()}, device.InOut(a), device.In(b), int32(a.Len()), int32(b.Len()), uint64(salt))
	}
	inner := []int{s.Late.Dims()[0], 4} // the last column of late messages is not sent
	for ; s.Step < steps; s.Step++ {
		if err := p.Point(ctx); err != nil {
			return err
		}
		if err := at(p, s.Step); err != nil {
			return err
		}
		if err := launch(s.Grid, s.Halo, r+s.Step); err != nil {
			return err
		}
		if s.Step%5 == 0 { // it stays pending over some points …
			s.Pending = mpi.IrecvArray(w, s.Late.View([]int{0, 0}, inner), mpi.AnySource, tagLate)
		}
		if s.Step%5 == 1 { // it is received some points later
			mine := device.New[uint64](7, 28)
			if err := device.Copy(mine, s.Grid.View([]int{1, 2}, []int{8, 30})); err != nil {
				return err
			}
			if err := sendArrayLater(w, mine, left, tagSkew); err != nil {
				return err
			}
		}
		if s.Step%5 == 2 { // … until a message comes that was sent some points ago
			mine := device.New[uint64](s.Late.Dims()...)
			if err := launch(mine, s.Grid, s.Step); err != nil {
				return err
			}
			if err := sendArrayLater(w, mine.View([]int{0, 0}, inner), right, tagLate); err != nil {
				return err
			}
		}
		if s.Step%5 == 4 {
			st, err := s.Pending.Wait()
			if err != nil {
				return err
			}
			if s.Pending = nil; mpi.Count[uint64](st) != s.Late.Dims()[0]*4 {
				return fmt.Errorf("%d numbers came", mpi.Count[uint64](st))
			}
			if err := launch(s.Grid, s.Late, 0); err != nil {
				return err
			}
			if _, err := mpi.RecvArray(w, s.Grid.View([]int{0, 1}, []int{7, 29}), right, tagSkew); err != nil {
				return err
			}
		}
		if _, err := mpi.SendrecvArray(w, s.column(ringWidth-1), right, tagRing, s.Halo, left, tagRing); err != nil {
			return err
		}
		if _, err := mpi.SendrecvArray(w, s.Grid.Rows(2, 3), left, tagRing, s.Grid.Rows(4, 5), right, tagRing); err != nil {
			return err
		}
		if s.Step%3 == 1 {
			x, err := s.column(3).Read()
			if err != nil {
				return err
			}
			s.Seen = s.Seen*31 + x[s.Step%ringRows]
		}
	}
	return nil
}

// sendArrayLater is sendLater for an array.
func sendArrayLater(w *mpi.Comm, a *device.Array[uint64], to, tag int) error {
	_, _, err := mpi.IsendArray(w, a, to, tag).Test()
	return err
}

func arrayRingProgram(t *testing.T, steps, late int, devs []*device.Device, at func(p *Run, step int) error, out [][]uint64) func(p *Run) error {
	return func(p *Run) error {
		r := p.Rank()
		d := devs[r%len(devs)]
		s := newArrayRing(late)
		s.Late.Prefer(d)
		Protect(p, "state", &s)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		if len(p.peers.inflight.Messages) > 0 {
			restoredMessages.Add(1)
		}
		if s.Pending != nil {
			restoredReceives.Add(1)
		}
		err := s.loop(p, d, steps, at)
		for errors.Is(err, errDevice) || errors.Is(err, ErrRollback) {
			ok, rerr := p.Rollback(ctx)
			if rerr != nil {
				return rerr
			}
			if !ok {
				s = newArrayRing(late)
			}
			err = s.loop(p, d, steps, at)
		}
		if err != nil {
			return err
		}
		grid, err := s.Grid.Read()
		if err != nil {
			return err
		}
		out[r] = append(slices.Clone(grid), s.Seen)
		p.Finish()
		return nil
	}
}

// Restarts of ranks with messages in flight, and with pending receives.
var restoredMessages, restoredReceives atomic.Int64

// ringDevices returns the devices that arrays are on, by name.
func ringDevices(t *testing.T) map[string][]*device.Device {
	kinds := map[string][]*device.Device{
		"discrete": {use(t, discrete(t, 0, 0)), use(t, discrete(t, 1, 0))},
	}
	for _, name := range []string{"host", "opencl", "cuda"} {
		if devs, err := device.Open(name); err == nil {
			kinds[name] = devs
		} else if name == os.Getenv("CAIRN_DEVICES") {
			t.Error(err)
		}
	}
	t.Cleanup(func() { // their kernels would not be part of the pauses that other tests measure
		for _, devs := range kinds {
			for _, d := range devs {
				d.Finish()
			}
		}
	})
	return kinds
}

// TestArrays_Killed kills ranks whose arrays are in messages, until the work is
// done. Restarts go from one kind of device to another.
func TestArrays_Killed(t *testing.T) {
	const n = 3
	steps, late, long := 12, 60, os.Getenv("CAIRN_LONG") != ""
	if long {
		steps, late = 40, 40000
	}
	kinds := ringDevices(t)
	want := make([][]uint64, n)
	first := arrayRingProgram(t, steps, late, kinds["discrete"], func(*Run, int) error { return nil }, want)
	if err := errors.Join(newCrew(n, mem.Options{}).run(Options{Dir: t.TempDir(), EveryPoints: 1 << 30}, first)...); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if restoredMessages.Load() == 0 || restoredReceives.Load() == 0 {
			t.Errorf("%d ranks were restored with messages in flight, %d with pending receives", restoredMessages.Load(), restoredReceives.Load())
		}
	}()
	for name, o := range map[string]mem.Options{
		"eager": {}, "rendezvous": {EagerLimit: 64}, "pull": {EagerLimit: 64, Pull: true}, "narrow": {EagerLimit: 64, Window: -1},
	} {
		if !long && name != "eager" && name != "pull" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(5, 6))
			got, dir := make([][]uint64, n), t.TempDir()
			for attempt := 0; ; attempt++ {
				if attempt == 200 {
					t.Fatal("no progress")
				}
				c := newCrew(n, o)
				victim, when := rng.IntN(n), 1+rng.IntN(steps)
				var count atomic.Int64
				opts := Options{Dir: dir, EveryPoints: 1 << 30}
				if attempt%2 == 0 {
					opts.EveryPoints = 1 + rng.IntN(3)
				}
				var devs []*device.Device
				for _, list := range kinds { // in any order
					devs = list
					break
				}
				errs := c.run(opts, arrayRingProgram(t, steps, late, devs, func(p *Run, step int) error {
					if p.Rank() == victim {
						if count.Add(1) > int64(when) {
							return errKilled
						}
						if step%4 == 1 {
							p.Request()
						}
					}
					return nil
				}, got))
				if errors.Join(errs...) == nil {
					t.Logf("%d attempts", attempt+1)
					break
				}
				for r, err := range errs {
					if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, mpi.ErrLost) && !errors.Is(err, mpi.ErrEnded) {
						t.Errorf("rank %d: %v", r, err)
					}
				}
				if t.Failed() {
					t.FailNow()
				}
			}
			for r := range want {
				if !slices.Equal(got[r], want[r]) {
					t.Errorf("rank %d: %x, want %x", r, got[r], want[r])
				}
			}
		})
	}
}

// TestArrays_Rollback rolls all ranks back while arrays are in messages.
func TestArrays_Rollback(t *testing.T) {
	const n = 3
	steps, late := 14, 60
	if os.Getenv("CAIRN_LONG") != "" {
		steps, late = 60, 40000
	}
	for name, devs := range ringDevices(t) {
		t.Run(name, func(t *testing.T) {
			want, got := make([][]uint64, n), make([][]uint64, n)
			plain := arrayRingProgram(t, steps, late, devs, func(*Run, int) error { return nil }, want)
			if err := errors.Join(newCrew(n, mem.Options{}).run(Options{Dir: t.TempDir(), EveryPoints: 1 << 30}, plain)...); err != nil {
				t.Fatal(err)
			}
			done := make([]atomic.Int64, n)
			errs := newCrew(n, mem.Options{EagerLimit: 64}).run(Options{Dir: t.TempDir(), EveryPoints: 3}, arrayRingProgram(t, steps, late, devs, func(p *Run, step int) error {
				switch count := done[p.Rank()].Add(1); {
				case count == 1 || step == steps-1: // all have restored; none has ended
					return p.World().Barrier()
				case count%5 == int64(p.Rank()) && count < int64(steps):
					return errDevice
				}
				return nil
			}, got))
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			for r := range want {
				if !slices.Equal(got[r], want[r]) {
					t.Errorf("rank %d: %x, want %x", r, got[r], want[r])
				}
			}
		})
	}
}

// TestArrays_FakeCUDA runs these tests with a CUDA driver that needs no GPU.
func TestArrays_FakeCUDA(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("only with CAIRN_LONG: compiling the driver takes seconds")
	}
	gxx, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("there is no g++ to build a driver without a GPU")
	}
	dir := t.TempDir()
	source := "../driver/cuda/testdata/fake"
	lib := filepath.Join(dir, "libcuda.so.1")
	if out, err := exec.Command(gxx, "-std=c++17", "-shared", "-fPIC", "-o", lib, filepath.Join(source, "fake.cpp"), "-lpthread", "-ldl").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mock, err := os.ReadFile(filepath.Join(source, "mock.h"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "mock.h"), mock, 0o666)
	}
	if err == nil {
		err = os.Symlink(lib, filepath.Join(dir, "libnvrtc.so.13"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range []string{"", "FAKE_CUDA_LAZY=1"} {
		cmd := exec.Command(os.Args[0], "-test.run=TestArrays_(Killed|Rollback)", "-test.v")
		cmd.Env = append(os.Environ(), "CAIRN_LONG=", "LD_LIBRARY_PATH="+dir, "CAIRN_DEVICES=cuda", env)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", env, err, out)
		}
	}
}
