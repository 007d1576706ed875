package device

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// rawMemory is memory that the program has allocated.
type rawMemory struct {
	addr uintptr
	d    *Device   // the device that holds it; nil: host memory
	all  []*Device // devices that may write to it
}

// device reports whether this is memory on a device. r may be nil.
func (r *rawMemory) device() bool { return r != nil && r.d != nil }

// Raw returns an array in memory that the program has allocated by other means,
// for example with a CUDA library. The memory may be on a device, managed, or
// on the host. It must exist until the array is freed. Freeing the array does
// not free it. Do not pass the address of a Go variable that may be on a stack,
// because Go moves stacks.
//
// After a restart, call Raw again before the array is restored. The array must
// be a variable or a field, not behind a pointer. The restore then copies the
// saved values to the new address.
//
// Cairn assumes that raw memory may be written at any time. A checkpoint waits
// for all work that was given to the CUDA devices before it, on any stream, and
// copies the memory before the program continues. So later work does not change
// the checkpoint. Threads of the program must not write to the memory during
// Point, as with all protected variables.
//
// A launch uses raw memory in place if the memory is on the launch's device.
// Other devices cannot use it. Its Data is a copy, for reading only. For raw
// host memory the rule of Data holds: the program may use it after a call of
// Data until the next launch that uses the array.
//
// CUDA memory must belong to the device's primary context, which the CUDA
// runtime uses. If CAIRN_DEVICES leaves out the device, Raw returns an error.
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
		return nil, fmt.Errorf("raw memory at %#x is not aligned to %d bytes", addr, align)
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
// others of this machine, because the program may have memory there, too.
func addressed(devs []*Device) []*Device {
	var out []*Device
	for _, d := range slices.Concat(devs, withPointers()) {
		if _, ok := d.drv.(driver.Pointers); ok && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// owner returns the device whose memory is at an address, or nil for host
// memory. It returns an error if that is not certain: memory of a device that
// was taken for host memory would be read while the device writes it.
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
			return nil, fmt.Errorf("it does not belong to the primary context of %s: allocate it with cudaMalloc, or after cuDevicePrimaryCtxRetain", id)
		}
		if attr.Host {
			return nil, readable(addr, n, "")
		}
		for _, o := range devs {
			if o.info.ID == id {
				return o, nil
			}
		}
		return nil, fmt.Errorf("it is on %s, which this program does not use (see CAIRN_DEVICES)", id)
	}
	return nil, errors.Join(readable(addr, n, "/dev/nvidia"), lost)
}

// settle waits for all work on the devices, including work that the program
// gave them by other means: any of it may write to the memory.
func (r *rawMemory) settle() error {
	if r.d != nil && r.d.lost() {
		return r.d.Err()
	}
	for _, d := range r.all {
		if err := d.drv.(driver.Pointers).Synchronize(); err != nil {
			if err = d.fail(err); r.d == d || !errors.Is(err, ErrLost) {
				return err
			} // else a lost device writes no more
		}
	}
	if r.d == nil {
		return nil
	}
	return r.d.Finish()
}

// read copies bytes lo…hi to the host copy.
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
