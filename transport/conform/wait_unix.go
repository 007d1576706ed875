//go:build unix

package conform

import (
	"time"

	"golang.org/x/sys/unix"
)

// waitFD reports whether a descriptor becomes readable within a time.
func waitFD(fd int, d time.Duration) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(d.Milliseconds()))
	return err == nil && n > 0
}
