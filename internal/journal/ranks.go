package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	_ "unsafe" // go:linkname

	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Several ranks may change one file. Each rank has its own journal, with
// exactly the bytes that it has overwritten. The lines of all ranks are ordered
// by the start of the run (its number) and then by the host's clock. On a
// restart, one process of each host undoes what all ranks of that host did
// after the recovery line, from the last line to the first. What a rank did
// before its own checkpoint stays:
//
//	rank 0   ─┬─ append 10 ──────────────────── copy ── append 10 ✗
//	rank 1   ─┴──────────── copy ── append 10 ────────────────────✗
//	                                    │
//	                                    └ is removed from the middle
//
// A rank locks a file while it records and makes a change, so the recorded size
// is right. Two things cannot be restored: the order in which ranks that do not
// wait for each other change the same bytes, and what a rank has read from a
// file that another rank has changed.

//go:linkname nanotime runtime.nanotime
func nanotime() int64

// locks are the file locks of this process.
type locks struct {
	sync.Mutex
	files map[uint64]*fileLock
	lock  *os.File // the lock file; nil: none
	tried bool
}

type fileLock struct {
	sync.Mutex
	users int
}

// allNames is the key of the lock for changes of names.
const allNames = 0

// lockFile locks a file, by its inode, against other goroutines and other
// ranks. The caller must not hold the journal's lock.
func (j *Journal) lockFile(file uint64) (release func()) {
	if !j.shared() {
		return func() {}
	}
	j.locks.Lock()
	if !j.locks.tried {
		j.locks.tried = true
		j.locks.lock, _ = os.OpenFile(filepath.Join(j.Dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	}
	if j.locks.files == nil {
		j.locks.files = make(map[uint64]*fileLock)
	}
	l := j.locks.files[file]
	if l == nil {
		l = new(fileLock)
		j.locks.files[file] = l
	}
	l.users++
	j.locks.Unlock()
	l.Lock()
	at := int64(0)
	if file != allNames {
		h := fnv.New64a()
		fmt.Fprint(h, file)
		at = 1 + int64(h.Sum64()>>2)
	}
	lockRange(j.locks.lock, at, true)
	return func() {
		lockRange(j.locks.lock, at, false)
		l.Unlock()
		j.locks.Lock()
		defer j.locks.Unlock()
		if l.users--; l.users == 0 {
			delete(j.locks.files, file)
		}
	}
}

// lockName takes the lock for changes of names, and that of the file that has a
// name.
func (j *Journal) lockName(path string) (release func()) {
	if !j.shared() {
		return func() {}
	}
	names := j.lockFile(allNames)
	st, err := os.Stat(path)
	if err != nil || inode(st) == allNames {
		return names
	}
	file := j.lockFile(inode(st))
	return func() {
		file()
		names()
	}
}

// beforeSharedChange records a change of an open file that other ranks may
// change, too. Call the result when the change is made.
func (j *Journal) beforeSharedChange(w *openFile, op byte, off, n int64) (func(), error) {
	if op == 's' || op == 'r' || off < 0 { // package os calls Write for all that ReadFrom reads
		return nil, nil
	}
	st, err := w.f.Stat()
	if err != nil {
		return nil, nil // the change will fail
	}
	release := j.lockFile(inode(st))
	if err := j.recordShared(w, op, off, n); err != nil {
		release()
		return nil, &fs.PathError{Op: "write", Path: w.f.Name(), Err: err}
	}
	return release, nil
}

func (j *Journal) recordShared(w *openFile, op byte, off, n int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	st, err := w.f.Stat()
	if err != nil || !j.ready {
		return nil
	}
	size := st.Size()
	adds := op == 'w' && w.flag&os.O_APPEND != 0
	switch {
	case adds:
		off = size
	case op == 'w':
		if off, err = w.f.Seek(0, io.SeekCurrent); err != nil {
			return nil
		}
	}
	key := contentKey(w.path, st)
	c := j.contents[key]
	if c == nil {
		c = &content{ino: inode(st), end: -1}
	}
	c.base = size
	end := off + n
	if op == 't' {
		end = off
	}
	grows := end > size && (c.end != size || c.append != adds)
	cuts := op == 't' && off < size
	if !grows && !cuts && (end > size && off >= size || len(c.gaps(off, min(end, size))) == 0) {
		c.end = max(c.end, end) // nothing new to record
		if end > size {
			c.add(span{off, end})
		}
		return nil
	}
	if !j.findName(w) {
		return nil // it has no name any more, and will not be restored
	}
	c.path = w.path
	j.contents[key] = c
	var from *os.File
	if w.flag&os.O_RDWR != 0 {
		from = w.f
	}
	if cuts {
		if err := j.recordSize(c); err != nil {
			return err
		}
		return j.recordData(c, from, off, size)
	}
	if err := j.recordData(c, from, off, end); err != nil {
		return err
	}
	if grows {
		if err := j.write(entry{Op: opGrow, Path: c.path, Ino: c.ino, Off: size, At: off, Append: adds}); err != nil {
			return err
		}
		c.append = adds
	}
	if end > size {
		c.end = end
		if op != 't' {
			c.add(span{off, end})
		}
	}
	return nil
}

// findName finds the current name of an open file, which other ranks may have
// changed. It reports whether the file has a name.
func (j *Journal) findName(w *openFile) bool {
	if w.is(w.path) {
		return true
	}
	if name := w.systemName(); name != "" && w.is(name) {
		w.path = name
		return true
	}
	kept, _ := filepath.Glob(filepath.Join(vfs.QuoteGlob(j.Dir), strings.TrimSuffix(keptName, ".kept")+"-*.kept", "*"))
	return slices.ContainsFunc(kept, w.is)
}

// systemName returns the name of an open file that the operating system knows.
func (w *openFile) systemName() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.f.Fd()))
	return name
}

