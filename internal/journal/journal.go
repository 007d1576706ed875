package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// step ends the process in tests, as a kill would.
var step = func() {}

// Config says which program a journal belongs to.
type Config struct {
	Dir         string // the checkpoint directory
	Home        string // the directory that the program was started in
	Rank, Ranks int
	Host        string // of this rank, as all ranks call it

	// Fresh discards the journal of an earlier run.
	Fresh bool
	// Migrated says that the state comes from a process that is alive. The
	// files are as that process has left them, and nothing is undone.
	Migrated bool

	// Gather gives text to the other ranks and returns the texts of all ranks.
	Gather func(text []byte) ([][]byte, error)
	// Warn tells the user something. Fatal does so and ends the program.
	Warn, Fatal func(format string, args ...any)
}

// Journal is the journal of this process. Its methods may be called by several
// goroutines. A nil *Journal records nothing.
type Journal struct {
	Config
	mu    sync.Mutex
	ready bool // changes are recorded
	log   *logFile
	epoch uint64 // checkpoints that were taken, or could have been
	// start is how often the run was started, if it has several ranks.
	start int
	// incomplete says that a change could not be recorded: no existing
	// checkpoint can be restored. See giveUp.
	incomplete bool

	// What is recorded in this segment.
	names    map[string]string // names, and where what had them is kept
	created  map[string]bool   // files that were made in it: they need not be kept
	contents map[string]*content
	kept     uint64 // the number of the last kept file

	copies []entry // the lines by which epochs began: opCheckpoint
	oldest uint64  // epoch of the first line with a kept file
	// leftover are directories that were made after the restored checkpoint and
	// could not be removed. When the program makes them again, that is no
	// error.
	leftover map[string]bool
	undoneTo *uint64 // the checkpoint at which files are; nil: not known yet
	// After a move, other hosts have checkpoints; sinceMove is how many were
	// committed here.
	elsewhere  bool
	sinceMove  int
	newestHere uint64

	overflow bool // files are kept elsewhere: see overflow.go
	underway int  // changes that are recorded, and perhaps not made yet

	changedNow  map[string]bool // changed since the last copy of the state
	uncommitted map[string]bool // … before it, since the last committed checkpoint

	open      openFiles
	locks     locks
	suspended atomic.Bool // the run's files are being put back: see Suspend
}

// shared reports whether other ranks may change the same files.
func (j *Journal) shared() bool { return j.Ranks > 1 }

// entry is a line of the log. Paths have no symbolic links and may be relative:
// see rel.
type entry struct {
	Op         string `json:"op"`
	Epoch      uint64 `json:"epoch"`
	Path       string `json:"path,omitempty"`
	Was        string `json:"was,omitempty"`  // name: "file", "dir", "link", or "" for nothing
	To         string `json:"to,omitempty"`   // move: the new name; name: where a link leads
	Kept       string `json:"kept,omitempty"` // the name of the kept file
	Copy       bool   `json:"copy,omitempty"` // it is a copy, not a hard link
	Live       bool   `json:"live,omitempty"` // it is a link to a file that is still in use, and may change
	Hash       string `json:"hash,omitempty"` // digest of the kept bytes
	Mode       uint32 `json:"mode,omitempty"`
	Time       int64  `json:"time,omitempty"` // of the last modification, in ns since 1970
	Size       int64  `json:"size,omitempty"`
	Off        int64  `json:"off,omitempty"`  // data: the position in the file
	At         int64  `json:"at,omitempty"`   // data: the position in the kept file
	Checkpoint uint64 `json:"ckpt,omitempty"` // ckpt: the newest one before it
	Ino        uint64 `json:"ino,omitempty"`  // of the file; first: of the checkpoint directory

	Adopted    uint64 `json:"adopted,omitempty"`    // first: inode of the checkpoint directory to which Adopt has brought it
	Home       uint64 `json:"home,omitempty"`       // first: inode of the directory to which paths are relative
	Gen        int    `json:"gen,omitempty"`        // first: how often the log was rewritten
	Incomplete bool   `json:"incomplete,omitempty"` // first: earlier changes were not recorded
	Append     bool   `json:"append,omitempty"`     // grow: by O_APPEND
	Start      int    `json:"start,omitempty"`      // several ranks: the order of their lines, see ranks.go
	Now        int64  `json:"now,omitempty"`

	offset int64 // in the log
}

