package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cairnrun/cairn/internal/mem"
)

// When the disk of the checkpoints is full, the journal keeps files in an
// overflow directory until the next checkpoint. So the program continues, and
// can still be resumed. The lines of the log need little room, which is
// reserved in advance.

// reserve is how many bytes are reserved for the log.
const reserve = 64 << 10

// overflowPlaces are the parents of overflow directories. The first one
// survives a reboot.
var overflowPlaces = func() []string { return []string{"/var/tmp", os.TempDir()} }

// overflowName returns the name of the overflow directory.
func (l *logFile) overflowName() string {
	d := mem.Digest([]byte(l.rankFile(keptName)))
	return fmt.Sprintf("cairn-kept-%d-%016x", os.Getuid(), d.Lo^d.Hi)
}

// findOverflow returns the path of a kept file in an overflow directory.
func (l *logFile) findOverflow(name string) (path string, ok bool) {
	for _, place := range overflowPlaces() {
		path := filepath.Join(place, l.overflowName(), name)
		if _, err := os.Lstat(path); err == nil && isOwnDir(filepath.Dir(path)) {
			return path, true
		}
	}
	return "", false
}

// overflowDir returns an overflow directory that only this user can write to.
func (l *logFile) overflowDir() (dir string, err error) {
	for _, place := range overflowPlaces() {
		dir = filepath.Join(place, l.overflowName())
		if err = os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
		if err == nil && isOwnDir(dir) {
			return dir, nil
		}
	}
	return "", errors.Join(err, fs.ErrPermission)
}

// removeOverflow removes the overflow directories.
func (l *logFile) removeOverflow() {
	for _, place := range overflowPlaces() {
		if dir := filepath.Join(place, l.overflowName()); isOwnDir(dir) {
			os.RemoveAll(dir)
		}
	}
}

// isOwnDir reports whether only this user can use a directory. It is false for
// a symbolic link.
func isOwnDir(dir string) bool {
	st, err := os.Lstat(dir)
	return err == nil && st.IsDir() && st.Mode().Perm()&0o077 == 0 && isMine(st)
}

// isFull reports whether an error says that a disk is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// checkSpace lets tests simulate a full disk of the checkpoints.
var checkSpace = func() error { return nil }

// withOverflow calls keep, and once more with an overflow directory if the disk
// of the checkpoints is full.
func (j *Journal) withOverflow(keep func() error) error {
	err := keep()
	if err == nil || !isFull(err) || j.overflow {
		return err
	}
	j.overflow = true
	for _, c := range j.contents {
		c.close() // the next range goes to the overflow directory
	}
	if err := keep(); err != nil {
		return err
	}
	if dir, err := j.log.overflowDir(); err == nil {
		j.Warn("%s is full: the old content of changed files is kept in %s until the next checkpoint", j.Dir, dir)
	}
	return nil
}

// RemoveOverflow removes what is kept in overflow directories: the run has
// finished.
func (j *Journal) RemoveOverflow() { j.log.removeOverflow() }
