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
	"strings"
	"sync"
	_ "unsafe" // go:linkname

	"github.com/cairnrun/cairn/internal/coord"
)

// Several ranks may change one file. Each has a journal of its own, with the
// exact bytes that it has overwritten, and lines of all ranks have an order: by
// the start of the run, and then by the clock of the host. On a restart one
// process of each host undoes what all ranks of that host have done after the
// recovery line, from the last line of all to the first; what other ranks did
// before their part of the line stays:
//
//	rank 0   ─┬─ append 10 ──────────────────── copy ── append 10 ✗
//	rank 1   ─┴──────────── copy ── append 10 ────────────────────✗
//	                                    │
//	                                    └ is cut out of the middle
//
// A rank that changes a file holds a lock on it while it notes and makes the
// change, so that the size that it has noted is right. What is not known is the
// order of changes of one place by ranks that do not wait for each other, and what
// a rank has learned from a file that another rank changed.

//go:linkname nanotime runtime.nanotime
func nanotime() int64

// locks are those of this process.
type locks struct {
	sync.Mutex
	files map[uint64]*fileLock
	lock  *os.File // nil: not opened yet, or there is none
	tried bool
}

type fileLock struct {
	sync.Mutex
	users int
}

// allNames is the lock for changes of names.
const allNames = 0

// hold takes the lock of a file, by its inode, against other goroutines and other
// ranks. The journal's lock is not held.
func (j *Journal) hold(file uint64) (release func()) {
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

// holdName takes the locks for a change of names, and of the file that has one.
func (j *Journal) holdName(path string) (release func()) {
	if !j.shared() {
		return func() {}
	}
	names := j.hold(allNames)
	st, err := os.Stat(path)
	if err != nil || inode(st) == allNames {
		return names
	}
	file := j.hold(inode(st))
	return func() {
		file()
		names()
	}
}

// changeShared notes a change of an open file that other ranks may change, too.
func (j *Journal) changeShared(w *watch, op byte, off, n int64) (func(), error) {
	if op == 's' || op == 'r' || off < 0 { // r: all of it comes by Write
		return nil, nil
	}
	st, err := w.f.Stat()
	if err != nil {
		return nil, nil // it will fail
	}
	release := j.hold(inode(st))
	if err := j.noteShared(w, op, off, n); err != nil {
		release()
		return nil, &fs.PathError{Op: "write", Path: w.f.Name(), Err: err}
	}
	return release, nil
}

func (j *Journal) noteShared(w *watch, op byte, off, n int64) error {
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
		c.end = max(c.end, end) // nothing to tell
		if end > size {
			c.add(span{off, end})
		}
		return nil
	}
	if !j.named(w) {
		return nil // it has no name any more, and needs nothing
	}
	c.path = w.path
	j.contents[key] = c
	var from *os.File
	if w.flag&os.O_RDWR != 0 {
		from = w.f
	}
	if cuts {
		if err := j.size(c); err != nil {
			return err
		}
		return j.save(c, from, off, size)
	}
	if err := j.save(c, from, off, end); err != nil {
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

// named finds the name that an open file has now, which other ranks may have
// changed. It reports whether there is one.
func (j *Journal) named(w *watch) bool {
	if w.is(w.path) {
		return true
	}
	if name := w.nameNow(); name != "" && w.is(name) {
		w.path = name
		return true
	}
	kept, _ := filepath.Glob(filepath.Join(j.Dir, strings.TrimSuffix(keptName, ".kept")+"-*.kept", "*"))
	for _, name := range kept {
		if w.is(name) {
			return true // its line is found by the inode
		}
	}
	return false
}

// nameNow is the name that the system tells of an open file.
func (w *watch) nameNow() string {
	if runtime.GOOS != "linux" {
		return ""
	}
	name, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", w.f.Fd()))
	return name
}

// later returns the places of a file that lines after one tell of, which are not
// undone, and where the next change of its size began; -1: there is none.
func (p *undoing) later(i int) (stay []span, next int64) {
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
			_, end := p.later(k)
			if end < 0 {
				end = noSize
			}
			stay = append(stay, span{e.Off, max(end, e.Off)})
		}
	}
	return stay, next
}

