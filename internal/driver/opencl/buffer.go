package opencl

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// A buffer keeps parts for later launches. When it has fewParts or more, it
// releases them if that needs no waiting, and beyond maxParts in any case: with
// many overlapping parts, NVIDIA's driver takes a millisecond for each.
const (
	fewParts = 64
	maxParts = 128
)

// maxDeferred is the maximum number of freed buffers with parts that commands
// still use.
const maxDeferred = 256

type region struct{ off, n int64 } // it has the layout of a cl_buffer_region

// end returns where a region ends.
func (r region) end() int64 { return r.off + r.n }

func (r region) overlaps(o region) bool { return r.off < o.end() && o.off < r.end() }

type buffer struct {
	d    *device
	size int64

	mu       sync.Mutex
	mem      uintptr            // 0: released
	users    int                // calls that use mem or parts
	freed    bool               // its last user releases it
	parts    map[region]uintptr // sub-buffers
	made     []uintptr          // the same, oldest first
	uses     []use              // commands that may still use them
	deferred bool               // it is in device.deferred
}

// use is the last command of a queue that uses a part of a buffer.
type use struct {
	q      *queue
	number int64
}

func (u use) passed() bool { return u.number <= u.q.passed.Load() }

func (d *device) Alloc(n int64) (driver.Buffer, error) {
	op := fmt.Sprintf("Alloc of %d bytes", n)
	if n <= 0 {
		return nil, d.wrong(op, "a buffer has one byte at least")
	}
	if err := d.open(op); err != nil {
		return nil, err
	}
	d.releaseDeferred(false)
	mem, err := d.room(op, n)
	if errors.Is(err, driver.ErrMemory) && n <= d.info.Memory {
		d.releaseDeferred(true)
		mem, err = d.room(op, n)
	}
	if err != nil {
		return nil, err
	}
	b := &buffer{d: d, size: n, mem: mem}
	if err := d.add(op, b); err != nil {
		return nil, err
	}
	return b, nil
}

// room allocates memory and makes sure that it exists.
func (d *device) room(op string, n int64) (uintptr, error) {
	// Drivers that use host memory would let the machine run out of memory.
	if n > d.info.Memory || d.used.Add(n) > d.info.Memory {
		if n <= d.info.Memory {
			d.used.Add(-n)
		}
		return 0, &driver.Error{Device: d.info.ID, Op: op, Kind: driver.ErrMemory, Text: fmt.Sprintf("the device has %d bytes, %d of them in use", d.info.Memory, d.used.Load())}
	}
	mem, err := d.alloc(op, n)
	if err == nil {
		one := make([]byte, 1)
		// Only a write makes the driver allocate the memory.
		if code := int32(dl.Call(d.a.write, d.own, mem, 1, 0, 1, uintptr(unsafe.Pointer(&one[0])), 0, 0, 0)); code != 0 {
			err = d.noRoom(op, "clEnqueueWriteBuffer", code)
			dl.Call(d.a.releaseMem, mem)
		}
	}
	if err != nil {
		d.used.Add(-n)
		return 0, err
	}
	return mem, nil
}

// alloc allocates memory. The driver may defer the real allocation to the first
// use.
func (d *device) alloc(op string, n int64) (uintptr, error) {
	var code int32
	mem := dl.Call(d.a.createBuffer, d.context, memReadWrite, uintptr(n), 0, uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		return 0, d.noRoom(op, "clCreateBuffer", code)
	}
	return mem, nil
}

// noRoom is like fail, for calls that fail mostly for lack of memory.
func (d *device) noRoom(op, call string, code int32) error {
	err := d.fail(op, call, code, d.own).(*driver.Error)
	if code == codeResources && err.Kind == nil {
		err.Kind = driver.ErrMemory
	}
	return err
}

func (b *buffer) Size() int64 { return b.size }

// Free may be called repeatedly.
func (b *buffer) Free() error {
	b.d.remove(b)
	b.drop()
	b.d.releaseDeferred(false)
	return nil
}

func (b *buffer) drop() {
	b.mu.Lock()
	b.freed = true
	b.mu.Unlock()
	b.releaseOrDefer()
}

