package device

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cairnrun/cairn/internal/driver"
)

// The errors of this package wrap one of these where it applies. Compare with
// errors.Is.
var (
	// ErrLost: the device cannot be used any more. Call Run.Rollback to
	// restore the last checkpoint and continue on the remaining devices.
	ErrLost = driver.ErrLost
	// ErrMemory: the device has no room for an array.
	ErrMemory = driver.ErrMemory
	// ErrBuild: a kernel does not compile. The error holds the compiler's
	// log.
	ErrBuild = driver.ErrBuild
)

// Device is a device of this machine. It runs launches one after the other.
type Device struct {
	// After a restart a program's devices stand for those that are there.
	target   *Device  // nil: it is one itself
	position position // if as is set

	drv  driver.Device
	info Info
	wrap driver.Wrapper // nil: it has memory of its own
	q    driver.Queue   // kernels, and the copies for them
	// staged: copies of unpinned memory go through pinned memory, because
	// they would take much longer.
	staged bool

	// Launches are numbered in the order of the queue. Those up to done are
	// known to have ended.
	qmu   sync.Mutex // held while a launch or an error passes through the queue
	seq   uint64     // number of the last launch on the queue; guarded by qmu
	epoch atomic.Uint64

	mu       sync.Mutex
	done     uint64
	bad      []badRange // launches that failed after Launch returned
	err      error      // why it is lost
	programs map[sourceKey]driver.Program
	kernels  map[kernelKey]driver.Kernel
	buffers  map[*buffer]struct{}
	ckptSide *checkpointSide

	throttle throttle
	staging  stagingPool
	in, out  atomic.Int64
	launched atomic.Int64 // as seq
	gone     atomic.Bool  // it is lost
}

// badRange is a range of launches that failed, or came after one that failed.
// What they wrote is undefined.
type badRange struct {
	from, to uint64
	err      error
	told     bool // a call has returned the error
}

func init() {
	driver.SetExpose(func(d driver.Device) (any, error) { return newDevice(d) })
}

// newDevice returns the Device of a driver's device. The caller closes the
// driver's device.
func newDevice(drv driver.Device) (*Device, error) {
	drv, err := rehearsed(drv)
	if err != nil {
		return nil, err
	}
	q, err := drv.NewQueue()
	if err != nil {
		return nil, err
	}
	d := &Device{drv: drv, info: newInfo(drv.Info()), q: q}
	d.staged = d.info.Backend == "cuda"
	d.buffers = make(map[*buffer]struct{})
	d.programs = make(map[sourceKey]driver.Program)
	d.kernels = make(map[kernelKey]driver.Kernel)
	if d.info.Shared {
		w, ok := drv.(driver.Wrapper)
		if !ok {
			return nil, fmt.Errorf("device %s says that it works in host memory, but has no Wrap", d.info.ID)
		}
		d.wrap = w
	}
	return d, nil
}

// Info describes a device.
type Info struct {
	Backend     string // "cuda", "opencl" or "host"
	ID          string // in this process: "cuda:0", "opencl:0.1" (platform and device), "host:0"
	Name        string // as its maker calls it
	Version     string // of the device's driver
	Kind        Kind
	Memory      int64 // bytes of global memory
	MaxAlloc    int64 // bytes of the largest buffer
	Units       int   // units that compute at the same time
	MaxGroup    int   // most work items in a group
	LocalMemory int   // bytes that the items of a group can share
	Doubles     bool  // it computes in double precision
	Shared      bool  // it works in host memory, so that arrays need no copies
}

// Kind tells GPUs from other devices.
type Kind uint8

// Kinds of devices, in the order in which Devices returns them.
const (
	GPU Kind = iota + 1
	Accelerator
	CPU
)

// String returns "GPU", "accelerator" or "CPU".
func (k Kind) String() string { return driver.Kind(k).String() }

// newInfo returns what a driver says of its device.
func newInfo(i driver.Info) Info {
	return Info{
		Backend: i.Backend, ID: i.ID, Name: i.Name, Version: i.Version, Kind: Kind(i.Kind),
		Memory: i.Memory, MaxAlloc: i.MaxAlloc, Units: i.Units, MaxGroup: i.MaxGroup, LocalMemory: i.LocalMemory,
		Doubles: i.Doubles, Shared: i.Shared,
	}
}

// Info describes the device.
func (d *Device) Info() Info { return d.real().info }

// String returns the device's ID and name.
func (d *Device) String() string {
	d = d.real()
	return d.info.ID + " (" + d.info.Name + ")"
}

// Moved returns how many bytes of arrays were copied to the device and from it
// so far. Copies for checkpoints do not count.
func (d *Device) Moved() (in, out int64) {
	d = d.real()
	return d.in.Load(), d.out.Load()
}

