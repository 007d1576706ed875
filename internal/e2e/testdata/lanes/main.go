// Command lanes launches kernels from several goroutines, each on a device and
// arrays of its own. It does not use checkpoints: 'cairn build' finds its points.
package main

import (
	"flag"
	"fmt"
	"log"
	"sync"

	"github.com/cairnrun/cairn/device"
)

const source = `
__kernel void turn(__global uint *x, uint a, int n)
{
	int i = get_global_id(0);
	if (i < n) x[i] = x[i] * a + (uint)i;
}
`

var turn = device.NewKernel(source, "turn", func(w *device.Work) {
	x, a := device.Slice[uint32](w, 0), device.Value[uint32](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		x[i] = x[i]*a + uint32(i)
	}
})

// lane is what a goroutine has done.
type lane struct {
	x    *device.Array[uint32]
	sums []uint64
}

func (l *lane) run(dev *device.Device, number, steps, n int) error {
	for step := range steps {
		if err := dev.Launch(turn, device.Size{n}, device.InOut(l.x), uint32(2*(step+number)+1), int32(n)); err != nil {
			return err
		}
		if step%50 == 49 {
			data, err := l.x.Read()
			if err != nil {
				return err
			}
			var sum uint64
			for i, v := range data {
				sum = sum*31 + uint64(v) + uint64(i)
			}
			l.sums = append(l.sums, sum)
		}
	}
	return nil
}

func main() {
	steps := flag.Int("steps", 600, "`number` of launches of each goroutine")
	n := flag.Int("n", 5000, "`length` of its array")
	flag.Parse()
	devs, err := device.Devices()
	if err != nil {
		log.Fatal(err)
	}
	lanes := make([]*lane, 3)
	var all sync.WaitGroup
	for i := range lanes {
		lanes[i] = &lane{x: device.New[uint32](*n)}
		all.Add(1)
		go func() {
			defer all.Done()
			if err := lanes[i].run(devs[i%len(devs)], i, *steps, *n); err != nil {
				log.Fatal(err)
			}
		}()
	}
	all.Wait()
	for i, l := range lanes {
		fmt.Println("lane", i, len(l.sums), l.sums)
	}
}
