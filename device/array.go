package device

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// Array is a block of numbers of type T in 0 to 3 dimensions, row by row.
type Array[T any] struct {
	h        *handle
	lo, hi   int64
	dims     []int
	constant bool
}

// Cell is how elements of arrays are called in a set.
type Cell[T any] struct{ V T }

// CairnCell says that slices of cells stand for memory that must not be touched.
func (Cell[T]) CairnCell() {}

// New makes an array of zeros. T is a number, or a struct or array of numbers.
// It panics if dims are more than three, or not positive. It takes no memory
// until the array is used.
func New[T any](dims ...int) *Array[T] {
	n := check[T](dims)
	m, err := newMemory(n)
	if err != nil {
		panic("device: " + err.Error())
	}
	m.view = viewOf[T]
	for _, d := range dims {
		m.shape = append(m.shape, uint64(d))
	}
	h, err := m.newHandle()
	if err != nil {
		panic("device: " + err.Error())
	}
	return &Array[T]{h: h, hi: n, dims: slices.Clone(dims)}
}

// NewConstant is like New, for arrays that kernels only read.
func NewConstant[T any](dims ...int) *Array[T] {
	a := New[T](dims...)
	a.constant = true
	return a
}

// check returns the bytes of an array and panics if there can't be one.
func check[T any](dims []int) int64 {
	t := reflect.TypeFor[T]()
	if !plain(t) {
		panic(fmt.Sprintf("device: elements of an array are numbers, or structs or arrays of numbers, not %v", t))
	}
	n, err := count(dims, int64(t.Size()))
	if err != nil {
		panic("device: " + err.Error())
	}
	return n
}

// count returns the bytes of an array.
func count(dims []int, elem int64) (int64, error) {
	if len(dims) > 3 {
		return 0, fmt.Errorf("an array of %d dimensions, there are 3 at most", len(dims))
	}
	n := elem
	for _, d := range dims {
		if d <= 0 {
			return 0, fmt.Errorf("an array of %v elements", dims)
		}
		if int64(d) > math.MaxInt/2/n {
			return 0, fmt.Errorf("an array of %v elements of %d bytes, more than can be addressed", dims, elem)
		}
		n *= int64(d)
	}
	return n, nil
}

// plain reports whether values of t are numbers and nothing else.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return t.Len() > 0 && plain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !plain(t.Field(i).Type) {
				return false
			}
		}
		return t.NumField() > 0
	}
	return false
}

// Dims returns the dimensions; the caller may change the slice.
func (a *Array[T]) Dims() []int { return slices.Clone(a.dims) }

// Len is the number of elements.
func (a *Array[T]) Len() int { return int(uintptr(a.hi-a.lo) / unsafe.Sizeof(*new(T))) }

// lock locks the memory of an array that can be used.
func (a *Array[T]) lock() (*memory, error) {
	if a == nil || a.h == nil {
		return nil, fmt.Errorf("an Array[%v] that was not made with New", reflect.TypeFor[T]())
	}
	m := a.h.m
	m.mu.Lock()
	if m.freed {
		m.mu.Unlock()
		return nil, errFreed
	}
	return m, nil
}

// elements returns bytes of a as its elements.
func (a *Array[T]) elements(p []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/int(unsafe.Sizeof(*new(T))))
}

// Data returns the array's values in host memory, to read and to write, until
// the next launch that uses the array. It waits for kernels that write it.
// Memory of a device that was brought with Raw can only be read that way.
func (a *Array[T]) Data() ([]T, error) {
	m, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(a)
	defer m.mu.Unlock()
	m.exposed = true
	return a.inHost(m, true)
}

// Read is like Data, for reading only: copies on devices stay valid.
func (a *Array[T]) Read() ([]T, error) {
	m, err := a.lock()
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(a)
	defer m.mu.Unlock()
	return a.inHost(m, false)
}

// Update calls f with the array's values in host memory, to read and to write;
// f must not keep the slice. It waits for kernels that write the array.
//
// A program that changes an array on the host only so, and never asks for
// Data, is not held at a checkpoint while what lies there is copied: that is
// done when it has gone on, or when Update is called again. Memory that was
// brought with Raw has no Update.
func (a *Array[T]) Update(f func([]T)) error {
	m, err := a.lock()
	if err != nil {
		return err
	}
	defer runtime.KeepAlive(a)
	p, err := func() ([]T, error) {
		defer m.mu.Unlock()
		if m.raw != nil {
			return nil, fmt.Errorf("the memory at %#x is the program's own: write there, or in kernels", m.raw.addr)
		}
		p, err := a.inHost(m, true)
		if err == nil {
			m.updates++
		}
		return p, err
	}()
	if err != nil {
		return err
	}
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.updates--
	}()
	f(p)
	return nil
}

// inHost returns the values in host memory, for somebody who writes there or not.
func (a *Array[T]) inHost(m *memory, write bool) ([]T, error) {
	if m.raw.device() {
		p, err := m.raw.read(m, a.lo, a.hi)
		return a.elements(p), err
	}
	if err := m.toHost(nil, a.lo, a.hi); err != nil {
		return nil, err
	}
	if write {
		if err := m.claimHost(a.lo, a.hi); err != nil {
			return nil, err
		}
	}
	return a.elements(m.host[a.lo:a.hi:a.hi]), nil
}

