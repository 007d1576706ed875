// Package moment is for programs that the tests kill between two points.
package moment

import (
	"os"
	"strconv"
	"syscall"
)

var passed int // since the program began, also before a restart

// Pass is a moment at which the program may be killed, once: call number
// DIFFTEST_DIE_AT, if the file DIFFTEST_DIED does not exist. Pass creates the
// file by a system call, so that it does not count as one of the program's
// files.
func Pass() {
	passed++
	if n, err := strconv.Atoi(os.Getenv("DIFFTEST_DIE_AT")); err != nil || n != passed {
		return
	}
	fd, err := syscall.Open(os.Getenv("DIFFTEST_DIED"), syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	syscall.Close(fd)
	syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {}
}
