//go:build unix

package transporttest

import (
	"time"

	"golang.org/x/sys/unix"
)

// waitFD reports whether one of the descriptors becomes readable within a time.
func waitFD(d time.Duration, fds ...int) bool {
	list := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		list[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	n, err := unix.Poll(list, int(d.Milliseconds()))
	return err == nil && n > 0
}
