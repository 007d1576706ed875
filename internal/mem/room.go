package mem

import (
	"runtime"
	"unsafe"
)

// Room is a growing array of values without pointers. On Linux a large one lies
// outside the Go heap: it takes memory only for what it holds, grows without
// being copied, and gives the memory back at once. The zero value is empty.
type Room[T any] struct {
	S     []T // the elements; before one is appended beyond its capacity, More is called
	raw   []byte
	high  int // the most elements that it had since its memory was given back
	tried bool
	clean runtime.Cleanup
}

const (
	roomBytes = 1 << 33 // address space of a Room
	smallRoom = 1 << 15 // bytes up to which it lies in the Go heap
)

// Open empties the room, and keeps its memory.
func (r *Room[T]) Open() { r.Cut(0) }

// Cut leaves the first n elements.
func (r *Room[T]) Cut(n int) {
	r.high = max(r.high, len(r.S))
	r.S = r.S[:n]
}

// More makes space for at least one more element.
func (r *Room[T]) More() { r.Reserve(max(64, len(r.S)+len(r.S)/2+1)) }

// Reserve makes space for n elements in all.
func (r *Room[T]) Reserve(n int) {
	if n <= cap(r.S) {
		return
	}
	var one T
	small := n*int(unsafe.Sizeof(one)) <= smallRoom
	if !small && !r.tried {
		r.tried = true
		if r.raw = reserveRoom(roomBytes); r.raw != nil {
			r.clean = runtime.AddCleanup(r, freeRoom, r.raw)
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
func (r *Room[T]) Grow(n int) []T {
	r.Drop()
	r.Reserve(n)
	r.S = r.S[:n]
	return r.S
}

// Drop empties the room and gives the memory back.
func (r *Room[T]) Drop() {
	var one T
	if r.raw != nil && unsafe.Pointer(unsafe.SliceData(r.S)) == unsafe.Pointer(unsafe.SliceData(r.raw)) {
		releaseRoom(r.raw, max(r.high, len(r.S))*int(unsafe.Sizeof(one)))
	}
	r.S, r.high = nil, 0
}

// Close drops the room and its address space.
func (r *Room[T]) Close() {
	if r.raw != nil {
		r.clean.Stop()
		freeRoom(r.raw)
	}
	r.S, r.raw, r.high, r.tried = nil, nil, 0, false
}
