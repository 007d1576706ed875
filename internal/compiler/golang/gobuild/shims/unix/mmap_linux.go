//go:build linux && !s390x

package unix

import "syscall"

func mmap(addr, n, prot, flags, fd, offset uintptr) (uintptr, Errno) {
	p, _, e := syscall.Syscall6(syscall.SYS_MMAP, addr, n, prot, flags, fd, offset)
	return p, e
}
