// Library is a program for the fault campaign that declares what is saved. It
// has one rank or several, with files, memory of several blocks, and device
// arrays.
//
//	library MODE SEED STEPS PAUSE
//
// Modes: single, ranks, device (an array that a kernel changes).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/faults/testdata/begins"
	"github.com/cairnrun/cairn/mpi"
)

// state is the saved state.
type state struct {
	Step  int
	Sum   uint64
	Data  []uint64
	Notes map[string]int
	Log   *os.File
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: library MODE SEED STEPS PAUSE")
		os.Exit(2)
	}
	err := work(context.Background())
	if errors.Is(err, cairn.ErrStopped) {
		fmt.Fprintln(os.Stderr, "library:", err)
		os.Exit(75)
	}
	if errors.Is(err, cairn.ErrFinished) {
		fmt.Fprintln(os.Stderr, "library:", err)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "library:", err)
		os.Exit(1)
	}
}

func work(ctx context.Context) (err error) {
	mode := os.Args[1]
	seed, _ := strconv.ParseUint(os.Args[2], 10, 64)
	steps, _ := strconv.Atoi(os.Args[3])
	pause, _ := time.ParseDuration(os.Args[4])
	opts := cairn.Options{Dir: os.Getenv("LIBRARY_DIR"), OnError: func(err error) { fmt.Fprintln(os.Stderr, "library:", err) }}
	opts.EveryPoints, _ = strconv.Atoi(os.Getenv("LIBRARY_EVERY_POINTS"))
	p, err := cairn.Open(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	w := p.World()
	me, n := w.Rank(), w.Size()
	s := &state{Data: make([]uint64, 40_000), Notes: map[string]int{}}
	if s.Log, err = p.OpenFile(fmt.Sprintf("log-%d", me), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644); err != nil {
		return err
	}
	for i := range s.Data {
		s.Data[i] = mix(seed + uint64(me)<<32 + uint64(i))
	}
	if err := cairn.Protect(p, "state", &s); err != nil {
		return err
	}
	var k *kernel
	if mode == "device" {
		if k, err = newKernel(p); err != nil {
			return err
		}
	}
	resumed, err := p.Restore(ctx)
	if err != nil {
		return err
	}
	if !resumed && me == 0 {
		begins.Note()
	}
	got := []uint64{0}
	for s.Step < steps {
		if n > 1 && !resumed { // it is in flight at the point
			if err := mpi.Send(w, []uint64{s.Sum + uint64(s.Step)}, (me+1)%n, 7); err != nil {
				return err
			}
		}
		resumed = false
		if err := p.Point(ctx); err != nil {
			return err
		}
		got[0] = s.Sum
		if n > 1 {
			if _, err := mpi.Recv(w, got, (me+n-1)%n, 7); err != nil {
				return err
			}
		}
		s.Sum = mix(got[0] + s.Data[got[0]%uint64(len(s.Data))])
		for i := s.Step % 16; i < len(s.Data); i += 16 * 8 {
			s.Data[i] = mix(s.Data[i] + s.Sum)
		}
		s.Notes[fmt.Sprint("note ", s.Step%7)]++
		if k != nil {
			if err := k.step(s); err != nil {
				return err
			}
		}
		line := fmt.Sprintf("rank %d step %d sum %016x\n", me, s.Step, s.Sum)
		if _, err := s.Log.WriteString(line); err != nil {
			return err
		}
		fmt.Print(line)
		s.Step++
		time.Sleep(pause)
	}
	all := uint64(0)
	for _, x := range s.Data {
		all = mix(all + x)
	}
	fmt.Printf("rank %d ends with %016x, notes %v\n", me, all, s.Notes)
	p.Finish()
	return nil
}

// kernel changes an array on a device.
type kernel struct {
	dev  *device.Device
	add  *device.Kernel
	grid *device.Array[uint32]
}

const source = `__kernel void add(__global uint *x, uint by) {
	int i = get_global_id(0);
	x[i] = x[i] * 1664525u + by + (uint)i;
}`

func newKernel(p *cairn.Run) (*kernel, error) {
	devs, err := device.Devices()
	if err != nil {
		return nil, err
	}
	k := &kernel{dev: devs[0], grid: device.New[uint32](4096)}
	k.add = device.NewKernel(source, "add", func(w *device.Work) {
		x, by := device.Slice[uint32](w, 0), device.Value[uint32](w, 1)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			x[i] = x[i]*1664525 + by + uint32(i)
		}
	})
	return k, cairn.Protect(p, "grid", k.grid)
}

// step changes the array and adds some of it to the state.
func (k *kernel) step(s *state) error {
	if err := k.dev.Launch(k.add, device.Size{4096}, device.InOut(k.grid), uint32(s.Step)); err != nil {
		return err
	}
	if s.Step%5 != 4 {
		return nil
	}
	v, err := k.grid.Read()
	if err != nil {
		return err
	}
	for _, x := range v {
		s.Sum = s.Sum*31 + uint64(x)
	}
	return nil
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
