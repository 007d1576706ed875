package device_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"
	"unsafe"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

const source = `
__kernel void saxpy(__global const float *x, __global float *y, float a, int n)
{
	int i = get_global_id(0);
	if (i < n) y[i] = a * x[i] + y[i];
}

/* Each element becomes the mean of its neighbours. in has one row more than
   out before it if skip is 1, and one after it unless it is the last. */
__kernel void smooth(__global const float *in, __global float *out, int skip, int rows, int n)
{
	int i = get_global_id(0);
	if (i >= n) return;
	int at = i + skip;
	float below = at > 0 ? in[at - 1] : in[at];
	float above = at < rows - 1 ? in[at + 1] : in[at];
	out[i] = 0.5f * (below + above);
}
`

var (
	// The same kernels in Go, for the host's own processors.
	saxpy = device.NewKernel(source, "saxpy", func(w *device.Work) {
		x, y, a := device.Slice[float32](w, 0), device.Slice[float32](w, 1), device.Value[float32](w, 2)
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			y[i] = float32(a*x[i]) + y[i] // rounded twice, as on devices
		}
	})
	smooth = device.NewKernel(source, "smooth", func(w *device.Work) {
		in, out, skip := device.Slice[float32](w, 0), device.Slice[float32](w, 1), int(device.Value[int32](w, 2))
		lo, hi := w.Range(0)
		for i := lo; i < hi; i++ {
			at := i + skip
			out[i] = 0.5 * (in[max(at-1, 0)] + in[min(at+1, len(in)-1)])
		}
	})
)

// add runs 10 steps of y += 2x and returns the last y; if it is told to stop,
// it saves before step 5 and ends.
func add(dir string, stop bool) (float32, error) {
	const n, steps = 1000, 10
	devs, err := device.Devices()
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	p, err := cairn.Open(ctx, cairn.Options{Dir: dir, Every: time.Hour})
	if err != nil {
		return 0, err
	}
	defer p.Close()
	step := 0
	x, y := device.New[float32](n), device.New[float32](n)
	cairn.Protect(p, "step", &step)
	cairn.Protect(p, "y", y)
	if _, err := p.Restore(ctx); err != nil {
		return 0, err
	}
	fmt.Println("from step", step)
	ones, err := x.Data() // x is made again at every start, so it is not saved
	if err != nil {
		return 0, err
	}
	for i := range ones {
		ones[i] = 1
	}
	for ; step < steps; step++ {
		if stop && step == 5 {
			return 0, p.Checkpoint(ctx) // at once
		}
		if err := p.Point(ctx); err != nil { // when it is due
			return 0, err
		}
		if err := devs[0].Launch(saxpy, device.Size{n}, device.In(x), device.InOut(y), float32(2), int32(n)); err != nil {
			return 0, err
		}
	}
	p.Finish()
	v, err := y.Read()
	if err != nil {
		return 0, err
	}
	return v[n-1], nil
}

// A kernel works on arrays that are saved at points. The program resumes from
// the last checkpoint, on the devices that there are then.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if _, err := add(dir, true); err != nil {
		fmt.Println(err)
		return
	}
	last, err := add(dir, false)
	fmt.Println(last, err)
	// Output:
	// from step 0
	// from step 5
	// 20 <nil>
}

// relax divides one image among devices: each writes its own rows and reads
// one more on either side. Only these rows travel between devices.
func relax(devs []*device.Device) ([]float32, error) {
	const n = 64
	old, next := device.New[float32](n), device.New[float32](n)
	v, err := old.Data()
	if err != nil {
		return nil, err
	}
	for i := range v {
		v[i] = float32(i * i)
	}
	for range 10 {
		for k, d := range devs {
			lo, hi := n*k/len(devs), n*(k+1)/len(devs)
			from, to := max(lo-1, 0), min(hi+1, n)
			err := d.Launch(smooth, device.Size{hi - lo},
				device.In(old.Rows(from, to)), device.Out(next.Rows(lo, hi)),
				int32(lo-from), int32(to-from), int32(hi-lo))
			if err != nil {
				return nil, err
			}
		}
		old, next = next, old
	}
	return old.Read()
}

// Views let several devices work on one array. How many there are makes no
// difference to the result.
func ExampleArray_Rows() {
	var one []float32
	for _, list := range []string{"host", "host,host", "discrete,host,discrete"} {
		devs, err := device.Open(list)
		if err != nil {
			fmt.Println(err)
			return
		}
		v, err := relax(devs)
		if err != nil {
			fmt.Println(err)
			return
		}
		if one == nil {
			one = v
			fmt.Println(v[30]) // each step adds 1 to i·i, far from the ends
		}
		same := true
		for i := range v {
			same = same && v[i] == one[i]
		}
		fmt.Println(len(devs), same)
	}
	// Output:
	// 910
	// 1 true
	// 2 true
	// 3 true
}

// A table on the host changes between checkpoints. With Update, a checkpoint
// copies it while the program continues.
func ExampleArray_Update() {
	table := device.New[int64](4)
	for step := range 3 {
		err := table.Update(func(t []int64) {
			for i := range t {
				t[i] += int64(step * i)
			}
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	v, err := table.Read()
	fmt.Println(v, err)
	// Output: [0 3 6 9] <nil>
}

// A program that is written for four devices runs on those that there are.
func ExampleSpread() {
	devs, err := device.Open("host,discrete")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, d := range device.Spread(4, devs) {
		fmt.Println(d.Info().Backend, d.Info().Shared)
	}
	// Output:
	// host true
	// host false
	// host true
	// host false
}

// An array in memory that the program has allocated itself: a launch on the
// host works there.
func ExampleRaw() {
	values := make([]float32, 8) // large buffers come from C libraries, as a rule
	for i := range values {
		values[i] = 1
	}
	y, err := device.Raw[float32](uintptr(unsafe.Pointer(&values[0])), len(values))
	if err != nil {
		fmt.Println(err)
		return
	}
	devs, err := device.Open("host")
	if err != nil {
		fmt.Println(err)
		return
	}
	x := device.New[float32](len(values))
	if err := x.Update(func(v []float32) { v[3] = 4 }); err != nil {
		fmt.Println(err)
		return
	}
	if err := devs[0].Launch(saxpy, device.Size{len(values)}, device.In(x), device.InOut(y), float32(2), int32(len(values))); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := y.Data(); err != nil { // waits for the kernel
		fmt.Println(err)
		return
	}
	fmt.Println(values)
	y.Free()
	runtime.KeepAlive(values)
	// Output: [1 1 1 9 1 1 1 1]
}