// laterChanges returns the ranges of a file that later lines have changed, if
// these lines are not undone, and the offset at which the next change of its
// size began; -1: there is none.
func (p *undoPlan) laterChanges(i int) (stay []span, next int64) {
	next = -1
	for k := i + 1; k < len(p.all); k++ {
		e := &p.all[k]
		if e.Ino != p.all[i].Ino {
			continue
		}
		if next < 0 && e.Op == opGrow {
			next = e.Off
		}
		if next < 0 && e.Op == opSize {
			next = e.Size
		}
		if e.undo {
			continue
		}
		switch e.Op {
		case opData:
			stay = append(stay, span{e.Off, e.Off + e.Size})
		case opGrow:
			_, end := p.laterChanges(k)
			if end < 0 {
				end = noSize
			}
			stay = append(stay, span{e.Off, max(end, e.Off)})
		}
	}
	return stay, next
}

// writtenByOthers reports whether another rank has written a file before its
// checkpoint. The file must not be removed then.
func (p *undoPlan) writtenByOthers(i int, ino uint64) bool {
	for k := i + 1; k < len(p.all); k++ {
		if e := &p.all[k]; e.Ino == ino && ino != 0 && !e.undo && (e.Op == opGrow || e.Op == opData) {
			return true
		}
	}
	return false
}

