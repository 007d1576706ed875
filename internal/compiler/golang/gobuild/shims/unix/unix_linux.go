package unix

import (
	"syscall"
	"unsafe"
)

// These are package syscall's own.
type (
	EpollEvent = syscall.EpollEvent
	Iovec      = syscall.Iovec
	Stat_t     = syscall.Stat_t
	Statfs_t   = syscall.Statfs_t
	Sysinfo_t  = syscall.Sysinfo_t
	Timespec   = syscall.Timespec
)

const (
	EPOLLIN       = syscall.EPOLLIN
	EPOLLOUT      = syscall.EPOLLOUT
	EPOLLRDHUP    = syscall.EPOLLRDHUP
	EPOLL_CLOEXEC = syscall.EPOLL_CLOEXEC
	EPOLL_CTL_ADD = syscall.EPOLL_CTL_ADD
	EPOLL_CTL_DEL = syscall.EPOLL_CTL_DEL
	EPOLL_CTL_MOD = syscall.EPOLL_CTL_MOD

	F_DUPFD_CLOEXEC = syscall.F_DUPFD_CLOEXEC

	IPPROTO_TCP   = syscall.IPPROTO_TCP
	MSG_DONTWAIT  = syscall.MSG_DONTWAIT
	MSG_PEEK      = syscall.MSG_PEEK
	SHUT_RDWR     = syscall.SHUT_RDWR
	SOL_SOCKET    = syscall.SOL_SOCKET
	SO_KEEPALIVE  = syscall.SO_KEEPALIVE
	TCP_INFO      = syscall.TCP_INFO
	TCP_KEEPCNT   = syscall.TCP_KEEPCNT
	TCP_KEEPIDLE  = syscall.TCP_KEEPIDLE
	TCP_KEEPINTVL = syscall.TCP_KEEPINTVL
	TCP_NODELAY   = syscall.TCP_NODELAY

	MAP_ANON      = syscall.MAP_ANON
	MAP_NORESERVE = syscall.MAP_NORESERVE
	MAP_POPULATE  = syscall.MAP_POPULATE
	MAP_PRIVATE   = syscall.MAP_PRIVATE
	MAP_SHARED    = syscall.MAP_SHARED
	PROT_NONE     = syscall.PROT_NONE
	PROT_READ     = syscall.PROT_READ
	PROT_WRITE    = syscall.PROT_WRITE

	O_CLOEXEC  = syscall.O_CLOEXEC
	O_CREAT    = syscall.O_CREAT
	O_DIRECT   = syscall.O_DIRECT
	O_EXCL     = syscall.O_EXCL
	O_NOFOLLOW = syscall.O_NOFOLLOW
	O_NONBLOCK = syscall.O_NONBLOCK
	O_RDWR     = syscall.O_RDWR
	S_IFIFO    = syscall.S_IFIFO
	S_IFMT     = syscall.S_IFMT
	S_IFREG    = syscall.S_IFREG

	SYS_EPOLL_PWAIT  = syscall.SYS_EPOLL_PWAIT
	SYS_IOCTL        = syscall.SYS_IOCTL
	SYS_READ         = syscall.SYS_READ
	SYS_READV        = syscall.SYS_READV
	SYS_RT_SIGACTION = syscall.SYS_RT_SIGACTION
	SYS_WRITEV       = syscall.SYS_WRITEV
)

// Package syscall lacks these. They are the same on all architectures.
const (
	CLOCK_MONOTONIC     = 1
	EFD_CLOEXEC         = syscall.O_CLOEXEC
	EFD_NONBLOCK        = syscall.O_NONBLOCK
	FALLOC_FL_KEEP_SIZE = 1
	F_ADD_SEALS         = 1033
	F_GET_SEALS         = 1034
	F_SEAL_SEAL         = 1
	F_SEAL_SHRINK       = 2
	F_SEAL_GROW         = 4
	MADV_POPULATE_WRITE = 23
	MFD_CLOEXEC         = 1
	MFD_ALLOW_SEALING   = 2
	POLLIN              = 1
	PR_SET_PTRACER      = 0x59616d61
	SIOCOUTQ            = syscall.TIOCOUTQ
	TFD_CLOEXEC         = syscall.O_CLOEXEC
	TFD_NONBLOCK        = syscall.O_NONBLOCK
	TMPFS_MAGIC         = 0x01021994
)

// PollFd is a file that Poll and Ppoll wait for.
type PollFd struct {
	Fd              int32
	Events, Revents int16
}

