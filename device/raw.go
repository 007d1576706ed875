package device

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/device/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// rawMemory is memory that the program brought.
type rawMemory struct {
	addr uintptr
	d    *Device // it is on; nil: host memory
}

// device reports whether there is raw memory on a device.
func (r *rawMemory) device() bool { return r != nil && r.d != nil }

// Raw makes an array of memory that the program has from elsewhere, a CUDA
// library for example: memory of a device, managed memory, or host memory. It
// must stay until the array is freed, which leaves it alone. (Go moves
// variables that are on a stack.) A restart gives it its values back at the
// address that the program then brought it at: the array must be a variable or
// a field that is made again with Raw before it is restored, not behind a
// pointer.
//
// Host memory behaves like what Data returns: the program may use it after
// Data and until the next launch that uses the array. Memory of a device
// counts as written at any time: a checkpoint waits for all work on the
// device, whoever gave it, and looks at all of it. Launches on that device use
// it in place, others can't. Its Data is a copy, for reading only.
func Raw[T any](addr uintptr, dims ...int) (*Array[T], error) {
	devs, _ := present()
	return rawOn[T](devs, addr, dims)
}

func rawOn[T any](devs []*Device, addr uintptr, dims []int) (*Array[T], error) {
	n := check[T](dims)
	if addr == 0 {
		return nil, errors.New("raw memory at address 0")
	}
	if align := uintptr(unsafe.Alignof(*new(T))); addr%align != 0 {
		return nil, fmt.Errorf("raw memory at %#x, which is no multiple of %d", addr, align)
	}
	d, err := owner(devs, addr)
	if err != nil {
		return nil, err
	}
	m := &memory{size: n, raw: &rawMemory{addr, d}, view: viewOf[T]}
	for _, d := range dims {
		m.shape = append(m.shape, uint64(d))
	}
	s := span{hi: n}
	if d == nil {
		// The address comes from the program, which keeps the memory.
		m.host = unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
		s.host, m.given = true, true
	} else {
		b := &buffer{d: d, m: m, hi: n, b: d.drv.(driver.Pointers).At(addr, n)}
		m.bufs, s.on = b.only(), b.only()
	}
	m.spans = []span{s}
	if m.addr, err = mem.Reserve(m, n); err != nil {
		return nil, err
	}
	h, err := m.take()
	if err != nil {
		return nil, err
	}
	return &Array[T]{h: h, hi: n, dims: slices.Clone(dims)}, nil
}

// owner finds the device whose memory is at an address, nil for host memory.
func owner(devs []*Device, addr uintptr) (*Device, error) {
	for _, d := range devs {
		p, ok := d.drv.(driver.Pointers)
		if !ok {
			continue
		}
		attr, known, err := p.Attributes(addr)
		if err != nil {
			d.lose(err)
			return nil, fmt.Errorf("raw memory at %#x: %w", addr, err)
		}
		if !known {
			continue
		}
		if attr.Host {
			return nil, nil
		}
		id := fmt.Sprintf("%s:%d", d.info.Backend, attr.Device)
		for _, o := range devs {
			if o.info.ID == id {
				return o, nil
			}
		}
		return nil, fmt.Errorf("raw memory at %#x is on %s, which this program does not use: see CAIRN_DEVICES", addr, id)
	}
	return nil, nil
}

// settle waits for all work on the device, the program's own too.
func (r *rawMemory) settle() error {
	if err := r.d.Err(); err != nil {
		return err
	}
	if s, ok := r.d.drv.(driver.Synchronizer); ok {
		if err := s.Synchronize(); err != nil {
			return r.d.fail(err)
		}
	}
	return r.d.Finish()
}

// read copies bytes lo…hi into the host copy.
func (r *rawMemory) read(m *memory, lo, hi int64) ([]byte, error) {
	if err := r.settle(); err != nil {
		return nil, err
	}
	if err := m.makeHost(); err != nil {
		return nil, err
	}
	b := m.bufs[0]
	if err := r.d.copyOut(m.host[lo:hi], b.b, lo); err != nil {
		return nil, err
	}
	r.d.out.Add(hi - lo)
	return m.host[lo:hi:hi], nil
}

func (r *rawMemory) places(m *memory, lo, hi int64) ([]mem.Place, error) {
	if err := r.settle(); err != nil {
		return nil, err
	}
	if lo == hi {
		return nil, nil
	}
	return []mem.Place{{Len: hi - lo, Device: r.d.side(), Buffer: m.bufs[0].b, Off: lo}}, nil
}