// What a line records.
const (
	opName       = "name"  // what had a name before it changes
	opSize       = "size"  // the length of a file
	opData       = "data"  // the bytes of a range of a file
	opMode       = "mode"  // the permissions of a file
	opMove       = "move"  // a rename
	opGrow       = "grow"  // several ranks: the length of a file that is about to grow
	opPut        = "put"   // several ranks: bytes to write when the line before is undone
	opCheckpoint = "ckpt"  // an epoch begins
	opFirst      = "first" // the log begins; older epochs are not in it
)

// maxOldLines bounds the log: a log with more lines is rewritten without those
// that no checkpoint needs, even if none of them has a kept file.
const maxOldLines = 10_000

func (j *Journal) keptPath(name string) string { return j.log.keptPath(name) }

// Open undoes all changes since the newest checkpoint, or since the start of
// the program if there is no checkpoint, and begins to record changes. Call it
// before the program opens files. All ranks call it.
func Open(c Config) (*Journal, error) {
	j := &Journal{Config: c}
	if j.Migrated {
		return j, j.skipExchanges()
	}
	j.ready = true
	if j.Fresh {
		log := &logFile{dir: j.Dir, rank: j.Rank, ranks: j.Ranks}
		if err := log.remove(); err != nil {
			return nil, err
		}
	}
	if err := j.undoTo(nil); err != nil {
		return nil, err
	}
	if err := j.removeUnused(); err != nil {
		return nil, err
	}
	// Reserve room for lines, in case the disk fills up. Without it, a program
	// that changes files before its first checkpoint could not be started
	// again.
	if err := j.log.open(); isFull(err) {
		return nil, fmt.Errorf("cannot create the journal of file changes: %w; make room there, or choose another directory for checkpoints", err)
	}
	j.attach()
	return j, nil
}

// attach lets package os report writes to open files.
func (j *Journal) attach() {
	hook = j.beforeWrite
	sharedFiles = j.shared()
}

// RestoreTo tells the journal which checkpoint is about to be restored. If it
// is older than the newest, which is damaged, RestoreTo undoes more changes.
func (j *Journal) RestoreTo(index uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready || j.undoneTo != nil && *j.undoneTo == index {
		return nil
	}
	if j.openCount() > 0 {
		return errors.New("cannot restore an older checkpoint than the newest: the program has opened files before main; move the damaged checkpoint away and start the program again")
	}
	return j.undoTo(&index)
}

// undoTo undoes all changes since a checkpoint; nil: the newest one.
func (j *Journal) undoTo(index *uint64) error {
	if j.shared() {
		return j.undoShared(index)
	}
	if index == nil {
		indices, err := j.checkpoints()
		if err != nil {
			return err
		}
		n := uint64(0)
		if len(indices) > 0 {
			n = indices[0]
		}
		index = &n
	}
	log, err := j.readLog(j.Rank)
	if err != nil {
		return err
	}
	p, err := planUndo(*index, log)
	if err != nil {
		return err
	}
	if err := p.verify(); err != nil {
		return err
	}
	if err := p.run(j); err != nil {
		return err
	}
	return j.use(log, *index)
}

// use makes log the log of the journal. Its lines were undone down to a
// checkpoint.
func (j *Journal) use(log *logFile, index uint64) error {
	if j.log != nil {
		j.log.close()
	}
	j.log, j.undoneTo = log, &index
	j.copies, j.oldest = log.copies(), noEpoch
	for _, e := range log.lines {
		if e.Kept != "" {
			j.oldest = min(j.oldest, e.Epoch)
			if n, err := strconv.ParseUint(e.Kept, 10, 64); err == nil {
				j.kept = max(j.kept, n)
			}
		}
		j.start = max(j.start, e.Start)
	}
	j.epoch = log.epochOf(index)
	if err := log.renumber(); err != nil {
		return err
	}
	log.dropLines()
	j.beginSegment()
	return nil
}

// Restored tells the journal which checkpoint was restored: its epoch, and
// whether the log had lines then. BeginEpoch has returned both.
//
// If the state came from a process that was alive, the files are as that
// process left them at the beginning of the epoch.
func (j *Journal) Restored(epoch uint64, recorded bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready {
		log, err := j.readLog(j.Rank)
		if err != nil {
			return err
		}
		if err := j.use(log, 0); err != nil {
			return err
		}
		j.ready, j.epoch = true, epoch
		j.attach()
	}
	switch {
	case recorded && j.log.count == 0:
		return &damagedError{j.log.path(), "it is gone"}
	case epoch < j.epoch || epoch > j.epoch && j.log.count > 0:
		return fmt.Errorf("%s does not belong to this run: it restored files to epoch %d, and the checkpoint is of epoch %d; start with --fresh, or move the checkpoint directory away", j.log.path(), j.epoch, epoch)
	}
	j.epoch = epoch
	index := j.undoneCheckpoint()
	if !slices.ContainsFunc(j.copies, func(e entry) bool { return e.Epoch == epoch }) && index > 0 {
		j.copies = append(j.copies, entry{Op: opCheckpoint, Epoch: epoch, Checkpoint: index - 1})
	}
	return nil
}

