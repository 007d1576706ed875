package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openDirect opens name with O_DIRECT, or returns nil.
func openDirect(name string, flag int) *os.File {
	f, err := os.OpenFile(name, flag|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	return f
}

func isInvalid(err error) bool { return errors.Is(err, unix.EINVAL) }

// maxVec is the kernel's limit on buffers per call (UIO_MAXIOV).
const maxVec = 1024

func writeV(f *os.File, bufs [][]byte, off int64) error {
	vec := make([][]byte, 0, min(len(bufs), maxVec))
	for len(bufs) > 0 {
		vec = append(vec[:0], bufs[:min(len(bufs), maxVec)]...)
		bufs = bufs[len(vec):]
		for len(vec) > 0 {
			n, err := unix.Pwritev(int(f.Fd()), vec, off)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return &os.PathError{Op: "write", Path: f.Name(), Err: err}
			}
			off += int64(n)
			for len(vec) > 0 && n >= len(vec[0]) {
				n -= len(vec[0])
				vec = vec[1:]
			}
			if n > 0 {
				vec[0] = vec[0][n:]
			}
		}
	}
	return nil
}

func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch err {
		case unix.EINTR:
			continue
		case unix.ENOSPC, unix.EDQUOT, unix.EFBIG:
			return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
		}
		return nil
	}
}
