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

// Array is a block of elements of type T in 0 to 3 dimensions, in row-major
// order. Its values may be in host memory or on devices. An Array may be
// copied; copies share the values.
type Array[T any] struct {
	h        *handle
	lo, hi   int64 // the first byte, and the end of the last one
	dims     []int
	strides  []int64 // from one index to the next, in bytes; nil: there are no gaps
	constant bool
}

// cell is the element type of arrays in a checkpoint.
type cell[T any] struct{ V T }

// CairnCell marks slices of cells: their memory must not be touched.
func (cell[T]) CairnCell() {}

// New returns an array of zeros. T is a number, or a struct or array of
// numbers. The array takes no memory until it is used. New panics if there are
// more than three dimensions, or if one is not positive.
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
	noteMade(m)
	return &Array[T]{h: h, hi: n, dims: slices.Clone(dims)}
}

// NewConstant is New for arrays that kernels only read.
func NewConstant[T any](dims ...int) *Array[T] {
	a := New[T](dims...)
	a.constant = true
	return a
}

// check returns the number of bytes of an array. It panics if the array is
// impossible.
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

// count returns the number of bytes of an array.
func count(dims []int, elem int64) (int64, error) {
	if len(dims) > 3 {
		return 0, fmt.Errorf("an array of %d dimensions; at most 3 are possible", len(dims))
	}
	n := elem
	for _, d := range dims {
		if d <= 0 {
			return 0, fmt.Errorf("an array of %v elements; all dimensions must be positive", dims)
		}
		if int64(d) > math.MaxInt/2/n {
			return 0, fmt.Errorf("an array of %v elements of %d bytes is too large to be addressed", dims, elem)
		}
		n *= int64(d)
	}
	return n, nil
}

// plain reports whether values of type t consist only of numbers.
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

// Dims returns the dimensions. The caller may change the slice.
func (a *Array[T]) Dims() []int { return slices.Clone(a.dims) }

// Len returns the number of elements.
func (a *Array[T]) Len() int {
	if a.strides != nil {
		n := 1
		for _, d := range a.dims {
			n *= d
		}
		return n
	}
	return int(uintptr(a.hi-a.lo) / unsafe.Sizeof(*new(T)))
}

// lock locks the array's memory. It returns an error if the array cannot be
// used.
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

// elements returns bytes of the array as elements.
func (a *Array[T]) elements(p []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/int(unsafe.Sizeof(*new(T))))
}

// Data returns the array's values in host memory, for reading and writing. The
// slice is valid until the next launch that uses the array. Data waits for
// kernels that write the array. If Raw made the array from a device's memory,
// the slice is a copy, for reading only. A view with gaps has no Data.
func (a *Array[T]) Data() ([]T, error) {
	m, err := a.lock()
	if err != nil {
		return nil, err
	}
	if a.strides != nil {
		m.mu.Unlock()
		return nil, fmt.Errorf("a view of %v elements has gaps, so it is no slice: use Read, Update or Copy", a.dims)
	}
	defer runtime.KeepAlive(a)
	defer m.mu.Unlock()
	m.exposed = true
	return a.inHost(m, true)
}

// Read is Data for reading only: copies on devices stay valid. Of a view with
// gaps it returns a copy, which stays valid.
func (a *Array[T]) Read() ([]T, error) {
	m, err := a.lock()
	if err != nil {
		return nil, err
	}
	if a.strides != nil {
		m.mu.Unlock()
		return a.packed()
	}
	defer runtime.KeepAlive(a)
	defer m.mu.Unlock()
	return a.inHost(m, false)
}