// claimHost makes the host copy the only one, for somebody who writes there.
func (m *memory) claimHost(lo, hi int64) error {
	if err := m.makeHost(); err != nil {
		return err
	}
	m.awaitLaunches(nil, lo, hi, true)
	i, j := m.cut(lo, hi)
	m.spans = slices.Replace(m.spans, i, j, span{lo: lo, hi: hi, host: true, hostWritten: true, version: version.Add(1)})
	return nil
}

// Rows returns rows lo…hi of the first dimension as an array of its own, which
// shares the memory. It panics if there are no such rows.
func (a *Array[T]) Rows(lo, hi int) *Array[T] {
	if len(a.dims) == 0 || lo < 0 || lo >= hi || hi > a.dims[0] {
		panic(fmt.Sprintf("device: rows %d to %d of an array of %v elements", lo, hi, a.dims))
	}
	row := (a.hi - a.lo) / int64(a.dims[0])
	v := *a
	v.lo, v.hi = a.lo+int64(lo)*row, a.lo+int64(hi)*row
	v.dims = slices.Clone(a.dims)
	v.dims[0] = hi - lo
	return &v
}

// Prefer says where the array's values are wanted after a restart. Without it
// they go to the first device, if that has room, else to host memory.
func (a *Array[T]) Prefer(d *Device) {
	m, err := a.lock()
	if err != nil {
		return
	}
	defer m.mu.Unlock()
	if d != nil {
		d = d.real()
	}
	m.prefer(a.lo, a.hi, d)
}

// Free gives the memory on devices and on the host back at once, that of all
// views. What Data returned stays as it is. Without it the memory is given
// back some time after the last view is gone. Memory that was brought with Raw
// is not used any more when it returns.
func (a *Array[T]) Free() {
	m, err := a.lock()
	if err != nil {
		return
	}
	defer m.mu.Unlock()
	if m.raw != nil {
		m.awaitLaunches(nil, 0, m.size, true) // the program may give its memory back now
	}
	m.free()
}

// CairnMemory returns the addresses that stand for the array, which can't be
// used as memory; nil if there are none.
func (a *Array[T]) CairnMemory() (unsafe.Pointer, int64) {
	m, err := a.lock()
	if err != nil {
		return nil, 0
	}
	defer m.mu.Unlock()
	return unsafe.Add(m.addr, a.lo), a.hi - a.lo
}

// CairnState makes an Array savable. A set has the dimensions and the values;
// where they were is not part of it.
func (a *Array[T]) CairnState(c *graph.Coder) error {
	var cells []Cell[T]
	dims, constant, raw := a.dims, a.constant, a.h != nil && a.h.m.raw != nil
	isRaw := raw
	if raw && !c.Restoring() && graph.IsWhole() {
		return errors.New("an array that was made with Raw has memory that a restarted program does not make again: use New, or keep the program's state by hand, with cairn.Protect")
	}
	if p, n := a.CairnMemory(); p != nil && !c.Restoring() {
		cells = unsafe.Slice((*Cell[T])(p), n/int64(unsafe.Sizeof(*new(T))))
	}
	graph.Field(c, "dims", &dims)
	graph.Field(c, "constant", &constant)
	graph.Field(c, "raw", &raw)
	graph.Field(c, "data", &cells)
	var seen hostCopy[T]
	if seen.find(a, c); c.Err() != nil || !c.Restoring() {
		return c.Err()
	}
	if raw && !isRaw {
		return errors.New("the set has an array that was made with Raw: make it so again before it is restored, as a variable or a field and not behind a pointer, so that its memory gets its values back")
	}
	if len(cells) == 0 {
		*a = Array[T]{}
		return nil
	}
	elem := int64(unsafe.Sizeof(*new(T)))
	n, err := count(dims, elem)
	if err != nil || n != int64(len(cells))*elem {
		return fmt.Errorf("an array of %v elements has %d in the set", dims, len(cells))
	}
	r, off := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(cells)))
	m, ok := r.(*memory)
	if !ok || off < 0 || off+n > m.size {
		return fmt.Errorf("an array of %v elements has no memory", dims)
	}
	if isRaw && a.h.m != m {
		return a.restoreRaw(m, off, n)
	}
	h, err := m.newHandle()
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.view = viewOf[T]
	if off == 0 && n == m.size {
		m.shape = nil
		for _, d := range dims {
			m.shape = append(m.shape, uint64(d))
		}
	}
	m.mu.Unlock()
	*a = Array[T]{h: h, lo: off, hi: off + n, dims: slices.Clone(dims), constant: constant}
	return seen.adopt(m)
}

// restoreRaw puts restored bytes, which lie in m, where the program's memory is.
func (a *Array[T]) restoreRaw(m *memory, off, n int64) error {
	if n != a.hi-a.lo {
		return fmt.Errorf("the set has an array of %d bytes, the memory at %#x has %d", n, a.h.m.raw.addr, a.hi-a.lo)
	}
	p, err := m.Host(off, off+n)
	if err != nil {
		return err
	}
	return a.h.m.Fill(a.lo, p)
}
