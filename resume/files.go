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
)

// Functions that stand for those of package os. What they change is noted in the
// journal first, and undone when a set from before it is restored.

// Open stands for os.Open.
func Open(name string) (*os.File, error) { return OpenFile(name, os.O_RDONLY, 0) }

// Create stands for os.Create.
func Create(name string) (*os.File, error) {
	return OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile stands for os.OpenFile. A regular file becomes part of the state:
// see cairn.Run.OpenFile.
func OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	if run == nil {
		return os.OpenFile(name, flag, perm)
	}
	mu.Lock()
	defer mu.Unlock()
	if fd, ok := control.StreamOf(name); ok && fd > 0 && flag&(os.O_WRONLY|os.O_RDWR) != 0 && !closed {
		return run.OpenFile(name, flag, perm)
	}
	defer journal.holdName(name)()
	defer journal.busy()()
	st, err := os.Stat(name)
	if closed || err == nil && !st.Mode().IsRegular() {
		return os.OpenFile(name, flag, perm) // a device, a pipe, a folder
	}
	given := name
	if real, err := inherited(name); err == nil && real != "" {
		name = real // the number may be another file's after a restart
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	path, err := journal.openingFile(name, flag)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	known := name
	if start.moved() != "" { // the checkpoint names it relative to where the program starts
		known = abs
	}
	f, err := run.OpenFile(known, flag, perm)
	if err != nil {
		var at *fs.PathError
		if errors.As(err, &at) && at.Path == known {
			at.Path = given
		}
		return nil, err
	}
	run.Call(f, given)
	journal.follow(f, abs, path, flag)
	return f, nil
}

// inherited returns the file that is open under a number, if a name is one such as
// /dev/fd/7.
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

// openingFile notes that a file is about to be opened. It returns its target, if
// it may be changed.
func (j *fileJournal) openingFile(name string, flag int) (string, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC) == 0 {
		return "", nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	path, err := target(name)
	if flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0 {
		path, err = place(name) // a link is not followed then
	}
	if err != nil { // nor will the program get at it
		path, err = filepath.Abs(name)
		return path, err
	}
	if !j.ready {
		return path, nil
	}
	if flag&os.O_CREATE == 0 || flag&os.O_EXCL != 0 { // what can't be opened is not changed
		_, err := os.Lstat(path)
		if missing(err) == (flag&os.O_CREATE == 0) {
			return path, nil
		}
	}
	return path, j.opening(path, flag)
}

// CreateTemp stands for os.CreateTemp.
func CreateTemp(dir, pattern string) (*os.File, error) {
	if run == nil || !journaled() {
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
	if run == nil || !journaled() {
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

// temporary chooses names until there is something new. The name has to be known
// before it is there. wrong tells what package os says about a pattern.
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
		// The name is the program's own if dir is, as it is with package os.
		err = try(dir + string(os.PathSeparator) + before + fmt.Sprint(rand.Uint32()) + after)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return err
}

// journaled says that changes are to be noted.
func journaled() bool {
	journal.mu.Lock()
	defer journal.mu.Unlock()
	return journal.ready
}

// note calls f, with names without links in the folders that lead to them, if
// changes are noted.
// What is returned is called when the change is made.
func note(op, name string, resolve func(string) (string, error), f func(path string) error) (done func(), err error) {
	done = func() {}
	if run == nil {
		return done, nil
	}
	release := journal.holdName(name)
	journal.mu.Lock()
	defer journal.mu.Unlock()
	if journal.ready {
		if path, perr := resolve(name); perr == nil { // else the program will not get at it
			err = f(path)
		}
	}
	if err != nil {
		release()
		return done, &fs.PathError{Op: op, Path: name, Err: err}
	}
	journal.underway++
	return func() {
		journal.idle()
		release()
	}, nil
}

// WriteFile stands for os.WriteFile.
func WriteFile(name string, data []byte, perm fs.FileMode) error {
	if fd, ok := control.StreamOf(name); run != nil && ok && fd > 0 {
		_, err := []*os.File{nil, os.Stdout, os.Stderr}[fd].Write(data)
		return err
	}
	done, err := note("open", name, target, func(path string) error {
		if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
			return nil
		}
		return journal.opening(path, os.O_TRUNC)
	})
	if err != nil {
		return err
	}
	defer done()
	return os.WriteFile(name, data, perm)
}

// Truncate stands for os.Truncate.
func Truncate(name string, size int64) error {
	done, err := note("truncate", name, target, func(path string) error {
		c, err := journal.content(path)
		if err != nil || size < 0 {
			return nil // nor will the program do it
		}
		if err := journal.size(c); err != nil {
			return err
		}
		return journal.save(c, nil, size, noSize)
	})
	if err != nil {
		return err
	}
	defer done()
	return os.Truncate(name, size)
}

// Mkdir stands for os.Mkdir.
func Mkdir(name string, perm fs.FileMode) error {
	left := false
	done, err := note("mkdir", name, place, func(path string) error {
		left = journal.leftover[path]
		delete(journal.leftover, path)
		_, err := journal.made(path)
		return err
	})
	if err != nil {
		return err
	}
	defer done()
	if err = os.Mkdir(name, perm); left && errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// MkdirAll stands for os.MkdirAll.
func MkdirAll(name string, perm fs.FileMode) error {
	done, err := note("mkdir", name, target, func(path string) error {
		return journal.madeAll(path)
	})
	if err != nil {
		return err
	}
	defer done()
	return os.MkdirAll(name, perm)
}

// madeAll notes that a directory is about to be made, with those that lead to it,
// the outermost first.
func (j *fileJournal) madeAll(path string) error {
	if _, err := os.Lstat(path); !missing(err) {
		return nil
	}
	if up := filepath.Dir(path); up != path {
		if err := j.madeAll(up); err != nil {
			return err
		}
	}
	_, err := j.made(path)
	return err
}

// Remove stands for os.Remove.
func Remove(name string) error {
	return losing("remove", name, journal.name, os.Remove)
}

// RemoveAll stands for os.RemoveAll.
func RemoveAll(name string) error {
	return losing("RemoveAll", name, journal.below, os.RemoveAll)
}

// losing removes a name, or all below it.
func losing(op, name string, first func(path string) error, do func(string) error) (err error) {
	done := false
	release, failed := note(op, name, place, func(path string) error {
		if _, err := os.Lstat(path); missing(err) {
			return nil
		}
		if err := first(path); err != nil {
			return err
		}
		err = do(name)
		done = true
		journal.unnamed(path)
		return nil
	})
	defer release()
	if failed != nil || done {
		return errors.Join(failed, err)
	}
	return do(name)
}

// Rename stands for os.Rename.
func Rename(from, to string) error {
	return second("rename", from, to, func(a, b string) error {
		return journal.rename(a, b, func() error { return os.Rename(from, to) })
	}, os.Rename)
}

// Link stands for os.Link.
func Link(from, to string) error {
	return second("link", from, to, func(_, b string) error {
		return journal.link(b, func() error { return os.Link(from, to) })
	}, os.Link)
}

// second does something with two names.
func second(op, from, to string, noted func(a, b string) error, do func(from, to string) error) error {
	if run == nil {
		return do(from, to)
	}
	defer journal.hold(allNames)()
	journal.mu.Lock()
	defer journal.mu.Unlock()
	if !journal.ready {
		return do(from, to)
	}
	a, err1 := place(from)
	b, err2 := place(to)
	if err1 != nil || err2 != nil { // the program will not get at it
		return do(from, to)
	}
	err := noted(a, b)
	var said *os.LinkError
	if err != nil && !errors.As(err, &said) {
		err = &os.LinkError{Op: op, Old: from, New: to, Err: err}
	}
	return err
}

// Symlink stands for os.Symlink.
func Symlink(from, to string) error {
	done, err := note("symlink", to, place, func(path string) error {
		_, err := journal.made(path)
		return err
	})
	if err != nil {
		return err
	}
	defer done()
	return os.Symlink(from, to)
}

// Chmod stands for os.Chmod.
func Chmod(name string, mode fs.FileMode) error {
	done, err := note("chmod", name, target, func(path string) error { return journal.mode(path, mode) })
	if err != nil {
		return err
	}
	defer done()
	return os.Chmod(name, mode)
}

// CopyFS stands for os.CopyFS.
func CopyFS(dir string, from fs.FS) error {
	done, err := note("CopyFS", dir, target, func(to string) error {
		if err := journal.madeAll(to); err != nil {
			return err
		}
		return fs.WalkDir(from, ".", func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // it will be said
			}
			_, err = journal.made(filepath.Join(to, filepath.FromSlash(path)))
			return err
		})
	})
	if err != nil {
		return err
	}
	defer done()
	return os.CopyFS(dir, from)
}

// OpenRoot stands for os.OpenRoot. What is changed by way of it is not noted, and
// the user is told.
func OpenRoot(name string) (*os.Root, error) {
	if run != nil {
		toldRoot.Do(func() {
			say("the program uses os.Root: files that it makes, changes or removes in that way after a checkpoint are not brought back by a restart; use functions of package os for them")
		})
	}
	return os.OpenRoot(name)
}

var toldRoot sync.Once
