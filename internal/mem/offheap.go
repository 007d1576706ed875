package mem

import (
	"runtime"
	"unsafe"
)

// OffHeap is a growing array of values without pointers. On Linux a large one
// is outside the Go heap: it uses memory only for its elements, grows without
// copying, and can free memory at once. The zero value is empty.
type OffHeap[T any] struct {
	S     []T // the elements; call GrowOne before appending beyond the capacity
	raw   []byte
	high  int // the maximum number of elements since memory was freed
	tried bool
	clean runtime.Cleanup
}

const (
	offHeapBytes = 1 << 33 // address space of an OffHeap
	onHeapBytes  = 1 << 15 // bytes up to which it is in the Go heap
)

// Reset empties the array, and keeps its memory.
func (r *OffHeap[T]) Reset() { r.Truncate(0) }

// Truncate keeps the first n elements.
func (r *OffHeap[T]) Truncate(n int) {
	r.high = max(r.high, len(r.S))
	r.S = r.S[:n]
}

// GrowOne makes space for at least one more element.
func (r *OffHeap[T]) GrowOne() { r.Reserve(max(64, len(r.S)+len(r.S)/2+1)) }

// Reserve makes space for n elements in total.
func (r *OffHeap[T]) Reserve(n int) {
	if n <= cap(r.S) {
		return
	}
	var one T
	small := n*int(unsafe.Sizeof(one)) <= onHeapBytes
	if !small && !r.tried {
		r.tried = true
		if r.raw = reserveOffHeap(offHeapBytes); r.raw != nil {
			r.clean = runtime.AddCleanup(r, freeOffHeap, r.raw)
		}
	}
	next := []T(nil)
	if all := len(r.raw) / int(unsafe.Sizeof(one)); !small && n <= all {
		next = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(r.raw))), all)
	} else {
		next = make([]T, n)
	}
	r.S = next[:copy(next, r.S)]
}

// Grow makes the array n zero elements, and returns them.
func (r *OffHeap[T]) Grow(n int) []T {
	r.Drop()
	r.Reserve(n)
	r.S = r.S[:n]
	return r.S
}

// Drop empties the array and frees its memory.
func (r *OffHeap[T]) Drop() {
	var one T
	if r.raw != nil && unsafe.Pointer(unsafe.SliceData(r.S)) == unsafe.Pointer(unsafe.SliceData(r.raw)) {
		releaseOffHeap(r.raw, max(r.high, len(r.S))*int(unsafe.Sizeof(one)))
	}
	r.S, r.high = nil, 0
}

// Close frees the memory and the address space.
func (r *OffHeap[T]) Close() {
	if r.raw != nil {
		r.clean.Stop()
		freeOffHeap(r.raw)
	}
	r.S, r.raw, r.high, r.tried = nil, nil, 0, false
}
