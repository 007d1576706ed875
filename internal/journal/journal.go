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

// step is for tests, which end there what a killed process would.
var step = func() {}

// Config says which program a journal is of.
type Config struct {
	Dir         string // the checkpoint directory
	Home        string // the directory that the program was started in
	Rank, Ranks int
	Host        string // of this rank, as all ranks call it

	// Fresh discards the journal of an earlier run.
	Fresh bool
	// Migrated says that the state comes from a process that is alive. The files
	// are as that process has left them, and nothing is undone.
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
	// incomplete says that a change could not be recorded: no existing checkpoint
	// can be restored. See giveUp.
	incomplete bool

	// What is recorded in this segment.
	names    map[string]string // names, and where what had them is kept
	created  map[string]bool   // files that were made in it: they need not be kept
	contents map[string]*content
	kept     uint64 // the number of the last kept file

	copies []entry // the lines by which epochs began: opCheckpoint
	oldest uint64  // epoch of the first line with a kept file
	// leftover are directories that were made after the restored checkpoint and
	// could not be removed. Making them again is no error.
	leftover map[string]bool
	restored *uint64 // the checkpoint at which files are; nil: not known yet

	overflowing bool // files are kept elsewhere: see overflow.go
	underway    int  // changes that are recorded, and perhaps not made yet

	touched map[string]bool // changed since the last copy of the state
	unsafe  map[string]bool // … before it, since the last committed checkpoint

	open      openFiles
	locks     locks
	suspended atomic.Bool // the run's files are being put back: see Suspend
}

// shared reports whether other ranks may change the same files.
func (j *Journal) shared() bool { return j.Ranks > 1 }

// entry is a line of the journal.
type entry struct {
	Op    string `json:"op"`
	Epoch uint64 `json:"epoch"`
	Path  string `json:"path,omitempty"` // without links; see rel
	Was   string `json:"was,omitempty"`  // name: file, dir, link or nothing
	To    string `json:"to,omitempty"`   // move, and what a link leads to
	Kept  string `json:"kept,omitempty"` // in the journal's directory
	Copy  bool   `json:"copy,omitempty"` // … and another file than the one that had the name
	Live  bool   `json:"live,omitempty"` // … is open, and may be changed by that
	Hash  string `json:"hash,omitempty"` // of what is kept, when it was
	Mode  uint32 `json:"mode,omitempty"`
	Time  int64  `json:"time,omitempty"` // of the last change, ns since 1970
	Size  int64  `json:"size,omitempty"`
	Off   int64  `json:"off,omitempty"` // data: where it was in the file
	At    int64  `json:"at,omitempty"`  // … and is in the kept one
	Set   uint64 `json:"set,omitempty"` // set: the newest that there was before
	Ino   uint64 `json:"ino,omitempty"` // of the file; first: of the checkpoint directory

	Home   uint64 `json:"home,omitempty"`   // first: inode of the directory that paths are relative to
	Gen    int    `json:"gen,omitempty"`    // first: see logFile
	Lost   bool   `json:"lost,omitempty"`   // first: what came before was not noted
	Append bool   `json:"append,omitempty"` // grow: by O_APPEND
	Start  int    `json:"start,omitempty"`  // several ranks: order, see shared.go
	Now    int64  `json:"now,omitempty"`

	offset int64 // in the journal
}

// What a line tells of.
const (
	opName  = "name"  // what had a name
	opSize  = "size"  // how long a file was
	opData  = "data"  // what a piece of a file was
	opMode  = "mode"  // a file's permissions
	opMove  = "move"  // a name that is changed into another
	opGrow  = "grow"  // several ranks: how long a file was that is about to grow
	opPut   = "put"   // … what a file is to hold when the line before is undone
	opSet   = "set"   // an epoch begins
	opFirst = "first" // the journal begins: older epochs are not here
)

// tidyLines is after how many lines the file is tidied, if there is nothing kept
// that could go.
const tidyLines = 10_000

// keptPath is where something is kept.
func (j *Journal) keptPath(name string) string { return j.log.keptPath(name) }

// Open brings all files back to what they were when the newest checkpoint was
// taken, or the program was started, and begins to record changes. It must come
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
	if err := j.bring(nil); err != nil {
		return nil, err
	}
	if err := j.sweep(); err != nil {
		return nil, err
	}
	// There must be room for lines when the disk is full: a program that changes
	// files before its first checkpoint could not be started again.
	if err := j.log.open(); isFull(err) {
		return nil, fmt.Errorf("%w; nothing was started: make room there, or choose another directory for checkpoints", err)
	}
	j.attach()
	return j, nil
}

