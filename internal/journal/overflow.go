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

// When the disk of the checkpoints is full, what files held is kept elsewhere
// until the next checkpoint: the program continues, and can still be resumed. The
// lines of the journal need little room, which is taken before it is needed.

// reserve is how many bytes the journal has on the disk before it needs them.
const reserve = 64 << 10

// spillPlaces are where things are kept then; the first survives a restart of the
// machine.
var spillPlaces = func() []string { return []string{"/var/tmp", os.TempDir()} }

// spillName is the directory's name in one of these places.
func (l *logFile) spillName() string {
	d := mem.Digest([]byte(l.beside(keptName)))
	return fmt.Sprintf("cairn-kept-%d-%016x", os.Getuid(), d.Lo^d.Hi)
}

// spilled finds something that is kept elsewhere.
func (l *logFile) spilled(name string) (path string, ok bool) {
	for _, place := range spillPlaces() {
		path := filepath.Join(place, l.spillName(), name)
		if _, err := os.Lstat(path); err == nil && ownDir(filepath.Dir(path)) {
			return path, true
		}
	}
	return "", false
}

// spill returns a directory elsewhere that only this user can write to.
func (l *logFile) spill() (dir string, err error) {
	for _, place := range spillPlaces() {
		dir = filepath.Join(place, l.spillName())
		if err = os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
			err = nil
		}
		if err == nil && ownDir(dir) {
			return dir, nil
		}
	}
	return "", errors.Join(err, fs.ErrPermission)
}

// unspill removes what is kept elsewhere.
func (l *logFile) unspill() {
	for _, place := range spillPlaces() {
		if dir := filepath.Join(place, l.spillName()); ownDir(dir) {
			os.RemoveAll(dir)
		}
	}
}

// ownDir reports whether a directory is this user's alone, and no link.
func ownDir(dir string) bool {
	st, err := os.Lstat(dir)
	return err == nil && st.IsDir() && st.Mode().Perm()&0o077 == 0 && isMine(st)
}

// isFull reports whether an error says that a disk is full.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// room is for tests, in which the disk of the checkpoints is full now and then.
var room = func() error { return nil }

// elsewhere does something that keeps what a file holds, and once more with room
// elsewhere if the disk of the checkpoints is full.
func (j *Journal) elsewhere(keep func() error) error {
	err := keep()
	if err == nil || !isFull(err) || j.overflowing {
		return err
	}
	j.overflowing = true
	for _, c := range j.contents {
		c.close() // the next piece goes elsewhere
	}
	if err := keep(); err != nil {
		return err
	}
	if dir, err := j.log.spill(); err == nil {
		j.Warn("%s is full: what files held is kept in %s until there is a checkpoint", j.Dir, dir)
	}
	return nil
}

// RemoveOverflow removes what is kept elsewhere. A run that has finished does not
// need it.
func (j *Journal) RemoveOverflow() { j.log.unspill() }
