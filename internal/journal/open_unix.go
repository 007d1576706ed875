//go:build unix

package journal

import (
	"os"
	"syscall"
)

// openNoFollow opens a file for reading. It does not follow a symbolic link,
// and does not wait for the writer of a pipe.
func openNoFollow(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
