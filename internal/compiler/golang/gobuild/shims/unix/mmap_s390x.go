//go:build linux && s390x

package unix

import (
	"syscall"
	"unsafe"
)

// On s390x the system call takes the address of its arguments.
func mmap(addr, n, prot, flags, fd, offset uintptr) (uintptr, Errno) {
	args := [6]uintptr{addr, n, prot, flags, fd, offset}
	p, _, e := syscall.Syscall(syscall.SYS_MMAP, uintptr(unsafe.Pointer(&args)), 0, 0)
	return p, e
}
