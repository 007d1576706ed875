package mem

import (
	"errors"
	"sort"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Remote is memory whose bytes are not at its address: they are on devices, or
// in host memory elsewhere. Its address range, made by Reserve, only identifies
// it and must not be accessed.
type Remote interface {
	// Shape returns the dimensions of the memory's elements.
	Shape() []uint64
	// Places returns where bytes lo…hi are, in order and without gaps. The
	// result is valid until a kernel is launched or the host gets the bytes.
	Places(lo, hi int64) ([]Place, error)
	// Host makes bytes lo…hi valid in host memory, for reading, and returns
	// them.
	Host(lo, hi int64) ([]byte, error)
	// Target returns host memory for bytes lo…hi. The caller overwrites it, and
	// it becomes the only valid copy.
	Target(lo, hi int64) ([]byte, error)
	// Fill puts bytes where they are needed next, on a device if there is one.
	// That becomes the only valid copy. Fill may be called for several ranges
	// concurrently. The caller may reuse p when it returns.
	Fill(off int64, p []byte) error
}

// Place is where consecutive bytes of a Remote are: in host memory, in a buffer
// of a device, or nowhere yet.
type Place struct {
	Len  int64
	Host []byte // nil: on Device, or nowhere
	Zero bool   // nowhere: all bytes are zero
	// Guard, if not nil, keeps the bytes at Host unchanged until release is
	// called, so that they need not be copied at once. Whoever wants to change
	// bytes p of them calls yield(p) first; if yield is nil, it waits for
	// release.
	Guard   func(yield func(p []byte)) (release func())
	Device  Device
	Buffer  any // the device's name for it; comparable
	Off     int64
	Version uint64 // changes whenever a kernel may have written there; 0: counts as written always
	// Unordered says that not only launches on Device write there, but also
	// others, on streams or threads of their own. A copy must be complete
	// before the program continues.
	Unordered bool
}

// ErrNoRoom means that a device has no memory for a copy.
var ErrNoRoom = errors.New("no device memory for a snapshot")

// Device does what a checkpoint needs with the memory of a device.
type Device interface {
	// Name identifies the device in messages.
	Name() string
	// Pin prepares staging memory for copies from the device. It is called once
	// for each mapping, before Read gets parts of it.
	Pin(p []byte) error
	// Unpin undoes Pin, before the memory is freed.
	Unpin(p []byte)
	// Diff begins to find the changed blocks of an extent, as they are after
	// all kernels launched so far. It can copy up to most of them. It fails
	// with ErrNoRoom if there is no memory for that. Blocks of up to ShortBlock
	// bytes cannot be diffed.
	Diff(at Extent, most int) (Diff, error)
	// Freeze copies the extents on the device, as they are after all kernels
	// launched so far. It need not wait. Kernels launched later do not change
	// the copy. It fails with ErrNoRoom if there is no memory for that.
	Freeze(at []Extent) (Frozen, error)
	// Live gives access to the extents themselves. Nothing may change them
	// until the Frozen is closed.
	Live(at []Extent) (Frozen, error)
	// Reserve allocates memory for copies of n bytes, as far as there is any.
	Reserve(n int64)
}

// ShortBlock is the length up to which XXH3 is a different function.
const ShortBlock = 240

// Diff finds the changed blocks of an extent. Call Expect, Start and Wait, in
// this order, or Close.
type Diff interface {
	// Expect returns where the caller puts the digests of unchanged blocks.
	Expect() []xxh3.Uint128
	// Start lets the device compare the digests, and copy the blocks that
	// differ. Kernels launched later do not change the copy. It need not wait.
	Start() error
	// Wait returns the changed blocks, in no particular order, and a Frozen
	// whose only extent has their copies, each at a multiple of the block size.
	// The Frozen is nil if there are none. The list is valid until the Frozen
	// is closed. Wait fails with ErrNoRoom if more blocks changed than Diff can
	// copy.
	Wait() ([]Changed, Frozen, error)
	// Close ends the diff. After Wait, or an error, it does nothing.
	Close()
}

// Changed is the number of a block in an extent, and its digest.
type Changed struct {
	Block  uint64
	Digest xxh3.Uint128
}

// Warmer is a Device that needs preparation before it can digest.
type Warmer interface {
	// Warm compiles the kernels for diffs and digests, if necessary. It may be
	// called at any time and take long. If it fails, Diff or Digests report the
	// error.
	Warm()
}

// Extent is a range of bytes in a buffer, divided into blocks of Block bytes;
// the last one may be shorter.
type Extent struct {
	Buffer   any
	Off, Len int64
	Block    int64
}

// Blocks returns the number of blocks.
func (e *Extent) Blocks() int {
	if e.Len == 0 {
		return 0
	}
	return int((e.Len + e.Block - 1) / e.Block)
}

// Frozen is data on a device that does not change. One goroutine at a time may
// use it.
type Frozen interface {
	// Digests returns the XXH3-128 of blocks lo…hi of extent i.
	Digests(i, lo, hi int) ([]xxh3.Uint128, error)
	// Read starts to copy the bytes from off on of extent i to dst, which is in
	// pinned memory.
	Read(dst []byte, i int, off int64) error
	// Mark returns a function that waits until all copies started so far are
	// complete. Another goroutine may call it.
	Mark() (wait func() error, err error)
	// Wait returns when changes of the extents cannot change the data any more.
	Wait() error
	// Close frees the data. No copy may be in progress.
	Close()
}

// FrozenReader reads from a Frozen, and joins reads of adjacent bytes.
type FrozenReader struct {
	Frozen
	extent int
	off    int64
	dst    []byte
}

// Read starts a copy, or extends the one before it. Flush starts the last one.
func (r *FrozenReader) Read(dst []byte, i int, off int64) error {
	if r.dst != nil && r.extent == i && r.off+int64(len(r.dst)) == off && cap(r.dst)-len(r.dst) >= len(dst) && &r.dst[:len(r.dst)+1][len(r.dst)] == &dst[0] {
		r.dst = r.dst[:len(r.dst)+len(dst)]
		return nil
	}
	err := r.Flush()
	r.extent, r.off, r.dst = i, off, dst
	return err
}

// Flush starts the copy that has not been started yet.
func (r *FrozenReader) Flush() error {
	dst := r.dst
	if r.dst = nil; dst == nil {
		return nil
	}
	return r.Frozen.Read(dst, r.extent, r.off)
}

// Discard drops the copy that has not been started yet.
func (r *FrozenReader) Discard() { r.dst = nil }

// remotes holds all reserved ranges, sorted by address.
var remotes struct {
	sync.RWMutex
	list []reserved
	make func(bytes int64) (unsafe.Pointer, error)
}

type reserved struct {
	lo, hi uintptr
	r      Remote
}

// Reserve gives r an address range of n bytes. It keeps r alive until
// Unreserve.
func Reserve(r Remote, n int64) (unsafe.Pointer, error) {
	p, err := reserve(int(n))
	if err != nil {
		return nil, err
	}
	remotes.Lock()
	defer remotes.Unlock()
	i := sort.Search(len(remotes.list), func(i int) bool { return remotes.list[i].lo > uintptr(p) })
	remotes.list = append(remotes.list, reserved{})
	copy(remotes.list[i+1:], remotes.list[i:])
	remotes.list[i] = reserved{uintptr(p), uintptr(p) + uintptr(n), r}
	return p, nil
}

// Unreserve frees an address range.
func Unreserve(p unsafe.Pointer) {
	remotes.Lock()
	defer remotes.Unlock()
	i := find(uintptr(p))
	if i < 0 || remotes.list[i].lo != uintptr(p) {
		return
	}
	n := remotes.list[i].hi - remotes.list[i].lo
	remotes.list = append(remotes.list[:i], remotes.list[i+1:]...)
	unreserve(p, int(n))
}

// find returns the index of the range that contains addr, or -1.
func find(addr uintptr) int {
	i := sort.Search(len(remotes.list), func(i int) bool { return remotes.list[i].hi > addr })
	if i < len(remotes.list) && remotes.list[i].lo <= addr {
		return i
	}
	return -1
}

// FindRemote returns the Remote at an address, and the offset in it; nil for
// ordinary memory.
func FindRemote(p unsafe.Pointer) (Remote, int64) {
	remotes.RLock()
	defer remotes.RUnlock()
	if len(remotes.list) == 0 {
		return nil, 0
	}
	if i := find(uintptr(p)); i >= 0 {
		return remotes.list[i].r, int64(uintptr(p) - remotes.list[i].lo)
	}
	return nil, 0
}

// MakeRemotes sets the function that makes new Remotes when a state is
// restored.
func MakeRemotes(f func(bytes int64) (unsafe.Pointer, error)) {
	remotes.Lock()
	defer remotes.Unlock()
	remotes.make = f
}

// NewRemote makes a Remote of n bytes and returns its address. The caller calls
// drop when the state is restored, or could not be; it frees the memory if no
// array uses it.
func NewRemote(n int64) (p unsafe.Pointer, drop func(), err error) {
	remotes.RLock()
	f := remotes.make
	remotes.RUnlock()
	if f == nil {
		return nil, nil, errors.New("this program has no devices")
	}
	if p, err = f(n); err != nil {
		return nil, nil, err
	}
	r, _ := FindRemote(p)
	return p, func() {
		if d, ok := r.(Dropper); ok {
			d.Drop()
		}
	}, nil
}

// Kernels are kernels that were launched on a device and may still run.
type Kernels struct {
	Device Device       // nil: one that works in host memory
	Wait   func() error // returns when they have ended
}

var running atomic.Pointer[func() []Kernels]

// FindRunning sets the function that Running calls.
func FindRunning(f func() []Kernels) { running.Store(&f) }

// Running returns the kernels that may still run, by device.
func Running() []Kernels {
	if f := running.Load(); f != nil {
		return (*f)()
	}
	return nil
}

// Dropper is a Remote that can be freed.
type Dropper interface {
	// Drop frees the memory if no array uses it.
	Drop()
}
