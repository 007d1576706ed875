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
package device

import (
	"github.com/cairnrun/cairn/device/driver"
	"github.com/cairnrun/cairn/internal/graph"
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

// Work is what a kernel in Go is given, see NewKernel.
type Work = driver.Work

// Slice returns argument i of a kernel in Go, an array or local memory.
func Slice[T any](w *Work, i int) []T { return driver.Slice[T](w, i) }

// Value returns argument i of a kernel in Go, a scalar.
func Value[T any](w *Work, i int) T { return driver.Value[T](w, i) }

// Info describes a device.
type Info = driver.Info

// Device computes, in the order of its launches.
type Device struct{}

// Devices returns the devices of this machine that are not lost, the best
// first: GPUs, other accelerators, then the host's processors, which are
// always there. They are opened once; all calls return the same ones. The
// environment variable CAIRN_DEVICES, if set, names the ones to take and their
// order, by backend or ID: "cuda", "opencl:0.1,host", "host,host" (two).
func Devices() ([]*Device, error) { panic("soon") }

// Spread returns n devices, taken from devs in turn: a program that is written
// for as many sees them whatever is there.
func Spread(n int, devs []*Device) []*Device { panic("soon") }

func (d *Device) Info() Info     { panic("soon") }
func (d *Device) String() string { panic("soon") } // ID and name

// Err tells why the device is lost, nil if it is not.
func (d *Device) Err() error { panic("soon") }

// Launch runs a kernel on the device, after everything that was launched on it
// before, and after what its arguments need: they are brought to the device
// first. It does not wait for the kernel. Arguments are what In, Out, InOut
// and Local return, and int32, uint32, int64, uint64, float32 and float64.
func (d *Device) Launch(k *Kernel, size Size, args ...any) error { panic("soon") }

// Finish waits until all launches are done and returns their error.
func (d *Device) Finish() error { panic("soon") }

// Size is the number of work items of a launch, in up to three dimensions. The
// first is the one that runs fastest: get_global_id(0).
type Size []int

// In groups of the given size; without it the device chooses.
func (s Size) In(group ...int) Groups { panic("soon") }

// Groups is a Size with a size of groups. Launch takes either.
type Groups struct{ size, group Size }

// Kernel is a function that devices run.
type Kernel struct{}

// NewKernel makes a kernel of the function name in an OpenCL C source, and of
// a Go function that does the same on the host (see Work). The source is
// compiled once for each device that it is launched on.
func NewKernel(source, name string, host func(*Work)) *Kernel { panic("soon") }

// Array is a block of numbers of type T in 0 to 3 dimensions, row by row.
type Array[T any] struct{}

// New makes an array of zeros. T is a number, or a struct or array of numbers.
// It panics if dims are more than three, or not positive.
func New[T any](dims ...int) *Array[T] { panic("soon") }

// NewConstant is like New, for arrays that kernels only read.
func NewConstant[T any](dims ...int) *Array[T] { panic("soon") }

func (a *Array[T]) Dims() []int { panic("soon") }
func (a *Array[T]) Len() int    { panic("soon") }

// Data returns the array's values in host memory, to read and to write, until
// the next launch that uses the array. It waits for kernels that write it.
func (a *Array[T]) Data() ([]T, error) { panic("soon") }

// Read is like Data, for reading only: copies on devices stay valid.
func (a *Array[T]) Read() ([]T, error) { panic("soon") }

// Rows returns rows lo…hi of the first dimension as an array of its own, which
// shares the memory.
func (a *Array[T]) Rows(lo, hi int) *Array[T] { panic("soon") }

// Prefer says where the array's values are wanted after a restart. Without it
// they go to the first device, if that has room, else to host memory.
func (a *Array[T]) Prefer(d *Device) { panic("soon") }

// Free gives the memory on devices and on the host back at once.
func (a *Array[T]) Free() { panic("soon") }

// CairnState makes an Array savable.
func (a *Array[T]) CairnState(c *graph.Coder) error { panic("soon") }

// Arg is an argument of a launch.
type Arg struct{}

// In is for arrays that the kernel reads.
func In[T any](a *Array[T]) Arg { panic("soon") }

// Out is for arrays that the kernel overwrites, all of them.
func Out[T any](a *Array[T]) Arg { panic("soon") }

// InOut is for arrays that the kernel reads and writes, or writes in part.
func InOut[T any](a *Array[T]) Arg { panic("soon") }

// Local is scratch memory of n elements that the items of a group share. It is
// never saved.
func Local[T any](n int) Arg { panic("soon") }
