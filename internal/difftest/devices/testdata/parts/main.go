// Parts divides work in ways that another number of devices cannot continue,
// which shows only when the program runs: it keeps its devices.
package main

import (
	"fmt"
	"log"
	"os"

	"github.com/cairnrun/cairn/device"
)

const n, steps = 64, 12

var add = device.NewKernel(`
__kernel void add(__global float *x, float a, int n)
{
	int i = get_global_id(0);
	if (i < n) x[i] = x[i] + a;
}`, "add", func(w *device.Work) {
	x, a := device.Slice[float32](w, 0), device.Value[float32](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < min(hi, int(device.Value[int32](w, 2))); i++ {
		x[i] += a
	}
})

// part is the work of a device.
type part struct {
	dev *device.Device
	x   *device.Array[float32]
}

// work is divided among devices: each has an element of sums, or an array of
// its own.
type work struct {
	own   bool
	sums  *device.Array[float32]
	parts []*part
}

func (w *work) divide(devs []*device.Device) {
	w.parts = nil
	for k, d := range devs {
		p := &part{dev: d}
		if w.own {
			p.x = device.New[float32](n)
		} else {
			p.x = w.sums.Rows(k, k+1)
		}
		w.parts = append(w.parts, p)
	}
}

func main() {
	if err := run(os.Args[1] == "own"); err != nil {
		log.Fatal(err)
	}
}

func run(own bool) error {
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	w := &work{own: own, sums: device.New[float32](n)}
	w.divide(devs)
	for i := range steps {
		for _, p := range w.parts {
			if err := p.dev.Launch(add, device.Size{p.x.Len()}, device.InOut(p.x), float32(i), int32(p.x.Len())); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(os.Stderr, "ended on", devs)
	for k, p := range w.parts {
		v, err := p.x.Read()
		if err != nil {
			return err
		}
		fmt.Println(k, v)
	}
	return nil
}
