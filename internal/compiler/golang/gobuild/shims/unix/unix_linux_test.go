package unix

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"unsafe"

	real "golang.org/x/sys/unix"
)

// The compiler checks these conditions for every architecture that the test is
// compiled for: an index other than 0 is out of range.
var _ = [...][1]bool{
	{CLOCK_MONOTONIC - real.CLOCK_MONOTONIC: true}, {EFD_CLOEXEC - real.EFD_CLOEXEC: true}, {EFD_NONBLOCK - real.EFD_NONBLOCK: true},
	{EPOLLIN - real.EPOLLIN: true}, {EPOLLOUT - real.EPOLLOUT: true}, {EPOLLRDHUP - real.EPOLLRDHUP: true},
	{EPOLL_CLOEXEC - real.EPOLL_CLOEXEC: true}, {EPOLL_CTL_ADD - real.EPOLL_CTL_ADD: true}, {EPOLL_CTL_DEL - real.EPOLL_CTL_DEL: true},
	{EPOLL_CTL_MOD - real.EPOLL_CTL_MOD: true}, {FALLOC_FL_KEEP_SIZE - real.FALLOC_FL_KEEP_SIZE: true},
	{F_ADD_SEALS - real.F_ADD_SEALS: true}, {F_GET_SEALS - real.F_GET_SEALS: true}, {F_DUPFD_CLOEXEC - real.F_DUPFD_CLOEXEC: true},
	{F_SEAL_GROW - real.F_SEAL_GROW: true}, {F_SEAL_SEAL - real.F_SEAL_SEAL: true}, {F_SEAL_SHRINK - real.F_SEAL_SHRINK: true},
	{IPPROTO_TCP - real.IPPROTO_TCP: true}, {LOCK_EX - real.LOCK_EX: true}, {LOCK_NB - real.LOCK_NB: true},
	{MADV_POPULATE_WRITE - real.MADV_POPULATE_WRITE: true}, {MAP_ANON - real.MAP_ANON: true}, {MAP_NORESERVE - real.MAP_NORESERVE: true},
	{MAP_POPULATE - real.MAP_POPULATE: true}, {MAP_PRIVATE - real.MAP_PRIVATE: true}, {MAP_SHARED - real.MAP_SHARED: true},
	{MFD_ALLOW_SEALING - real.MFD_ALLOW_SEALING: true}, {MFD_CLOEXEC - real.MFD_CLOEXEC: true}, {MSG_DONTWAIT - real.MSG_DONTWAIT: true},
	{MSG_PEEK - real.MSG_PEEK: true}, {O_CLOEXEC - real.O_CLOEXEC: true}, {O_CREAT - real.O_CREAT: true}, {O_DIRECT - real.O_DIRECT: true},
	{O_EXCL - real.O_EXCL: true}, {O_NOFOLLOW - real.O_NOFOLLOW: true}, {O_NONBLOCK - real.O_NONBLOCK: true}, {O_RDWR - real.O_RDWR: true},
	{POLLIN - real.POLLIN: true}, {PROT_NONE - real.PROT_NONE: true}, {PROT_READ - real.PROT_READ: true}, {PROT_WRITE - real.PROT_WRITE: true},
	{PR_SET_PTRACER - real.PR_SET_PTRACER: true}, {SHUT_RDWR - real.SHUT_RDWR: true}, {SIOCOUTQ - real.SIOCOUTQ: true},
	{SOL_SOCKET - real.SOL_SOCKET: true}, {SO_KEEPALIVE - real.SO_KEEPALIVE: true}, {S_IFIFO - real.S_IFIFO: true},
	{S_IFMT - real.S_IFMT: true}, {S_IFREG - real.S_IFREG: true}, {TCP_INFO - real.TCP_INFO: true}, {TCP_KEEPCNT - real.TCP_KEEPCNT: true},
	{TCP_KEEPIDLE - real.TCP_KEEPIDLE: true}, {TCP_KEEPINTVL - real.TCP_KEEPINTVL: true}, {TCP_NODELAY - real.TCP_NODELAY: true},
	{TFD_CLOEXEC - real.TFD_CLOEXEC: true}, {TFD_NONBLOCK - real.TFD_NONBLOCK: true}, {TMPFS_MAGIC - real.TMPFS_MAGIC: true},

	{SYS_EPOLL_PWAIT - real.SYS_EPOLL_PWAIT: true}, {SYS_IOCTL - real.SYS_IOCTL: true}, {SYS_READ - real.SYS_READ: true},
	{SYS_READV - real.SYS_READV: true}, {SYS_WRITEV - real.SYS_WRITEV: true}, {SYS_USERFAULTFD - real.SYS_USERFAULTFD: true}, {SYS_RT_SIGACTION - real.SYS_RT_SIGACTION: true},
	{sysMemfdCreate - real.SYS_MEMFD_CREATE: true}, {sysPidfdOpen - real.SYS_PIDFD_OPEN: true},
	{sysProcessVMReadv - real.SYS_PROCESS_VM_READV: true},

	{unsafe.Sizeof(EpollEvent{}) - unsafe.Sizeof(real.EpollEvent{}): true}, {unsafe.Sizeof(Iovec{}) - unsafe.Sizeof(real.Iovec{}): true},
	{unsafe.Sizeof(ItimerSpec{}) - unsafe.Sizeof(real.ItimerSpec{}): true}, {unsafe.Sizeof(PollFd{}) - unsafe.Sizeof(real.PollFd{}): true},
	{unsafe.Sizeof(RemoteIovec{}) - unsafe.Sizeof(real.RemoteIovec{}): true}, {unsafe.Sizeof(Timespec{}) - unsafe.Sizeof(real.Timespec{}): true},
	{unsafe.Offsetof(TCPInfo{}.Last_ack_recv) - unsafe.Offsetof(real.TCPInfo{}.Last_ack_recv): true},
	{unsafe.Offsetof(TCPInfo{}.Probes) - unsafe.Offsetof(real.TCPInfo{}.Probes): true},
	{unsafe.Offsetof(TCPInfo{}.Retransmits) - unsafe.Offsetof(real.TCPInfo{}.Retransmits): true},
}

