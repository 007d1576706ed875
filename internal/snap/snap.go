// Package snap does on a device what a checkpoint needs: it digests blocks,
// copies blocks on the device so that the program's kernels can continue, and
// drains the copies to host memory. It works with any driver.Device. Engine is
// a mem.Device whose buffers are driver.Buffers.
//
// The queues:
//
//	the program's queue   … kernel, kernel │ Freeze: copies or a gather         │ kernel, kernel …
//	                                       │ Diff: digest, compare, copyChanged │
//	reads                                     └──► CopyOut, CopyOut, …    (Frozen.Read)
//	sums                                      └──► digest, CopyOut        (Frozen.Digests)
//
// The copies of Freeze and Diff are in the program's queue, between its
// kernels. The queues reads and sums belong to the engine. They wait for an
// event after those copies, and then run at the same time as the program.
//
// kernels.go has the kernels, and explains how digests reach the speed of
// memory.
package snap

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// Engine is a device as checkpoints see it. Its methods may be called
// concurrently.
type Engine struct {
	dev     driver.Device
	info    driver.Info
	kernels driver.Queue // the queue of the program
	reads   driver.Queue
	sums    driver.Queue
	shape   shape

	building    sync.Mutex // held while the kernels are compiled
	program     driver.Program
	digest      driver.Kernel
	gather      driver.Kernel
	compare     driver.Kernel
	copyChanged driver.Kernel
	items       int // size of a work group of gather, compare and copyChanged

	mu     sync.Mutex
	closed bool
	spare  *room      // room for the next snapshot; nil: none
	taken  int64      // bytes of room in use
	most   int64      // the largest recent value of taken
	idle   []*scratch // scratches that are not in use
	broken []*scratch // scratches that a failed command may still use
	pins   []pin
}

var _ mem.Device = (*Engine)(nil)

// room is device memory for snapshots.
type room struct {
	buffer driver.Buffer
	used   int64 // bytes at its beginning that are in use
	users  int   // number of users; if it is 0, used is 0, too
}

// pin is pinned host memory.
type pin struct {
	memory  []byte
	release func() error
}

// New returns an engine for a device. kernels is the queue of the program's
// kernels; the caller keeps owning it. The engine compiles its kernels when
// they are needed first.
func New(dev driver.Device, kernels driver.Queue) (*Engine, error) {
	e := &Engine{dev: dev, info: dev.Info(), kernels: kernels}
	e.shape = choose(e.info)
	if e.items = min(gatherItems, max(e.info.MaxGroup, 1)); e.shape.Alone {
		e.items = 1
	}
	var err error
	if e.reads, err = dev.NewQueue(); err != nil {
		return nil, err
	}
	if e.sums, err = dev.NewQueue(); err != nil {
		e.reads.Close()
		return nil, err
	}
	return e, nil
}

// Close frees everything. Nothing of the engine may be in use, and the
// program's queue must be finished.
func (e *Engine) Close() error {
	e.Release()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	errs := []error{e.reads.Close(), e.sums.Close()}
	for _, s := range e.broken {
		s.free()
	}
	e.broken = nil
	for _, p := range e.pins {
		errs = append(errs, p.release())
	}
	e.pins = nil
	if e.program != nil {
		errs = append(errs, e.program.Close())
		e.program = nil
	}
	return errors.Join(errs...)
}

// Name returns the device's ID.
func (e *Engine) Name() string { return e.info.ID }

