// Package driver is what Cairn asks of a kind of device: memory, queues, copies
// and kernels. The packages internal/driver/opencl, internal/driver/cuda and
// internal/driver/host implement it, internal/driver/drivertest is the suite
// that all of them pass, and internal/driver/faulty makes any of them fail on
// purpose. Programs use package device instead.
//
// Commands on a queue run in the order in which they were given; different
// queues run at the same time and are ordered only by events. Methods may be
// called by several goroutines at a time. Every command may fail late: the
// error then comes from a later command on the queue, from Finish, or from
// Event.Wait.
package driver

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is what a device is.
type Kind uint8

const (
	GPU Kind = iota + 1
	Accelerator
	CPU
)

func (k Kind) String() string {
	switch k {
	case GPU:
		return "GPU"
	case Accelerator:
		return "accelerator"
	case CPU:
		return "CPU"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Info describes a device.
type Info struct {
	Backend     string // "cuda", "opencl", "host"
	ID          string // in this process: "cuda:0", "opencl:0.1" (platform and device), "host:0"
	Name        string // as its maker calls it
	Version     string // of what drives it
	Kind        Kind
	Memory      int64 // bytes of global memory
	MaxAlloc    int64 // largest buffer
	Units       int   // that compute at a time
	MaxGroup    int   // work items of a group
	LocalMemory int   // bytes that a group can share
	Doubles     bool  // it computes with double precision
	Shared      bool  // it works in the host's own memory: it has Wrap, and copies are not needed
}

// Device is a device that was opened.
type Device interface {
	Info() Info
	// FreeMemory tells, roughly, how many bytes can still be allocated.
	FreeMemory() (int64, error)
	// Alloc gives n bytes of global memory, n > 0, content undefined,
	// aligned to 128 bytes at least. ErrMemory: there is no room.
	Alloc(n int64) (Buffer, error)
	NewQueue() (Queue, error)
	// Build compiles a source. The error of one that does not compile is
	// ErrBuild and carries the compiler's log.
	Build(Source) (Program, error)
	// Pin makes host memory fit for copies that run by themselves, at full
	// speed. Devices for which that means nothing return a release that
	// does nothing. The memory must stay until release is called.
	Pin(p []byte) (release func() error, err error)
	// Close ends the use of the device; its buffers and queues are gone.
	Close() error
}

// Wrapper is implemented by devices that are Shared: a buffer that is host
// memory. Free does nothing to the memory.
type Wrapper interface {
	Wrap(p []byte) Buffer
}

// Pointers is implemented by devices whose memory has addresses, so that a
// program can bring its own, and to which others can give work, past this
// package.
type Pointers interface {
	// Attributes tells what lies at an address. ok is false for memory that
	// the driver does not know: ordinary host memory.
	Attributes(addr uintptr) (attr Attributes, ok bool, err error)
	// At makes a buffer of n bytes of existing memory that this device can
	// reach. Free leaves the memory alone.
	At(addr uintptr, n int64) Buffer
	// Synchronize waits for all work on the device, whoever gave it. It
	// costs next to nothing on a device that nobody uses.
	Synchronize() error
}

// Attributes of an address.
type Attributes struct {
	Device  int  // index of the device, as in the ID "cuda:1"
	Managed bool // moves between host and device by itself
	Host    bool // pinned host memory
	Other   bool // it belongs to a context that this package does not use
}

// Buffer is memory of a device. Freeing one that commands still use is safe:
// it goes when they are done.
type Buffer interface {
	Size() int64
	Free() error
}

// Queue runs commands in order. CopyIn and CopyOut may return before the copy
// is done only if the host memory was pinned; the caller keeps its hands off
// that memory until an event recorded after it has passed. With other memory
// they return when it may be used again; CopyOut without an error has then
// brought the bytes.
type Queue interface {
	CopyIn(dst Buffer, off int64, src []byte) error
	CopyOut(dst []byte, src Buffer, off int64) error
	// Copy copies on the device. Parts that overlap are an error.
	Copy(dst Buffer, dstOff int64, src Buffer, srcOff, n int64) error
	// Launch runs a kernel. global is the number of work items in each
	// dimension, 1 where there is none; local that of a group, or 0 in its
	// first element: the device chooses. No size is 0 otherwise. Global
	// sizes need not be multiples of local ones; where a device needs that
	// it rounds up, and kernels check their position, as is usual. args and
	// what their values lie in may be used again when it returns.
	Launch(k Kernel, global, local [3]int, args []Arg) error
	// Record makes an event that passes when all before it is done.
	Record() (Event, error)
	// After makes what comes later wait for an event of the same device.
	After(Event) error
	// Finish waits until all is done.
	Finish() error
	Close() error
}

// Event is a moment on a queue.
type Event interface {
	Wait() error         // until it has passed
	Done() (bool, error) // whether it has
}

// Program is a source that was compiled for a device.
type Program interface {
	Kernel(name string) (Kernel, error)
	Close() error
}

// Kernel is an entry of a program.
type Kernel interface {
	Name() string
}

// Source of kernels.
type Source struct {
	OpenCL string                 // OpenCL C; on CUDA the documented subset of it
	Go     map[string]func(*Work) // the same kernels for the host, by name
	// Contract lets the compiler fuse multiplications and additions.
	// Results then differ in the last bits from device to device.
	Contract bool
}

// Arg is an argument of a kernel: one of the three.
type Arg struct {
	Buffer Buffer // with Off and Len: a part of it, aligned to the kernel's elements
	Off    int64
	Len    int64 // 0: all from Off on

	Value []byte // a scalar, as it lies in memory

	Local int // bytes of memory that a group shares, for a __local pointer
}

// Errors that callers tell apart with errors.Is.
var (
	// ErrLost says that the device can't be used any more: it is gone, it
	// hangs, or an error left its memory undefined.
	ErrLost = errors.New("the device is lost")
	// ErrMemory says that there is no room.
	ErrMemory = errors.New("out of device memory")
	// ErrBuild says that a source does not compile.
	ErrBuild = errors.New("the kernel does not compile")
)

// Error is what all methods return.
type Error struct {
	Device string // its ID
	Op     string // what was done, as "CopyIn of 4096 bytes"
	Call   string // the library's function, as "cuMemcpyHtoDAsync"
	Code   int    // what it returned
	Text   string // what that means
	Log    string // a compiler's
	Kind   error  // ErrLost, ErrMemory, ErrBuild, or nil
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "device %s: %s", e.Device, e.Op)
	if e.Kind != nil {
		fmt.Fprintf(&b, ": %v", e.Kind)
	}
	if e.Text != "" {
		fmt.Fprintf(&b, ": %s", e.Text)
	}
	if e.Call != "" {
		fmt.Fprintf(&b, " (%s returned %d)", e.Call, e.Code)
	}
	if e.Log != "" {
		fmt.Fprintf(&b, "\n%s", strings.TrimRight(e.Log, "\n"))
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Kind }
