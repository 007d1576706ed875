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
// it, the journal tells what to cut them back to when it is restored. It also
// knows which folders were made, and files removed or renamed, after a set: when
// the program comes to that again, it is done already.
//
// It is a file in the checkpoint folder, one line of JSON for each, written
// before the program can change anything.
var journal fileJournal

type fileJournal struct {
	ready bool // undo was called
	file  *os.File
	epoch uint64 // sets that were taken, or could have been
	seen  map[string]bool
	early []string // opened before undo was called
	lines int      // written since the file was last tidied
	// done is what was done after the set that was restored, and how often.
	done map[change]int
}

// change is something done to a folder.
type change struct {
	Op string `json:"op,omitempty"` // mkdir, remove, rename; empty: a file was opened
	To string `json:"to,omitempty"` // rename
	// Path is absolute.
	Path string `json:"path"`
}

// entry is a line of the journal.
type entry struct {
	Epoch uint64 `json:"epoch"` // how many sets had been taken
	change
	Size int64 `json:"size,omitempty"`
	New  bool  `json:"new,omitempty"` // it did not exist
	// Again says that the program has come to a change again that an earlier
	// line tells of, which this one replaces.
	Again bool `json:"again,omitempty"`
}

const (
	journalName = "opened.json"
	// keptEpochs is for how many sets back lines are kept. A restart takes one
	// of the newest few.
	keptEpochs = 100
	// tidyLines is after how many lines the file is tidied.
	tidyLines = 10_000
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
	path, err := filepath.Abs(name)
	if err != nil || j.seen[path] {
		return err
	}
	if !j.ready { // opened by an init function, on a restart: the set knows it
		j.early = append(j.early, path)
		return nil
	}
	e := entry{change: change{Path: path}, New: st == nil}
	if st != nil {
		e.Size = st.Size()
	}
	if err := j.write(e); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	if j.seen == nil {
		j.seen = make(map[string]bool)
	}
	j.seen[path] = true
	return nil
}

// write adds a line.
func (j *fileJournal) write(e entry) (err error) {
	if j.file == nil {
		if j.file, err = os.OpenFile(journalPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
	}
	e.Epoch = j.epoch
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	j.lines++
	return err
}

// changing does something that fails when it is done again. possible says that
// it has not been done yet; wrong is the error that says that it has.
func (j *fileJournal) changing(c change, possible bool, wrong error, do func() error) error {
	again := j.done[c] > 0
	if again {
		j.done[c]--
	}
	if j.ready && (possible || again) {
		if err := j.write(entry{change: c, Again: again}); err != nil {
			return &fs.PathError{Op: c.Op, Path: c.Path, Err: err}
		}
	}
	err := do()
	if again && errors.Is(err, wrong) {
		return nil
	}
	return err
}

// taken says that a set may be taken: what is opened from now on is noted again.
func (j *fileJournal) taken() uint64 {
	j.epoch++
	clear(j.seen)
	if j.lines > tidyLines {
		if err := j.tidy(func(e *entry) bool { return true }); err != nil {
			say("%s: %v", journalName, err) // it stays as it is
		}
	}
	return j.epoch
}

// undo brings files back to what they held when the set of that epoch was
// taken; 0: when the program was started.
func (j *fileJournal) undo(epoch uint64) error {
	j.ready, j.epoch = true, epoch
	j.done = make(map[change]int)
	all, err := j.read()
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(all) { // the oldest counts
		if e.Epoch < epoch {
			continue
		}
		if e.Op != "" {
			j.done[e.change]++
		} else if err := e.undo(slices.Contains(j.early, e.Path)); err != nil {
			return fmt.Errorf("a file that was opened after the set was taken: %w", err)
		}
	}
	return j.tidy(func(e *entry) bool {
		before := e.Epoch < epoch
		e.Epoch = min(e.Epoch, epoch) // the next sets are counted from here
		return before || e.Op != ""
	})
}

// read returns the lines.
func (j *fileJournal) read() (all []entry, err error) {
	text, err := os.ReadFile(journalPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		var e entry
		if json.Unmarshal(line, &e) != nil {
			break // being written when the process ended: nothing was done yet
		}
		if e.Again {
			e.Again = false
			if i := slices.IndexFunc(all, func(o entry) bool { return o.change == e.change }); i >= 0 {
				all = slices.Delete(all, i, i+1)
			}
		}
		all = append(all, e)
	}
	return all, err
}

// tidy drops lines that are not needed any more: old ones, and those of which
// keep reports false.
func (j *fileJournal) tidy(keep func(*entry) bool) error {
	all, err := j.read()
	if err != nil || len(all) == 0 {
		return err
	}
	var kept bytes.Buffer
	for _, e := range all {
		if e.Epoch+keptEpochs <= j.epoch || !keep(&e) {
			continue
		}
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		kept.Write(append(line, '\n'))
	}
	tmp := journalPath() + ".tmp"
	if err := os.WriteFile(tmp, kept.Bytes(), 0o600); err != nil {
		return err
	}
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
	j.lines = 0
	return os.Rename(tmp, journalPath())
}

// undo brings a file back to what it held. It stays if it is open.
func (e *entry) undo(open bool) error {
	st, err := os.Lstat(e.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return nil
	case e.New && !open:
		return os.Remove(e.Path)
	case st.Size() > e.Size:
		return os.Truncate(e.Path, e.Size)
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
