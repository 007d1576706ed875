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
	"strconv"
	"sync"

	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/store"
)

// journal keeps what a program changes in files and folders, so that they can be
// brought back to what they were when a set was taken.
//
// It is a file in the checkpoint folder, with one line of JSON for each change,
// and a folder beside it, with what was overwritten or removed. Both are written
// before the program's change is made. A killed process loses nothing of that,
// since what it gave to the system is there. But for lines about files that are
// opened to be appended to, nothing is forced to the disk: if the system itself
// goes down, what was overwritten or removed may not be brought back.
//
// An epoch is the time from one set to the next, a part is a piece of an epoch in
// which no file had its name changed:
//
//	set 7                       set 8
//	 │ epoch 12                  │ epoch 13
//	 │ part 0     │ part 1       │ part 0
//	 │ name data  │ size         │ data data      ✗ kill
//	              └ a file was renamed
//
// In a part the first change of a name and of each block of a file counts: what
// was there before it was there when the part began. So a part is undone in any
// order that has names before contents, and as often as needed. Parts are undone
// from the last one, each is then cut off the journal.
var journal = new(fileJournal)

// step is for tests, which end there what a killed process would.
var step = func() {}

type fileJournal struct {
	mu    sync.Mutex
	ready bool   // there is a run
	dir   string // the checkpoint folder
	file  *os.File
	epoch uint64 // sets that were taken, or could have been
	part  int
	lines int // in the file

	names    map[string]string // noted in this part, and where what had them is kept
	modes    map[string]bool   // …
	fresh    map[string]bool   // files that were made in this part: they need not be kept
	contents map[string]*content
	kept     uint64 // files in the folder, ever

	copies []entry // epochs that were begun by a copy of the state: Op set
	oldest uint64  // epoch of the first line that has something kept
	// left are folders that were made after the set that was restored, and could
	// not be removed: making them again is no error.
	left map[string]bool
}

// entry is a line of the journal.
type entry struct {
	Op    string `json:"op"`
	Epoch uint64 `json:"epoch"`
	Part  int    `json:"part,omitempty"`
	Path  string `json:"path,omitempty"` // absolute, without links
	Was   string `json:"was,omitempty"`  // name: file, dir, link or nothing
	To    string `json:"to,omitempty"`   // move, and what a link leads to
	Kept  string `json:"kept,omitempty"` // in the journal's folder
	Copy  bool   `json:"copy,omitempty"` // … and another file than the one that had the name
	Mode  uint32 `json:"mode,omitempty"`
	Time  int64  `json:"time,omitempty"` // of the last change, ns since 1970
	Size  int64  `json:"size,omitempty"`
	Off   int64  `json:"off,omitempty"` // data: where it was in the file
	At    int64  `json:"at,omitempty"`  // … and is in the kept one
	Set   uint64 `json:"set,omitempty"` // set: the newest that there was before

	offset int64 // in the journal
}

// What a line tells of.
const (
	opName  = "name"  // what had a name
	opSize  = "size"  // how long a file was
	opData  = "data"  // what a piece of a file was
	opMode  = "mode"  // a file's permissions
	opMove  = "move"  // a name that is changed into another
	opSet   = "set"   // an epoch begins
	opFirst = "first" // older epochs are not here any more
)

// Both names begin as those of sets do, so that who discards the sets of a run
// discards them, too.
const (
	journalName = "set-files.json"
	keptName    = "set-files.kept"
	// tidyLines is after how many lines the file is tidied, if there is nothing
	// kept that could go.
	tidyLines = 10_000
)

// beside is a name in the checkpoint folder.
func (j *fileJournal) beside(name string) string {
	if together() { // the others have the same folder
		ext := filepath.Ext(name)
		name = fmt.Sprintf("%s-%04d%s", name[:len(name)-len(ext)], run.Rank(), ext)
	}
	return filepath.Join(j.dir, name)
}

func (j *fileJournal) path() string { return j.beside(journalName) }

// keptPath is where something is kept.
func (j *fileJournal) keptPath(name string) string { return filepath.Join(j.beside(keptName), name) }

