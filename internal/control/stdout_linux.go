package control

import (
	"fmt"
	"os"
	"syscall"
)

// TakeStdout makes descriptor 1 the file that Welcome.Stdout names.
func TakeStdout(path string) error { return takeOutput(1, "standard output", path) }

// TakeStderr makes descriptor 2 the file that Welcome.Stderr names.
func TakeStderr(path string) error { return takeOutput(2, "standard error", path) }

func takeOutput(fd int, name, path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer f.Close()
	if err := syscall.Dup3(int(f.Fd()), fd, 0); err != nil {
		return fmt.Errorf("%s: %w", name, os.NewSyscallError("dup3", err))
	}
	return nil
}
