//go:build !linux

package mem

import (
	"errors"
	"os"
	"unsafe"
)

func mapShared(n int) (mapping, error) { return mapping{data: Aligned(n)}, nil }

func mapForeign(*os.File, int) (mapping, error) {
	return mapping{}, errors.New("shared staging needs Linux")
}

func unmap([]byte) {}

// Total returns a bound on the memory that the machine has.
func Total() int64 { return 1 << 42 }

// reserve gives memory that is never used but for its address.
func reserve(n int) (unsafe.Pointer, error) {
	return unsafe.Pointer(unsafe.SliceData(make([]byte, max(n, 1)))), nil
}

func unreserve(unsafe.Pointer, int) {}
