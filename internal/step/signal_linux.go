package step

import (
	"runtime"
	"syscall"
)

// signal sends a signal to this thread, so that it does not run on while
// another one takes a signal to stop the process.
func signal(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(syscall.Getpid()), uintptr(syscall.Gettid()), uintptr(s))
}
