package mem

import (
	"runtime"
	"unsafe"
)

// OffHeap is a growing array of values without pointers. On Linux a large one lies
// outside the Go heap: it takes memory only for what it holds, grows without
// being copied, and gives the memory back at once. The zero value is empty.
type OffHeap[T any] struct {
	S     []T // the elements; before one is appended beyond its capacity, GrowOne is called
	raw   []byte
	high  int // the most elements that it had since its memory was given back
	tried bool
	clean runtime.Cleanup
}

const (
	offHeapBytes = 1 << 33 // address space of an OffHeap
	onHeapBytes  = 1 << 15 // bytes up to which it lies in the Go heap
)

// Reset empties the room, and keeps its memory.
func (r *OffHeap[T]) Reset() { r.Truncate(0) }

// Truncate leaves the first n elements.
func (r *OffHeap[T]) Truncate(n int) {
	r.high = max(r.high, len(r.S))
	r.S = r.S[:n]
}

// GrowOne makes space for at least one more element.
func (r *OffHeap[T]) GrowOne() { r.Reserve(max(64, len(r.S)+len(r.S)/2+1)) }

// Reserve makes space for n elements in all.
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

// Grow gives the room n elements, all zero.
func (r *OffHeap[T]) Grow(n int) []T {
	r.Drop()
	r.Reserve(n)
	r.S = r.S[:n]
	return r.S
}

// Drop empties the room and gives the memory back.
func (r *OffHeap[T]) Drop() {
	var one T
	if r.raw != nil && unsafe.Pointer(unsafe.SliceData(r.S)) == unsafe.Pointer(unsafe.SliceData(r.raw)) {
		releaseOffHeap(r.raw, max(r.high, len(r.S))*int(unsafe.Sizeof(one)))
	}
	r.S, r.high = nil, 0
}

// Close drops the room and its address space.
func (r *OffHeap[T]) Close() {
	if r.raw != nil {
		r.clean.Stop()
		freeOffHeap(r.raw)
	}
	r.S, r.raw, r.high, r.tried = nil, nil, 0, false
}
