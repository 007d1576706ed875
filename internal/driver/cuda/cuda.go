package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// Open returns the NVIDIA GPUs of this machine. Their contexts are made when
// they are first used. Without any there is an error that says why, and no
// device. Several calls give independent devices over the same contexts;
// memory that two of them pin must be released on both before it goes.
func Open() ([]driver.Device, error) { return open(driverNames(), nvrtcNames) }

func open(libs []string, compilers func() []string) ([]driver.Device, error) {
	cu, err := loadAPI(libs)
	if err != nil {
		return nil, fmt.Errorf("CUDA cannot be used: there is no NVIDIA driver that works here: %w", err)
	}
	if code := int32(dl.Call(cu.Init, 0)); code != success {
		return nil, fmt.Errorf("CUDA cannot be used: %s (cuInit returned %d)", cu.text(code), code)
	}
	var count, version int32
	if code := int32(dl.Call(cu.DeviceGetCount, uintptr(unsafe.Pointer(&count)))); code != success {
		return nil, fmt.Errorf("CUDA cannot be used: %s (cuDeviceGetCount returned %d)", cu.text(code), code)
	}
	if count == 0 {
		return nil, errors.New("CUDA cannot be used: the driver is there but shows no GPU; look at CUDA_VISIBLE_DEVICES and nvidia-smi")
	}
	dl.Call(cu.DriverGetVersion, uintptr(unsafe.Pointer(&version)))
	sys := &system{cu: cu, compilers: compilers}
	var devs []driver.Device
	var errs []error
	for i := range int(count) {
		d, err := sys.device(i, version)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		devs = append(devs, d)
	}
	return devs, errors.Join(errs...)
}

// system is what the devices of one Open share.
type system struct {
	cu        *api
	compilers func() []string

	compile sync.Mutex // allows one compilation at a time
	rtc     *nvrtc

	pinMu sync.RWMutex
	pins  []*pinned
}

type device struct {
	*system
	ordinal int
	handle  int32
	info    driver.Info
	major   int32
	minor   int32
	grid    [3]int // maximum number of groups
	block   [3]int // maximum size of a group

	start    sync.Once
	ctx      uintptr
	startErr error
	popped   uintptr // result of pops; never read

	lost   atomic.Pointer[driver.Error]
	closed atomic.Bool
	life   sync.RWMutex // calls that use handles hold it for reading, Close for writing

	mu     sync.Mutex
	queues []*queue
	live   map[uintptr]bool // addresses of buffers
	mods   map[uintptr]bool // modules
	made   []uintptr        // all events
	events []uintptr        // events that are not in use
	dead   []*freedBuffer   // freed, perhaps still in use
	unused int64            // bytes in dead
	peers  map[*device]bool // whether it reaches them
}

func (s *system) device(ordinal int, version int32) (*device, error) {
	d := &device{system: s, ordinal: ordinal, live: map[uintptr]bool{}, mods: map[uintptr]bool{}}
	d.info = driver.Info{Backend: "cuda", ID: fmt.Sprintf("cuda:%d", ordinal), Kind: driver.GPU, Doubles: true}
	const op = "opening it"
	if code := int32(dl.Call(s.cu.DeviceGet, uintptr(unsafe.Pointer(&d.handle)), uintptr(ordinal))); code != success {
		return nil, d.fail(op, "cuDeviceGet", code)
	}
	name := make([]byte, 256)
	if code := int32(dl.Call(s.cu.DeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)-1), uintptr(d.handle))); code != success {
		return nil, d.fail(op, "cuDeviceGetName", code)
	}
	d.info.Name = zeroEnd(name)
	var memory uint64
	if code := int32(dl.Call(s.cu.DeviceTotalMem, uintptr(unsafe.Pointer(&memory)), uintptr(d.handle))); code != success {
		return nil, d.fail(op, "cuDeviceTotalMem", code)
	}
	d.info.Memory, d.info.MaxAlloc = int64(memory), int64(memory)
	var threads, shared, units int32
	var grid, block [3]int32
	for _, a := range []struct {
		to   *int32
		attr uintptr
	}{
		{&threads, attrMaxThreads}, {&shared, attrMaxSharedOptin}, {&units, attrUnits},
		{&d.major, attrMajor}, {&d.minor, attrMinor},
		{&grid[0], attrMaxGrid}, {&grid[1], attrMaxGrid + 1}, {&grid[2], attrMaxGrid + 2},
		{&block[0], attrMaxBlock}, {&block[1], attrMaxBlock + 1}, {&block[2], attrMaxBlock + 2},
	} {
		if code := int32(dl.Call(s.cu.DeviceGetAttribute, uintptr(unsafe.Pointer(a.to)), a.attr, uintptr(d.handle))); code != success {
			return nil, d.fail(op, "cuDeviceGetAttribute", code)
		}
	}
	if shared == 0 {
		dl.Call(s.cu.DeviceGetAttribute, uintptr(unsafe.Pointer(&shared)), attrMaxShared, uintptr(d.handle))
	}
	for i := range grid {
		d.grid[i], d.block[i] = int(grid[i]), int(block[i])
	}
	d.info.MaxGroup, d.info.LocalMemory, d.info.Units = int(threads), int(shared), int(units)
	d.info.Version = fmt.Sprintf("CUDA driver %d.%d, compute capability %d.%d", version/1000, version%1000/10, d.major, d.minor)
	return d, nil
}

