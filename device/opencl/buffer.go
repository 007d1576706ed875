package opencl

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/device/driver"
	"github.com/cairnrun/cairn/internal/dl"
)

// maxParts is how many parts of a buffer are kept for later launches.
const maxParts = 64

type region struct{ off, n int64 } // a cl_buffer_region, too

// end is where a region ends.
func (r region) end() int64 { return r.off + r.n }

func (r region) overlaps(o region) bool { return r.off < o.end() && o.off < r.end() }

type buffer struct {
	d    *device
	size int64

	mu    sync.Mutex
	mem   uintptr            // 0: gone
	users int                // calls that use mem or parts
	freed bool               // and gone with its last user
	parts map[region]uintptr // sub-buffers
}

func (d *device) Alloc(n int64) (driver.Buffer, error) {
	op := fmt.Sprintf("Alloc of %d bytes", n)
	if n <= 0 {
		return nil, d.wrong(op, "a buffer has one byte at least")
	}
	if err := d.open(op); err != nil {
		return nil, err
	}
	// Drivers that work in host memory would let the machine run out of it.
	if n > d.info.Memory || d.used.Add(n) > d.info.Memory {
		if n <= d.info.Memory {
			d.used.Add(-n)
		}
		return nil, &driver.Error{Device: d.info.ID, Op: op, Kind: driver.ErrMemory, Text: fmt.Sprintf("the device has %d bytes, %d of them in use", d.info.Memory, d.used.Load())}
	}
	mem, err := d.alloc(op, n)
	if err == nil {
		one := make([]byte, 1)
		// Only this makes the driver allocate.
		if code := int32(dl.Call(d.a.write, d.own, mem, 1, 0, 1, uintptr(unsafe.Pointer(&one[0])), 0, 0, 0)); code != 0 {
			err = d.noRoom(op, "clEnqueueWriteBuffer", code)
			dl.Call(d.a.releaseMem, mem)
		}
	}
	if err != nil {
		d.used.Add(-n)
		return nil, err
	}
	b := &buffer{d: d, size: n, mem: mem}
	if err := d.add(op, b); err != nil {
		return nil, err
	}
	return b, nil
}

// alloc makes memory that may not be there before its first use.
func (d *device) alloc(op string, n int64) (uintptr, error) {
	var code int32
	mem := dl.Call(d.a.createBuffer, d.context, memReadWrite, uintptr(n), 0, uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		return 0, d.noRoom(op, "clCreateBuffer", code)
	}
	return mem, nil
}

// noRoom is fail, for calls that fail for lack of memory first of all.
func (d *device) noRoom(op, call string, code int32) error {
	err := d.fail(op, call, code, d.own).(*driver.Error)
	if code == codeResources && err.Kind == nil {
		err.Kind = driver.ErrMemory
	}
	return err
}

func (b *buffer) Size() int64 { return b.size }

// Free may be called again, and does nothing then.
func (b *buffer) Free() error {
	b.d.remove(b)
	b.drop()
	return nil
}

func (b *buffer) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freed = true
	b.tidy()
}

// tidy lets go of what nobody needs any more. OpenCL waits for commands that
// use it.
func (b *buffer) tidy() {
	if b.users > 0 || b.mem == 0 {
		return
	}
	if b.freed || len(b.parts) > maxParts {
		for _, part := range b.parts {
			dl.Call(b.d.a.releaseMem, part)
		}
		b.parts = nil
	}
	if b.freed {
		dl.Call(b.d.a.releaseMem, b.mem)
		b.mem = 0
		b.d.used.Add(-b.size)
	}
}

// use returns the memory of b, which stays until unuse. r must lie in it.
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
	defer b.mu.Unlock()
	b.users--
	b.tidy()
}

// part returns a sub-buffer, whose offset is a multiple of d.align. It stays
// until the caller's unuse.
func (b *buffer) part(op string, r region) (uintptr, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mem, ok := b.parts[r]; ok {
		return mem, nil
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
	return mem, nil
}

// pins are the ranges of pinned memory, by address. They hold on to it.
type pins struct {
	mu   sync.RWMutex
	list []*pin
}

type pin struct {
	lo, hi uintptr
	p      []byte
}

// holds tells whether all of p is pinned.
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

// remove tells whether n was still there.
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

// arrivals are the copies to pinned memory that may be under way. NVIDIA's
// driver takes what a later command copies from there when the command is given,
// not when its turn has come.
type arrivals struct {
	mu   sync.Mutex
	list []arrival
}

type arrival struct {
	lo, hi uintptr
	q      *queue
	number int64 // of the command
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

// await waits for the copies that bring a part of p.
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
		// A queue that was closed meanwhile has waited itself.
		if err := q.Finish(); errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return nil
}

// Pin notes that copies from and to p need not wait. Its release waits for
// those that are still under way.
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
			// A queue that was closed meanwhile has waited itself.
			if err := q.Finish(); errors.Is(err, driver.ErrLost) {
				return err
			}
		}
	}
	return nil
}