// begin brings all files back to what they were when the set was taken that will
// be restored, or the program was started. It comes before anything is opened.
func (j *fileJournal) begin() (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dir, err = filepath.Abs(run.Dir()); err != nil {
		return err
	}
	if run.Arriving() { // another process has the files, and is alive: see restored
		return nil
	}
	j.ready = true
	j.clear()
	if run.Fresh() { // an earlier run was discarded
		if err := j.remove(); err != nil {
			return err
		}
	}
	all, err := j.read()
	if err != nil {
		return err
	}
	set, err := j.newest()
	if err != nil {
		return err
	}
	if _, err := j.undo(all, j.epochOf(set)); err != nil {
		return err
	}
	if err := j.sweep(); err != nil {
		return err
	}
	hook = changing
	return nil
}

// restored says which set was restored, by its epoch. It is the newest one, and
// there is nothing to do; if that one is damaged, more has to be undone. Files
// that were open are open by now, perhaps under a name that another file had: so
// the process can't go on then.
//
// Where the state came from a process that was alive, files are as it left them:
// its epoch has begun, and nothing was changed since.
func (j *fileJournal) restored(epoch uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready {
		if _, err := j.read(); err != nil {
			return err
		}
		j.ready, j.epoch, j.part = true, epoch, 0
		j.clear()
		hook = changing
	}
	if epoch >= j.epoch { // nothing was written down since, if it is newer
		if epoch > j.epoch && j.lines > 0 {
			return fmt.Errorf("files were brought back to what they were %d sets before the one that is restored: %s is not that of this run; start with --fresh, or move the checkpoint folder away", epoch-j.epoch, j.path())
		}
		j.epoch = epoch
		set, err := j.newest()
		if err == nil && !slices.ContainsFunc(j.copies, func(e entry) bool { return e.Epoch == epoch }) && set > 0 {
			j.copies = append(j.copies, entry{Op: opSet, Epoch: epoch, Set: set - 1})
		}
		return err
	}
	all, err := j.read()
	if err != nil {
		return err
	}
	undone, err := j.undo(all, epoch)
	if err == nil && undone {
		err = errors.New("an older set than the newest is used, and files were brought back to what they were then: start the program again")
	}
	return err
}

// newest returns the newest set that can be restored; 0: there is none.
func (j *fileJournal) newest() (uint64, error) {
	if !together() {
		sets, err := j.sets()
		if len(sets) == 0 {
			return 0, err
		}
		return sets[0], err
	}
	all, err := store.Members(vfs.OS(), j.dir)
	n := uint64(0)
	for set, ranks := range all {
		if len(ranks) == run.Ranks() {
			n = max(n, set)
		}
	}
	return n, err
}

// epochOf returns the epoch that began with a set.
func (j *fileJournal) epochOf(set uint64) uint64 {
	epoch := uint64(0)
	for _, e := range j.copies {
		if e.Set < set { // then none newer than e.Set was there
			epoch = e.Epoch
		}
	}
	return epoch
}

// taken says that the state is about to be copied: another epoch begins. No
// other set is being written.
func (j *fileJournal) taken() (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	sets, err := j.sets()
	if err != nil {
		return 0, err
	}
	j.epoch++
	j.part = 0
	e := entry{Op: opSet, Epoch: j.epoch}
	if len(sets) > 0 {
		e.Set = sets[0]
	}
	if j.lines > 0 { // else there is nothing to be undone, whatever set it is
		if err := j.write(e); err != nil {
			return 0, err
		}
	}
	j.copies = append(j.copies, e)
	j.clear()
	needed := j.epoch
	for _, n := range sets {
		needed = min(needed, j.epochOf(n))
	}
	if len(sets) == 0 {
		needed = 0
	}
	if j.lines == 0 {
		j.copies = slices.DeleteFunc(j.copies, func(e entry) bool { return e.Epoch < needed })
	}
	if needed > j.oldest || j.lines > tidyLines && needed > j.copies[0].Epoch {
		if err := j.drop(needed); err != nil {
			say("%s: %v", j.path(), err) // it stays as it is
		}
	}
	return j.epoch, nil
}

// clear begins a part.
func (j *fileJournal) clear() {
	for _, c := range j.contents {
		c.close()
	}
	j.names, j.modes, j.fresh, j.contents = make(map[string]string), make(map[string]bool), make(map[string]bool), make(map[string]*content)
	j.rewatch()
}

