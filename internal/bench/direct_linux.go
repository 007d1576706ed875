package main

import (
	"os"
	"syscall"
	"time"
)

// openDirect opens a file so that transfers bypass the page cache.
func openDirect(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|syscall.O_DIRECT, 0o666)
}

// processorTime is the time that the process has computed, on all processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