// Pin pins memory, as mem.Device says. Memory that was pinned at the same
// addresses before is assumed to be gone.
func (e *Engine) Pin(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	e.Unpin(p)
	release, err := e.dev.Pin(p)
	if errors.Is(err, driver.ErrLost) {
		return err
	}
	if err != nil { // a limit on locked memory, for instance; copies are slower then
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pins = append(e.pins, pin{p, release})
	return nil
}

// Unpin unpins all memory that overlaps p. No copy into it may be in progress.
func (e *Engine) Unpin(p []byte) {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	var gone []pin
	e.mu.Lock()
	e.pins = slices.DeleteFunc(e.pins, func(old pin) bool {
		at := uintptr(unsafe.Pointer(unsafe.SliceData(old.memory)))
		hit := at < lo+uintptr(len(p)) && lo < at+uintptr(len(old.memory))
		if hit {
			gone = append(gone, old)
		}
		return hit
	})
	e.mu.Unlock()
	for _, old := range gone {
		old.release()
	}
}

// Reserve allocates memory for a copy of n bytes and its digests, unless there
// is enough. If the device has too little memory, nothing changes, and Freeze
// will fail.
func (e *Engine) Reserve(n int64) {
	if n <= 0 {
		return
	}
	if s, err := e.scratch(int(n/2048), int(n/4096)); err == nil { // 16 bytes for each 64 KiB, and a list
		e.put(s)
	}
	if r, _, err := e.take(n); err == nil {
		e.give(r, n)
	}
}

// Release frees device memory that is not in use.
func (e *Engine) Release() {
	e.mu.Lock()
	spare, idle := e.spare, e.idle
	e.idle = nil
	if spare != nil && spare.users > 0 {
		spare = nil
	} else {
		e.spare = nil
	}
	e.mu.Unlock()
	if spare != nil {
		spare.buffer.Free()
	}
	for _, s := range idle {
		s.free()
	}
}

// take returns room for n bytes, and its offset: in the spare room behind other
// users, or in a new room.
func (e *Engine) take(n int64) (*room, int64, error) {
	e.mu.Lock()
	spare := e.spare
	if spare != nil {
		if from := aligned(spare.used); spare.buffer.Size()-from >= n {
			spare.used = from + n
			spare.users++
			e.count(n)
			e.mu.Unlock()
			return spare, from, nil
		}
		if spare.users > 0 {
			spare = nil // it is in use
		} else {
			e.spare = nil
		}
	}
	e.mu.Unlock()
	b, err := e.dev.Alloc(n)
	if errors.Is(err, driver.ErrMemory) && spare != nil {
		// There is not enough memory for both. Try to replace one by the other.
		size := spare.buffer.Size()
		spare.buffer.Free()
		spare = nil
		if b, err = e.dev.Alloc(n); errors.Is(err, driver.ErrMemory) {
			if old, again := e.dev.Alloc(size); again == nil {
				spare = &room{buffer: old}
			}
		}
	}
	if spare != nil {
		e.keep(spare)
	}
	if err != nil {
		return nil, 0, noRoom(err, n)
	}
	e.mu.Lock()
	e.count(n)
	e.mu.Unlock()
	return &room{buffer: b, used: n, users: 1}, 0, nil
}

// aligned returns where the next user's bytes begin, so that users do not share
// cache lines.
func aligned(n int64) int64 { return (n + 255) &^ 255 }

// count adds n bytes to those in use.
func (e *Engine) count(n int64) {
	e.taken += aligned(n)
	e.most = max(e.most, e.taken)
}

// noRoom wraps mem.ErrNoRoom if err means that memory is short.
func noRoom(err error, n int64) error {
	if errors.Is(err, driver.ErrMemory) {
		return fmt.Errorf("%w: %d bytes: %w", mem.ErrNoRoom, n, err)
	}
	return err
}

// give ends one use of n bytes of room. If the spare room was too small for all
// users together, it grows now, when nobody waits for it.
func (e *Engine) give(r *room, n int64) {
	e.mu.Lock()
	r.users--
	e.taken -= aligned(n)
	last := r.users == 0
	if last {
		r.used = 0
	}
	kept := r == e.spare && !e.closed
	e.mu.Unlock()
	if last && !kept {
		e.keep(r)
	}
	e.mu.Lock()
	var small *room
	if most := e.most; e.taken == 0 && !e.closed {
		if e.most = 0; e.spare != nil && e.spare.users == 0 && e.spare.buffer.Size() < most {
			small, e.spare = e.spare, nil
			n = most
		}
	}
	e.mu.Unlock()
	if small == nil {
		return
	}
	size := small.buffer.Size()
	small.buffer.Free() // the program may need memory, too
	b, err := e.dev.Alloc(n)
	if errors.Is(err, driver.ErrMemory) {
		b, err = e.dev.Alloc(size)
	}
	if err == nil {
		e.keep(&room{buffer: b})
	}
}

// keep keeps an unused room for the next copy, or frees it if the spare room is
// larger.
func (e *Engine) keep(r *room) {
	e.mu.Lock()
	if !e.closed && (e.spare == nil || e.spare.users == 0 && e.spare.buffer.Size() < r.buffer.Size()) {
		e.spare, r = r, e.spare
	}
	e.mu.Unlock()
	if r != nil {
		r.buffer.Free()
	}
}

// compiled compiles the kernels if necessary.
func (e *Engine) compiled() error {
	e.building.Lock()
	defer e.building.Unlock()
	if e.program != nil {
		return nil
	}
	p, err := e.dev.Build(e.shape.source())
	if err != nil {
		return err
	}
	for name, to := range map[string]*driver.Kernel{"digest": &e.digest, "gather": &e.gather, "compare": &e.compare, "copyChanged": &e.copyChanged} {
		if *to, err = p.Kernel(name); err != nil {
			p.Close()
			return err
		}
	}
	e.program = p
	return nil
}

// Warm digests and diffs a block: some devices compile a kernel only when it is
// launched. It uses a queue of its own, so that nobody waits for it.
func (e *Engine) Warm() error {
	q, err := e.dev.NewQueue()
	if err != nil {
		return err
	}
	defer q.Close()
	const size = 4 << 10
	b, err := e.dev.Alloc(size)
	if err != nil {
		return err
	}
	defer b.Free()
	v, err := e.diffOn(q, part{b, 0, size, size, 1}, 1)
	if err != nil {
		return err
	}
	clear(v.Expect())
	if err := v.Start(); err != nil {
		return err
	}
	_, f, err := v.Wait()
	if f != nil {
		f.Close()
	}
	return err
}

// scratch is memory, on the device and on the host, for the tables and results
// of one launch.
type scratch struct {
	device  driver.Buffer
	host    []byte
	release func() error
}

// smallScratch is enough for most calls.
const smallScratch = 64 << 10

// scratch returns a scratch of at least n bytes, with more bytes in addition on
// the device.
func (e *Engine) scratch(n, more int) (*scratch, error) {
	e.mu.Lock()
	for i, s := range e.idle {
		if len(s.host) >= n && s.device.Size() >= int64(n+more) {
			e.idle = append(e.idle[:i], e.idle[i+1:]...)
			e.mu.Unlock()
			return s, nil
		}
	}
	var small *scratch // replaced by a larger one
	if len(e.idle) > 0 {
		small, e.idle = e.idle[0], e.idle[1:]
	}
	e.mu.Unlock()
	if small != nil {
		small.free()
	}
	size := smallScratch
	for size < n {
		size *= 2
	}
	b, err := e.dev.Alloc(int64(size + (more+15)&^15)) // kernels access words
	if err != nil {
		return nil, err
	}
	s := &scratch{device: b, host: mem.Aligned(size)}
	// If it cannot be pinned, copies are slower.
	s.release, _ = e.dev.Pin(s.host)
	return s, nil
}

// free frees the scratch. The host's part must not be in use.
func (s *scratch) free() {
	if s.release != nil {
		s.release()
	}
	s.device.Free()
}

// put keeps a scratch for later. It must not be in use.
func (e *Engine) put(s *scratch) {
	if s == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || len(e.idle) >= 64 {
		s.free()
		return
	}
	e.idle = append(e.idle, s)
}

// abandon is put after an error: the scratch may still be in use. Such errors
// mostly end the use of the device, so there are few.
func (e *Engine) abandon(s *scratch) {
	if s == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = append(e.broken, s)
}

// words returns host memory as 64-bit words.
func words(p []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/8)
}

// check returns the extents' buffers, or an error if an extent is invalid.
func (e *Engine) check(at []mem.Extent) ([]driver.Buffer, error) {
	out := make([]driver.Buffer, len(at))
	for i := range at {
		x := &at[i]
		b, ok := x.Buffer.(driver.Buffer)
		if !ok || b == nil {
			return nil, fmt.Errorf("device %s: extent %d is in a %T, which is no buffer of a device", e.info.ID, i, x.Buffer)
		}
		if x.Off < 0 || x.Len < 0 || x.Off > b.Size() || x.Len > b.Size()-x.Off || x.Block <= 0 {
			return nil, fmt.Errorf("device %s: extent %d is %d bytes at %d, in blocks of %d, of a buffer of %d bytes", e.info.ID, i, x.Len, x.Off, x.Block, b.Size())
		}
		out[i] = b
	}
	return out, nil
}