// Launches returns how many kernels were launched on the device so far.
func (d *Device) Launches() int64 {
	return d.real().launched.Load()
}

// Err returns why the device is lost, or nil if it is not lost.
func (d *Device) Err() error {
	d = d.real()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

func (d *Device) lost() bool { return d.Err() != nil }

// Finish waits until all launches have ended, and returns an error if one of
// them failed.
func (d *Device) Finish() error {
	d = d.real()
	if err := d.Err(); err != nil {
		return err
	}
	if err := d.settle(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.bad {
		if b := &d.bad[i]; !b.told {
			b.told = true
			return b.err
		}
	}
	return nil
}

// wait waits until launch seq has ended, and returns its error if it failed.
func (d *Device) wait(seq uint64) error {
	d.mu.Lock()
	over := seq <= d.done || d.err != nil
	d.mu.Unlock()
	var other error
	if !over {
		other = d.settle()
	}
	err := d.suspect(seq)
	if err == nil && other != nil {
		// Another launch failed. Finish reports its error.
		d.mu.Lock()
		defer d.mu.Unlock()
		if n := len(d.bad); n > 0 {
			d.bad[n-1].told = false
		}
	}
	return err
}

// settle waits for everything on the queue.
func (d *Device) settle() error {
	d.qmu.Lock()
	seq := d.seq
	ev, err := d.q.Record()
	d.qmu.Unlock()
	if err == nil {
		err = ev.Wait()
	}
	if err != nil {
		return d.fail(err)
	}
	d.mu.Lock()
	d.done = max(d.done, seq)
	d.mu.Unlock()
	return nil
}

// suspect returns an error if what launch seq wrote is undefined.
func (d *Device) suspect(seq uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.bad {
		if b.from <= seq && seq <= b.to {
			return b.err
		}
	}
	return nil
}

// fail notes an error that a command on the queue returned, and returns it. Any
// launch that is not known to have ended may be the one that failed.
func (d *Device) fail(err error) error {
	if err == nil {
		return nil
	}
	if d.lose(err) {
		return err
	}
	d.qmu.Lock()
	defer d.qmu.Unlock()
	late := d.q.Finish() // the queue can be used again
	if late != nil && d.lose(late) {
		return late
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if late != nil {
		d.epoch.Add(1)
		if d.done < d.seq {
			d.bad = append(d.bad, badRange{d.done + 1, d.seq, fmt.Errorf("a kernel failed: %w", late), true})
		}
	}
	d.done = d.seq
	return err
}

// lose marks the device as lost if err is ErrLost, and reports whether it is.
func (d *Device) lose(err error) bool {
	if !errors.Is(err, ErrLost) {
		return false
	}
	d.mu.Lock()
	first := d.err == nil
	if first {
		d.err = err
		d.gone.Store(true)
		d.bad = append(d.bad, badRange{d.done + 1, math.MaxUint64, err, true})
		d.epoch.Add(1)
		loss := fmt.Errorf("%v is lost: %w", d, err)
		lastLoss.Store(&loss)
	}
	d.mu.Unlock()
	if f := onLoss.Load(); first && f != nil {
		(*f)(d.info.ID)
	}
	return true
}

// launch puts a kernel on the queue and returns its number.
func (d *Device) launch(k driver.Kernel, global, local [3]int, args []driver.Arg) (uint64, error) {
	d.qmu.Lock()
	err := d.q.Launch(k, global, local, args)
	if err == nil {
		d.seq++
		d.launched.Store(int64(d.seq))
	}
	seq := d.seq
	d.qmu.Unlock()
	if err != nil {
		return 0, d.fail(err)
	}
	return seq, nil
}

// alloc allocates n bytes for an array of total bytes. If there is no room, it
// frees buffers whose bytes are valid elsewhere, too, and unreachable arrays.
// locked are the memories that the caller has locked.
func (d *Device) alloc(n, total int64, locked []*memory) (driver.Buffer, error) {
	var err error
	for try := range 3 {
		if try > 0 {
			d.evict(locked, try == 2)
			// Commands may still use what was freed.
			if err := d.settle(); errors.Is(err, ErrLost) {
				return nil, err
			}
		}
		var b driver.Buffer
		if b, err = d.drv.Alloc(n); err == nil {
			return b, nil
		}
		d.lose(err)
		if !errors.Is(err, ErrMemory) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no room for %s of an array of %s on %v, which has %s: %w; free arrays, or spread views of it over several devices",
		size(n), size(total), d, size(d.info.Memory), err)
}

// size formats a number of bytes.
func size(n int64) string {
	for _, u := range []struct {
		n    int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.n {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.n), u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
