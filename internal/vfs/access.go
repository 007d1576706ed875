package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Files and directories of Cairn are for its user alone: directories have mode
// 0700, files 0600. In a directory that is open to its group and to nobody else
// (0750 or 0770), new directories get 0750 and new files 0640. Their group is
// that of the directory, as it has the set-group-ID bit. Locks and sockets are
// never open to the group: whoever can open a lock can hold it.

// Access says who else may use a directory.
type Access struct {
	Group    bool // its group may read it and what is created in it
	AnyOwner bool // it may belong to another user
}

// Environment variables that correspond to Access. The value 1 means true.
const (
	EnvGroup    = "CAIRN_GROUP"
	EnvAnyOwner = "CAIRN_ANY_OWNER"
)

// AccessFromEnv returns the Access that the environment asks for.
func AccessFromEnv() Access {
	on := func(name string) bool { v := os.Getenv(name); return v != "" && v != "0" }
	return Access{Group: on(EnvGroup), AnyOwner: on(EnvAnyOwner)}
}

// With returns a with these options added.
func (a Access) With(group, anyOwner bool) Access {
	return Access{Group: a.Group || group, AnyOwner: a.AnyOwner || anyOwner}
}

// ErrNotOurs means that a directory belongs to another user, or that all users
// may change it.
var ErrNotOurs = errors.New("not a directory of this user's alone")

// Trust checks that nobody but the current user can change the content of a
// directory. With a.Group it opens the directory to its group. It does so on
// the real file system only.
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
	if mode := st.Mode(); a.Group && (mode&0o057 != 0o050 || mode&fs.ModeSetgid == 0) {
		return os.Chmod(path, mode&^0o007|0o050|fs.ModeSetgid)
	}
	return nil
}

// MakeDir creates a directory for the current user, and its parents, if it does
// not exist, and checks it as Trust does. The path may contain symbolic links.
func MakeDir(path string, a Access) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return Trust(OS(), path, a)
}

// SubDir creates a directory in a trusted one. It does not follow a symbolic
// link.
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

// NoLinks refuses a path that leads through a symbolic link below root. name is
// relative to root and has slashes; it need not exist. It does so on the real
// file system only.
func NoLinks(fsys FS, root, name string) error {
	if _, ok := fsys.(osFS); !ok {
		return nil
	}
	at := root
	for part := range strings.SplitSeq(name, "/") {
		at = filepath.Join(at, part)
		if st, err := os.Lstat(at); err != nil {
			return nil // so no link; whoever uses the path gets the error
		} else if st.Mode()&fs.ModeSymlink != 0 {
			return NoLink(at)
		}
	}
	return nil
}

// OpenPrivate opens or creates a file in a trusted directory. It does not
// follow a symbolic link.
func OpenPrivate(name string, flag int) (*os.File, error) {
	perm := filePerm(name)
	f, err := os.OpenFile(name, flag|noFollow, perm)
	if isLink(err) {
		err = NoLink(name)
	}
	if err == nil && flag&os.O_CREATE != 0 && perm != 0o600 {
		f.Chmod(perm) // despite the umask; fails if the file belongs to another user
	}
	return f, err
}

// OpenLock is OpenPrivate for a lock file, which is never open to the group.
func OpenLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if isLink(err) {
		err = NoLink(name)
	}
	return f, err
}

// filePerm returns the mode of a new file.
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