// RemoteIovec is a piece of another process's memory.
type RemoteIovec struct {
	Base uintptr
	Len  int
}

// ItimerSpec says when a timer fires.
type ItimerSpec struct{ Interval, Value Timespec }

// Sigset_t is a set of signals.
type Sigset_t struct{ Val [16]uint64 }

// TCPInfo is the part of TCP_INFO that the run time uses. The kernel writes as
// much as there is room for.
type TCPInfo struct {
	State, Ca_state, Retransmits, Probes, Backoff, Options uint8
	_                                                      [2]uint8
	Rto, Ato, Snd_mss, Rcv_mss                             uint32
	Unacked, Sacked, Lost, Retrans, Fackets                uint32
	Last_data_sent, Last_ack_sent                          uint32
	Last_data_recv, Last_ack_recv                          uint32
}

func Close(fd int) error                                    { return syscall.Close(fd) }
func EpollCreate1(flag int) (int, error)                    { return syscall.EpollCreate1(flag) }
func EpollCtl(ep, op, fd int, e *EpollEvent) error          { return syscall.EpollCtl(ep, op, fd, e) }
func EpollWait(ep int, e []EpollEvent, ms int) (int, error) { return syscall.EpollWait(ep, e, ms) }
func Fallocate(fd int, mode uint32, off, n int64) error     { return syscall.Fallocate(fd, mode, off, n) }
func Fstat(fd int, st *Stat_t) error                        { return syscall.Fstat(fd, st) }
func Fstatfs(fd int, st *Statfs_t) error                    { return syscall.Fstatfs(fd, st) }
func Ftruncate(fd int, n int64) error                       { return syscall.Ftruncate(fd, n) }
func Madvise(b []byte, advice int) error                    { return syscall.Madvise(b, advice) }
func Mkfifo(path string, mode uint32) error                 { return syscall.Mkfifo(path, mode) }
func Munmap(b []byte) error                                 { return syscall.Munmap(b) }
func NsecToTimespec(ns int64) Timespec                      { return syscall.NsecToTimespec(ns) }
func Open(path string, mode int, perm uint32) (int, error)  { return syscall.Open(path, mode, perm) }
func Read(fd int, b []byte) (int, error)                    { return syscall.Read(fd, b) }
func SetNonblock(fd int, on bool) error                     { return syscall.SetNonblock(fd, on) }
func SetsockoptInt(fd, level, name, value int) error {
	return syscall.SetsockoptInt(fd, level, name, value)
}
func Shutdown(fd, how int) error          { return syscall.Shutdown(fd, how) }
func Stat(path string, st *Stat_t) error  { return syscall.Stat(path, st) }
func Sysinfo(si *Sysinfo_t) error         { return syscall.Sysinfo(si) }
func Unlink(path string) error            { return syscall.Unlink(path) }
func Write(fd int, b []byte) (int, error) { return syscall.Write(fd, b) }

// Mmap maps a file.
func Mmap(fd int, offset int64, n int, prot, flags int) ([]byte, error) {
	return syscall.Mmap(fd, offset, n, prot, flags)
}

// Recvfrom receives from a socket.
func Recvfrom(fd int, b []byte, flags int) (int, syscall.Sockaddr, error) {
	return syscall.Recvfrom(fd, b, flags)
}

// Syscall makes a system call that the scheduler knows of.
func Syscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {
	return syscall.Syscall(trap, a1, a2, a3)
}

// RawSyscall makes a system call that the scheduler does not know of.
func RawSyscall(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err Errno) {
	return syscall.RawSyscall(trap, a1, a2, a3)
}

// RawSyscall6 is RawSyscall with six arguments.
func RawSyscall6(trap, a1, a2, a3, a4, a5, a6 uintptr) (r1, r2 uintptr, err Errno) {
	return syscall.RawSyscall6(trap, a1, a2, a3, a4, a5, a6)
}

// result converts the result of a system call.
func result(r uintptr, e Errno) (int, error) {
	if e != 0 {
		return -1, e
	}
	return int(r), nil
}

