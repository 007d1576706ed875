package resume

import (
	"io/fs"
	"os"
	"path/filepath"
)

// Open stands for os.Open.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// Create stands for os.Create.
func Create(name string) (*os.File, error) {
	return OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile stands for os.OpenFile. A regular file becomes part of the state:
// see cairn.Run.OpenFile. One that is opened after a set was taken, and written
// to, holds what it held then when the set is restored, even if it was closed
// meanwhile; what was overwritten in it is not brought back.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	if run == nil {
		return os.OpenFile(name, flag, perm)
	}
	mu.Lock()
	defer mu.Unlock()
	st, err := os.Stat(name)
	if closed || err == nil && !st.Mode().IsRegular() {
		return os.OpenFile(name, flag, perm) // a device, a pipe, a folder
	}
	if flag&(os.O_WRONLY|os.O_RDWR) != 0 && flag&os.O_TRUNC == 0 {
		if err := journal.opening(name, st); err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
	if start.moved() != "" && !filepath.IsAbs(name) { // the set names it relative to where the program starts
		if abs, err := filepath.Abs(name); err == nil {
			name = abs
		}
	}
	return run.OpenFile(name, flag, perm)
}

// CreateTemp stands for os.CreateTemp.
func CreateTemp(dir, pattern string) (*os.File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil || run == nil {
		return f, err
	}
	mu.Lock()
	defer mu.Unlock()
	if closed {
		return f, nil
	}
	if err := run.File(f, os.O_RDWR); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
