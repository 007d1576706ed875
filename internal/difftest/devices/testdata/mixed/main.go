// Mixed holds all that package device gives a program in its variables while
// it computes.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/cairnrun/cairn/device"
)

const (
	n     = 4096
	large = 1 << 20 // of the table, which no kernel writes
)

// A kernel in a package variable, with a function literal.
var add = device.NewKernel(`
__kernel void add(__global float *x, __global const float *y, float a, int n)
{
	int i = get_global_id(0);
	if (i < n) x[i] = x[i] + a * y[i];
}`, "add", func(w *device.Work) {
	x, y, a := device.Slice[float32](w, 0), device.Slice[float32](w, 1), device.Value[float32](w, 2)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(device.Value[int32](w, 3))); i++ {
		x[i] = x[i] + float32(a*y[i])
	}
})

const halveSource = `
__kernel void halve(__global float *x, int n)
{
	int i = get_global_id(0);
	if (i < n) x[i] = x[i] * 0.5f;
}`

func halve(w *device.Work) {
	x := device.Slice[float32](w, 0)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(device.Value[int32](w, 1))); i++ {
		x[i] *= 0.5
	}
}

// work is what one device does.
type work struct {
	dev  *device.Device
	mine *device.Array[float32] // a view of the image
	last *device.Array[float32] // another one in each iteration, of another size
	grid device.Grid
	args []any // of each launch
}

// tally is an interface with a kernel and a device behind it.
type tally interface{ launch() error }

type scaling struct {
	k   *device.Kernel
	dev *device.Device
	arg device.Arg
	n   int32
}

func (s *scaling) launch() error { return s.dev.Launch(s.k, device.Size{int(s.n)}, s.arg, s.n) }

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// scaler makes a kernel whose Go function captures a variable.
func scaler(by float32) *device.Kernel {
	source := fmt.Sprintf(`
__kernel void scale(__global float *x, int n)
{
	int i = get_global_id(0);
	if (i < n) x[i] = x[i] * %gf;
}`, by)
	return device.NewKernel(source, "scale", func(w *device.Work) {
		x := device.Slice[float32](w, 0)
		lo, hi := w.Range(0)
		for i := lo; i < min(hi, int(device.Value[int32](w, 1))); i++ {
			x[i] *= by
		}
	})
}

func run() error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	image, table := device.New[float32](n), device.NewConstant[float32](large)
	v, err := table.Data()
	if err != nil {
		return err
	}
	for i := range v {
		v[i] = float32(i%17) / 16
	}

	var parts []*work
	launches := map[*device.Device]int{} // one for each, also when some are the same
	for k, d := range devs {
		lo, hi := n*k/len(devs), n*(k+1)/len(devs)
		w := &work{dev: d, mine: image.Rows(lo, hi), grid: device.Size{hi - lo}.In(64)}
		w.args = []any{device.InOut(w.mine), device.In(table), float32(0.25), int32(hi - lo)}
		parts = append(parts, w)
		launches[d] = 0
	}
	group := device.NewGroup(devs...)
	local := device.NewKernel(halveSource, "halve", halve)
	var scale tally = &scaling{scaler(0.75), devs[len(devs)-1], device.InOut(image), n}

	// Host memory of an array, which is written and read in every iteration.
	notes := device.New[float32](64)
	page, err := notes.Data()
	if err != nil {
		return err
	}
	for step := range 12 {
		page[step%64] = float32(step + 1)
		for _, w := range parts {
			if err := w.dev.Launch(add, w.grid, w.args...); err != nil {
				return err
			}
			launches[w.dev]++
			w.last = device.New[float32](100 + step)
			if err := w.dev.Launch(add, device.Size{100}, device.InOut(w.last), device.In(table), float32(step), int32(100)); err != nil {
				return err
			}
		}
		if step%4 == 3 {
			if err := scale.launch(); err != nil {
				return err
			}
		}
		if step%3 == 2 {
			// What was written on the page is in the array.
			d := group.At(step % group.Len())
			if err := d.Launch(local, device.Size{64}, device.InOut(notes), int32(64)); err != nil {
				return err
			}
			if page, err = notes.Data(); err != nil {
				return err
			}
		}
		now, err := device.Devices()
		if err != nil {
			return err
		}
		same := 0
		for i, d := range now {
			if d == devs[i] && d == parts[i].dev {
				same++
			}
		}
		fmt.Println("step", step, "devices", len(now), "the same", same, "page", page[step%64], "launches", launches[devs[0]])
	}
	x, err := image.Read()
	if err != nil {
		return err
	}
	sum := float32(0)
	for i, e := range x {
		sum += float32(e * float32(i%5))
	}
	last, err := parts[0].last.Read()
	if err != nil {
		return err
	}
	all, err := notes.Read()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "ended on", devs)
	fmt.Println(sum, x[1], x[n-1], all[:12], last[9], len(launches), group.Len())
	return nil
}
