package control

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// systemTimer is a timerfd(2). The Go runtime waits for it as for a network
// connection.
type systemTimer struct {
	fd   int
	file *os.File
}

func newSystemTimer(f func()) *systemTimer {
	const monotonic = 1
	fd, _, e := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, monotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if e != 0 {
		return nil
	}
	t := &systemTimer{int(fd), os.NewFile(fd, "timer")}
	if t.file.SetReadDeadline(time.Time{}) != nil { // the runtime cannot wait for it
		t.file.Close()
		return nil
	}
	go t.wait(f)
	return t
}

// wait calls f whenever the timer expires.
func (t *systemTimer) wait(f func()) {
	var count [8]byte
	for {
		if _, err := t.file.Read(count[:]); err != nil {
			return
		}
		f()
	}
}

// set makes the timer expire after d, and not before; 0: never.
func (t *systemTimer) set(d time.Duration) bool {
	at := [2]syscall.Timespec{1: syscall.NsecToTimespec(int64(d))}
	_, _, e := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(t.fd), 0, uintptr(unsafe.Pointer(&at)), 0, 0, 0)
	return e == 0
}

func (t *systemTimer) close() { t.file.Close() }
