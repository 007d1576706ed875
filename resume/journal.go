package resume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// journal keeps what a program changes in files and folders, so that they can be
// brought back to what they were when a set was taken.
//
// It is a file in the checkpoint directory, with one line of JSON for each change
// (see journalFile), and a directory beside it, with what was overwritten or
// removed. Both are written before the program's change is made. A killed process
// loses nothing of that, since what it gave to the system is there.
//
// An epoch is the time from one checkpoint to the next, a part is a piece of an
// epoch in which no file had its name changed:
//
//	set 7                       set 8
//	 │ epoch 12                  │ epoch 13
//	 │ part 0     │ part 1       │ part 0
//	 │ name data  │ size         │ data data      ✗ kill
//	              └ a file was renamed
//
// In a part only the first change of a name and of each block of a file is noted:
// what was there before it was there when the part began. Lines are undone from
// the last one to the first; each is cut off the journal when it is undone, and
// each can be undone twice, so that undoing can be killed and repeated.
//
// Several ranks may change one file: see shared.go.
var journal = new(fileJournal)

// step is for tests, which end there what a killed process would.
var step = func() {}

type fileJournal struct {
	mu    sync.Mutex
	ready bool   // there is a run
	dir   string // the checkpoint directory
	log   *journalFile
	epoch uint64 // checkpoints that were taken, or could have been
	// start is how often the run was started, if it has several ranks.
	start int
	// lost says that a change could not be noted, and no checkpoint that there is
	// can be restored; see lose.
	lost bool

	names    map[string]string // noted in this part, and where what had them is kept
	fresh    map[string]bool   // files that were made in this part: they need not be kept
	contents map[string]*content
	kept     uint64 // files in the directory, ever

	copies []entry // epochs that were begun by a copy of the state: Op set
	oldest uint64  // epoch of the first line that has something kept
	// left are directories that were made after the checkpoint that was restored,
	// and could not be removed: making them again is no error.
	leftover map[string]bool
	back     *uint64 // the checkpoint that files were brought back to

	spilling bool // things are kept elsewhere: see spill.go
	underway int  // changes of files that are noted, and perhaps not made yet

	touched map[string]bool // changed since the last copy of the state
	unsafe  map[string]bool // … before it, since the last checkpoint that is safe
}

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
	Gen    int    `json:"gen,omitempty"`    // first: see journalFile
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
func (j *fileJournal) keptPath(name string) string { return j.log.keptPath(name) }

// begin brings all files back to what they were when the checkpoint was taken that
// will be restored, or the program was started. It comes before anything is opened.
func (j *fileJournal) begin() (err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.dir, err = filepath.Abs(run.Dir()); err != nil {
		return err
	}
	if run.Arriving() { // another process has the files, and is alive: see restored
		return j.attend()
	}
	j.ready = true
	if run.Fresh() { // an earlier run was discarded
		log := &journalFile{dir: j.dir, rank: run.Rank(), ranks: run.Ranks()}
		if err := log.remove(); err != nil {
			return err
		}
	}
	if err := j.bring(nil); err != nil {
		return err
	}
	if err := j.sweep(); err != nil {
		return err
	}
	// There must be room for lines when the disk is full: a program that changes
	// files before its first checkpoint could not be started again.
	if err := j.log.open(); isFull(err) {
		return fmt.Errorf("%w; nothing was started: make room there, or choose another directory for checkpoints", err)
	}
	j.attach()
	return nil
}

// attach lets package os ask before an open file is changed.
func (j *fileJournal) attach() {
	hook = changing
	shared = together()
}

// choose says which checkpoint is about to be restored. It is the newest one, and
// there is nothing to do; if that one is damaged, more has to be undone.
func (j *fileJournal) choose(set uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready || j.back != nil && *j.back == set {
		return nil
	}
	if opened() > 0 {
		return errors.New("an older checkpoint than the newest is used, and the program has opened files before main: move the damaged checkpoint away and start the program again")
	}
	return j.bring(&set)
}

// bring brings files back to what they were when a checkpoint was taken; nil: the
// newest one that there is.
func (j *fileJournal) bring(set *uint64) error {
	if together() {
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
	log, err := readJournal(j.dir, run.Rank(), run.Ranks())
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
func (j *fileJournal) adopt(log *journalFile, set uint64) error {
	if j.log != nil {
		j.log.close()
	}
	j.log, j.back = log, &set
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

// restored says which checkpoint was restored, by its epoch, and whether there was
// a journal then.
//
// Where the state came from a process that was alive, files are as it left them:
// its epoch has begun, and nothing was changed since.
func (j *fileJournal) restored(epoch uint64, noted bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready {
		log, err := readJournal(j.dir, run.Rank(), run.Ranks())
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
	case noted && j.log.count == 0:
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
func (j *fileJournal) newest() uint64 {
	if j.back != nil {
		return *j.back
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

func (l *journalFile) epochOf(set uint64) uint64 { return epochOf(l.copies(), set) }

// taken says that the state is about to be copied: another epoch begins. No
// other checkpoint is being written.
func (j *fileJournal) taken() (epoch uint64, noted bool, err error) {
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
	case j.lost: // the journal begins anew
		first := j.log.first(e.Epoch)
		first.Lost = true
		if err := j.log.rewrite([]entry{first, e}); err != nil {
			return 0, false, err
		}
		j.log.forget()
		os.Remove(j.log.beside(lostName))
		j.lost, j.copies, j.oldest = false, nil, noEpoch
		os.RemoveAll(j.log.beside(keptName))
		j.log.unspill()
	case j.log.count > 0: // else there is nothing to be undone, whatever checkpoint it is
		if err := j.log.add(e); err != nil {
			return 0, false, err
		}
	}
	j.epoch++
	j.spilling = false
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
			say("%s: %v", j.log.path(), err) // it stays as it is
		}
	}
	j.log.open() // so that there is room for lines when the disk is full
	return j.epoch, j.log.count > 0, nil
}

// clear begins a part.
func (j *fileJournal) clear() {
	for _, c := range j.contents {
		c.close()
	}
	j.names, j.fresh, j.contents = make(map[string]string), make(map[string]bool), make(map[string]*content)
	j.rewatch()
}

// write adds a line.
func (j *fileJournal) write(e entry) error {
	j.touch(e.Path)
	if e.Op == opMove {
		j.touch(e.To)
	}
	if j.lost {
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
	if together() {
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
func (j *fileJournal) lose(why error) error {
	if j.lost {
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
		fatal("what files held can't be kept: %v; nor can that be recorded: %v. The program ends before it changes them, and can be resumed from its last checkpoint when %s is in order", why, err, j.dir)
	}
	j.lost = true
	say("what files held could not be kept in %s: %v. The program continues, but can't be resumed from the checkpoints that it has, only from later ones", j.dir, why)
	return nil
}

// noEpoch is later than all.
const noEpoch = 1<<64 - 1

// drop forgets epochs that no checkpoint needs any more.
func (j *fileJournal) drop(before uint64) error {
	log, err := readJournal(j.dir, run.Rank(), run.Ranks())
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
func (j *fileJournal) sweep() error {
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
	log, err := readJournal(j.dir, run.Rank(), run.Ranks())
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

// end ends the journal of a run that has finished. It is needed as long as there
// are checkpoints, and who removes these removes it, too.
func (j *fileJournal) end() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ready = false
}

// sets returns the checkpoints that this rank has, the newest first.
func (j *fileJournal) sets() ([]uint64, error) {
	return store.Open(vfs.OS(), j.dir, run.Rank()).Committed()
}
