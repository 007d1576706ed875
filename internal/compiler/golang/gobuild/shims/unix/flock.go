//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package unix

import "syscall"

// Errno is an error number of the system.
type Errno = syscall.Errno

// Locks.
const (
	LOCK_EX = syscall.LOCK_EX
	LOCK_NB = syscall.LOCK_NB
)

// Errors.
const (
	EAGAIN      = syscall.EAGAIN
	EDQUOT      = syscall.EDQUOT
	EFAULT      = syscall.EFAULT
	EFBIG       = syscall.EFBIG
	EINTR       = syscall.EINTR
	EINVAL      = syscall.EINVAL
	EMLINK      = syscall.EMLINK
	ENOENT      = syscall.ENOENT
	ENOSPC      = syscall.ENOSPC
	ENOSYS      = syscall.ENOSYS
	ENOTSUP     = syscall.ENOTSUP
	EOPNOTSUPP  = syscall.EOPNOTSUPP
	EPERM       = syscall.EPERM
	ESRCH       = syscall.ESRCH
	ETIMEDOUT   = syscall.ETIMEDOUT
	EWOULDBLOCK = syscall.EWOULDBLOCK
	EXDEV       = syscall.EXDEV
)

// Flock takes or releases a lock on a whole file.
func Flock(fd int, how int) error { return syscall.Flock(fd, how) }
