package tcp

import (
	"fmt"
	"net"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Before a call with longCall bytes or more, the Go scheduler is told. Shorter
// calls are made without that: they never wait, and telling the scheduler takes
// longer than many of them.
const longCall = 32 << 10

// takeSocket returns a bare, non-blocking descriptor for a connection. The
// caller closes c afterwards.
func takeSocket(c *net.TCPConn, timeout time.Duration) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	cerr := raw.Control(func(s uintptr) {
		fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			err = fmt.Errorf("dup: %w", err)
		}
	})
	if cerr != nil {
		return -1, cerr
	}
	if err != nil {
		return -1, err
	}
	set := func(level, name, value int) {
		if e := unix.SetsockoptInt(fd, level, name, value); e != nil && err == nil {
			err = fmt.Errorf("setsockopt: %w", e)
		}
	}
	if e := unix.SetNonblock(fd, true); e != nil {
		err = fmt.Errorf("fcntl: %w", e)
	}
	set(unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if timeout > 0 {
		whole := int(min(timeout, 24*time.Hour) / time.Second)
		idle, every := max(1, whole/3), max(1, whole/6)
		set(unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		set(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, min(idle, 32767))
		set(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, min(every, 32767))
		set(unix.IPPROTO_TCP, unix.TCP_KEEPCNT, max(1, (whole-idle)/every))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// syscall3 makes a system call on a non-blocking descriptor, and repeats it if
// a signal interrupts it.
func syscall3(trap, a, b, c uintptr, long bool) (int, unix.Errno) {
	for {
		var n uintptr
		var errno unix.Errno
		if long {
			n, _, errno = unix.Syscall(trap, a, b, c)
		} else {
			n, _, errno = unix.RawSyscall(trap, a, b, c)
		}
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func read(fd int, b []byte) (int, unix.Errno) {
	n, errno := syscall3(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), len(b) > bufferSize)
	runtime.KeepAlive(b)
	return n, errno
}

func readv(fd int, v []unix.Iovec) (int, unix.Errno) {
	n, errno := syscall3(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)), false)
	runtime.KeepAlive(v)
	return n, errno
}

// writev writes pieces of total bytes, and clears v.
func writev(fd int, v []unix.Iovec, total int) (int, unix.Errno) {
	n, errno := syscall3(unix.SYS_WRITEV, uintptr(fd), uintptr(unsafe.Pointer(&v[0])), uintptr(len(v)), total > longCall)
	for i := range v {
		v[i].Base = nil
	}
	return n, errno
}

// epollWait returns how many events there are now.
func epollWait(ep int, ev []unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&ev[0])), uintptr(len(ev)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
