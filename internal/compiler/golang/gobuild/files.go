package gobuild

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// CopyFile writes a copy of a program's file.
func CopyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return replaceFile(to, text, 0o755)
}

// replaceFile writes a file that others may be reading or writing too.
func replaceFile(name string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// linkOrCopy gives a module's file, which never changes, another name.
func linkOrCopy(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(from, to); err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return CopyFile(to, from)
}

// linkAll makes links in dir to all that of holds, except some names.
func linkAll(dir, of string, but ...string) error {
	entries, err := os.ReadDir(of)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(but, e.Name()) {
			continue
		}
		from, to := filepath.Join(dir, e.Name()), filepath.Join(of, e.Name())
		if old, err := os.Readlink(from); err == nil && old == to {
			continue
		}
		// Another build may do the same.
		if os.Symlink(to, from) == nil {
			continue
		}
		next, err := os.MkdirTemp(dir, ".new-*")
		if err != nil {
			return err
		}
		err = os.Symlink(to, filepath.Join(next, "link"))
		if err == nil {
			err = os.Rename(filepath.Join(next, "link"), from)
		}
		if err = errors.Join(err, os.RemoveAll(next)); err != nil {
			return err
		}
	}
	return nil
}

// removeUnused removes directories below dir with a prefix that have not been
// used for long.
func removeUnused(dir, prefix string, long time.Duration) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(st.ModTime()) > long {
			os.RemoveAll(filepath.Join(dir, e.Name())) // if it fails, the next build tries again
		}
	}
}

func isFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}