// first returns the address of a slice's first element, nil if there is none.
func first[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// Eventfd makes a counter that a process can wait for.
func Eventfd(value uint, flags int) (int, error) {
	r, _, e := syscall.RawSyscall(syscall.SYS_EVENTFD2, uintptr(value), uintptr(flags), 0)
	return result(r, e)
}

// FcntlInt calls fcntl with an integer argument.
func FcntlInt(fd uintptr, cmd, arg int) (int, error) {
	r, _, e := syscall.Syscall(syscall.SYS_FCNTL, fd, uintptr(cmd), uintptr(arg))
	return result(r, e)
}

// GetsockoptTCPInfo returns the state of a connection.
func GetsockoptTCPInfo(fd, level, opt int) (*TCPInfo, error) {
	info := new(TCPInfo)
	n := uint32(unsafe.Sizeof(*info))
	_, _, e := syscall.Syscall6(syscall.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(opt),
		uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return nil, e
	}
	return info, nil
}

// IoctlGetInt makes an ioctl that returns an integer.
func IoctlGetInt(fd int, req uint) (int, error) {
	var n int32
	if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), uintptr(req), uintptr(unsafe.Pointer(&n))); e != 0 {
		return 0, e
	}
	return int(n), nil
}

// MemfdCreate makes a file in memory.
func MemfdCreate(name string, flags int) (int, error) {
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	r, _, e := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(p)), uintptr(flags), 0)
	return result(r, e)
}

// MmapPtr maps memory at addr, or anywhere if addr is nil.
func MmapPtr(fd int, offset int64, addr unsafe.Pointer, n uintptr, prot, flags int) (unsafe.Pointer, error) {
	p, e := mmap(uintptr(addr), n, uintptr(prot), uintptr(flags), uintptr(fd), uintptr(offset))
	if e != 0 {
		return nil, e
	}
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)), nil
}

// MunmapPtr unmaps what MmapPtr mapped.
func MunmapPtr(addr unsafe.Pointer, n uintptr) error {
	if _, _, e := syscall.Syscall(syscall.SYS_MUNMAP, uintptr(addr), n, 0); e != 0 {
		return e
	}
	return nil
}

// PidfdOpen opens a process as a file.
func PidfdOpen(pid, flags int) (int, error) {
	r, _, e := syscall.Syscall(sysPidfdOpen, uintptr(pid), uintptr(flags), 0)
	return result(r, e)
}

// Poll waits for files for up to ms milliseconds; without end if ms
// is negative.
func Poll(fds []PollFd, ms int) (int, error) {
	var ts *Timespec
	if ms >= 0 {
		t := syscall.NsecToTimespec(int64(ms) * 1e6)
		ts = &t
	}
	return Ppoll(fds, ts, nil)
}

// Ppoll waits for files; without end if timeout is nil.
func Ppoll(fds []PollFd, timeout *Timespec, mask *Sigset_t) (int, error) {
	r, _, e := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(first(fds)), uintptr(len(fds)),
		uintptr(unsafe.Pointer(timeout)), uintptr(unsafe.Pointer(mask)), 8, 0)
	return result(r, e)
}

// Prctl changes a setting of this process.
func Prctl(option int, a2, a3, a4, a5 uintptr) error {
	if _, _, e := syscall.Syscall6(syscall.SYS_PRCTL, uintptr(option), a2, a3, a4, a5, 0); e != 0 {
		return e
	}
	return nil
}

// ProcessVMReadv reads another process's memory.
func ProcessVMReadv(pid int, local []Iovec, remote []RemoteIovec, flags uint) (int, error) {
	r, _, e := syscall.Syscall6(sysProcessVMReadv, uintptr(pid), uintptr(first(local)), uintptr(len(local)),
		uintptr(first(remote)), uintptr(len(remote)), uintptr(flags))
	return result(r, e)
}

// Pwritev writes pieces at an offset of a file.
func Pwritev(fd int, bufs [][]byte, offset int64) (int, error) {
	vec := make([]Iovec, 0, len(bufs))
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		v := Iovec{Base: &b[0]}
		v.SetLen(len(b))
		vec = append(vec, v)
	}
	r, _, e := syscall.Syscall6(syscall.SYS_PWRITEV, uintptr(fd), uintptr(first(vec)), uintptr(len(vec)), uintptr(offset), 0, 0)
	return result(r, e)
}

// TimerfdCreate makes a timer that a process can wait for.
func TimerfdCreate(clock, flags int) (int, error) {
	r, _, e := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, uintptr(clock), uintptr(flags), 0)
	return result(r, e)
}

// TimerfdSettime sets a timer.
func TimerfdSettime(fd, flags int, value, old *ItimerSpec) error {
	_, _, e := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(fd), uintptr(flags),
		uintptr(unsafe.Pointer(value)), uintptr(unsafe.Pointer(old)), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