// Update calls f with the array's values in host memory, for reading and
// writing. f must not keep the slice. Update waits for kernels that write the
// array.
//
// Use Update instead of Data to shorten the pause of checkpoints: if a program
// changes an array on the host only with Update, a checkpoint copies the host's
// values after the program has continued. Arrays made with Raw have no Update.
func (a *Array[T]) Update(f func([]T)) error {
	m, err := a.lock()
	if err != nil {
		return err
	}
	if a.strides != nil {
		m.mu.Unlock()
		return a.updateGaps(f)
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

// inHost returns the values in host memory. If write is set, all other copies
// become invalid.
func (a *Array[T]) inHost(m *memory, write bool) ([]T, error) {
	operations.Add(1)
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

// claimHost makes the host copy the only valid one, so that the caller can
// write to it.
func (m *memory) claimHost(lo, hi int64) error {
	if err := m.makeHost(); err != nil {
		return err
	}
	m.awaitLaunches(nil, lo, hi, true)
	i, j := m.cut(lo, hi)
	m.spans = slices.Replace(m.spans, i, j, span{lo: lo, hi: hi, host: true, hostWritten: true, version: version.Add(1)})
	return nil
}

// Rows returns a view of the rows lo ≤ i < hi of the first dimension. The view
// is an array that shares its memory with a. Rows panics if there are no such
// rows.
func (a *Array[T]) Rows(lo, hi int) *Array[T] {
	if len(a.dims) == 0 || lo < 0 || lo >= hi || hi > a.dims[0] {
		panic(fmt.Sprintf("device: rows %d to %d of an array of %v elements", lo, hi, a.dims))
	}
	if a.strides != nil {
		from, to := make([]int, len(a.dims)), slices.Clone(a.dims)
		from[0], to[0] = lo, hi
		return a.View(from, to)
	}
	row := (a.hi - a.lo) / int64(a.dims[0])
	v := *a
	v.lo, v.hi = a.lo+int64(lo)*row, a.lo+int64(hi)*row
	v.dims = slices.Clone(a.dims)
	v.dims[0] = hi - lo
	if a.h != nil {
		noteView(a.h.m, v.lo, v.hi)
	}
	return &v
}

// Prefer sets the device to which a restart brings the array's values. Without
// it, a restart uses the first device that has room, or else host memory.
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

// Free releases the memory of the array and all its views, on devices and on
// the host. Slices that Data returned stay valid. Without Free, the memory is
// released some time after the last view has become unreachable. After Free of
// an array made with Raw, nothing uses the program's memory any more.
func (a *Array[T]) Free() {
	m, err := a.lock()
	if err != nil {
		return
	}
	defer m.mu.Unlock()
	operations.Add(1)
	if m.raw != nil {
		m.awaitLaunches(nil, 0, m.size, true) // the program may free its memory now
	}
	m.free()
}

// addresses returns the range of addresses that represents the array, or nil.
// The addresses cannot be read or written.
func (a *Array[T]) addresses() (unsafe.Pointer, int64) {
	m, err := a.lock()
	if err != nil {
		return nil, 0
	}
	defer m.mu.Unlock()
	return unsafe.Add(m.addr, a.lo), a.hi - a.lo
}

// state saves and restores the array. A checkpoint holds its dimensions and
// values, but not where they were.
func (a *Array[T]) state(c *graph.Coder) error {
	var cells []cell[T]
	dims, constant, raw := a.dims, a.constant, a.h != nil && a.h.m.raw != nil
	isRaw := raw
	if raw && !c.Restoring() && graph.SavesWholeProgram() {
		return errors.New("an array made with Raw cannot be saved in an unmodified program, because a restart does not allocate its memory again: use New, or protect the program's state with cairn.Protect")
	}
	if p, n := a.addresses(); p != nil && !c.Restoring() {
		cells = unsafe.Slice((*cell[T])(p), n/int64(unsafe.Sizeof(*new(T))))
	}
	graph.Field(c, "dims", &dims)
	graph.Field(c, "constant", &constant)
	graph.Field(c, "raw", &raw)
	graph.Field(c, "data", &cells)
	gaps := a.strides
	if !c.Restoring() && gaps != nil || c.Restoring() && c.Has("strides") {
		graph.Field(c, "strides", &gaps)
	} else if c.Restoring() {
		gaps = nil
	}
	var seen hostCopy[T]
	if seen.find(a, c); c.Err() != nil || !c.Restoring() {
		return c.Err()
	}
	if raw && !isRaw {
		return errors.New("the checkpoint holds an array made with Raw: call Raw again before the restore, and keep the array in a variable or a field, not behind a pointer")
	}
	if len(cells) == 0 {
		*a = Array[T]{}
		return nil
	}
	elem := int64(unsafe.Sizeof(*new(T)))
	n, err := extent(dims, gaps, elem)
	if err != nil || n != int64(len(cells))*elem {
		return fmt.Errorf("the checkpoint holds %d elements of an array of %v", len(cells), dims)
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
	if off == 0 && n == m.size && gaps == nil {
		m.shape = nil
		for _, d := range dims {
			m.shape = append(m.shape, uint64(d))
		}
	}
	m.mu.Unlock()
	*a = Array[T]{h: h, lo: off, hi: off + n, dims: slices.Clone(dims), strides: gaps, constant: constant}
	return seen.adopt(m)
}

// restoreRaw copies restored bytes from m to the program's own memory.
func (a *Array[T]) restoreRaw(m *memory, off, n int64) error {
	if n != a.hi-a.lo {
		return fmt.Errorf("the checkpoint holds an array of %d bytes, but the memory at %#x has %d", n, a.h.m.raw.addr, a.hi-a.lo)
	}
	p, err := m.Host(off, off+n)
	if err != nil {
		return err
	}
	return a.h.m.Fill(a.lo, p)
}