// write adds a line.
func (j *fileJournal) write(e entry) (err error) {
	if j.file == nil {
		if j.file, err = os.OpenFile(j.path(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			return err
		}
	}
	var text []byte
	if j.lines == 0 && e.Op != opSet { // epochs that were begun while there was nothing to tell
		for _, s := range j.copies {
			line, err := json.Marshal(s)
			if err != nil {
				return err
			}
			text = append(append(text, line...), '\n')
			j.lines++
		}
	}
	if e.Op != opSet {
		e.Epoch, e.Part = j.epoch, j.part
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	step()
	defer step()
	// In one piece: a journal without its first lines would tell something else.
	if _, err = j.file.Write(append(append(text, line...), '\n')); err == nil {
		j.lines++
		if e.Kept != "" {
			j.oldest = min(j.oldest, e.Epoch)
		}
	}
	return err
}

// read returns the lines, and takes note of what they say about epochs.
func (j *fileJournal) read() (all []entry, err error) {
	text, err := os.ReadFile(j.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	j.copies, j.oldest, j.lines = nil, noEpoch, 0
	at := int64(0)
	for line := range bytes.Lines(text) {
		var e entry
		if json.Unmarshal(line, &e) != nil || !bytes.HasSuffix(line, []byte("\n")) {
			break // being written when the process ended: nothing was done yet
		}
		e.offset = at
		at += int64(len(line))
		switch e.Op {
		case opSet:
			j.copies = append(j.copies, e)
		case opName, opSize, opData, opMode, opMove, opFirst:
		default:
			return nil, fmt.Errorf("%s was written by another version of Cairn: %q is unknown; start with --fresh, or move the checkpoint folder away", j.path(), e.Op)
		}
		if e.Kept != "" {
			j.oldest = min(j.oldest, e.Epoch)
			if n, err := strconv.ParseUint(e.Kept, 10, 64); err == nil {
				j.kept = max(j.kept, n)
			}
		}
		all = append(all, e)
		j.lines++
	}
	if at < int64(len(text)) {
		err = os.Truncate(j.path(), at)
	} else {
		err = nil
	}
	return all, err
}

// noEpoch is later than all.
const noEpoch = 1<<64 - 1

// cut drops the last lines, from one on.
func (j *fileJournal) cut(all []entry, from int) error {
	if from == len(all) {
		return nil
	}
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
	j.lines = from
	step()
	return os.Truncate(j.path(), all[from].offset)
}

// drop forgets epochs that no set needs any more.
func (j *fileJournal) drop(before uint64) error {
	all, err := j.read()
	if err != nil || len(all) == 0 {
		return err
	}
	lines := []entry{{Op: opFirst, Epoch: before}}
	var gone []string
	for _, e := range all {
		switch {
		case e.Op == opFirst:
		case e.Epoch >= before:
			lines = append(lines, e)
		case e.Kept != "" && (len(gone) == 0 || gone[len(gone)-1] != e.Kept):
			gone = append(gone, e.Kept)
		}
	}
	var text []byte
	for _, e := range lines {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	tmp := j.path() + ".tmp"
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
	step()
	if err := os.Rename(tmp, j.path()); err != nil {
		return err
	}
	step()
	if _, err := j.read(); err != nil {
		return err
	}
	for _, name := range gone {
		if err := os.Remove(j.keptPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sweep removes what is kept and no line tells of.
func (j *fileJournal) sweep() error {
	list, err := os.ReadDir(j.beside(keptName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	all, err := j.read()
	if err != nil {
		return err
	}
	used := make(map[string]bool)
	for _, e := range all {
		used[e.Kept] = true
	}
	for _, f := range list {
		if !used[f.Name()] {
			err = errors.Join(err, os.Remove(j.keptPath(f.Name())))
		}
	}
	return err
}

// end ends the journal of a run that has finished. It is needed as long as there
// are checkpoints, and who removes these removes it, too.
func (j *fileJournal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ready = false
}

// sets returns the sets that this rank has, the newest first.
func (j *fileJournal) sets() ([]uint64, error) {
	return store.Open(vfs.OS(), j.dir, run.Rank()).Sets()
}

func (j *fileJournal) remove() error {
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
	j.copies, j.oldest, j.lines = nil, noEpoch, 0
	if err := os.Remove(j.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(j.beside(keptName))
}
