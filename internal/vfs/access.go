package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// What Cairn makes is for its user alone: directories have mode 0700, files
// 0600. A directory that is open to its group, and to nobody else (0750, or
// 0770), opens what is made in it: directories get 0750 then and files 0640.
// Locks and sockets never are: who can open a lock can hold it.

// Access says who else may use a directory.
type Access struct {
	Group    bool // its group may read it and what is made in it
	AnyOwner bool // it may be another user's
}

// Environment variables that say the same as Access, with the value 1.
const (
	EnvGroup    = "CAIRN_GROUP"
	EnvAnyOwner = "CAIRN_ANY_OWNER"
)

// AccessFromEnv returns what the environment says.
func AccessFromEnv() Access {
	on := func(name string) bool { v := os.Getenv(name); return v != "" && v != "0" }
	return Access{Group: on(EnvGroup), AnyOwner: on(EnvAnyOwner)}
}

// With adds what options say.
func (a Access) With(group, anyOwner bool) Access {
	return Access{Group: a.Group || group, AnyOwner: a.AnyOwner || anyOwner}
}

// ErrNotOurs says that a directory is another user's, or that everybody may
// change what is in it.
var ErrNotOurs = errors.New("not a directory of this user's alone")

// Trust checks that a directory is one whose content the current user, and
// nobody else, decides about. With a.Group it opens the directory to its group.
// It does so on the real file system only.
func Trust(fsys FS, path string, a Access) error {
	if _, ok := fsys.(osFS); !ok {
		return nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !a.AnyOwner {
		if err := trusted(path, st); err != nil {
			return err
		}
	}
	if perm := st.Mode().Perm(); a.Group && (perm&0o050 != 0o050 || perm&0o007 != 0) {
		return os.Chmod(path, perm&^0o007|0o050)
	}
	return nil
}

// MakeDir makes a directory for the current user, with its parents, where it
// is not there, and trusts it. The path may lead to it by symbolic links.
func MakeDir(path string, a Access) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return Trust(OS(), path, a)
}

// SubDir makes a directory in one that is trusted. It does not follow a
// symbolic link.
func SubDir(path string) error {
	err := OS().Mkdir(path)
	if errors.Is(err, fs.ErrExist) {
		return NoLink(path)
	}
	return err
}

// NoLink refuses a symbolic link.
func NoLink(path string) error {
	st, err := os.Lstat(path)
	if err == nil && st.Mode()&fs.ModeSymlink != 0 {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("a symbolic link, and Cairn follows none inside its directories; remove it")}
	}
	return err
}

// OpenPrivate opens a file in a directory that is trusted, or makes it. It
// follows no symbolic link.
func OpenPrivate(name string, flag int) (*os.File, error) {
	perm := filePerm(name)
	f, err := os.OpenFile(name, flag|noFollow, perm)
	if isLink(err) {
		err = NoLink(name)
	}
	if err == nil && flag&os.O_CREATE != 0 && perm != 0o600 {
		f.Chmod(perm) // whatever the umask; one that is there may be another's
	}
	return f, err
}

// OpenLock is OpenPrivate for a file that is to be locked: it is never open to
// a group.
func OpenLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if isLink(err) {
		err = NoLink(name)
	}
	return f, err
}

// filePerm is the mode of a file to be made.
func filePerm(name string) fs.FileMode {
	if groupReads(filepath.Dir(name)) {
		return 0o640
	}
	return 0o600
}

// groupReads reports whether a directory is open to its group and to nobody
// else.
func groupReads(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.Mode().Perm()&0o057 == 0o050
}

func notOurs(path, why string) error {
	return fmt.Errorf("%s: %w: %s; run as that user, choose another directory, or set %s=1 ('cairn run --any-owner') if it is to be used all the same", path, ErrNotOurs, why, EnvAnyOwner)
}
