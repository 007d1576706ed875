// Losing is a program whose device is lost on the way. With one device it ends
// with the error, and does better when it is started again; with more it goes
// back to its last checkpoint and continues with the others. If it has several
// ranks, each with devices of its own, rank 1 loses one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/mpi"
)

const (
	rows, width = 24, 1000
	steps       = 120
	saveAt      = 30 // a checkpoint that is safe before the device is lost
)

var (
	count = flag.Int("devices", 1, "how many")
	mark  = flag.String("mark", "", "file that is made when a device is lost; none is if it is there, or without a name")
	late  = flag.Bool("late", false, "the device does nothing for a while before it is known to be lost")
)

// scramble mixes all elements of a row with its number and the step's.
var scramble = device.NewKernel("", "scramble", func(w *device.Work) {
	a, first, step := device.Slice[uint64](w, 0), device.Value[int32](w, 1), device.Value[int32](w, 2)
	lo, hi := w.Range(0)
	for y := lo; y < hi; y++ {
		row := a[y*width : (y+1)*width]
		carry := uint64(first+int32(y))<<32 | uint64(step)
		for x := range row {
			carry = (carry ^ row[x]) * 0x9e3779b97f4a7c15
			row[x] = carry ^ carry>>29
		}
	}
})

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "losing:", err)
		os.Exit(1)
	}
}

// open makes the devices. The first is lost after some calls.
func open(rank, ranks int) ([]*device.Device, error) {
	var devs []*device.Device
	for i := range *count {
		drv := host.New(host.Options{Index: i, Discrete: true})
		if _, err := os.Stat(*mark); i == 0 && rank == min(1, ranks-1) && *mark != "" && errors.Is(err, os.ErrNotExist) {
			fault := &faulty.Fault{At: 90, Kind: faulty.Lost}
			if *late {
				fault.Kind = faulty.Late
			}
			drv = faulty.Wrap(drv, fault)
		}
		d, err := driver.Expose[*device.Device](drv)
		if err != nil {
			return nil, err
		}
		devs = append(devs, d)
	}
	return devs, nil
}

func run(ctx context.Context) error {
	p, err := cairn.Open(ctx, cairn.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	devs, err := open(p.World().Rank(), p.World().Size())
	if err != nil {
		return err
	}
	step, a := 0, device.New[uint64](rows, width)
	cairn.Protect(p, "step", &step)
	cairn.Protect(p, "a", &a)
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	for {
		err := work(ctx, p, devs, &step, a)
		if err == nil {
			p.Finish()
			return p.Close()
		}
		if !errors.Is(err, device.ErrLost) && !errors.Is(err, cairn.ErrRollback) {
			return err
		}
		fmt.Fprintln(os.Stderr, "losing:", err)
		if errors.Is(err, device.ErrLost) {
			if err := os.WriteFile(*mark, nil, 0o666); err != nil {
				return err
			}
			if devs = devs[1:]; len(devs) == 0 {
				return errors.New("there is no device left")
			}
		}
		ok, err := p.Rollback(ctx)
		if err != nil || !ok {
			return fmt.Errorf("Rollback = %v, %w", ok, err)
		}
		fmt.Fprintln(os.Stderr, "losing: back to step", step)
	}
}

// work performs all remaining steps.
func work(ctx context.Context, p *cairn.Run, devs []*device.Device, step *int, a *device.Array[uint64]) error {
	for ; *step < steps; *step++ {
		if err := p.Point(ctx); err != nil {
			return err
		}
		if *step == saveAt {
			if err := p.Checkpoint(ctx); err != nil {
				return err
			}
		}
		for i, d := range devs {
			lo, hi := rows*i/len(devs), rows*(i+1)/len(devs)
			if err := d.Launch(scramble, device.Size{hi - lo}, device.InOut(a.Rows(lo, hi)), int32(lo), int32(*step)); err != nil {
				return err
			}
		}
		if err := exchange(p.World(), *step, a); err != nil {
			return err
		}
		if *step%10 == 9 {
			all, err := a.Read()
			if err != nil {
				return err
			}
			sum := uint64(0)
			for _, x := range all {
				sum = sum*31 + x
			}
			fmt.Printf("step %d: %016x\n", *step, sum)
		}
	}
	return nil
}

// exchange mixes a row of the rank to the left into the first row. Messages of
// every second step are received one step later. A checkpoint has them.
func exchange(w *mpi.Comm, step int, a *device.Array[uint64]) error {
	n := w.Size()
	if n == 1 {
		return nil
	}
	left, right := (w.Rank()+n-1)%n, (w.Rank()+1)%n
	if step%2 == 0 {
		row, err := a.Rows(rows-1, rows).Read()
		if err != nil {
			return err
		}
		_, _, err = mpi.Isend(w, row, right, 1).Test()
		return err
	}
	got := make([]uint64, width)
	if _, err := mpi.Recv(w, got, left, 1); err != nil {
		return err
	}
	first, err := a.Rows(0, 1).Data()
	if err != nil {
		return err
	}
	for i, x := range got {
		first[i] ^= x
	}
	return w.Barrier()
}
