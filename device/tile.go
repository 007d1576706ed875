package device

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"
)

func sizeOf[T any]() int64 { return int64(unsafe.Sizeof(*new(T))) }

// View returns a view of a part: in each dimension i, the indices from lo[i] on
// and before hi[i]. The view shares its memory with a. View panics if there is
// no such part.
//
// A view of some columns has gaps in memory. It can be sent, received, read,
// changed by Update, and copied by Copy; but it cannot be passed to a kernel,
// and has no Data. A view without gaps, such as one of whole rows, is like one
// that Rows returns.
func (a *Array[T]) View(lo, hi []int) *Array[T] {
	ok := len(lo) == len(a.dims) && len(hi) == len(a.dims) && len(a.dims) > 0
	for i := range a.dims {
		ok = ok && 0 <= lo[i] && lo[i] < hi[i] && hi[i] <= a.dims[i]
	}
	if !ok {
		panic(fmt.Sprintf("device: a view from %v to %v of an array of %v elements", lo, hi, a.dims))
	}
	v := *a
	v.dims, v.strides = make([]int, len(lo)), a.strides
	if v.strides == nil {
		v.strides = strides(a.dims, sizeOf[T]())
	}
	v.hi = sizeOf[T]()
	for i := range lo {
		v.dims[i] = hi[i] - lo[i]
		v.lo += int64(lo[i]) * v.strides[i]
		v.hi += int64(v.dims[i]-1) * v.strides[i]
	}
	v.hi += v.lo
	if g := v.region(); g.contiguous() {
		v.strides = nil
	}
	if a.h != nil {
		noteView(a.h.m, v.lo, v.hi)
	}
	return &v
}

// strides returns the distances of elements without gaps in each dimension, in
// bytes.
func strides(dims []int, elem int64) []int64 {
	s := make([]int64, len(dims))
	for i := len(dims) - 1; i >= 0; i-- {
		s[i] = elem
		elem *= int64(dims[i])
	}
	return s
}

// extent returns the number of bytes from the first to the last one of an array
// with these dimensions. gaps are its strides, or nil.
func extent(dims []int, gaps []int64, elem int64) (int64, error) {
	n, err := count(dims, elem)
	if err != nil || gaps == nil {
		return n, err
	}
	if len(gaps) != len(dims) {
		return 0, fmt.Errorf("a view of %v elements with %d strides", dims, len(gaps))
	}
	n = elem
	for i := len(dims) - 1; i >= 0; i-- {
		if s := gaps[i]; s < n || s%elem != 0 || int64(dims[i]) > (math.MaxInt/2-n)/s {
			return 0, fmt.Errorf("a view of %v elements with strides of %v bytes", dims, gaps)
		}
		n += int64(dims[i]-1) * gaps[i]
	}
	return n, nil
}

// packed returns the values of a view with gaps in new memory.
func (a *Array[T]) packed() ([]T, error) {
	out := make([]T, a.Len())
	return out, a.pass(out, false)
}

// unpack sets the values of a view with gaps.
func (a *Array[T]) unpack(in []T) error { return a.pass(in, true) }

func (a *Array[T]) pass(list []T, in bool) error {
	defer runtime.KeepAlive(a)
	m := &parts{h: a.h, g: a.region(), n: int64(a.Len()) * sizeOf[T]()}
	p := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), len(list)*int(sizeOf[T]()))
	s, err := m.slot(len(p))
	if err != nil {
		return err
	}
	for off := 0; off < len(p) && err == nil; off += len(s.Bytes()) {
		n := min(len(s.Bytes()), len(p)-off)
		if in {
			copy(s.Bytes(), p[off:])
			err = s.Store(off, n)
		} else if err = s.Load(off, n); err == nil {
			copy(p[off:], s.Bytes()[:n])
		}
	}
	if err != nil {
		s.Drop()
		return err
	}
	s.Free()
	if in {
		m.Stored(len(p))
	}
	return nil
}

// updateGaps is Update for a view with gaps.
func (a *Array[T]) updateGaps(f func([]T)) error {
	list, err := a.packed()
	if err != nil {
		return err
	}
	f(list)
	return a.unpack(list)
}

// Copy copies the values of src to dst, which has as many elements. The arrays
// may be views with gaps, and may share memory. The device that has dst copies,
// or else the one that has src, after the launches made so far. If neither is
// on a device, Copy waits for kernels that write src in host memory.
func Copy[T any](dst, src *Array[T]) error {
	if dst == nil || src == nil || dst.h == nil || src.h == nil {
		return fmt.Errorf("copy of an Array[%T] that was not made with New", *new(T))
	}
	if dst.Len() != src.Len() {
		return fmt.Errorf("copy of %v elements to %v elements: the numbers differ", src.dims, dst.dims)
	}
	if dst.constant {
		return errors.New("copy to a constant array: use New instead of NewConstant")
	}
	defer runtime.KeepAlive(dst)
	defer runtime.KeepAlive(src)
	if err := copyRegion(dst.h.m, dst.region(), src.h.m, src.region()); err != nil {
		return fmt.Errorf("copy of %v elements: %w", slices.Clone(src.dims), err)
	}
	return nil
}
