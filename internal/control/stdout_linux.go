package control

import (
	"fmt"
	"os"
	"syscall"
)

// TakeStdout makes descriptor 1 the file that Welcome.Stdout names.
func TakeStdout(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("standard output: %w", err)
	}
	defer f.Close()
	if err := syscall.Dup3(int(f.Fd()), 1, 0); err != nil {
		return fmt.Errorf("standard output: %w", os.NewSyscallError("dup3", err))
	}
	return nil
}
