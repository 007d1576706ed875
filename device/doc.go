// Package device gives programs arrays that live on accelerators, and kernels
// that compute with them. One program runs on OpenCL devices, on NVIDIA GPUs
// through CUDA, and on the host's own processors; it needs none of them to be
// built, and finds what is there when it starts.
//
//	devs, err := device.Devices()               // the best first; there is always one
//	x := device.New[float32](n)
//	y := device.New[float32](n)
//	k := device.NewKernel(source, "saxpy", saxpy)
//	err = devs[0].Launch(k, device.Size{n}, device.In(x), device.InOut(y), float32(2))
//	v, err := y.Data()                          // waits, and copies what the kernel wrote
//
// Arrays are copied lazily: a transfer happens only when somebody reads what
// was written elsewhere. An Array is protected like any other variable; at a
// checkpoint only what kernels wrote, and the host has not seen, is moved.
//
// Behind an array and its views stands one memory, a run of bytes that is cut
// into spans. A span says where its bytes are valid: in the host copy, in
// buffers of devices, or nowhere yet, because they are all zero:
//
//	bytes        0            a            b            size
//	             ├── zero ────┼─ host ─────┼─ cuda:0 ───┤   spans
//	host copy    ┌─────────────────────────────────────┐    made when the host needs it
//	cuda:0                           ┌─────────────────┐    a buffer covers what launches used
//	cuda:1                    ┌──────────┐
//
// All functions may be called by several goroutines at a time. What they do
// with one array happens in some order; what they do with different ones does
// not wait for each other, except on the queue of a device.
package device

import (
	"github.com/cairnrun/cairn/internal/driver"
)

// Errors that programs tell apart with errors.Is.
var (
	// ErrLost says that a device can't be used any more. The program goes back
	// to its last checkpoint with Run.Rollback, on the devices that remain.
	ErrLost = driver.ErrLost
	// ErrMemory says that a device has no room for an array.
	ErrMemory = driver.ErrMemory
	// ErrBuild says that a kernel does not compile; the error carries the log.
	ErrBuild = driver.ErrBuild
)

// Work is what a kernel in Go is given: a part of the work items, for which it
// loops, and the arguments. It is called for several parts at a time.
//
//	w.Range(d) (lo, hi int)   // the part's items in dimension d: lo ≤ i < hi
//	w.Global, w.Local         // [3]int: items of the launch, and of a group
//	Slice[T](w, i) []T        // argument i, an array or local memory
//	Value[T](w, i) T          // argument i, a scalar
//
// In two dimensions, for example:
//
//	func add(w *device.Work) {
//		a, b, m := device.Slice[float32](w, 0), device.Slice[float32](w, 1), int(device.Value[int32](w, 2))
//		xlo, xhi := w.Range(0)
//		ylo, yhi := w.Range(1)
//		for y := ylo; y < yhi; y++ {
//			for x := xlo; x < xhi; x++ {
//				a[y*m+x] += b[y*m+x]
//			}
//		}
//	}
type Work = driver.Work

// Slice returns argument i of a kernel in Go, an array or local memory.
func Slice[T any](w *Work, i int) []T { return driver.Slice[T](w, i) }

// Value returns argument i of a kernel in Go, a scalar.
func Value[T any](w *Work, i int) T { return driver.Value[T](w, i) }

// Info describes a device.
type Info = driver.Info
