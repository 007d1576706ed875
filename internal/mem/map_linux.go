package mem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapShared returns n bytes of shared memory, faulted in.
func mapShared(n int) (mapping, error) {
	fd, err := unix.MemfdCreate("cairn-staging", unix.MFD_CLOEXEC)
	if err != nil {
		return mapping{data: Aligned(n)}, nil // private memory serves as well inside one process
	}
	f := os.NewFile(uintptr(fd), "cairn-staging")
	var m []byte
	if err = unix.Ftruncate(fd, int64(n)); err == nil {
		m, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		f.Close()
		return mapping{}, fmt.Errorf("no memory for %d MiB of staging: %w (set a smaller memory bound)", n>>20, err)
	}
	return mapping{m, f}, nil
}

func unmap(m []byte) { unix.Munmap(m) }

// Total returns the bytes of memory that the machine has.
func Total() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 42
	}
	return int64(si.Totalram) * int64(si.Unit)
}
