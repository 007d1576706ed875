package main

import (
	"os"
	"syscall"
)

// openDirect opens a file so that transfers bypass the page cache.
func openDirect(path string, flag int) (*os.File, error) {
	return os.OpenFile(path, flag|syscall.O_DIRECT, 0o666)
}
