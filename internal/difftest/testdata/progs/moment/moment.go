// Package moment is for programs that the tests kill between two points.
package moment

import (
	"os"
	"strconv"
	"syscall"
)

var passed int // since the program began, also before a restart

// Pass is a moment at which the program may be killed, once: the TRIAL_DIE_AT'th,
// if there is no file TRIAL_DIED. It is made by a system call, so that nobody
// takes it for one of the program's files.
func Pass() {
	passed++
	if n, err := strconv.Atoi(os.Getenv("TRIAL_DIE_AT")); err != nil || n != passed {
		return
	}
	fd, err := syscall.Open(os.Getenv("TRIAL_DIED"), syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	syscall.Close(fd)
	syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}
