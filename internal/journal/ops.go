package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// These methods do what the functions of package os do, and record the change
// first.

// Active reports whether changes are recorded.
func (j *Journal) Active() bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ready
}

// Lock locks a file that is about to be opened, which may change it. Other
// ranks wait until unlock is called.
func (j *Journal) Lock(name string) (unlock func()) {
	release := j.lockName(name)
	idle := j.busy()
	return func() {
		idle()
		release()
	}
}

// Opening records that a file is about to be opened. It returns the name of the
// file that is opened, without links, if it may be changed.
func (j *Journal) Opening(name string, flag int) (string, error) {
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC) == 0 {
		return "", nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	path, err := resolve(name)
	if flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0 {
		path, err = resolveDir(name) // links are not followed
	}
	if err != nil { // the program cannot reach it either
		path, err = filepath.Abs(name)
		return path, err
	}
	if !j.ready {
		return path, nil
	}
	if flag&os.O_CREATE == 0 || flag&os.O_EXCL != 0 { // if it cannot be opened, it does not change
		_, err := os.Lstat(path)
		if missing(err) == (flag&os.O_CREATE == 0) {
			return path, nil
		}
	}
	return path, j.recordOpening(path, flag)
}

// record resolves a name with lookup and calls f with the result, if changes
// are recorded. Call done when the change is made.
func (j *Journal) record(op, name string, lookup func(string) (string, error), f func(path string) error) (done func(), err error) {
	done = func() {}
	if j == nil {
		return done, nil
	}
	release := j.lockName(name)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ready {
		if path, perr := lookup(name); perr == nil { // otherwise the program cannot reach it either
			err = f(path)
		}
	}
	if err != nil {
		release()
		return done, &fs.PathError{Op: op, Path: name, Err: err}
	}
	j.underway++
	return func() {
		j.idle()
		release()
	}, nil
}

// WriteFile is os.WriteFile.
func (j *Journal) WriteFile(name string, data []byte, perm fs.FileMode) error {
	done, err := j.record("open", name, resolve, func(path string) error {
		if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
			return nil
		}
		return j.recordOpening(path, os.O_TRUNC)
	})
	if err != nil {
		return err
	}
	defer done()
	return os.WriteFile(name, data, perm)
}

// Truncate is os.Truncate.
func (j *Journal) Truncate(name string, size int64) error {
	done, err := j.record("truncate", name, resolve, func(path string) error {
		c, err := j.content(path)
		if err != nil || size < 0 {
			return nil // the program cannot do it either
		}
		if err := j.recordSize(c); err != nil {
			return err
		}
		return j.recordData(c, nil, size, noSize)
	})
	if err != nil {
		return err
	}
	defer done()
	return os.Truncate(name, size)
}

// Mkdir is os.Mkdir.
func (j *Journal) Mkdir(name string, perm fs.FileMode) error {
	leftover := false
	done, err := j.record("mkdir", name, resolveDir, func(path string) error {
		leftover = j.leftover[path]
		delete(j.leftover, path)
		_, err := j.recordNew(path)
		return err
	})
	if err != nil {
		return err
	}
	defer done()
	if err = os.Mkdir(name, perm); leftover && errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// MkdirAll is os.MkdirAll.
func (j *Journal) MkdirAll(name string, perm fs.FileMode) error {
	done, err := j.record("mkdir", name, resolve, j.recordNewDirs)
	if err != nil {
		return err
	}
	defer done()
	return os.MkdirAll(name, perm)
}

// Remove is os.Remove.
func (j *Journal) Remove(name string) error { return j.remove("remove", name, j.recordName, os.Remove) }

// RemoveAll is os.RemoveAll.
func (j *Journal) RemoveAll(name string) error {
	return j.remove("RemoveAll", name, j.recordTree, os.RemoveAll)
}

// remove removes a name, or all below it.
func (j *Journal) remove(op, name string, first func(path string) error, do func(string) error) (err error) {
	done := false
	release, failed := j.record(op, name, resolveDir, func(path string) error {
		if _, err := os.Lstat(path); missing(err) {
			return nil
		}
		if err := first(path); err != nil {
			return err
		}
		err = do(name)
		done = true
		j.nameGone(path)
		return nil
	})
	defer release()
	if failed != nil || done {
		return errors.Join(failed, err)
	}
	return do(name)
}

// Rename is os.Rename.
func (j *Journal) Rename(from, to string) error {
	return j.twoNames("rename", from, to, func(a, b string) error {
		return j.rename(a, b, func() error { return os.Rename(from, to) })
	}, os.Rename)
}

// Link is os.Link.
func (j *Journal) Link(from, to string) error {
	return j.twoNames("link", from, to, func(a, b string) error {
		// What changes under the new name changes under this one. If the name
		// cannot be listed, only snapshots lack it.
		j.log.addNames(map[named]bool{{j.log.rel(a), false}: true}, nil)
		return j.link(b, func() error { return os.Link(from, to) })
	}, os.Link)
}

// twoNames records and makes a change of two names.
func (j *Journal) twoNames(op, from, to string, recorded func(a, b string) error, do func(from, to string) error) error {
	if j == nil {
		return do(from, to)
	}
	defer j.lockFile(allNames)()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready {
		return do(from, to)
	}
	a, err1 := resolveDir(from)
	b, err2 := resolveDir(to)
	if err1 != nil || err2 != nil { // the program cannot reach it either
		return do(from, to)
	}
	err := recorded(a, b)
	var said *os.LinkError
	if err != nil && !errors.As(err, &said) {
		err = &os.LinkError{Op: op, Old: from, New: to, Err: err}
	}
	return err
}

// Symlink is os.Symlink.
func (j *Journal) Symlink(from, to string) error {
	done, err := j.record("symlink", to, resolveDir, func(path string) error {
		_, err := j.recordNew(path)
		return err
	})
	if err != nil {
		return err
	}
	defer done()
	return os.Symlink(from, to)
}

// Chmod is os.Chmod.
func (j *Journal) Chmod(name string, mode fs.FileMode) error {
	done, err := j.record("chmod", name, resolve, func(path string) error { return j.recordMode(path, mode) })
	if err != nil {
		return err
	}
	defer done()
	return os.Chmod(name, mode)
}

// CopyFS is os.CopyFS.
func (j *Journal) CopyFS(dir string, from fs.FS) error {
	done, err := j.record("CopyFS", dir, resolve, func(to string) error {
		if err := j.recordNewDirs(to); err != nil {
			return err
		}
		return fs.WalkDir(from, ".", func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // os.CopyFS reports it
			}
			_, err = j.recordNew(filepath.Join(to, filepath.FromSlash(path)))
			return err
		})
	})
	if err != nil {
		return err
	}
	defer done()
	return os.CopyFS(dir, from)
}
