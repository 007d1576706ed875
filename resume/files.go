package resume

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/journal"
)

// These functions stand for those of package os. The journal records what they
// change, and a restart from an earlier checkpoint undoes it.

// files records the program's changes of files; nil: there is no run.
var files *journal.Journal

// openJournal undoes what the program did to files after its newest checkpoint,
// and begins to record its changes.
func openJournal() error {
	dir, err := filepath.Abs(run.Dir())
	if err == nil {
		files, err = journal.Open(journal.Config{
			Dir: dir, Home: start.dir, Rank: run.Rank(), Ranks: run.Ranks(), Host: run.Host(),
			Fresh: run.Fresh(), Migrated: run.IsDestination(), Gather: run.Allgather, Warn: warn, Fatal: fatal,
		})
	}
	return err
}

// Open stands for os.Open.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// Create stands for os.Create.
func Create(name string) (*os.File, error) {
	return OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile stands for os.OpenFile. A regular file becomes part of the state:
// see Run.OpenFile of package cairn.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	if run == nil {
		return os.OpenFile(name, flag, perm)
	}
	mu.Lock()
	defer mu.Unlock()
	if fd, ok := control.StreamOf(name); ok && fd > 0 && flag&(os.O_WRONLY|os.O_RDWR) != 0 && !closed {
		return run.OpenFile(name, flag, perm)
	}
	defer files.Lock(name)()
	st, err := os.Stat(name)
	if closed || err == nil && !st.Mode().IsRegular() {
		return os.OpenFile(name, flag, perm) // a device, a pipe, a directory
	}
	given := name
	if real, err := inherited(name); err == nil && real != "" {
		name = real // after a restart, the number may be that of another file
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	path, err := files.Opening(name, flag)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	known, fromStart := name, ""
	if start.moved() != "" { // the checkpoint names it relative to where the program starts
		known = abs
		if !filepath.IsAbs(name) {
			fromStart = start.rel(abs)
		}
	}
	f, err := run.OpenFile(known, flag, perm)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) && at.Path == known {
			at.Path = given
		}
		return nil, err
	}
	run.SetFileName(f, given, fromStart)
	files.Track(f, abs, path, flag)
	return f, nil
}

// inherited returns the file that is open under a number, if the name is one
// such as /dev/fd/7.
func inherited(name string) (string, error) {
	if _, ok := control.StreamOf(name); ok {
		return "", nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(name))
	if err != nil || !strings.HasPrefix(dir, "/proc/") || filepath.Base(dir) != "fd" {
		return "", err
	}
	return os.Readlink(name)
}

// CreateTemp stands for os.CreateTemp.
func CreateTemp(dir, pattern string) (*os.File, error) {
	if !files.Active() {
		return os.CreateTemp(dir, pattern)
	}
	var f *os.File
	err := temporary(dir, pattern, func(name string) (err error) {
		f, err = OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	}, func() (err error) {
		f, err = os.CreateTemp(dir, pattern)
		return err
	})
	return f, err
}

// MkdirTemp stands for os.MkdirTemp.
func MkdirTemp(dir, pattern string) (string, error) {
	if !files.Active() {
		return os.MkdirTemp(dir, pattern)
	}
	made := ""
	err := temporary(dir, pattern, func(name string) error {
		made = name
		return Mkdir(name, 0o700)
	}, func() (err error) {
		made, err = os.MkdirTemp(dir, pattern)
		return err
	})
	if err != nil {
		return "", err
	}
	return made, nil
}

// temporary tries random names until one is new: the journal must know the name
// before the file is made. wrong returns the error of package os for a pattern.
func temporary(dir, pattern string, try func(name string) error, wrong func() error) error {
	if strings.ContainsRune(pattern, os.PathSeparator) {
		return wrong()
	}
	if dir == "" {
		dir = os.TempDir()
	}
	before, after := pattern, ""
	if i := strings.LastIndexByte(pattern, '*'); i >= 0 {
		before, after = pattern[:i], pattern[i+1:]
	}
	var err error
	for range 10_000 {
		// As in package os, the name is relative if dir is.
		err = try(dir + string(os.PathSeparator) + before + fmt.Sprint(rand.Uint32()) + after)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return err
}

// WriteFile stands for os.WriteFile.
func WriteFile(name string, data []byte, perm fs.FileMode) error {
	if fd, ok := control.StreamOf(name); run != nil && ok && fd > 0 {
		_, err := []*os.File{nil, control.StdoutFile, control.StderrFile}[fd].Write(data)
		return err
	}
	return files.WriteFile(name, data, perm)
}

// Truncate stands for os.Truncate.
func Truncate(name string, size int64) error { return files.Truncate(name, size) }

// Mkdir stands for os.Mkdir.
func Mkdir(name string, perm fs.FileMode) error { return files.Mkdir(name, perm) }

// MkdirAll stands for os.MkdirAll.
func MkdirAll(name string, perm fs.FileMode) error { return files.MkdirAll(name, perm) }

// Remove stands for os.Remove.
func Remove(name string) error { return files.Remove(name) }

// RemoveAll stands for os.RemoveAll.
func RemoveAll(name string) error { return files.RemoveAll(name) }

// Rename stands for os.Rename.
func Rename(from, to string) error { return files.Rename(from, to) }

// Link stands for os.Link.
func Link(from, to string) error { return files.Link(from, to) }

// Symlink stands for os.Symlink.
func Symlink(from, to string) error { return files.Symlink(from, to) }

// Chmod stands for os.Chmod.
func Chmod(name string, mode fs.FileMode) error { return files.Chmod(name, mode) }

// CopyFS stands for os.CopyFS.
func CopyFS(dir string, from fs.FS) error { return files.CopyFS(dir, from) }

// OpenRoot stands for os.OpenRoot. Changes made with it are not recorded; a
// warning tells the user so.
func OpenRoot(name string) (*os.Root, error) {
	if run != nil {
		toldRoot.Do(func() {
			warn("the program uses os.Root: a restart does not undo what it changes with it after a checkpoint; use functions of package os instead")
		})
	}
	return os.OpenRoot(name)
}

var toldRoot sync.Once
