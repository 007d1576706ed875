package resume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// journal keeps what files held that the program writes to. A set knows about
// the files that were open when it was taken; of those that were opened after
// it, the journal tells what to cut them back to when it is restored.
//
// It is a file in the checkpoint folder, one line of JSON for each, written
// before the program can change anything.
var journal fileJournal

type fileJournal struct {
	ready bool // undo was called
	file  *os.File
	epoch uint64 // sets that were taken, or tried
	seen  map[string]bool
}

// opened is a line of the journal.
type opened struct {
	Epoch uint64 `json:"epoch"` // how many sets had been taken
	Path  string `json:"path"`
	Size  int64  `json:"size"`
	New   bool   `json:"new,omitempty"` // it did not exist
}

const (
	journalName = "opened.json"
	// keptEpochs is for how many sets back lines are kept. A restart takes one
	// of the newest few.
	keptEpochs = 100
)

func journalPath() string {
	name := journalName
	if together() { // the others have the same folder
		name = fmt.Sprintf("opened-%04d.json", run.Rank())
	}
	return filepath.Join(run.Dir(), name)
}

// begin undoes everything where there is no set.
func (j *fileJournal) begin() error {
	sets, err := filepath.Glob(filepath.Join(run.Dir(), "set-*"))
	if err != nil || len(sets) > 0 {
		return err
	}
	return j.undo(0)
}

// opening notes that a file is about to be opened for writing. st is nil if
// there is none.
func (j *fileJournal) opening(name string, st fs.FileInfo) error {
	if !j.ready { // opened by an init function, on a restart: the set knows it
		return nil
	}
	path, err := filepath.Abs(name)
	if err != nil || j.seen[path] {
		return err
	}
	if j.file == nil {
		if j.file, err = os.OpenFile(journalPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
	}
	o := opened{Epoch: j.epoch, Path: path, New: st == nil}
	if st != nil {
		o.Size = st.Size()
	}
	line, err := json.Marshal(o)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return err
	}
	if j.seen == nil {
		j.seen = make(map[string]bool)
	}
	j.seen[path] = true
	return nil
}

// taken says that a set is taken: what is opened from now on is noted again.
func (j *fileJournal) taken() uint64 {
	j.epoch++
	clear(j.seen)
	return j.epoch
}

// undo brings files back to what they held when the set of that epoch was
// taken; 0: when the program was started.
func (j *fileJournal) undo(epoch uint64) error {
	j.ready, j.epoch = true, epoch
	text, err := os.ReadFile(journalPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var keep bytes.Buffer
	var back []opened
	for line := range bytes.Lines(text) {
		var o opened
		if err := json.Unmarshal(line, &o); err != nil {
			break // being written when the process ended: nothing was opened
		}
		switch {
		case o.Epoch >= epoch:
			back = append(back, o)
		case o.Epoch+keptEpochs > epoch:
			keep.Write(line)
		}
	}
	slices.Reverse(back) // the oldest counts
	for _, o := range back {
		if err := o.undo(); err != nil {
			return fmt.Errorf("a file that was opened after the set was taken: %w", err)
		}
	}
	tmp := journalPath() + ".tmp"
	if err := os.WriteFile(tmp, keep.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, journalPath())
}

func (o *opened) undo() error {
	st, err := os.Lstat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return nil
	case o.New:
		return os.Remove(o.Path)
	case st.Size() > o.Size:
		return os.Truncate(o.Path, o.Size)
	}
	return nil
}

// end removes the journal of a run that is finished.
func (j *fileJournal) end() error {
	if j.file != nil {
		j.file.Close()
	}
	if err := os.Remove(journalPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