// TestSignatures shows that functions have the signatures of
// golang.org/x/sys/unix, except that struct types have other names.
func TestSignatures(t *testing.T) {
	for _, c := range [][2]any{
		{Close, real.Close}, {EpollCreate1, real.EpollCreate1}, {Eventfd, real.Eventfd}, {Fallocate, real.Fallocate},
		{FcntlInt, real.FcntlInt}, {Flock, real.Flock}, {Ftruncate, real.Ftruncate}, {IoctlGetInt, real.IoctlGetInt},
		{Madvise, real.Madvise}, {MemfdCreate, real.MemfdCreate}, {Mkfifo, real.Mkfifo}, {Mmap, real.Mmap},
		{Munmap, real.Munmap}, {MunmapPtr, real.MunmapPtr}, {Open, real.Open}, {PidfdOpen, real.PidfdOpen}, {Prctl, real.Prctl},
		{Pwritev, real.Pwritev}, {RawSyscall, real.RawSyscall}, {RawSyscall6, real.RawSyscall6}, {Read, real.Read},
		{SetNonblock, real.SetNonblock}, {SetsockoptInt, real.SetsockoptInt}, {Shutdown, real.Shutdown},
		{Syscall, real.Syscall}, {TimerfdCreate, real.TimerfdCreate}, {Unlink, real.Unlink}, {Write, real.Write},
	} {
		if got, want := reflect.TypeOf(c[0]), reflect.TypeOf(c[1]); got != want {
			t.Errorf("%v, not %v", got, want)
		}
	}
}

