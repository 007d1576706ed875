package control

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// TakeStdout makes descriptor 1 the file that Welcome.Stdout names. settle is
// called when it is known whether it stays so; if not, it is what it was
// before.
func TakeStdout(path string) (settle func(stays bool), err error) {
	const name = "standard output"
	before, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, os.NewSyscallError("fcntl", err))
	}
	if err := takeOutput(1, name, path); err != nil {
		syscall.Close(before)
		return nil, err
	}
	return func(stays bool) {
		if !stays {
			syscall.Dup3(before, 1, 0) // both are open
		}
		syscall.Close(before)
	}, nil
}

// TakeStderr makes descriptor 2 the file that Welcome.Stderr names.
func TakeStderr(path string) error { return takeOutput(2, "standard error", path) }

func takeOutput(fd int, name, path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer f.Close()
	if err := syscall.Dup3(int(f.Fd()), fd, 0); err != nil {
		return fmt.Errorf("%s: %w", name, os.NewSyscallError("dup3", err))
	}
	return nil
}
