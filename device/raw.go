package device

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// rawMemory is memory that the program brought.
type rawMemory struct {
	addr uintptr
	d    *Device   // it is on; nil: host memory
	all  []*Device // those whose work may write there
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
// Raw memory counts as written at any time. A checkpoint waits for all work
// that was given to the CUDA devices before it, on any stream, and copies the
// memory before the program continues: work that comes later, on any stream or
// processor, changes nothing in the checkpoint. Threads of the program that
// write there on their own must stand still during Point, as for all protected
// variables.
//
// Launches on a device use its own raw memory in place; other devices can't
// use it. Its Data is a copy, for reading only. Raw host memory behaves like
// what Data returns: the program may use it after Data and until the next
// launch that uses the array.
//
// CUDA memory must belong to the device's primary context, which the CUDA
// runtime uses. If CAIRN_DEVICES leaves its device out, Raw refuses it.
func Raw[T any](addr uintptr, dims ...int) (*Array[T], error) {
	devs, _ := present()
	return rawOn[T](devs, addr, dims)
}

func rawOn[T any](devs []*Device, addr uintptr, dims []int) (*Array[T], error) {
	n := check[T](dims)
	if addr == 0 {
		return nil, errors.New("raw memory at address 0")
	}
	if align := unsafe.Alignof(*new(T)); addr%align != 0 {
		return nil, fmt.Errorf("raw memory at %#x, which is no multiple of %d", addr, align)
	}
	all := addressed(devs)
	d, err := owner(devs, all, addr, n)
	if err != nil {
		return nil, fmt.Errorf("raw memory at %#x: %w", addr, err)
	}
	m := &memory{size: n, raw: &rawMemory{addr, d, all}, view: viewOf[T]}
	for _, d := range dims {
		m.shape = append(m.shape, uint64(d))
	}
	s := span{hi: n}
	if d == nil {
		// The address comes from the program, which keeps the memory.
		m.host = unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), n)
		s.host, m.exposed = true, true
	} else {
		b := &buffer{d: d, m: m, hi: n, b: d.drv.(driver.Pointers).At(addr, n)}
		m.bufs, s.on = b.only(), b.only()
	}
	m.spans = []span{s}
	if m.addr, err = mem.Reserve(m, n); err != nil {
		return nil, err
	}
	h, err := m.newHandle()
	if err != nil {
		return nil, err
	}
	return &Array[T]{h: h, hi: n, dims: slices.Clone(dims)}, nil
}

// addressed returns the devices whose memory has addresses: those of devs, and
// those of this machine that the program does not use but may have memory of.
func addressed(devs []*Device) []*Device {
	var out []*Device
	for _, d := range slices.Concat(devs, withPointers()) {
		if _, ok := d.drv.(driver.Pointers); ok && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// owner finds the device whose memory is at an address, nil for host memory.
// It refuses what it can't tell: memory of a device that is taken for host
// memory would be read while the device writes it.
func owner(devs, all []*Device, addr uintptr, n int64) (*Device, error) {
	var lost error
	for _, d := range all {
		attr, known, err := d.drv.(driver.Pointers).Attributes(addr)
		if d.lose(err) {
			lost = err
			continue
		}
		if err != nil {
			return nil, err
		}
		if !known {
			continue
		}
		id := fmt.Sprintf("%s:%d", d.info.Backend, attr.Device)
		if attr.Other {
			return nil, fmt.Errorf("it belongs to a context of %s that is not the primary one; Cairn and the CUDA runtime use that: allocate the memory there, with cudaMalloc or after cuDevicePrimaryCtxRetain", id)
		}
		if attr.Host {
			return nil, readable(addr, n, "")
		}
		for _, o := range devs {
			if o.info.ID == id {
				return o, nil
			}
		}
		return nil, fmt.Errorf("it is on %s, which this program does not use: see CAIRN_DEVICES", id)
	}
	return nil, errors.Join(readable(addr, n, "/dev/nvidia"), lost)
}

// settle waits for all work on the devices, the program's own too: any of them
// may write there.
func (r *rawMemory) settle() error {
	if r.d != nil && r.d.lost() {
		return r.d.Err()
	}
	for _, d := range r.all {
		if err := d.drv.(driver.Pointers).Synchronize(); err != nil {
			if err = d.fail(err); r.d == d || !errors.Is(err, ErrLost) {
				return err
			} // else it writes no more
		}
	}
	if r.d == nil {
		return nil
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
	return []mem.Place{{Len: hi - lo, Device: r.d.checkpointSide(), Buffer: m.bufs[0].b, Off: lo, Unordered: true}}, nil
}
