// Package device gives programs arrays that live on accelerators, and kernels
// that compute with them. The same program runs on NVIDIA GPUs through CUDA, on
// OpenCL devices, and on the host's own processors. It needs none of their
// libraries to be built: it finds the devices when it starts.
//
//	const source = `
//	__kernel void saxpy(__global const float *x, __global float *y,
//	                    float a, int n) {
//		int i = get_global_id(0);
//		if (i < n) y[i] += a * x[i];
//	}`
//
//	func saxpy(w *device.Work) { // the same for the host
//		x, y := device.Slice[float32](w, 0), device.Slice[float32](w, 1)
//		a := device.Value[float32](w, 2)
//		lo, hi := w.Range(0)
//		for i := lo; i < hi; i++ {
//			y[i] += float32(a * x[i])
//		}
//	}
//
//	func main() {
//		devs, err := device.Devices() // the best first; there is at least one
//		if err != nil {
//			log.Fatal(err)
//		}
//		const n = 1 << 20
//		x, y := device.New[float32](n), device.New[float32](n)
//		k := device.NewKernel(source, "saxpy", saxpy)
//		err = devs[0].Launch(k, device.Size{n},
//			device.In(x), device.InOut(y), float32(2), int32(n))
//		if err != nil {
//			log.Fatal(err)
//		}
//		values, err := y.Read() // waits for the kernel, and copies the result
//		if err != nil {
//			log.Fatal(err)
//		}
//		fmt.Println(values[0])
//	}
//
// # Arrays
//
// Arrays are copied lazily: only when a device or the program reads bytes that
// were written elsewhere. Protect an Array like any other variable. A
// checkpoint copies only the parts that changed since the last one.
//
// An array and its views share one memory, which is divided into spans. All
// bytes of a span are valid in the same places: in the host copy, in buffers on
// devices, or nowhere yet, because they are all zero:
//
//	bytes        0            a            b            size
//	             ├── zero ────┼─ host ─────┼─ cuda:0 ───┤   spans
//	host copy    ┌─────────────────────────────────────┐    made when the host needs it
//	cuda:0                           ┌─────────────────┐    a buffer covers what launches used
//	cuda:1                    ┌──────────┐
//
// # Goroutines
//
// Several goroutines may call all functions at the same time. Calls that use
// the same array run one after the other. Calls that use different arrays do
// not wait for each other, except for the queue of their device.
//
// # Files
//
//	devices.go, group.go           which devices there are
//	device.go, throttle.go         one device and its queue of launches
//	kernel.go, work.go, launch.go  kernels and launches
//	array.go, raw*.go              arrays, also in the program's own memory
//	tile.go, region.go, copy.go    views with gaps, and copies between arrays
//	message.go                     arrays in messages of package mpi
//	memory.go, transfer.go,        the memory of an array, and copies between
//	staging.go                     its places
//	checkpoint.go, restore.go      what a checkpoint does with devices, arrays
//	host_copy.go                   host copies that the program has slices of
package device
