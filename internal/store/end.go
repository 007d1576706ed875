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

// How a run in a checkpoint directory ended.
const (
	Finished  = "finished"  // its work is done
	Discarded = "discarded" // somebody wants to start over
)

// End says how the run in a checkpoint directory ended. It is durable before
// any checkpoint is removed, so that a crash while they are removed cannot be
// taken for a run that never saved anything. The file, DIR/end, is a record:
//
//	{"digest": "…", "format": 1, "state": "finished", "status": 0, "time": "…"}
type End struct {
	Format int       `json:"format"`
	State  string    `json:"state"`
	Status int       `json:"status"` // the program's exit status, where that is known
	Time   time.Time `json:"time"`
}

const endFormat = 1

func (d *Dir) endPath() string { return filepath.Join(d.path, "end") }

// SetEnd records how the run ended, durably. It needs the lock of rank 0.
func (d *Dir) SetEnd(state string, status int) error {
	e := End{Format: endFormat, State: state, Status: status, Time: time.Now().Round(0)}
	if err := WriteRecord(d.fs, d.endPath(), &e); err != nil {
		return fmt.Errorf("recording that the run is %s: %w", state, err)
	}
	return nil
}

// End returns how the run ended; nil if it has not. Damage wraps ErrDamaged:
// that the file is there still says that a run has ended.
func (d *Dir) End() (*End, error) {
	e := new(End)
	err := ReadRecord(d.fs, d.endPath(), e)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && (e.Format != endFormat || e.State != Finished && e.State != Discarded) {
		err = fmt.Errorf("%s: format %d, state %q; this program knows format %d: it is damaged, or was written by a newer Cairn", d.endPath(), e.Format, e.State, endFormat)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// RemoveEnd takes the record back, durably: another run begins.
func (d *Dir) RemoveEnd() error {
	if err := d.fs.Remove(d.endPath()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return d.fs.SyncDir(d.path)
}

// Clear removes, durably, the checkpoints of all ranks from a directory, the
// record of the recovery line, and what programs keep beside them of files
// that they change (the journal). It removes nothing else. Who calls it has
// recorded that before: see SetEnd.
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

// ofRun reports whether a name in a checkpoint directory belongs to a run's
// state.
func ofRun(name string) bool {
	_, isCheckpoint := ParseIndex(name)
	return isCheckpoint || name == "line" || strings.HasPrefix(name, "journal.") || strings.HasPrefix(name, "journal-")
}