// TestFiles tries the calls for files and mappings.
func TestFiles(t *testing.T) {
	fd, err := MemfdCreate("test", MFD_CLOEXEC|MFD_ALLOW_SEALING)
	if err != nil {
		t.Skip(err)
	}
	defer Close(fd)
	if err := Ftruncate(fd, 8192); err != nil {
		t.Fatal(err)
	}
	if n, err := Pwritev(fd, [][]byte{[]byte("ab"), nil, []byte("cde")}, 4096); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	m, err := Mmap(fd, 4096, 4096, PROT_READ|PROT_WRITE, MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer Munmap(m)
	if !bytes.Equal(m[:6], []byte("abcde\x00")) {
		t.Errorf("%q was written", m[:6])
	}
	if err := Madvise(m, MADV_POPULATE_WRITE); err != nil && err != EINVAL {
		t.Error(err)
	}
	if _, err := FcntlInt(uintptr(fd), F_ADD_SEALS, F_SEAL_SHRINK); err != nil {
		t.Error(err)
	}
	if err := Ftruncate(fd, 0); err != EPERM {
		t.Errorf("a sealed file was cut: %v", err)
	}
	var fs Statfs_t
	if err := Fstatfs(fd, &fs); err != nil || int64(fs.Type) != TMPFS_MAGIC {
		t.Error(fs.Type, err)
	}
	p, err := MmapPtr(-1, 0, nil, 1<<30, PROT_NONE, MAP_PRIVATE|MAP_ANON|MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	if err := MunmapPtr(p, 1<<30); err != nil {
		t.Error(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	var st Stat_t
	if err := Stat(fifo, &st); err != nil || st.Mode&S_IFMT != S_IFIFO {
		t.Error(st.Mode, err)
	}
}

// TestWaiting tries the calls that wait for descriptors.
func TestWaiting(t *testing.T) {
	fd, err := Eventfd(0, EFD_CLOEXEC|EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fd)
	fds := []PollFd{{Fd: int32(fd), Events: POLLIN}}
	if n, err := Poll(fds, 0); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); n != 8 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := Poll(fds, -1); n != 1 || err != nil || fds[0].Revents != POLLIN {
		t.Fatal(n, err, fds)
	}
	ep, err := EpollCreate1(EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(ep)
	timer, err := TimerfdCreate(CLOCK_MONOTONIC, TFD_CLOEXEC|TFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(timer)
	if err := EpollCtl(ep, EPOLL_CTL_ADD, timer, &EpollEvent{Events: EPOLLIN, Fd: 7}); err != nil {
		t.Fatal(err)
	}
	if err := TimerfdSettime(timer, 0, &ItimerSpec{Value: NsecToTimespec(1e6)}, nil); err != nil {
		t.Fatal(err)
	}
	ts := NsecToTimespec(10e9)
	if n, err := Ppoll([]PollFd{{Fd: int32(ep), Events: POLLIN}}, &ts, nil); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var got [4]EpollEvent
	if n, err := EpollWait(ep, got[:], 0); n != 1 || err != nil || got[0].Fd != 7 {
		t.Fatal(n, err, got)
	}
}

// TestProcess tries the calls that concern other processes.
func TestProcess(t *testing.T) {
	pid, err := PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Skip(err)
	}
	defer Close(pid)
	if n, err := Poll([]PollFd{{Fd: int32(pid), Events: POLLIN}}, 0); n != 0 || err != nil {
		t.Errorf("this process has ended? %d %v", n, err)
	}
	from, to := []byte("memory"), make([]byte, 6)
	local := []Iovec{{Base: &to[0]}}
	local[0].SetLen(6)
	n, err := ProcessVMReadv(os.Getpid(), local, []RemoteIovec{{uintptr(unsafe.Pointer(&from[0])), 6}}, 0)
	if err == EPERM || err == ENOSYS {
		t.Skip(err)
	}
	if n != 6 || err != nil || string(to) != "memory" {
		t.Errorf("%d %v %q", n, err, to)
	}
}

// TestConnection tries the calls for sockets.
func TestConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.(*net.TCPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	got, err := GetsockoptTCPInfo(fd, IPPROTO_TCP, TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	want, err := real.GetsockoptTCPInfo(fd, IPPROTO_TCP, TCP_INFO)
	if err != nil {
		t.Fatal(err)
	}
	if got.State != want.State || got.Snd_mss != want.Snd_mss || got.Rto != want.Rto || got.Last_ack_recv > want.Last_ack_recv {
		t.Errorf("%+v, not %+v", got, want)
	}
	if n, err := IoctlGetInt(fd, SIOCOUTQ); n != 0 || err != nil {
		t.Error(n, err)
	}
}
