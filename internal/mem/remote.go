package mem

import (
	"errors"
	"sort"
	"sync"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Remote is memory whose bytes are not where its address says: they lie on
// devices, or in host memory elsewhere. Its address range, made by Reserve,
// only stands for it: it must not be touched.
type Remote interface {
	// Shape gives the dimensions of the memory's elements.
	Shape() []uint64
	// Places tells where bytes lo…hi are, in order and without gaps. What it
	// says holds until a kernel is launched or the host is given the bytes.
	Places(lo, hi int64) ([]Place, error)
	// Host makes bytes lo…hi valid in host memory, for reading, and returns them.
	Host(lo, hi int64) ([]byte, error)
	// Target returns host memory for bytes lo…hi, which the caller overwrites:
	// it is then the only valid copy.
	Target(lo, hi int64) ([]byte, error)
	// Fill puts bytes where they are wanted next, on a device if there is one:
	// that is then the only valid copy. It may be called for several ranges at
	// a time; p is free again when it returns.
	Fill(off int64, p []byte) error
}

// Place says where consecutive bytes of a Remote are: in host memory, in a
// buffer of a device, or nowhere yet.
type Place struct {
	Len  int64
	Host []byte // nil: on Device, or
	Zero bool   // nowhere: all zeros
	// Guard, if not nil, keeps the bytes at Host from being changed until release
	// is called: they need not be copied at once. Whoever wants to change bytes p
	// of them calls yield(p), and may do so when that returns; nil: waits for release.
	Guard   func(yield func(p []byte)) (release func())
	Device  Device
	Buffer  any // what Device knows it by; comparable
	Off     int64
	Version uint64 // another one whenever a kernel could have written there; 0: always
	// Unordered: others than the launches on Device write there, on streams or
	// threads of their own. A copy must be complete before the program continues.
	Unordered bool
}

// ErrNoRoom says that the device has no memory for a copy.
var ErrNoRoom = errors.New("no device memory for a snapshot")

// Device does with its memory what a checkpoint needs.
type Device interface {
	// Name tells it from others, in messages.
	Name() string
	// Pin prepares staging memory for copies from the device. It is called once
	// for each mapping, before Read is given parts of it.
	Pin(p []byte) error
	// Unpin ends that, before the memory is given back.
	Unpin(p []byte)
	// Diff begins to find out which blocks of an extent are others than they
	// were, as they are after all kernels launched so far, and has room to copy
	// most of them. ErrNoRoom: there is no memory for that. Blocks of up to
	// ShortBlock bytes cannot be diffed.
	Diff(at Extent, most int) (Diff, error)
	// Freeze copies the extents on the device, as they are after all kernels
	// launched so far; it need not wait. Kernels launched later don't change
	// the copy. ErrNoRoom: there is no memory for that.
	Freeze(at []Extent) (Frozen, error)
	// Live gives access to the extents themselves. Nothing may change them
	// until it is closed.
	Live(at []Extent) (Frozen, error)
	// Reserve makes room for snapshots of n bytes, as far as there is any.
	Reserve(n int64)
}

// ShortBlock is the length up to which XXH3 is another function.
const ShortBlock = 240

// Diff finds blocks that have changed. Expect, Start and Wait are called in
// this order, or Close.
type Diff interface {
	// Expect is where the caller puts the digest that each block has if it has
	// not changed.
	Expect() []xxh3.Uint128
	// Start lets the device compare, and copy the blocks whose digests are
	// others. Kernels launched later don't change the copy. It need not wait.
	Start() error
	// Wait returns the blocks that are others, in no order, and their copies as
	// the one extent of a Frozen: each begins at a multiple of the extent's
	// block size. It is nil if there are none. The list holds until it is
	// closed. ErrNoRoom: there are more than Diff was told.
	Wait() ([]Changed, Frozen, error)
	// Close gives up. After Wait, or an error, it does nothing.
	Close()
}

// Changed is a block of an extent, by its number, and its digest.
type Changed struct {
	Block  uint64
	Digest xxh3.Uint128
}

// Warmer is a Device that has to get ready before it can digest.
type Warmer interface {
	// Warm compiles what Diff and digests need, if that has not been done. It may
	// be called at any time, and take long; if it fails, they will say so.
	Warm()
}

// Extent is a run of bytes in a buffer, cut into blocks of Block bytes; the
// last one may be shorter.
type Extent struct {
	Buffer   any
	Off, Len int64
	Block    int64
}

// Blocks is the number of blocks.
func (e *Extent) Blocks() int {
	if e.Len == 0 {
		return 0
	}
	return int((e.Len + e.Block - 1) / e.Block)
}

// Frozen is data that stands still on a device. One goroutine at a time uses it.
type Frozen interface {
	// Digests computes the XXH3-128 of blocks lo…hi of extent i.
	Digests(i, lo, hi int) ([]xxh3.Uint128, error)
	// Read starts to copy bytes from off on of extent i into dst, which lies in
	// memory that was pinned.
	Read(dst []byte, i int, off int64) error
	// Mark returns a function that waits until all copies started so far are
	// done. It may be called by another goroutine.
	Mark() (wait func() error, err error)
	// Wait returns when the data no longer depends on the extents: whatever
	// anyone does to them from then on does not change it.
	Wait() error
	// Close lets go of the data. No copy may be under way.
	Close()
}

// FrozenReader reads from a Frozen, and joins reads of bytes that follow each
// other there and in dst.
type FrozenReader struct {
	Frozen
	extent int
	off    int64
	dst    []byte
}

// Read starts a copy, or makes the one before it longer. The last one starts
// with Flush.
func (r *FrozenReader) Read(dst []byte, i int, off int64) error {
	if r.dst != nil && r.extent == i && r.off+int64(len(r.dst)) == off && cap(r.dst)-len(r.dst) >= len(dst) && &r.dst[:len(r.dst)+1][len(r.dst)] == &dst[0] {
		r.dst = r.dst[:len(r.dst)+len(dst)]
		return nil
	}
	err := r.Flush()
	r.extent, r.off, r.dst = i, off, dst
	return err
}

// Flush starts the copy that is not started yet.
func (r *FrozenReader) Flush() error {
	dst := r.dst
	if r.dst = nil; dst == nil {
		return nil
	}
	return r.Frozen.Read(dst, r.extent, r.off)
}

// Discard forgets the copy that is not started yet.
func (r *FrozenReader) Discard() { r.dst = nil }

// remotes are all reserved ranges, by address.
var remotes struct {
	sync.RWMutex
	list []reserved
	make func(bytes int64) (unsafe.Pointer, error)
}

type reserved struct {
	lo, hi uintptr
	r      Remote
}

// Reserve gives r an address range of n bytes. It holds r alive until Unreserve.
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

// Unreserve gives a range back.
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

// find returns the index of the range that holds addr, or -1.
func find(addr uintptr) int {
	i := sort.Search(len(remotes.list), func(i int) bool { return remotes.list[i].hi > addr })
	if i < len(remotes.list) && remotes.list[i].lo <= addr {
		return i
	}
	return -1
}

// FindRemote returns the Remote at an address, and where in it that is; nil
// for ordinary memory.
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

// MakeRemotes says how new Remotes are made, for state that is restored.
func MakeRemotes(f func(bytes int64) (unsafe.Pointer, error)) {
	remotes.Lock()
	defer remotes.Unlock()
	remotes.make = f
}

// NewRemote makes a Remote of n bytes and returns its address. drop gives the
// memory back, unless somebody has taken it: it is called when the state is
// restored, or could not be.
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

// Dropper is a Remote that can be given back.
type Dropper interface {
	// Drop gives the memory back if no array has it.
	Drop()
}
