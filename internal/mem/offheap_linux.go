package mem

import (
	"syscall"
	"unsafe"
)

// reserveOffHeap reserves address space whose pages get memory when they are
// written. It returns nil if there is none.
func reserveOffHeap(n int64) []byte {
	if unsafe.Sizeof(uintptr(0)) < 8 {
		return nil
	}
	p, err := syscall.Mmap(-1, 0, int(n), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	return p
}

// releaseOffHeap frees the memory of the first used bytes, which are zero then.
func releaseOffHeap(p []byte, used int) {
	if used = min(pageUp(used), len(p)); used > 0 && syscall.Madvise(p[:used], syscall.MADV_DONTNEED) != nil {
		clear(p[:used])
	}
}

func freeOffHeap(p []byte) { syscall.Munmap(p) }