// needed reports whether a file that is about to be removed is one that another
// rank has written before its part of the recovery line.
func (p *undoing) needed(i int, ino uint64) bool {
	for k := i + 1; k < len(p.all); k++ {
		if e := &p.all[k]; e.Ino == ino && ino != 0 && !e.undo && (e.Op == opGrow || e.Op == opData) {
			return true
		}
	}
	return false
}

// shrink undoes the growth of a file. What other ranks have added behind it, and
// is to stay, moves up if it was appended, and else stays where it is.
func (p *undoing) shrink(i int) error {
	e := &p.all[i]
	path := p.find(i)
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	size := st.Size()
	stay, end := p.later(i)
	if end < 0 || end > size {
		end = size
	}
	if end <= e.Off || size <= e.Off { // it was killed before it wrote
		return nil
	}
	if len(stay) == 0 {
		return os.Truncate(path, e.Off)
	}
	if e.Append {
		return p.takeOut(e, path, end, size)
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

// takeOut removes a piece from the middle of a file. What comes behind it is kept
// first, with a line that says where it belongs: if that is there, it can be done
// again.
func (p *undoing) takeOut(e *noted, path string, end, size int64) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	kept := e.log.beside(keptName)
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
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	put := e.entry
	put.Op, put.Kept, put.At, put.Size, put.Hash = opPut, name, 0, size-end, h.String()
	if err := e.log.cut(e.index + 1); err != nil { // what is undone already
		return err
	}
	if err := e.log.add(put); err != nil {
		return err
	}
	step()
	todo := noted{entry: put, log: e.log}
	if err := todo.refill(path); err != nil {
		return err
	}
	step()
	return os.Truncate(path, put.Off+put.Size)
}

// told is what ranks tell each other about their journals.
type told struct {
	Host  string
	Sets  []uint64
	Start int
	Error string
}

// ask tells the other ranks something, and returns what all of them tell.
func (j *Journal) ask(mine told) ([]told, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := j.Gather(text)
	if err != nil {
		return nil, err
	}
	out := make([]told, len(all))
	for r, text := range all {
		if err := json.Unmarshal(text, &out[r]); err != nil {
			return nil, fmt.Errorf("what rank %d says about its files: %w", r, err)
		}
	}
	for r, t := range out {
		if t.Error != "" && r != j.Rank {
			return out, fmt.Errorf("rank %d: %s", r, t.Error)
		}
	}
	return out, nil
}

// asked is ask with an error of this rank. All ranks end with an error if one has.
func (j *Journal) asked(err error) error {
	mine := told{}
	if err != nil {
		mine.Error = err.Error()
	}
	_, others := j.ask(mine)
	if err == nil {
		err = others
	}
	return err
}

// bringTogether is bring for several ranks.
func (j *Journal) bringTogether(set *uint64) error {
	mine := told{Host: j.Host}
	own, err := j.readLog(j.Rank)
	if err == nil {
		for _, e := range own.lines {
			mine.Start = max(mine.Start, e.Start)
		}
		mine.Sets, err = j.sets()
	}
	if err != nil {
		mine.Error = err.Error()
	}
	all, others := j.ask(mine)
	if err = errors.Join(err, others); err != nil {
		return err
	}
	lists := make([][]uint64, len(all))
	leader := j.Rank
	begun := 0
	for r, t := range all {
		lists[r], begun = t.Sets, max(begun, t.Start)
		if t.Host == mine.Host {
			leader = min(leader, r)
		}
	}
	if set == nil {
		line, _ := coord.Line(lists)
		set = &line
	}
	var p *undoing
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
			p, err = planUndo(*set, logs...)
		}
		if err == nil {
			err = p.verify()
		}
	}
	if err := j.asked(err); err != nil { // nobody changes anything before all have looked
		return err
	}
	if p != nil {
		err = p.run(j)
		for _, l := range p.logs {
			l.close()
		}
	}
	if err := j.asked(err); err != nil {
		return err
	}
	if own, err = j.readLog(j.Rank); err != nil {
		return err
	}
	if err := j.adopt(own, *set); err != nil {
		return err
	}
	j.start = begun + 1
	return nil
}

// skipExchanges is for a process that takes the place of another one: it gets again what
// that one was told by begin, and needs nothing of it.
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
