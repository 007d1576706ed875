package driver

import (
	"fmt"
	"unsafe"
)

// Work is device.Work: a part of a launch, as a kernel in Go gets it. Packages
// device and driver define the same fields.
type Work struct {
	Global, Local [3]int   // as in Launch; groups are of one item if none were asked for
	Lo, Hi        [3]int   // the part
	Args          [][]byte // buffers, local memory, scalars
}

// Range is the part's items in dimension d: lo ≤ i < hi.
func (w *Work) Range(d int) (lo, hi int) { return w.Lo[d], w.Hi[d] }

// Slice returns argument i, a buffer or local memory, as elements of type T.
// Local memory is the part's own, and undefined at the start.
func Slice[T any](w *Work, i int) []T {
	p := w.bytes(i)
	size := int(unsafe.Sizeof(*new(T)))
	if len(p) == 0 {
		return nil
	}
	if len(p)%size != 0 {
		panic(fmt.Sprintf("argument %d has %d bytes, which are no elements of %d bytes", i, len(p), size))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(p))), len(p)/size)
}

// Value returns argument i, a scalar.
func Value[T any](w *Work, i int) T {
	p := w.bytes(i)
	if len(p) != int(unsafe.Sizeof(*new(T))) {
		panic(fmt.Sprintf("argument %d has %d bytes, not %d", i, len(p), unsafe.Sizeof(*new(T))))
	}
	return *(*T)(unsafe.Pointer(unsafe.SliceData(p)))
}

func (w *Work) bytes(i int) []byte {
	if i < 0 || i >= len(w.Args) {
		panic(fmt.Sprintf("there is no argument %d, only %d", i, len(w.Args)))
	}
	return w.Args[i]
}