// releaseOrDefer releases a freed buffer that no call uses. OpenCL itself waits
// for commands that use the buffer, but not for commands that use parts of it.
// If there are such commands, the buffer is released later.
func (b *buffer) releaseOrDefer() {
	b.mu.Lock()
	if b.tryRelease() || b.users > 0 || b.mem == 0 || b.deferred {
		b.mu.Unlock()
		return
	}
	b.deferred = true
	b.mu.Unlock()
	b.d.mu.Lock()
	b.d.deferred = append(b.d.deferred, b)
	many := len(b.d.deferred) > maxDeferred
	b.d.mu.Unlock()
	if many {
		b.d.releaseDeferred(true)
	}
}

// tryRelease releases b if that is possible now, and reports whether it did.
func (b *buffer) tryRelease() bool {
	if !b.freed || b.users > 0 || b.mem == 0 || !b.idle() {
		return false
	}
	b.dropParts()
	dl.Call(b.d.a.releaseMem, b.mem)
	b.mem = 0
	b.d.used.Add(-b.size)
	return true
}

// releaseDeferred releases freed buffers that no command uses any more. With
// wait set, it waits and releases all of them. If the device is lost, they
// stay.
func (d *device) releaseDeferred(wait bool) {
	if wait {
		d.releasing.Lock()
	} else if !d.releasing.TryLock() {
		return
	}
	defer d.releasing.Unlock()
	d.mu.Lock()
	list := d.deferred
	d.deferred = nil
	d.mu.Unlock()
	var stay []*buffer
	for _, b := range list {
		b.mu.Lock()
		if wait {
			b.waitParts()
		}
		if !b.tryRelease() {
			stay = append(stay, b)
		}
		b.mu.Unlock()
	}
	if len(stay) > 0 {
		d.mu.Lock()
		d.deferred = append(d.deferred, stay...)
		d.mu.Unlock()
	}
}

// idle reports whether no command is known to use parts of b.
func (b *buffer) idle() bool {
	b.uses = slices.DeleteFunc(b.uses, use.passed)
	return len(b.uses) == 0
}

// waitParts waits for the commands that use parts of b, unless the device is
// lost.
func (b *buffer) waitParts() {
	for _, u := range b.uses {
		if u.passed() {
			continue
		}
		// If the queue was closed meanwhile, its Close has waited.
		if err := u.q.settle("Finish"); errors.Is(err, driver.ErrLost) {
			return
		}
	}
	b.uses = nil
}

// dropParts releases the parts; no command may use them. NVIDIA's driver
// crashes if overlapping parts are released in any order but newest first. If
// commands used them, it would release them in the order of the commands.
func (b *buffer) dropParts() {
	for _, part := range slices.Backward(b.made) {
		dl.Call(b.d.a.releaseMem, part)
	}
	clear(b.parts)
	b.made = b.made[:0]
}

// use returns b, whose memory is not released before unuse. r must lie in the
// buffer.
func (d *device) use(op string, v driver.Buffer, r region) (*buffer, error) {
	b, ok := v.(*buffer)
	if !ok || b.d != d {
		return nil, d.wrong(op, "the buffer belongs to another device")
	}
	if r.off < 0 || r.n < 0 || r.off > b.size || r.n > b.size-r.off {
		return nil, d.wrong(op, "bytes %d to %d are not in a buffer of %d bytes", r.off, r.end(), b.size)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.freed {
		return nil, d.wrong(op, "the buffer was freed")
	}
	b.users++
	return b, nil
}

func (b *buffer) unuse() {
	b.mu.Lock()
	b.users--
	last := b.users == 0 && b.freed
	if b.users == 0 && len(b.made) > maxParts {
		if b.waitParts(); b.idle() {
			b.dropParts()
		}
	}
	b.mu.Unlock()
	if last {
		b.releaseOrDefer()
	}
}

// given records the command that was given a part of b. It must be called
// before unuse.
func (b *buffer) given(q *queue, number int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.uses {
		if u := &b.uses[i]; u.q == q {
			u.number = max(u.number, number)
			return
		}
	}
	b.uses = append(slices.DeleteFunc(b.uses, use.passed), use{q, number})
}

// part returns a sub-buffer. Its offset must be a multiple of d.align. It
// exists until the caller's unuse.
func (b *buffer) part(op string, r region) (uintptr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mem, ok := b.parts[r]; ok {
		return mem, nil
	}
	if len(b.made) >= fewParts && b.users == 1 && b.idle() {
		b.dropParts()
	}
	var code int32
	mem := dl.Call(b.d.a.createSubBuffer, b.mem, memReadWrite, createTypeRegion, uintptr(unsafe.Pointer(&r)), uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		return 0, b.d.fail(op, "clCreateSubBuffer", code, 0)
	}
	if b.parts == nil {
		b.parts = make(map[region]uintptr)
	}
	b.parts[r] = mem
	b.made = append(b.made, mem)
	return mem, nil
}

// pins holds the ranges of pinned memory, by address. It keeps the memory
// alive.
type pins struct {
	mu   sync.RWMutex
	list []*pin
}

type pin struct {
	lo, hi uintptr
	p      []byte
}

// holds reports whether all of p is pinned.
func (s *pins) holds(p []byte) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.list) == 0 || len(p) == 0 {
		return false
	}
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	hi := lo + uintptr(len(p))
	for i := sort.Search(len(s.list), func(i int) bool { return s.list[i].lo > lo }) - 1; i >= 0; i-- {
		if hi <= s.list[i].hi {
			return true
		}
	}
	return false
}