// isLost reports whether the context cannot be used after an error. Some
// neighbouring codes only mean that one call was wrong: 701 (a launch that
// needs too much), 712 and 713 (pinning), 720.
func isLost(code int32) bool {
	switch code {
	case 4, 46, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 805, 806, 810, 911, 999:
		return true
	}
	return false
}

// fail returns the error of a call, and records if the device is lost.
func (d *device) fail(op, call string, code int32) error {
	e := &driver.Error{Device: d.info.ID, Op: op, Call: call, Code: int(code), Text: d.cu.text(code)}
	switch {
	case isLost(code):
		e.Kind = driver.ErrLost
		d.lost.CompareAndSwap(nil, e)
	case code == errOutOfMemory:
		e.Kind = driver.ErrMemory
	}
	return e
}

// wrong returns the error for a call that was not made because its arguments
// are wrong.
func (d *device) wrong(op, format string, args ...any) error {
	return &driver.Error{Device: d.info.ID, Op: op, Text: fmt.Sprintf(format, args...)}
}

// usable returns an error if the device was lost or closed.
func (d *device) usable(op string) error {
	if first := d.lost.Load(); first != nil {
		e := *first
		e.Op = op + ", after " + first.Op + " had failed"
		return &e
	}
	if d.closed.Load() {
		return d.wrong(op, "the device was closed")
	}
	return nil
}

// enter makes the device's context current. If it returns nil, the goroutine
// stays on its thread until leave.
func (d *device) enter(op string) error {
	if err := d.usable(op); err != nil {
		return err
	}
	d.start.Do(func() {
		if code := int32(dl.Call(d.cu.PrimaryCtxRetain, uintptr(unsafe.Pointer(&d.ctx)), uintptr(d.handle))); code != success {
			d.startErr = d.fail("making its context", "cuDevicePrimaryCtxRetain", code)
		}
	})
	if d.startErr != nil {
		return d.startErr
	}
	d.life.RLock()
	if d.closed.Load() {
		d.life.RUnlock()
		return d.usable(op)
	}
	if err := d.push(op); err != nil {
		d.life.RUnlock()
		return err
	}
	return nil
}

func (d *device) leave() {
	d.pop()
	d.life.RUnlock()
}

// push makes the context current on the goroutine's thread, which the goroutine
// keeps. pop restores the context that the program had there, and unlocks the
// thread.
func (d *device) push(op string) error {
	runtime.LockOSThread()
	if code := int32(dl.Call(d.cu.CtxPush, d.ctx)); code != success {
		runtime.UnlockOSThread()
		return d.fail(op, "cuCtxPushCurrent", code)
	}
	return nil
}

func (d *device) pop() {
	dl.Call(d.cu.CtxPop, uintptr(unsafe.Pointer(&d.popped)))
	runtime.UnlockOSThread()
}

func (d *device) Info() driver.Info { return d.info }

func (d *device) FreeMemory() (int64, error) {
	const op = "asking for free memory"
	if err := d.enter(op); err != nil {
		return 0, err
	}
	defer d.leave()
	var free, total uint64
	if code := int32(dl.Call(d.cu.MemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))); code != success {
		return 0, d.fail(op, "cuMemGetInfo", code)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(free) + d.unused, nil
}

