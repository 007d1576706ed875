package journal

import (
	"os"
	"syscall"
)

// allocate gives a file room on the disk without making it longer.
func allocate(f *os.File, size int64) error {
	const keepSize = 1
	return syscall.Fallocate(int(f.Fd()), keepSize, 0, size)
}