// undoneCheckpoint returns the checkpoint that was restored; 0: none.
func (j *Journal) undoneCheckpoint() uint64 {
	if j.undoneTo != nil {
		return *j.undoneTo
	}
	return 0
}

// epochOf returns the epoch that began with a checkpoint.
func epochOf(copies []entry, index uint64) uint64 {
	epoch := uint64(0)
	for _, e := range copies {
		if e.Checkpoint < index { // e began the epoch of a later checkpoint
			epoch = e.Epoch
		}
	}
	return epoch
}

func (l *logFile) epochOf(index uint64) uint64 { return epochOf(l.copies(), index) }

// BeginEpoch begins an epoch. Call it when the state is about to be copied and
// no other checkpoint is being written. newest is the newest committed
// checkpoint of the run; 0: none. After a move it may be on another host. Save
// the results with the state, for Restored.
func (j *Journal) BeginEpoch(newest uint64) (epoch uint64, recorded bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	indices, err := j.checkpoints()
	if err != nil {
		return 0, false, err
	}
	e := entry{Op: opCheckpoint, Epoch: j.epoch + 1, Checkpoint: j.newestOf(indices, newest)}
	switch {
	case j.incomplete: // start the log again
		if err := j.log.addNames(j.namesLost(), nil); err != nil {
			return 0, false, err
		}
		first := j.log.first(e.Epoch)
		first.Incomplete = true
		if err := j.log.rewrite([]entry{first, e}); err != nil {
			return 0, false, err
		}
		j.log.dropLines()
		os.Remove(j.log.rankFile(incompleteName))
		j.incomplete, j.copies, j.oldest = false, nil, noEpoch
		os.RemoveAll(j.log.rankFile(keptName))
		j.log.removeOverflow()
	case j.log.count > 0: // otherwise there is nothing to undo
		if err := j.log.add(e); err != nil {
			return 0, false, err
		}
	}
	j.epoch++
	j.overflow = false
	j.copies = append(j.copies, e)
	j.beginSegment()
	needed := j.firstNeeded(indices)
	if j.log.count == 0 {
		j.copies = slices.DeleteFunc(j.copies, func(e entry) bool { return e.Epoch < needed })
	}
	if needed > j.oldest || j.log.count > maxOldLines && needed > j.copies[0].Epoch {
		if err := j.dropBefore(needed); err != nil {
			j.Warn("cannot shorten the journal %s: %v", j.log.path(), err) // the log keeps its old lines
		}
	}
	j.log.open() // reserves room for lines, in case the disk fills up
	return j.epoch, j.log.count > 0, nil
}

// newestOf returns the newest checkpoint, of those in this directory and the
// one that the run knows. If the latter is the newest, the rank was moved: its
// checkpoints are on another host.
func (j *Journal) newestOf(indices []uint64, known uint64) uint64 {
	here := uint64(0)
	if len(indices) > 0 {
		here = indices[0]
	}
	switch {
	case known > here:
		j.elsewhere, j.sinceMove = true, 0
	case here > j.newestHere:
		j.sinceMove++
	}
	j.newestHere = here
	return max(here, known)
}

// enoughHere is how many checkpoints must have been committed since a move,
// before those on other hosts are not needed any more. A run keeps fewer by
// default.
const enoughHere = 4

// firstNeeded returns the first epoch whose lines a restart may need.
func (j *Journal) firstNeeded(indices []uint64) uint64 {
	if len(indices) == 0 || j.elsewhere && j.sinceMove < enoughHere {
		return 0
	}
	j.elsewhere = false
	needed := j.epoch
	for _, n := range indices {
		needed = min(needed, epochOf(j.copies, n))
	}
	return needed
}

// beginSegment begins a segment: everything is recorded again.
func (j *Journal) beginSegment() {
	for _, c := range j.contents {
		c.close()
	}
	j.names, j.created, j.contents = make(map[string]string), make(map[string]bool), make(map[string]*content)
	j.resetOpen()
}

