package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/vfs"
)

// These are the ways in which a run in a checkpoint directory can end.
const (
	Finished  = "finished"  // its work is done
	Discarded = "discarded" // a new run starts in its place
)

// End says how the run in a checkpoint directory ended. It is durable before
// any checkpoint is removed. Otherwise, after a crash during the removal, it
// would seem that the run had never saved anything. The file, DIR/end, is a
// record (here on one line):
//
//	{"digest": "…", "format": 1, "state": "finished", "status": 0, "time": "…"}
type End struct {
	Format int       `json:"format"`
	State  string    `json:"state"`
	Status int       `json:"status"` // the program's exit status, if known
	Time   time.Time `json:"time"`
}

const endFormat = 1

func (d *Dir) endPath() string { return filepath.Join(d.path, "end") }

// SetEnd records, durably, how the run ended. It needs the lock of rank 0.
func (d *Dir) SetEnd(state string, status int) error {
	e := End{Format: endFormat, State: state, Status: status, Time: time.Now().Round(0)}
	if err := WriteRecord(d.fs, d.endPath(), &e); err != nil {
		return fmt.Errorf("recording that the run is %s: %w", state, err)
	}
	return nil
}

// End returns how the run ended, or nil if it has not. If the record is
// damaged, the error wraps ErrDamaged; that the record exists still shows that
// the run has ended.
func (d *Dir) End() (*End, error) {
	e := new(End)
	err := ReadRecord(d.fs, d.endPath(), e)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (e.Format != endFormat || e.State != Finished && e.State != Discarded) {
		err = fmt.Errorf("%s is damaged, or was written by a newer Cairn: it has format %d, state %q; this program knows format %d", d.endPath(), e.Format, e.State, endFormat)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// RemoveEnd removes the record, durably: another run begins.
func (d *Dir) RemoveEnd() error { return d.remove(d.endPath()) }

// remove removes a file of the directory, if it exists, durably.
func (d *Dir) remove(path string) error {
	if err := d.fs.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return d.fs.SyncDir(d.path)
}

// Clear removes, durably, the checkpoints of all ranks, the record of the
// recovery line, and the journal of changed files. It removes nothing else. The
// caller must have recorded before, for example with SetEnd, that this state is
// not needed any more.
func Clear(fsys vfs.FS, path string) error {
	entries, err := fsys.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ofRun(e.Name()) {
			if err := vfs.RemoveAll(fsys, filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return fsys.SyncDir(path)
}

// Holds reports whether a directory has anything that Clear would remove.
func Holds(fsys vfs.FS, path string) (bool, error) {
	entries, err := fsys.ReadDir(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	for _, e := range entries {
		if ofRun(e.Name()) {
			return true, nil
		}
	}
	return false, nil
}

// ofRun reports whether a name in a checkpoint directory belongs to the state
// of a run.
func ofRun(name string) bool {
	_, isCheckpoint := ParseIndex(name)
	return isCheckpoint || name == "line" || strings.HasPrefix(name, "line-") || strings.HasPrefix(name, "journal.") || strings.HasPrefix(name, "journal-")
}
