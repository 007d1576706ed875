package mem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mapShared returns n bytes of shared memory, faulted in.
func mapShared(n int) ([]byte, error) {
	fd, err := unix.MemfdCreate("cairn-staging", unix.MFD_CLOEXEC)
	if err == nil {
		defer unix.Close(fd)
		if err = unix.Ftruncate(fd, int64(n)); err == nil {
			var m []byte
			if m, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err == nil {
				return m, nil
			}
		}
	}
	if err == unix.ENOMEM {
		return nil, fmt.Errorf("no memory for %d MiB of staging: %w (set a smaller memory bound)", n>>20, err)
	}
	return Aligned(n), nil // no memfd here: private memory serves as well inside one process
}

func unmap(m []byte) { unix.Munmap(m) } // fails harmlessly on memory that was not mapped

// Total returns the bytes of memory that the machine has.
func Total() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 42
	}
	return int64(si.Totalram) * int64(si.Unit)
}
