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

// Kind tells GPUs from other devices.
type Kind uint8

const (
	GPU Kind = iota + 1
	Accelerator
	CPU
)

func (k Kind) String() string {
	if names := []string{GPU: "GPU", Accelerator: "accelerator", CPU: "CPU"}; k > 0 && int(k) < len(names) {
		return names[k]
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

// Device is an open device.
type Device interface {
	Info() Info
	// FreeMemory returns approximately how many bytes can still be
	// allocated.
	FreeMemory() (int64, error)
	// Alloc allocates n > 0 bytes of global memory, with undefined content,
	// aligned to at least 128 bytes. It returns ErrMemory if there is no
	// room.
	Alloc(n int64) (Buffer, error)
	NewQueue() (Queue, error)
	// Build compiles a source. If it does not compile, the error is
	// ErrBuild and holds the compiler's log.
	Build(Source) (Program, error)
	// Pin prepares host memory for asynchronous copies at full speed. On
	// devices that do not need it, release does nothing. The memory must
	// exist until release is called.
	Pin(p []byte) (release func() error, err error)
	// Close ends the use of the device. Its buffers and queues are invalid
	// afterwards.
	Close() error
}

// Wrapper is implemented by Shared devices. Wrap returns a buffer in host
// memory, whose Free does not free the memory.
type Wrapper interface {
	Wrap(p []byte) Buffer
}

// Pointers is implemented by devices whose memory has addresses. Programs can
// bring memory of their own, and can give such a device work without Cairn.
type Pointers interface {
	// Attributes describes the memory at an address. ok is false for memory
	// that the driver does not know: ordinary host memory.
	Attributes(addr uintptr) (attr Attributes, ok bool, err error)
	// At returns a buffer of n bytes of existing memory that this device
	// can reach. Free does not free the memory.
	At(addr uintptr, n int64) Buffer
	// Synchronize waits for all work on the device, whoever gave it. It is
	// cheap on an idle device.
	Synchronize() error
}

// Peer is implemented by devices that can copy from the memory of others
// without the host.
type Peer interface {
	// Reaches reports whether queues of this device can copy from buffers
	// of another one, and wait for its events.
	Reaches(other Device) bool
}

// Attributes describes the memory at an address.
type Attributes struct {
	Device  int  // index of the device, as in the ID "cuda:1"
	Managed bool // moves between host and device by itself
	Host    bool // pinned host memory
	Other   bool // it belongs to a context that this package does not use
}

// Buffer is memory of a device. A buffer that commands still use may be freed:
// it is released when they are done.
type Buffer interface {
	Size() int64
	Free() error
}

// Queue runs commands in order. CopyIn and CopyOut may return before the copy
// is done only if the host memory is pinned. The caller then must not touch
// that memory until an event recorded after the copy has passed. With other
// memory they return when it may be used again. If CopyOut then returns no
// error, the bytes have been copied.
type Queue interface {
	CopyIn(dst Buffer, off int64, src []byte) error
	CopyOut(dst []byte, src Buffer, off int64) error
	// Copy copies on the device. It is an error if the parts overlap.
	Copy(dst Buffer, dstOff int64, src Buffer, srcOff, n int64) error
	// CopyRect copies a block on the device, from one buffer to another
	// one.
	CopyRect(dst, src Buffer, r Rect) error
	// CopyFrom is Copy from a buffer of another device, which this one
	// Reaches. It waits for commands on the other device only if After has
	// said so.
	CopyFrom(dst Buffer, dstOff int64, src Buffer, srcOff, n int64) error
	// Launch runs a kernel. global is the number of work items in each
	// dimension, 1 in unused dimensions. local is the size of a group; if
	// its first element is 0, the device chooses. Global sizes need not be
	// multiples of local ones: a device that requires it rounds up, and
	// kernels check their position. args and their values may be reused
	// when Launch returns.
	Launch(k Kernel, global, local [3]int, args []Arg) error
	// Record returns an event that passes when all earlier commands are
	// done.
	Record() (Event, error)
	// After makes later commands wait for an event of the same device, or of
	// one that it Reaches.
	After(Event) error
	// Finish waits until all commands are done.
	Finish() error
	Close() error
}

// Event is a position in a queue.
type Event interface {
	Wait() error         // until it has passed
	Done() (bool, error) // whether it has
}

// Program is a source that was compiled for a device.
type Program interface {
	Kernel(name string) (Kernel, error)
	Close() error
}

// Kernel is a function of a program.
type Kernel interface {
	Name() string
}

// Source is the source code of kernels.
type Source struct {
	OpenCL string                 // OpenCL C; on CUDA the documented subset of it
	Go     map[string]func(*Work) // the same kernels for the host, by name
	// Contract lets the compiler fuse multiplications and additions.
	// Results then differ in the last bits between devices.
	Contract bool
}

// Arg is an argument of a kernel: a buffer, a scalar, or local memory.
type Arg struct {
	Buffer Buffer // with Off and Len: a part of it, aligned to the kernel's elements
	Off    int64
	Len    int64 // 0: all from Off on

	Value []byte // a scalar, as it lies in memory

	Local int // bytes of memory that a group shares, for a __local pointer
}

// Errors that callers tell apart with errors.Is.
var (
	// ErrLost: the device cannot be used any more. It is gone, it hangs, or
	// an error has left its memory undefined.
	ErrLost = errors.New("the device is lost")
	// ErrMemory: there is no room.
	ErrMemory = errors.New("out of device memory")
	// ErrBuild: a source does not compile.
	ErrBuild = errors.New("the kernel does not compile")
)

// Error is the error that all methods return.
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
