package journal

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// ofdSetLock is fcntl's F_OFD_SETLKW: the lock belongs to the open file and
// ends with it.
const ofdSetLock = 38

// lockRange locks or unlocks a byte of a file. It does nothing if the file
// system has no locks.
func lockRange(f *os.File, at int64, lock bool) {
	if f == nil {
		return
	}
	kind := int16(syscall.F_UNLCK)
	if lock {
		kind = syscall.F_WRLCK
	}
	for {
		err := syscall.FcntlFlock(f.Fd(), ofdSetLock, &syscall.Flock_t{Type: kind, Whence: io.SeekStart, Start: at, Len: 1})
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