// Synchronize waits for all work in the context, also work that the program has
// given.
func (d *device) Synchronize() error {
	const op = "waiting for all work"
	if err := d.usable(op); err != nil || !d.inUse(d.handle) {
		return err
	}
	if err := d.enter(op); err != nil {
		return err
	}
	defer d.leave()
	if code := int32(dl.Call(d.cu.CtxSynchronize)); code != success {
		return d.fail(op, "cuCtxSynchronize", code)
	}
	return nil
}

// Close waits for the commands on the queues, unless the device is lost.
func (d *device) Close() error {
	const op = "closing it"
	if d.closed.Swap(true) {
		return nil
	}
	d.start.Do(func() {}) // no call can start it from now on
	if d.ctx == 0 || d.lost.Load() != nil {
		return nil // there is no context, or an unusable one, which could make calls hang
	}
	d.life.Lock()
	defer d.life.Unlock()
	if err := d.push(op); err != nil {
		return err
	}
	defer d.pop()
	d.mu.Lock()
	defer d.mu.Unlock()
	var first error
	note := func(call string, code int32) {
		if code != success && first == nil {
			first = d.fail(op, call, code)
		}
	}
	for _, q := range d.queues {
		q.closed.Store(true)
		if first == nil {
			first = q.wait(op)
		}
		if d.lost.Load() != nil {
			return first
		}
		note("cuStreamDestroy", int32(dl.Call(d.cu.StreamDestroy, q.stream)))
	}
	for _, c := range d.dead {
		d.live[c.addr] = true
	}
	for addr := range d.live {
		note("cuMemFree", int32(dl.Call(d.cu.MemFree, addr)))
	}
	for m := range d.mods {
		note("cuModuleUnload", int32(dl.Call(d.cu.ModuleUnload, m)))
	}
	for _, e := range d.made {
		note("cuEventDestroy", int32(dl.Call(d.cu.EventDestroy, e)))
	}
	d.queues, d.dead, d.made, d.events, d.unused = nil, nil, nil, nil, 0
	clear(d.live)
	clear(d.mods)
	note("cuDevicePrimaryCtxRelease", int32(dl.Call(d.cu.PrimaryCtxRelease, uintptr(d.handle))))
	return first
}

// pinned is registered host memory. pinMu guards users.
type pinned struct {
	lo, hi uintptr
	users  int
}

func (p *pinned) holds(lo, hi uintptr) bool { return p.lo <= lo && hi <= p.hi }

// Pin registers host memory for all GPUs. If this package has registered the
// memory already, Pin counts its users. If the program has, Pin leaves it
// alone.
func (d *device) Pin(p []byte) (func() error, error) {
	op := fmt.Sprintf("Pin of %d bytes", len(p))
	if len(p) == 0 {
		return func() error { return nil }, d.usable(op)
	}
	if err := d.enter(op); err != nil {
		return nil, err
	}
	defer d.leave()
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	hi := lo + uintptr(len(p))
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	i := slices.IndexFunc(d.pins, func(r *pinned) bool { return r.holds(lo, hi) })
	if i < 0 {
		code := int32(dl.Call(d.cu.MemHostRegister, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), hostPortable))
		switch {
		case code == errHostRegistered:
			// The program has registered it, perhaps in part: copies wait then.
			return func() error { return nil }, nil
		case code != success:
			return nil, d.fail(op, "cuMemHostRegister", code)
		}
		i = len(d.pins)
		d.pins = append(d.pins, &pinned{lo: lo, hi: hi})
	}
	r := d.pins[i]
	r.users++
	var once sync.Once
	return func() (err error) {
		once.Do(func() { err = d.unpin(r) })
		return err
	}, nil
}

func (d *device) unpin(r *pinned) error {
	const op = "releasing pinned memory"
	d.life.RLock() // lock it before pinMu, as Pin does
	defer d.life.RUnlock()
	d.pinMu.Lock()
	defer d.pinMu.Unlock()
	if r.users--; r.users > 0 {
		return nil
	}
	d.pins = slices.DeleteFunc(d.pins, func(o *pinned) bool { return o == r })
	// Unregister even if the device was closed or lost. The memory will be
	// freed, and the driver must not treat what is allocated there later as
	// pinned.
	gone := d.closed.Load() || d.lost.Load() != nil
	if !d.closed.Load() && d.push(op) == nil {
		defer d.pop()
	}
	code := int32(dl.Call(d.cu.MemHostUnregister, r.lo))
	if code == success || code == errHostNotRegister || gone {
		return nil
	}
	return d.fail(op, "cuMemHostUnregister", code)
}

