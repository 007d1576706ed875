package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
)

// QuoteGlob returns a pattern for filepath.Glob that matches only this path:
// directories may be called run[1].
func QuoteGlob(path string) string {
	if runtime.GOOS == "windows" { // names have no * and ?, and there is no escaping
		return strings.ReplaceAll(path, "[", "[[]")
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// ReadFile returns the content of a file of at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("the file is too long")}
	}
	text := make([]byte, n)
	if n == 0 {
		return text, nil
	}
	_, err = f.ReadAt(text, 0)
	return text, err
}

// Replace replaces the content of a file, atomically and durably. When it
// returns nil, no crash can bring the old content back. A crash before that
// leaves the old or the new content. It writes NAME.tmp first.
func Replace(fsys FS, name string, text []byte) error {
	tmp := name + ".tmp"
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		fsys.Remove(tmp)
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// RemoveAll removes a file, or a directory and everything in it. It is no error
// if there is none.
func RemoveAll(fsys FS, name string) error {
	err := fsys.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	entries, rerr := fsys.ReadDir(name)
	if rerr != nil {
		return err
	}
	for _, e := range entries {
		if err := RemoveAll(fsys, filepath.Join(name, e.Name())); err != nil {
			return err
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