// shrink undoes the growth of a file. Bytes that other ranks have added after
// it stay. If they were appended, they move towards the beginning; otherwise
// they keep their position.
func (p *undoPlan) shrink(i int) error {
	e := &p.all[i]
	path := p.file(i)
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	size := st.Size()
	stay, end := p.laterChanges(i)
	if end < 0 || end > size {
		end = size
	}
	if end <= e.Off || size <= e.Off { // killed before the write
		return nil
	}
	if len(stay) == 0 {
		return os.Truncate(path, e.Off)
	}
	if e.Append {
		return p.removeMiddle(e, path, end, size)
	}
	last := e.Off
	for _, s := range stay {
		last = max(last, min(s.hi, size))
	}
	c := content{}
	for _, s := range stay {
		c.add(s)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for _, g := range c.gaps(max(e.Off, e.At), min(end, last)) {
		if _, err = io.CopyN(io.NewOffsetWriter(f, g.lo), zeros{}, g.hi-g.lo); err != nil {
			break
		}
	}
	if err == nil && end == size {
		err = f.Truncate(last)
	}
	return errors.Join(err, f.Close())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// removeMiddle removes a range from the middle of a file. First it keeps the
// bytes after the range, and adds a line that says where they belong. So the
// removal can be repeated after a kill.
func (p *undoPlan) removeMiddle(e *record, path string, end, size int64) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	kept := e.log.rankFile(keptName)
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return err
	}
	name := fmt.Sprint(1<<62 + e.index)
	var h hasher
	f, err := os.OpenFile(filepath.Join(kept, name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(f, &h), io.NewSectionReader(from, end, size-end))
	if err == nil {
		err = syncKept(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	put := e.entry
	put.Op, put.Kept, put.At, put.Size, put.Hash = opPut, name, 0, size-end, h.String()
	if err := p.cut(e.log, e.index+1); err != nil { // the lines that are undone already
		return err
	}
	if err := e.log.add(put); err != nil {
		return err
	}
	step()
	todo := record{entry: put, log: e.log}
	if err := todo.writeBack(path); err != nil {
		return err
	}
	step()
	return os.Truncate(path, put.Off+put.Size)
}

// report is what a rank tells the others about its journal.
type report struct {
	Host        string
	Checkpoints []uint64
	Start       int
	Error       string
}

// exchange sends a report to the other ranks and returns the reports of all. An
// error of another rank is an error.
func (j *Journal) exchange(mine report) ([]report, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := j.Gather(text)
	if err != nil {
		return nil, err
	}
	out := make([]report, len(all))
	for r, text := range all {
		if err := json.Unmarshal(text, &out[r]); err != nil {
			return nil, fmt.Errorf("cannot read the report of rank %d about its files: %w", r, err)
		}
	}
	for r, t := range out {
		if t.Error != "" && r != j.Rank {
			return out, fmt.Errorf("rank %d: %s", r, t.Error)
		}
	}
	return out, nil
}

// agree tells the other ranks whether this rank has failed. It returns an error
// if any rank has.
func (j *Journal) agree(err error) error {
	mine := report{}
	if err != nil {
		mine.Error = err.Error()
	}
	_, others := j.exchange(mine)
	if err == nil {
		err = others
	}
	return err
}

// undoShared is undoTo for several ranks.
func (j *Journal) undoShared(index *uint64) error {
	mine := report{Host: j.Host}
	own, err := j.readLog(j.Rank)
	if err == nil {
		for _, e := range own.lines {
			mine.Start = max(mine.Start, e.Start)
		}
		mine.Checkpoints, err = j.checkpoints()
	}
	if err != nil {
		mine.Error = err.Error()
	}
	all, others := j.exchange(mine)
	if err = errors.Join(err, others); err != nil {
		return err
	}
	lists := make([][]uint64, len(all))
	leader := j.Rank
	begun := 0
	for r, t := range all {
		lists[r], begun = t.Checkpoints, max(begun, t.Start)
		if t.Host == mine.Host {
			leader = min(leader, r)
		}
	}
	if index == nil {
		line, _ := coord.Line(lists)
		index = &line
	}
	var p *undoPlan
	if leader == j.Rank {
		var logs []*logFile
		for r, t := range all {
			if t.Host != mine.Host {
				continue
			}
			log := own
			if r != j.Rank {
				if log, err = j.readLog(r); err != nil {
					break
				}
			}
			logs = append(logs, log)
		}
		if err == nil {
			p, err = planUndo(*index, logs...)
		}
		if err == nil {
			err = p.verify()
		}
	}
	if err := j.agree(err); err != nil { // no rank changes anything before all have verified
		return err
	}
	if p != nil {
		err = p.run(j)
		for _, l := range p.logs {
			l.close()
		}
	}
	if err := j.agree(err); err != nil {
		return err
	}
	if own, err = j.readLog(j.Rank); err != nil {
		return err
	}
	if err := j.use(own, *index); err != nil {
		return err
	}
	j.start = begun + 1
	return nil
}

// skipExchanges takes part in the exchanges of Open. The process takes over
// from another one that has undone everything already.
func (j *Journal) skipExchanges() error {
	if !j.shared() {
		return nil
	}
	for range 3 {
		if _, err := j.Gather(nil); err != nil {
			return err
		}
	}
	return nil
}
