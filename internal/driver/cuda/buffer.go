package cuda

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

type buffer struct {
	d     *device
	addr  uintptr // address on the device
	size  int64
	owned bool

	mu    sync.Mutex
	users int  // calls that are issuing commands with it
	freed bool // its last user releases it
}

func (b *buffer) Size() int64 { return b.size }

// freedBuffer is memory that was freed. It can be reused when its events have
// passed. cuMemFree would wait for all work on the device, so it is called when
// there is none, or when the memory is needed.
type freedBuffer struct {
	addr  uintptr
	size  int64
	after []uintptr
}

// Alloc reuses freed memory of the same size if it is not in use any more;
// otherwise it asks the driver.
func (d *device) Alloc(n int64) (driver.Buffer, error) {
	op := fmt.Sprintf("Alloc of %d bytes", n)
	if n <= 0 {
		return nil, d.wrong(op, "a buffer has at least one byte")
	}
	if err := d.enter(op); err != nil {
		return nil, err
	}
	defer d.leave()
	if n > d.info.MaxAlloc {
		return nil, &driver.Error{Device: d.info.ID, Op: op, Text: fmt.Sprintf("it has %d", d.info.Memory), Kind: driver.ErrMemory}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, c := range d.dead {
		if c.size != n {
			continue
		}
		if passed, err := d.passed(op, c); err != nil {
			return nil, err
		} else if passed {
			d.dead = slices.Delete(d.dead, i, i+1)
			d.unused -= n
			d.live[c.addr] = true
			return &buffer{d: d, addr: c.addr, size: n, owned: true}, nil
		}
	}
	var addr uintptr
	code := int32(dl.Call(d.cu.MemAlloc, uintptr(unsafe.Pointer(&addr)), uintptr(n)))
	if code == errOutOfMemory && len(d.dead) > 0 {
		if err := d.reclaim(op, true); err != nil {
			return nil, err
		}
		code = int32(dl.Call(d.cu.MemAlloc, uintptr(unsafe.Pointer(&addr)), uintptr(n)))
	}
	if code != success {
		return nil, d.fail(op, "cuMemAlloc", code)
	}
	d.live[addr] = true
	return &buffer{d: d, addr: addr, size: n, owned: true}, nil
}

// At returns a buffer for existing memory of the program.
func (d *device) At(addr uintptr, n int64) driver.Buffer {
	return &buffer{d: d, addr: addr, size: n}
}

// Free waits neither for the device nor for calls that are issuing commands:
// the last of these calls releases the memory.
func (b *buffer) Free() error {
	b.mu.Lock()
	again, users := b.freed, b.users
	b.freed = true
	b.mu.Unlock()
	if again || users > 0 {
		return nil
	}
	return b.release()
}

// release frees the memory when all commands given so far are done.
func (b *buffer) release() error {
	if !b.owned {
		return nil
	}
	d := b.d
	op := fmt.Sprintf("Free of %d bytes", b.size)
	if d.closed.Load() {
		return nil // Close has freed it
	}
	if err := d.enter(op); err != nil {
		return err
	}
	defer d.leave()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.live[b.addr] {
		return nil // Close was called in between
	}
	delete(d.live, b.addr)
	c := &freedBuffer{addr: b.addr, size: b.size}
	for _, q := range d.queues {
		switch code := int32(dl.Call(d.cu.StreamQuery, q.stream)); code {
		case success:
			continue
		case errNotReady:
		default:
			return d.fail(op, "cuStreamQuery", code)
		}
		e, err := d.event(op)
		if err != nil {
			return err
		}
		c.after = append(c.after, e)
		if code := int32(dl.Call(d.cu.EventRecord, e, q.stream)); code != success {
			return d.fail(op, "cuEventRecord", code)
		}
	}
	d.dead = append(d.dead, c)
	d.unused += b.size
	return d.reclaim(op, false)
}

// passed reports whether no command uses c any more. The caller holds mu.
func (d *device) passed(op string, c *freedBuffer) (bool, error) {
	for len(c.after) > 0 {
		e := c.after[len(c.after)-1]
		switch code := int32(dl.Call(d.cu.EventQuery, e)); code {
		case success:
		case errNotReady:
			return false, nil
		default:
			return false, d.fail(op, "cuEventQuery", code)
		}
		c.after = c.after[:len(c.after)-1]
		d.events = append(d.events, e)
	}
	return true, nil
}

// keep is the amount of freed memory that is kept for reuse: an allocation
// takes longer than a kernel.
const keep = 1 << 28

// reclaim returns freed memory to the driver. With all set it returns all of it
// and waits if necessary; otherwise it does not wait. The caller holds mu.
func (d *device) reclaim(op string, all bool) error {
	if !all {
		if d.unused <= keep {
			return nil
		}
		for _, q := range d.queues {
			if int32(dl.Call(d.cu.StreamQuery, q.stream)) != success {
				return nil
			}
		}
	}
	for len(d.dead) > 0 {
		c := d.dead[0]
		for _, e := range c.after {
			if err := d.await(op, e); err != nil {
				return err
			}
		}
		if code := int32(dl.Call(d.cu.MemFree, c.addr)); code != success {
			return d.fail(op, "cuMemFree", code)
		}
		d.events = append(d.events, c.after...)
		d.unused -= c.size
		d.dead = d.dead[1:]
		if !all && d.unused <= keep {
			break
		}
	}
	return nil
}

// event returns an unused event. The caller holds mu.
func (d *device) event(op string) (uintptr, error) {
	if n := len(d.events); n > 0 {
		e := d.events[n-1]
		d.events = d.events[:n-1]
		return e, nil
	}
	var e uintptr
	if code := int32(dl.Call(d.cu.EventCreate, uintptr(unsafe.Pointer(&e)), eventBlocking|eventNoTiming)); code != success {
		return 0, d.fail(op, "cuEventCreate", code)
	}
	d.made = append(d.made, e)
	return e, nil
}

// use checks that b is a buffer of this device with bytes off…off+n, and
// returns their address. The memory is not freed before unuse.
func (d *device) use(op string, b driver.Buffer, off, n int64) (*buffer, uintptr, error) {
	x, ok := b.(*buffer)
	switch {
	case !ok || x == nil:
		return nil, 0, d.wrong(op, "the buffer (%T) is not one of a CUDA device", b)
	case x.d != d:
		return nil, 0, d.wrong(op, "the buffer is on device %s; copy through host memory", x.d.info.ID)
	case off < 0 || n < 0 || off > x.size || n > x.size-off:
		return nil, 0, d.wrong(op, "bytes %d…%d are not within the buffer's %d", off, off+n, x.size)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.freed {
		return nil, 0, d.wrong(op, "the buffer was freed")
	}
	x.users++
	return x, x.addr + uintptr(off), nil
}

// unuse says that the commands were issued. The device's context need not be
// current.
func (d *device) unuse(list ...*buffer) {
	for _, b := range list {
		b.mu.Lock()
		b.users--
		last := b.users == 0 && b.freed
		b.mu.Unlock()
		if last {
			b.release() // nobody can be told about an error here; the device remembers if it is lost
		}
	}
}
