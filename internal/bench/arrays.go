package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/mpi"
)

// arraySizes are the sizes of messages of arrays, in bytes.
var arraySizes = []int{64 << 10, 1 << 20, 16 << 20, 128 << 20}

// arrays measures messages of arrays on devices, compared with programs that
// copy to the host, send, receive, and copy to the device.
func (b *bench) arrays() error {
	command := filepath.Join(b.dir, "cairn")
	if msg, err := exec.CommandContext(b.ctx, "go", "build", "-o", command, "github.com/cairnrun/cairn/cmd/cairn").CombinedOutput(); err != nil {
		return fmt.Errorf("building the command: %w: %s", err, firstLine(msg))
	}
	for round := range *rounds {
		for _, w := range ways {
			b.log("round %d of %d: arrays, %s", round+1, *rounds, w.title)
			if err := b.start(command, 2, w.name, "arrays", w.name+" "); err != nil {
				return err
			}
		}
	}
	d, err := arrayDevice()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\narrays on %v in messages, one way, the fastest of each round, medians of %d rounds\n\n", d, *rounds)
	fmt.Fprintln(w, "WAY\tWHAT\tSIZE\tARRAY\tCOPY, SEND, COPY\tTIME OF ARRAYS\tBOUND\t")
	for _, way := range ways {
		for _, what := range []string{"array", "tile"} {
			for _, n := range arraySizes {
				name := fmt.Sprintf("%s %s.%d", way.name, what, n)
				r := b.ratio(name, name+".copied")
				bound, ok := "", ""
				if n >= 1<<20 {
					bound, ok = "≤ 1", verdict(r <= 1)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%.3f ms\t%.3f ms\t%.2f ×\t%s\t%s\n", way.title, what, sizeText(n), 1e3*b.median(name), 1e3*b.median(name+".copied"), r, bound, ok)
			}
		}
	}
	return nil
}

// arrayDevice returns the best device, or one that behaves like a GPU if there
// is none.
func arrayDevice() (*device.Device, error) {
	devs, err := device.Devices()
	if err != nil || !devs[0].Info().Shared {
		return devs[0], err
	}
	devs, err = device.Open("discrete")
	return devs[0], err
}

var touch = device.NewKernel(`
__kernel void touch(__global float *a, __global const float *b) { if (get_global_id(0) == 0) a[0] += b[0]; }`,
	"touch", func(w *device.Work) { device.Slice[float32](w, 0)[0] += device.Slice[float32](w, 1)[0] })

// exchange is one array of a rank that is sent, and one that is received.
type exchange struct {
	r       *rank
	d       *device.Device
	out, in *device.Array[float32]
	// The part of out that is sent, and as host memory.
	part   *device.Array[float32]
	packed []float32
}

// trip sends from rank 0 to rank 1 and back. Kernels write before a send, and
// read after a receive.
func (x *exchange) trip(send, recv func(other int) error) (float64, error) {
	rank := x.r.world.Rank()
	begin := time.Now()
	for turn := range 2 {
		if turn == rank {
			if err := x.d.Launch(touch, device.Size{1}, device.InOut(x.out), device.In(x.in)); err != nil {
				return 0, err
			}
			if err := send(1 - rank); err != nil {
				return 0, err
			}
			continue
		}
		if err := recv(1 - rank); err != nil {
			return 0, err
		}
		if err := x.d.Launch(touch, device.Size{1}, device.InOut(x.out), device.In(x.in)); err != nil {
			return 0, err
		}
		if err := x.d.Finish(); err != nil {
			return 0, err
		}
	}
	return time.Since(begin).Seconds() / 2, nil
}

func (x *exchange) sendArray(other int) error { return mpi.SendArray(x.r.world, x.part, other, 0) }

func (x *exchange) recvArray(other int) error {
	_, err := mpi.RecvArray(x.r.world, x.in, other, 0)
	return err
}

// sendCopy copies to the host first, and packs the rows of a tile.
func (x *exchange) sendCopy(other int) error {
	all, err := x.out.Read()
	if err != nil {
		return err
	}
	if x.packed != nil {
		rows, width := x.part.Dims()[0], x.part.Dims()[1]
		for i := range rows {
			copy(x.packed[i*width:(i+1)*width], all[i*2*width:])
		}
		all = x.packed
	}
	return mpi.Send(x.r.world, all, other, 0)
}

// recvCopy receives into the array's host memory. The launch copies it to the
// device.
func (x *exchange) recvCopy(other int) error {
	v, err := x.in.Data()
	if err == nil {
		_, err = mpi.Recv(x.r.world, v, other, 0)
	}
	return err
}

func (r *rank) arrays() error {
	d, err := arrayDevice()
	if err != nil {
		return err
	}
	for _, bytes := range arraySizes {
		for _, what := range []string{"array", "tile"} {
			n := bytes / 4
			for _, way := range []string{"", ".copied"} {
				x := &exchange{r: r, d: d, in: device.New[float32](n)}
				x.out = device.New[float32](n)
				x.part = x.out
				if what == "tile" { // every row's first half
					width := min(1024, n/64)
					x.out = device.New[float32](n/width, 2*width)
					x.part = x.out.View([]int{0, 0}, []int{n / width, width})
					x.packed = make([]float32, n)
				}
				send, recv := x.sendArray, x.recvArray
				if way != "" {
					send, recv = x.sendCopy, x.recvCopy
				} else {
					x.in.Prefer(d)
				}
				best := math.Inf(1)
				for range max(3, min(50, 256<<20/bytes)) {
					s, err := x.trip(send, recv)
					if err != nil {
						return err
					}
					best = min(best, s)
				}
				r.say(fmt.Sprintf("%s.%d%s", what, bytes, way), best)
				x.in.Free()
				x.out.Free()
			}
		}
	}
	return nil
}