func (s *pins) add(p []byte) *pin {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	n := &pin{lo, lo + uintptr(len(p)), p}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := sort.Search(len(s.list), func(i int) bool { return s.list[i].lo > lo })
	s.list = append(s.list, nil)
	copy(s.list[i+1:], s.list[i:])
	s.list[i] = n
	return n
}

// remove removes n, and reports whether it was still there.
func (s *pins) remove(n *pin) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, m := range s.list {
		if m == n {
			s.list = append(s.list[:i:i], s.list[i+1:]...)
			return true
		}
	}
	return false
}

// arrivals holds the copies to pinned memory that may be in progress. If a
// later command copies from that memory, NVIDIA's driver reads it when the
// command is issued, not when the command runs.
type arrivals struct {
	mu   sync.Mutex
	list []arrival
}

type arrival struct {
	lo, hi uintptr
	q      *queue
	number int64 // number of the command
}

func (a *arrivals) add(p []byte, q *queue, number int64) {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	hi := lo + uintptr(len(p))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = slices.DeleteFunc(a.list, func(o arrival) bool {
		return o.number <= o.q.passed.Load() || o.q == q && lo <= o.lo && o.hi <= hi
	})
	a.list = append(a.list, arrival{lo, hi, q, number})
}

// await waits for the copies that fill a part of p.
func (a *arrivals) await(p []byte) error {
	lo := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	hi := lo + uintptr(len(p))
	var queues []*queue
	a.mu.Lock()
	for _, o := range a.list {
		if o.lo < hi && lo < o.hi && o.number > o.q.passed.Load() && !slices.Contains(queues, o.q) {
			queues = append(queues, o.q)
		}
	}
	a.mu.Unlock()
	for _, q := range queues {
		// If the queue was closed meanwhile, its Close has waited.
		if err := q.Finish(); errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return nil
}

// Pin records that copies from and to p need not wait. release waits for copies
// that are still in progress.
func (d *device) Pin(p []byte) (release func() error, err error) {
	if err := d.open("Pin"); err != nil {
		return nil, err
	}
	if len(p) == 0 {
		return func() error { return nil }, nil
	}
	n := d.pins.add(p)
	return func() error {
		if !d.pins.remove(n) {
			return nil
		}
		err := d.settle()
		n.p = nil
		return err
	}, nil
}

// settle waits for copies from and to pinned memory.
func (d *device) settle() error {
	d.mu.Lock()
	var queues []*queue
	for c := range d.live {
		if q, ok := c.(*queue); ok {
			queues = append(queues, q)
		}
	}
	d.mu.Unlock()
	for _, q := range queues {
		if q.copying.Load() > q.passed.Load() {
			// If the queue was closed meanwhile, its Close has waited.
			if err := q.Finish(); errors.Is(err, driver.ErrLost) {
				return err
			}
		}
	}
	return nil
}