// write adds a line to the log.
func (j *Journal) write(e entry) error {
	j.markChanged(e.Path)
	if e.Op == opMove {
		j.markChanged(e.To)
	}
	if j.incomplete {
		return nil
	}
	var list []entry
	if j.log.count == 0 { // with the epochs that began without a log
		list = append(append(list, j.log.first(0)), j.copies...)
	}
	e.Epoch = j.epoch
	e.Path = j.log.rel(e.Path)
	if e.Op == opMove {
		e.To = j.log.rel(e.To)
	}
	if j.shared() {
		e.Start, e.Now = j.start, nanotime()
	}
	if err := j.log.add(append(list, e)...); err != nil {
		return j.giveUp(err)
	}
	if e.Kept != "" {
		j.oldest = min(j.oldest, e.Epoch)
	}
	return nil
}

// giveUp is called when old content could not be kept, because the disk of the
// checkpoints is full or fails. The program's own change may be on another
// disk, and must not fail for that reason. But then no existing checkpoint can
// be restored. So giveUp renames the log, until the next checkpoint is taken.
func (j *Journal) giveUp(why error) error {
	if j.incomplete {
		return nil
	}
	j.log.close()
	err := os.Rename(j.log.path(), j.log.rankFile(incompleteName))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(j.log.rankFile(incompleteName), nil, 0o600)
	}
	if err != nil {
		// A restart would not know that files changed. End the program before
		// it changes them, as if it were killed.
		j.Fatal("cannot keep the old content of a file that is about to change: %v; and cannot record that: %v. The program ends before the change. It can be resumed from its last checkpoint when %s works again", why, err, j.Dir)
	}
	j.incomplete = true
	j.Warn("cannot keep the old content of a changed file in %s: %v. The program continues, but its existing checkpoints cannot be restored any more, only later ones", j.Dir, why)
	return nil
}

// noEpoch is later than all epochs.
const noEpoch = 1<<64 - 1

// dropBefore removes lines and kept files of epochs that no checkpoint needs.
func (j *Journal) dropBefore(before uint64) error {
	log, err := j.readLog(j.Rank)
	if err != nil || len(log.lines) == 0 {
		return err
	}
	first := log.lines[0]
	first.Epoch = max(first.Epoch, before)
	lines := []entry{first}
	var gone []string
	var dropped []entry
	for _, e := range log.lines[1:] {
		if e.Epoch < before {
			dropped = append(dropped, e)
		}
		switch {
		case e.Epoch >= before:
			lines = append(lines, e)
		case e.Kept != "" && (len(gone) == 0 || gone[len(gone)-1] != e.Kept):
			gone = append(gone, e.Kept)
		}
	}
	base := j.log.base
	names := make(map[named]bool)
	log.namesOf(dropped, names)
	if err := log.addNames(names, lines); err != nil {
		return err
	}
	if err := log.rewrite(lines); err != nil {
		return err
	}
	j.log.close()
	j.log = log
	j.log.base = base
	j.copies, j.oldest = log.copies(), noEpoch
	for _, e := range lines {
		if e.Kept != "" {
			j.oldest = min(j.oldest, e.Epoch)
		}
	}
	log.dropLines()
	for _, name := range gone {
		if err := os.Remove(j.keptPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeUnused removes kept files that no line names.
func (j *Journal) removeUnused() error {
	list, err := os.ReadDir(j.log.rankFile(keptName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, place := range overflowPlaces() {
		if dir := filepath.Join(place, j.log.overflowName()); isOwnDir(dir) {
			more, _ := os.ReadDir(dir)
			list = append(list, more...)
		}
	}
	if len(list) == 0 {
		return nil
	}
	log, err := j.readLog(j.Rank)
	if err != nil {
		return err
	}
	used := make(map[string]bool)
	for _, e := range log.lines {
		used[e.Kept] = true
	}
	for _, f := range list {
		if !used[f.Name()] {
			err = errors.Join(err, os.Remove(j.keptPath(f.Name())))
		}
	}
	return err
}

// End stops the recording: the run has finished. The files of the journal stay
// until the checkpoints are removed, and are removed with them.
func (j *Journal) End() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ready = false
}

// checkpoints returns the indices of the checkpoints of this rank, the newest
// first.
func (j *Journal) checkpoints() ([]uint64, error) {
	return store.Open(vfs.OS(), j.Dir, j.Rank).Committed()
}
