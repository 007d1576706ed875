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

// Total returns a bound on the machine's memory.
func Total() int64 { return 1 << 42 }

// reserve returns memory of which only the address is used.
func reserve(n int) (unsafe.Pointer, error) {
	return unsafe.Pointer(unsafe.SliceData(make([]byte, max(n, 1)))), nil
}

func unreserve(unsafe.Pointer, int) {}