// piece returns the first part of p that is completely pinned or completely
// unpinned. The driver refuses to copy a mixture.
func (d *device) piece(p []byte) (first, rest []byte, isPinned bool) {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	hi := lo + uintptr(len(p))
	d.pinMu.RLock()
	defer d.pinMu.RUnlock()
	end := hi
	for _, r := range d.pins {
		switch {
		case r.lo <= lo && lo < r.hi:
			n := min(hi, r.hi) - lo
			return p[:n], p[n:], true
		case lo < r.lo && r.lo < end:
			end = r.lo
		}
	}
	return p[:end-lo], p[end-lo:], false
}

// Attributes asks the driver. Any device of a process can be asked. It creates
// no context: that takes long, and memory of the GPU.
func (d *device) Attributes(addr uintptr) (driver.Attributes, bool, error) {
	const op = "asking what lies at an address"
	if err := d.usable(op); err != nil {
		return driver.Attributes{}, false, err
	}
	var a pointerAttributes
	code := d.pointer(addr, &a)
	if code == errInvalidContext { // older drivers need a context
		if !d.inUse(d.handle) {
			return driver.Attributes{}, false, nil // without a context, there is no memory
		}
		if err := d.enter(op); err != nil {
			return driver.Attributes{}, false, err
		}
		code = d.pointer(addr, &a)
		d.leave()
	}
	switch {
	case code == errInvalidValue:
		return driver.Attributes{}, false, nil
	case code != success:
		return driver.Attributes{}, false, d.fail(op, "cuPointerGetAttributes", code)
	case a.kind == 0 && a.managed == 0: // memory that the driver does not know
		return driver.Attributes{}, false, nil
	}
	out := driver.Attributes{Device: int(a.ordinal), Managed: a.managed != 0}
	out.Host = a.kind == memoryHost && !out.Managed
	if a.context != 0 {
		primary, err := d.primary(op, int(a.ordinal))
		if err != nil {
			return driver.Attributes{}, false, err
		}
		out.Other = a.context != primary
	}
	return out, true, nil
}

type pointerAttributes struct {
	context uintptr // 0: none in particular, as for memory pools
	kind    uint32
	managed uint8
	ordinal int32
}

// pointer queries all attributes of an address.
func (d *device) pointer(addr uintptr, a *pointerAttributes) int32 {
	attrs := [4]int32{pointerContext, pointerMemoryType, pointerIsManaged, pointerDeviceOrdinal}
	var managed uint32 // C's bool is one byte
	data := [4]unsafe.Pointer{unsafe.Pointer(&a.context), unsafe.Pointer(&a.kind), unsafe.Pointer(&managed), unsafe.Pointer(&a.ordinal)}
	code := int32(dl.Call(d.cu.PointerGetAttributes, uintptr(len(attrs)), uintptr(unsafe.Pointer(&attrs)), uintptr(unsafe.Pointer(&data)), addr))
	a.managed = uint8(managed)
	return code
}

// inUse reports whether a device has a primary context: this package's, or the
// program's own.
func (s *system) inUse(handle int32) bool {
	var flags uint32
	var active int32
	code := int32(dl.Call(s.cu.PrimaryCtxGetState, uintptr(handle), uintptr(unsafe.Pointer(&flags)), uintptr(unsafe.Pointer(&active))))
	return code == success && active != 0
}

// primary returns the primary context of the device with a number, or 0 if it
// has none.
func (d *device) primary(op string, ordinal int) (ctx uintptr, err error) {
	var handle int32
	if code := int32(dl.Call(d.cu.DeviceGet, uintptr(unsafe.Pointer(&handle)), uintptr(ordinal))); code != success {
		return 0, d.fail(op, "cuDeviceGet", code)
	}
	if !d.inUse(handle) {
		return 0, nil
	}
	if code := int32(dl.Call(d.cu.PrimaryCtxRetain, uintptr(unsafe.Pointer(&ctx)), uintptr(handle))); code != success {
		return 0, d.fail(op, "cuDevicePrimaryCtxRetain", code)
	}
	dl.Call(d.cu.PrimaryCtxRelease, uintptr(handle))
	return ctx, nil
}
