// Package opencl drives OpenCL devices for package internal/driver. It opens
// the ICD loader libOpenCL.so.1 at run time: it needs no headers and no
// compiler to be built, and OpenCL 1.2 or newer to do anything.
//
// Every device has a context of its own, made when it is first used. Queues
// are in order. What the interface asks for and OpenCL does not have:
//
//   - Pinned memory. OpenCL cannot register memory. Pin only notes the range;
//     copies from and to it do not wait, all others do.
//   - Arguments at any offset. OpenCL has parts of buffers only at multiples
//     of CL_DEVICE_MEM_BASE_ADDR_ALIGN (128 bytes on PoCL, 512 on NVIDIA).
//     Such a part costs nothing; any other one is copied to memory of its own
//     before the kernel, and, unless the kernel declares it const, back after
//     it. Parts that are copied like that must not overlap others of the same
//     launch, if either is written.
//   - Memory when it is asked for. Drivers allocate at the first use, so Alloc
//     writes a byte.
//   - Errors of commands that failed late. Finish and Event.Wait look at the
//     state of a marker. All such errors are driver.ErrLost, and stay. After
//     a kernel that wrote outside of its buffers NVIDIA's driver refuses the
//     device to the whole process; a new process can use it.
//   - A bound on what is under way. A queue holds some thousand commands, then
//     giving more waits.
package opencl

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// Open returns all devices of all platforms that have a compiler. Without any
// the error says why: it is dl.ErrNotFound where there is no library, and
// errors.ErrUnsupported where this build cannot open one or no driver offers a
// device. If only some platforms fail, Open returns the devices of the others
// and the error.
func Open() ([]driver.Device, error) {
	a, err := load(libraries...)
	if err != nil {
		return nil, err
	}
	const remedy = "install a driver (as the package pocl-opencl-icd), see /etc/OpenCL/vendors, and clinfo for what is there"
	var n uint32
	code := int32(dl.Call(a.getPlatformIDs, 0, 0, uintptr(unsafe.Pointer(&n))))
	if code == codeNoPlatform || code == 0 && n == 0 {
		return nil, fmt.Errorf("OpenCL has no platforms: %w; %s", errors.ErrUnsupported, remedy)
	}
	platforms := make([]uintptr, max(n, 1))
	if code == 0 {
		code = int32(dl.Call(a.getPlatformIDs, uintptr(n), uintptr(unsafe.Pointer(&platforms[0])), 0))
	}
	if code != 0 {
		return nil, fmt.Errorf("OpenCL cannot list its platforms: %s (clGetPlatformIDs returned %d): %w; %s", words(code), code, errors.ErrUnsupported, remedy)
	}
	var all []driver.Device
	var errs []error
	for p, platform := range platforms {
		ids, code := devicesOf(a, platform)
		if code != 0 && code != codeDeviceNotFound {
			errs = append(errs, fmt.Errorf("OpenCL platform %d cannot list its devices: %s (clGetDeviceIDs returned %d); see clinfo", p, words(code), code))
		}
		for i, id := range ids {
			if d := describe(a, id, fmt.Sprintf("opencl:%d.%d", p, i)); d != nil {
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		errs = append(errs, fmt.Errorf("OpenCL has no device that can be used: %w; %s", errors.ErrUnsupported, remedy))
	}
	return all, errors.Join(errs...)
}

func devicesOf(a *api, platform uintptr) ([]uintptr, int32) {
	var n uint32
	code := int32(dl.Call(a.getDeviceIDs, platform, deviceTypeAll, 0, 0, uintptr(unsafe.Pointer(&n))))
	if code != 0 || n == 0 {
		return nil, code
	}
	ids := make([]uintptr, n)
	code = int32(dl.Call(a.getDeviceIDs, platform, deviceTypeAll, uintptr(n), uintptr(unsafe.Pointer(&ids[0])), 0))
	if code != 0 {
		return nil, code
	}
	return ids, 0
}

// describe returns a device, or nil if it cannot be used.
func describe(a *api, id uintptr, name string) *device {
	ask := func(param uintptr) uint64 { return number(a.getDeviceInfo, param, id) }
	if ask(deviceAvailable) == 0 || ask(deviceCompiler) == 0 || ask(deviceLittleEndian) == 0 {
		return nil
	}
	str := func(param uintptr) string { return strings.TrimSpace(text(a.getDeviceInfo, param, id)) }
	d := &device{
		a:     a,
		id:    id,
		align: max(int64(ask(deviceBaseAlign)/8), 1),
		info: driver.Info{
			Backend:     "opencl",
			ID:          name,
			Name:        str(deviceName),
			Version:     str(deviceVersion) + ", driver " + str(deviceDriver),
			Kind:        driver.Accelerator,
			Memory:      int64(ask(deviceMemory)),
			MaxAlloc:    int64(ask(deviceMaxAlloc)),
			Units:       int(ask(deviceUnits)),
			MaxGroup:    int(ask(deviceMaxGroup)),
			LocalMemory: int(ask(deviceLocalMemory)),
		},
		live: make(map[closer]struct{}),
	}
	switch t := ask(deviceType); {
	case t&typeGPU != 0:
		d.info.Kind = driver.GPU
	case t&typeCPU != 0:
		d.info.Kind = driver.CPU
	}
	d.fp64 = strings.Contains(" "+str(deviceExtensions)+" ", " cl_khr_fp64 ")
	d.info.Doubles = d.fp64 || ask(deviceDouble) != 0
	d.rounded = ask(deviceSingle)&correctlyRounded != 0
	return d
}

// closer is a resource that is released when its device is closed.
type closer interface{ drop() }

type device struct {
	a       *api
	id      uintptr
	info    driver.Info
	align   int64 // alignment of parts of buffers
	fp64    bool  // doubles need an extension
	rounded bool  // single-precision division can be exact

	used atomic.Int64                 // bytes allocated
	lost atomic.Pointer[driver.Error] // why the device is lost

	mu       sync.Mutex
	closed   bool
	context  uintptr // 0 until it is needed
	own      uintptr // a queue for Alloc
	live     map[closer]struct{}
	deferred []*buffer // freed buffers that may still be in use

	releasing sync.Mutex // held while buffers in deferred are released

	pins     pins
	arrivals arrivals
}

func (d *device) Info() driver.Info { return d.info }

func (d *device) FreeMemory() (int64, error) {
	if err := d.usable("FreeMemory"); err != nil {
		return 0, err
	}
	d.releaseDeferred(false)
	return max(d.info.Memory-d.used.Load(), 0), nil
}

// usable returns an error if the device is lost or closed.
func (d *device) usable(op string) error {
	if e := d.lost.Load(); e != nil {
		return &driver.Error{Device: d.info.ID, Op: op, Kind: driver.ErrLost, Text: "since " + e.Op + ": " + e.Text, Call: e.Call, Code: e.Code}
	}
	return nil
}

// refusedAgain is the meaning of codeNVIDIAFault for a new context.
const refusedAgain = "a kernel that this process ran earlier read or wrote outside of its buffers, and since then the driver does not let the process use the device; only a new process can: start the program again, from its last checkpoint"

// fail returns the error of a call that was refused. after is a queue that may
// have more information, or 0.
func (d *device) fail(op, call string, code int32, after uintptr) error {
	e := &driver.Error{Device: d.info.ID, Op: op, Call: call, Code: int(code), Text: words(code), Kind: kind(code)}
	if code == codeNVIDIAFault && call == "clCreateContext" {
		e.Text = refusedAgain
	}
	// Drivers report a failed kernel as a lack of resources of the next call.
	// Then the queue does not work any more.
	if code == codeResources && after != 0 && int32(dl.Call(d.a.finish, after)) != 0 {
		e.Kind = driver.ErrLost
	}
	if e.Kind == driver.ErrLost {
		d.lost.CompareAndSwap(nil, e)
	}
	return e
}

// late returns the error of a command that was accepted and then failed.
func (d *device) late(op, call string, code int32) error {
	e := &driver.Error{Device: d.info.ID, Op: op, Call: call, Code: int(code), Text: "an earlier command failed: " + words(code), Kind: driver.ErrLost}
	d.lost.CompareAndSwap(nil, e)
	return e
}

// wrong returns the error for a call with wrong arguments.
func (d *device) wrong(op, format string, args ...any) error {
	return &driver.Error{Device: d.info.ID, Op: op, Text: fmt.Sprintf(format, args...)}
}

// open makes the context, once.
func (d *device) open(op string) error {
	if err := d.usable(op); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.wrong(op, "the device was closed")
	}
	if d.context != 0 {
		return nil
	}
	var code int32
	context := dl.Call(d.a.createContext, 0, 1, uintptr(unsafe.Pointer(&d.id)), 0, 0, uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		return d.fail(op, "clCreateContext", code, 0)
	}
	own := dl.Call(d.a.createQueue, context, d.id, 0, uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		dl.Call(d.a.releaseContext, context)
		return d.fail(op, "clCreateCommandQueue", code, 0)
	}
	d.context, d.own = context, own
	return nil
}

// add registers c, which is released with the device. If the device is closed
// already, add releases c.
func (d *device) add(op string, c closer) error {
	d.mu.Lock()
	closed := d.closed
	if !closed {
		d.live[c] = struct{}{}
	}
	d.mu.Unlock()
	if closed {
		c.drop()
		return d.wrong(op, "the device was closed")
	}
	return nil
}

func (d *device) remove(c closer) {
	d.mu.Lock()
	delete(d.live, c)
	d.mu.Unlock()
}

// Close waits for unfinished commands, unless the device is lost.
func (d *device) Close() error {
	d.mu.Lock()
	live := d.live
	closed := d.closed
	d.live, d.closed = nil, true
	d.mu.Unlock()
	if closed {
		return nil
	}
	for c := range live {
		if q, ok := c.(*queue); ok {
			q.drop()
		}
	}
	for c := range live {
		c.drop()
	}
	d.releaseDeferred(true)
	if d.context != 0 {
		dl.Call(d.a.releaseQueue, d.own)
		dl.Call(d.a.releaseContext, d.context)
	}
	return nil
}
