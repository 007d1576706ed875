// Package faulty makes a device fail on purpose. A test runs a program once to
// count the calls, and then once for each of them, failing it:
//
//	for n := 1; ; n++ {
//		f := &faulty.Fault{At: n, Kind: faulty.Lost}
//		program(faulty.Wrap(host.New(host.Options{Discrete: true}), f))
//		if !f.Fired() {
//			break
//		}
//	}
package faulty

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
)

// Kind is how a call fails.
type Kind uint8

const (
	// Lost: the call and all later ones of that device return ErrLost. Calls
	// that release something (Free, Close, a release of Pin) still do so.
	Lost Kind = iota + 1
	// Memory: an Alloc returns ErrMemory, once. Other calls do not fail.
	Memory
	// Late: the call succeeds, but from then on the device does nothing,
	// and puts junk where bytes are wanted. The next call that waits (Wait,
	// Done, Finish, Record, Synchronize, Close of a queue, CopyOut into
	// memory that is not pinned) returns ErrLost, and so do all after it.
	Late
)

func (k Kind) String() string {
	if names := []string{Lost: "lost", Memory: "memory", Late: "late"}; k > 0 && int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Fault counts the calls of the devices that share it and makes one of them
// fail. The zero value only counts. At, Kind and Op must not be changed while
// devices use it.
type Fault struct {
	At   int // the call that fails, from 1 on; 0: none
	Kind Kind
	Op   string // count only the calls with this name, as "Launch"; "": all

	mu    sync.Mutex
	calls []string
	fired bool
}

// Calls returns the number of calls so far: of all methods that can fail.
func (f *Fault) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// Name returns the name of call n, as "Queue.CopyIn"; "" if there was none.
func (f *Fault) Name(n int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n < 1 || n > len(f.calls) {
		return ""
	}
	return f.calls[n-1]
}

// Fired reports whether a call was made to fail.
func (f *Fault) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// count counts a call. It returns its number, and whether it must fail.
func (f *Fault) count(name string) (n int, now bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, op, _ := strings.Cut(name, "."); f.Op != "" && f.Op != op {
		return len(f.calls), false
	}
	f.calls = append(f.calls, name)
	n = len(f.calls)
	now = n == f.At && (f.Kind != Memory || name == "Device.Alloc")
	f.fired = f.fired || now
	return n, now
}

// Wrap returns a device that is d, except for the fault. It is a
// driver.Wrapper and has driver.Pointers where d is and has.
func Wrap(d driver.Device, f *Fault) driver.Device {
	w := &device{d: d, f: f, queues: make(map[driver.Queue]bool), pins: make(map[*byte]int)}
	wrapper, shared := d.(driver.Wrapper)
	pointers, addresses := d.(driver.Pointers)
	switch {
	case shared && addresses:
		return struct {
			*device
			wraps
			points
		}{w, wraps{w, wrapper}, points{w, pointers}}
	case shared:
		return struct {
			*device
			wraps
		}{w, wraps{w, wrapper}}
	case addresses:
		return struct {
			*device
			points
		}{w, points{w, pointers}}
	}
	return w
}

type device struct {
	d driver.Device
	f *Fault

	mu     sync.Mutex
	state  state
	cause  error // why it is lost
	queues map[driver.Queue]bool
	pins   map[*byte]int // length of pinned memory, by first byte
}

type state uint8

const (
	fine state = iota
	late       // lost, but not reported yet
	lost
)

// class says how faults treat a call.
type class uint8

const (
	command class = 1 << iota // its work may be omitted
	waits                     // it reports errors of earlier commands
	frees                     // it is always passed to the device
	plain   class = 0
)

// call counts a call. do says whether to pass it to the device. Otherwise the
// call returns err, which is nil as long as a loss is not reported yet.
func (w *device) call(name string, c class) (do bool, err error) {
	n, now := w.f.count(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	if now {
		switch {
		case w.f.Kind == Memory:
			return false, w.error(name, driver.ErrMemory, n)
		case w.f.Kind == Late && w.state == fine:
			w.state = late
		default:
			w.lose(name, n)
		}
	}
	if w.state == late && c&waits != 0 {
		w.lose(name, n)
	}
	switch w.state {
	case lost:
		return c&frees != 0, w.cause
	case late:
		return c&command == 0, nil
	}
	return true, nil
}

// lose makes the device lost. Nothing accesses the program's memory after that.
func (w *device) lose(name string, n int) {
	if w.state == lost {
		return
	}
	w.state, w.cause = lost, w.error(name, driver.ErrLost, n)
	for q := range w.queues {
		q.Finish()
	}
}

func (w *device) error(name string, kind error, n int) error {
	return &driver.Error{Device: w.d.Info().ID, Op: name, Text: fmt.Sprintf("call %d was made to fail", n), Kind: kind}
}

// either returns the first error.
func either(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (w *device) Info() driver.Info { return w.d.Info() }

func (w *device) FreeMemory() (int64, error) {
	if do, err := w.call("Device.FreeMemory", plain); !do {
		return 0, err
	}
	return w.d.FreeMemory()
}

func (w *device) Alloc(n int64) (driver.Buffer, error) {
	if do, err := w.call("Device.Alloc", plain); !do {
		return nil, err
	}
	b, err := w.d.Alloc(n)
	if err != nil {
		return nil, err
	}
	return &buffer{w, b}, nil
}

func (w *device) NewQueue() (driver.Queue, error) {
	if do, err := w.call("Device.NewQueue", plain); !do {
		return nil, err
	}
	q, err := w.d.NewQueue()
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queues[q] = true
	return &queue{w, q}, nil
}

func (w *device) Build(s driver.Source) (driver.Program, error) {
	if do, err := w.call("Device.Build", plain); !do {
		return nil, err
	}
	p, err := w.d.Build(s)
	if err != nil {
		return nil, err
	}
	return &program{w, p}, nil
}

func (w *device) Pin(p []byte) (func() error, error) {
	if do, err := w.call("Device.Pin", plain); !do {
		return nil, err
	}
	release, err := w.d.Pin(p)
	if err != nil || len(p) == 0 {
		return release, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pins[unsafe.SliceData(p)] = len(p)
	return func() error {
		_, lost := w.call("release of pinned memory", frees)
		w.mu.Lock()
		delete(w.pins, unsafe.SliceData(p))
		w.mu.Unlock()
		return either(lost, release())
	}, nil
}

// isPinned reports whether p lies in pinned memory.
func (w *device) isPinned(p []byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	w.mu.Lock()
	defer w.mu.Unlock()
	for first, n := range w.pins {
		if lo := uintptr(unsafe.Pointer(first)); lo <= at && at+uintptr(len(p)) <= lo+uintptr(n) {
			return true
		}
	}
	return false
}

func (w *device) Close() error {
	_, lost := w.call("Device.Close", frees)
	return either(lost, w.d.Close())
}

// Reaches asks the devices themselves.
func (w *device) Reaches(other driver.Device) bool {
	if o, ok := other.(interface{ unwrap() driver.Device }); ok {
		other = o.unwrap()
	}
	p, ok := w.d.(driver.Peer)
	return ok && p.Reaches(other)
}

func (w *device) unwrap() driver.Device { return w.d }

// wraps adds driver.Wrapper for a shared device.
type wraps struct {
	w *device
	d driver.Wrapper
}

func (w wraps) Wrap(p []byte) driver.Buffer { return &buffer{w.w, w.d.Wrap(p)} }

// points adds driver.Pointers for a device whose memory has addresses.
type points struct {
	w *device
	d driver.Pointers
}

func (p points) Attributes(addr uintptr) (driver.Attributes, bool, error) {
	if do, err := p.w.call("Device.Attributes", plain); !do {
		return driver.Attributes{}, false, err
	}
	return p.d.Attributes(addr)
}

func (p points) Synchronize() error {
	if do, err := p.w.call("Device.Synchronize", waits); !do {
		return err
	}
	return p.d.Synchronize()
}

func (p points) At(addr uintptr, n int64) driver.Buffer { return &buffer{p.w, p.d.At(addr, n)} }
