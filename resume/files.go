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

// Mkdir stands for os.Mkdir. A folder that was made after the set was taken is
// no error.
func Mkdir(name string, perm fs.FileMode) error {
	return change1("mkdir", name, fs.ErrExist, func() error { return os.Mkdir(name, perm) })
}

// Remove stands for os.Remove. What was removed after the set was taken is no
// error.
func Remove(name string) error {
	return change1("remove", name, fs.ErrNotExist, func() error { return os.Remove(name) })
}

func change1(op, name string, wrong error, do func() error) error {
	path, err := filepath.Abs(name)
	if run == nil || err != nil {
		return do()
	}
	mu.Lock()
	defer mu.Unlock()
	_, gone := os.Lstat(path)
	return journal.changing(change{Op: op, Path: path}, (gone == nil) == (wrong == fs.ErrNotExist), wrong, do)
}

// Rename stands for os.Rename. What was renamed after the set was taken is no
// error.
func Rename(from, to string) error {
	a, err1 := filepath.Abs(from)
	b, err2 := filepath.Abs(to)
	if run == nil || err1 != nil || err2 != nil {
		return os.Rename(from, to)
	}
	mu.Lock()
	defer mu.Unlock()
	_, gone := os.Lstat(a)
	return journal.changing(change{Op: "rename", Path: a, To: b}, gone == nil, fs.ErrNotExist, func() error { return os.Rename(from, to) })
}
