//go:build unix

package engine

import (
	"os"
	"syscall"
)

// duplicate returns another handle of a standard stream.
func duplicate(fd int, name string) (*os.File, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	n, err := syscall.Dup(fd)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	syscall.CloseOnExec(n)
	return os.NewFile(uintptr(n), name), nil
}
