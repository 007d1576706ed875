//go:build !unix

package engine

import (
	"os"
	"syscall"
)

func duplicate(_ int, name string) (*os.File, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOENT}
}
