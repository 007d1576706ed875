// Package host is the backend for the machine's own processors. It runs the Go
// functions of kernels. Usually it works in the program's memory (it is
// Shared). For tests, it can have a memory of its own, like a GPU.
//
// If a command fails, its queue keeps the error: later commands do not run and
// return it, and so do later events and queues that wait for them. Finish
// returns the error, and the queue can be used again.
package host

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

const (
	maxGroup    = 1024
	localMemory = 64 << 10
	alignment   = 256
)

// Options of a device. The zero value is all processors, in the program's
// memory.
type Options struct {
	Index    int   // its ID is "host:Index"
	Workers  int   // goroutines that compute at the same time; 0: GOMAXPROCS
	Discrete bool  // it has memory of its own, undefined when allocated; copies from and to pinned memory run by themselves
	Memory   int64 // bytes that can be allocated; 0: what the machine has
}

// New opens the host's processors. Each call gives another device.
func New(o Options) driver.Device {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Memory <= 0 {
		o.Memory = mem.Total()
	}
	d := &device{opts: o, queues: make(map[*queue]bool)}
	d.info = driver.Info{
		Backend: "host", ID: fmt.Sprintf("host:%d", o.Index), Name: cpuName(), Version: runtime.Version(),
		Kind: driver.CPU, Memory: o.Memory, MaxAlloc: o.Memory, Units: o.Workers,
		MaxGroup: maxGroup, LocalMemory: localMemory, Doubles: true, Shared: !o.Discrete,
	}
	if o.Discrete {
		return d
	}
	return shared{d}
}

type device struct {
	opts Options
	info driver.Info

	closed atomic.Bool // set while mu is held

	mu     sync.Mutex
	used   int64
	queues map[*queue]bool
	pinned map[*byte]pin // discrete devices only: pinned memory by first byte
}

// pin is a range of host memory, pinned n times.
type pin struct {
	data []byte
	n    int
}

// shared is a device that works in the host's memory.
type shared struct{ *device }

// Wrap returns a buffer in host memory.
func (d shared) Wrap(p []byte) driver.Buffer {
	return &buffer{d: d.device, data: p[:len(p):len(p)], foreign: true}
}

func (d *device) Info() driver.Info { return d.info }

// op describes the operation in an error.
type op struct {
	name  string
	bytes int64 // 0: the operation has no number of bytes
}

func (o op) String() string {
	if o.bytes == 0 {
		return o.name
	}
	return fmt.Sprintf("%s of %d bytes", o.name, o.bytes)
}

// error makes an error of this device.
func (d *device) error(o op, kind error, format string, args ...any) error {
	return &driver.Error{Device: d.info.ID, Op: o.String(), Text: fmt.Sprintf(format, args...), Kind: kind}
}

// open returns an error if the device was closed.
func (d *device) open(o op) error {
	if d.closed.Load() {
		return d.error(o, nil, "the device was closed")
	}
	return nil
}

func (d *device) FreeMemory() (int64, error) {
	if err := d.open(op{"FreeMemory", 0}); err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.info.Memory - d.used, nil
}

func (d *device) Alloc(n int64) (driver.Buffer, error) {
	o := op{"Alloc", n}
	if n <= 0 {
		return nil, d.error(o, nil, "a buffer has one byte at least")
	}
	if err := d.open(o); err != nil {
		return nil, err
	}
	d.mu.Lock()
	free := d.info.Memory - d.used
	if n > free || n != int64(int(n)) {
		d.mu.Unlock()
		return nil, d.error(o, driver.ErrMemory, "%d of %d bytes are free", free, d.info.Memory)
	}
	d.used += n
	d.mu.Unlock()

	p := make([]byte, n+alignment)
	at := int64(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) & (alignment - 1))
	b := &buffer{d: d, data: p[at : at+n : at+n]}
	if d.opts.Discrete {
		scribble(b.data)
	}
	return b, nil
}

// scribble fills memory whose content is undefined, so that a program that
// relies on it fails.
func scribble(p []byte) {
	for i := range min(len(p), 64) {
		p[i] = 0xdb
	}
	for i := 64; i < len(p); i *= 2 {
		copy(p[i:], p[:i])
	}
}

func (d *device) NewQueue() (driver.Queue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.open(op{"NewQueue", 0}); err != nil {
		return nil, err
	}
	q := &queue{d: d}
	q.idle.L = &q.mu
	d.queues[q] = true
	return q, nil
}

func (d *device) Pin(p []byte) (release func() error, err error) {
	if err := d.open(op{"Pin", int64(len(p))}); err != nil {
		return nil, err
	}
	if !d.opts.Discrete || len(p) == 0 {
		return func() error { return nil }, nil
	}
	key := unsafe.SliceData(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pinned == nil {
		d.pinned = make(map[*byte]pin)
	}
	old := d.pinned[key]
	if len(old.data) > len(p) {
		p = old.data
	}
	d.pinned[key] = pin{p, old.n + 1}
	return sync.OnceValue(func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		now := d.pinned[key]
		if now.n--; now.n > 0 {
			d.pinned[key] = now
		} else {
			delete(d.pinned, key)
		}
		return nil
	}), nil
}

// isPinned reports whether p lies in pinned memory.
func (d *device) isPinned(p []byte) bool {
	if !d.opts.Discrete {
		return false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, r := range d.pinned {
		lo := uintptr(unsafe.Pointer(key))
		if lo <= at && at+uintptr(len(p)) <= lo+uintptr(len(r.data)) {
			return true
		}
	}
	return false
}

// Close waits for commands that are running. Commands behind them do not run.
func (d *device) Close() error {
	d.mu.Lock()
	d.closed.Store(true)
	queues := slices.Collect(maps.Keys(d.queues))
	d.mu.Unlock()
	for _, q := range queues {
		q.drain()
	}
	return nil
}

// buffer is memory of a device.
type buffer struct {
	d       *device
	data    []byte
	foreign bool // the program's own memory

	mu    sync.Mutex
	uses  int // by commands that are not done
	freed bool
}

func (b *buffer) Size() int64 { return int64(len(b.data)) }

func (b *buffer) Free() error {
	if err := b.d.open(op{"Free", b.Size()}); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return b.d.error(op{"Free", b.Size()}, nil, "the buffer was freed before")
	}
	b.freed = true
	b.giveBack()
	return nil
}

// giveBack counts the memory of an unused buffer as free. The garbage collector
// frees it.
func (b *buffer) giveBack() {
	if b.uses > 0 || b.foreign {
		return
	}
	b.d.mu.Lock()
	b.d.used -= b.Size()
	b.d.mu.Unlock()
}

// use reserves n bytes from off on for a command. done ends that.
func (d *device) use(o op, x driver.Buffer, off, n int64) (*buffer, []byte, error) {
	b, ok := x.(*buffer)
	if !ok || b.d != d {
		return nil, nil, d.error(o, nil, "the buffer is none of this device")
	}
	if off < 0 || n < 0 || off > b.Size() || n > b.Size()-off {
		return nil, nil, d.error(o, nil, "bytes %d to %d of a buffer of %d bytes", off, off+n, b.Size())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return nil, nil, d.error(o, nil, "the buffer was freed")
	}
	b.uses++
	return b, b.data[off : off+n : off+n], nil
}

func (b *buffer) done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uses--; b.uses == 0 && b.freed {
		b.giveBack()
	}
}

// cpuName returns the system's name of the processor.
func cpuName() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH + " processor"
}