// attach lets package os ask before an open file is changed.
func (j *Journal) attach() {
	hook = j.changing
	sharedFiles = j.shared()
}

// RestoreTo says which checkpoint is about to be restored. It is the newest one, and
// there is nothing to do; if that one is damaged, more has to be undone.
func (j *Journal) RestoreTo(set uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready || j.restored != nil && *j.restored == set {
		return nil
	}
	if j.openCount() > 0 {
		return errors.New("an older checkpoint than the newest is used, and the program has opened files before main: move the damaged checkpoint away and start the program again")
	}
	return j.bring(&set)
}

// bring brings files back to what they were when a checkpoint was taken; nil: the
// newest one that there is.
func (j *Journal) bring(set *uint64) error {
	if j.shared() {
		return j.bringTogether(set)
	}
	if set == nil {
		sets, err := j.sets()
		if err != nil {
			return err
		}
		n := uint64(0)
		if len(sets) > 0 {
			n = sets[0]
		}
		set = &n
	}
	log, err := j.readLog(j.Rank)
	if err != nil {
		return err
	}
	p, err := planUndo(*set, log)
	if err != nil {
		return err
	}
	if err := p.verify(); err != nil {
		return err
	}
	if err := p.run(j); err != nil {
		return err
	}
	return j.adopt(log, *set)
}

// adopt makes a journal that was undone this process's own.
func (j *Journal) adopt(log *logFile, set uint64) error {
	if j.log != nil {
		j.log.close()
	}
	j.log, j.restored = log, &set
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
	j.epoch = log.epochOf(set)
	if err := log.renumber(); err != nil {
		return err
	}
	log.forget()
	j.clear()
	return nil
}

// Restored says which checkpoint was restored, by its epoch, and whether there was
// a journal then.
//
// Where the state came from a process that was alive, files are as it left them:
// its epoch has begun, and nothing was changed since.
func (j *Journal) Restored(epoch uint64, recorded bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready {
		log, err := j.readLog(j.Rank)
		if err != nil {
			return err
		}
		if err := j.adopt(log, 0); err != nil {
			return err
		}
		j.ready, j.epoch = true, epoch
		j.attach()
	}
	switch {
	case recorded && j.log.count == 0:
		return &damagedError{j.log.path(), "it is gone"}
	case epoch < j.epoch || epoch > j.epoch && j.log.count > 0:
		return fmt.Errorf("files were brought back to epoch %d, but the checkpoint that is restored is of epoch %d: %s is not that of this run; start with --fresh, or move the checkpoint directory away", j.epoch, epoch, j.log.path())
	}
	j.epoch = epoch
	set := j.newest()
	if !slices.ContainsFunc(j.copies, func(e entry) bool { return e.Epoch == epoch }) && set > 0 {
		j.copies = append(j.copies, entry{Op: opSet, Epoch: epoch, Set: set - 1})
	}
	return nil
}

// newest returns the checkpoint that was restored; 0: there is none.
func (j *Journal) newest() uint64 {
	if j.restored != nil {
		return *j.restored
	}
	return 0
}

// epochOf returns the epoch that began with a checkpoint.
func epochOf(copies []entry, set uint64) uint64 {
	epoch := uint64(0)
	for _, e := range copies {
		if e.Set < set { // then none newer than e.Set was there
			epoch = e.Epoch
		}
	}
	return epoch
}

func (l *logFile) epochOf(set uint64) uint64 { return epochOf(l.copies(), set) }

