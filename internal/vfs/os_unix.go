//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return ErrLocked
	}
	return err
}

// noFollow makes open fail if the last part of the path is a symbolic link.
const noFollow = syscall.O_NOFOLLOW

// isLink reports whether open failed because of noFollow.
func isLink(err error) bool { return errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) }

func trusted(path string, st fs.FileInfo) error {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	if me := os.Geteuid(); int(sys.Uid) != me {
		return notOurs(path, fmt.Sprintf("user %d owns it, and this is user %d", sys.Uid, me))
	}
	if st.Mode().Perm()&0o002 != 0 {
		return notOurs(path, "all users may write to it: 'chmod o-w' it")
	}
	return nil
}

// isNotEmpty reports whether err says that a directory is not empty. Some
// systems report EEXIST.
func isNotEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}

func linkError(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK) {
		return fmt.Errorf("%w: %w", ErrNoLink, err)
	}
	return err
}