// BeginEpoch says that the state is about to be copied: another epoch begins. No
// other checkpoint is being written.
func (j *Journal) BeginEpoch() (epoch uint64, recorded bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	sets, err := j.sets()
	if err != nil {
		return 0, false, err
	}
	e := entry{Op: opSet, Epoch: j.epoch + 1}
	if len(sets) > 0 {
		e.Set = sets[0]
	}
	switch {
	case j.incomplete: // the journal begins anew
		first := j.log.first(e.Epoch)
		first.Lost = true
		if err := j.log.rewrite([]entry{first, e}); err != nil {
			return 0, false, err
		}
		j.log.forget()
		os.Remove(j.log.beside(lostName))
		j.incomplete, j.copies, j.oldest = false, nil, noEpoch
		os.RemoveAll(j.log.beside(keptName))
		j.log.unspill()
	case j.log.count > 0: // else there is nothing to be undone, whatever checkpoint it is
		if err := j.log.add(e); err != nil {
			return 0, false, err
		}
	}
	j.epoch++
	j.overflowing = false
	j.copies = append(j.copies, e)
	j.clear()
	needed := j.epoch
	for _, n := range sets {
		needed = min(needed, epochOf(j.copies, n))
	}
	if len(sets) == 0 {
		needed = 0
	}
	if j.log.count == 0 {
		j.copies = slices.DeleteFunc(j.copies, func(e entry) bool { return e.Epoch < needed })
	}
	if needed > j.oldest || j.log.count > tidyLines && needed > j.copies[0].Epoch {
		if err := j.drop(needed); err != nil {
			j.Warn("%s: %v", j.log.path(), err) // it stays as it is
		}
	}
	j.log.open() // so that there is room for lines when the disk is full
	return j.epoch, j.log.count > 0, nil
}

// clear begins a part.
func (j *Journal) clear() {
	for _, c := range j.contents {
		c.close()
	}
	j.names, j.created, j.contents = make(map[string]string), make(map[string]bool), make(map[string]*content)
	j.rewatch()
}

// write adds a line.
func (j *Journal) write(e entry) error {
	j.touch(e.Path)
	if e.Op == opMove {
		j.touch(e.To)
	}
	if j.incomplete {
		return nil
	}
	var list []entry
	if j.log.count == 0 { // with epochs that were begun while there was nothing to tell
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
		return j.lose(err)
	}
	if e.Kept != "" {
		j.oldest = min(j.oldest, e.Epoch)
	}
	return nil
}

// lose says that something could not be kept because the disk of the checkpoints
// is full, or fails. That is no reason for the program's own change to fail, which
// is perhaps made elsewhere: but then no checkpoint that there is can be restored,
// until another one is taken. The journal gets another name, which no restart
// takes for one.
func (j *Journal) lose(why error) error {
	if j.incomplete {
		return nil
	}
	j.log.close()
	err := os.Rename(j.log.path(), j.log.beside(lostName))
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(j.log.beside(lostName), nil, 0o600)
	}
	if err != nil {
		// Nothing can be recorded, and a restart would take files for what they are
		// not. The program ends before it changes them, as if it were killed.
		j.Fatal("what files held can't be kept: %v; nor can that be recorded: %v. The program ends before it changes them, and can be resumed from its last checkpoint when %s is in order", why, err, j.Dir)
	}
	j.incomplete = true
	j.Warn("what files held could not be kept in %s: %v. The program continues, but can't be resumed from the checkpoints that it has, only from later ones", j.Dir, why)
	return nil
}

// noEpoch is later than all.
const noEpoch = 1<<64 - 1

// drop forgets epochs that no checkpoint needs any more.
func (j *Journal) drop(before uint64) error {
	log, err := j.readLog(j.Rank)
	if err != nil || len(log.lines) == 0 {
		return err
	}
	first := log.lines[0]
	first.Epoch = max(first.Epoch, before)
	lines := []entry{first}
	var gone []string
	for _, e := range log.lines[1:] {
		switch {
		case e.Epoch >= before:
			lines = append(lines, e)
		case e.Kept != "" && (len(gone) == 0 || gone[len(gone)-1] != e.Kept):
			gone = append(gone, e.Kept)
		}
	}
	base := j.log.base
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
	log.forget()
	for _, name := range gone {
		if err := os.Remove(j.keptPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sweep removes what is kept and no line tells of.
func (j *Journal) sweep() error {
	list, err := os.ReadDir(j.log.beside(keptName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, place := range spillPlaces() {
		if dir := filepath.Join(place, j.log.spillName()); ownDir(dir) {
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

// End ends the journal of a run that has finished. It is needed as long as there
// are checkpoints, and who removes these removes it, too.
func (j *Journal) End() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ready = false
}

// sets returns the checkpoints that this rank has, the newest first.
func (j *Journal) sets() ([]uint64, error) {
	return store.Open(vfs.OS(), j.Dir, j.Rank).Committed()
}
