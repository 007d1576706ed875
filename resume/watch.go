package resume

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	_ "unsafe" // go:linkname
)

// hook is called by package os before a file is changed, in programs that cairn
// build has made: it puts the calls into that package. Elsewhere nobody calls it,
// and what is overwritten in an open file is not kept.
//
// op is w for Write, n bytes at the position; a for WriteAt, n bytes at off; r for
// ReadFrom, to the end; t for Truncate to off; s for Seek to off from n; m for
// Chmod to n. What is returned is called when the file has been changed, if it is
// not nil.
//
//go:linkname hook os.cairn_hook
var hook func(f *os.File, op byte, off, n int64) (func(), error)

// shared says that other ranks may change the same files: package os then writes
// by Write what it would have the system copy.
//
//go:linkname shared os.cairn_shared
var shared bool

// watch is an open file.
type watch struct {
	f     *os.File
	path  string // what it is in the journal
	name  string // the name it was opened by, absolute
	flag  int
	alone bool // the journal need not know what it holds
	// tail says that it is written behind what it held when the part began.
	tail atomic.Bool
	// sure says that path was looked at in this part.
	sure bool
}

// watched are the program's open files. The lock is taken after the journal's.
var watched struct {
	sync.RWMutex
	files map[*os.File]*watch
	prune int // closed ones are looked for when there are so many
}

// suspended is set while the run's files are put back.
var suspended atomic.Bool

// follow watches a file that was opened.
func (j *fileJournal) follow(f *os.File, name, path string, flag int) {
	watched.Lock()
	defer watched.Unlock()
	if watched.files == nil {
		watched.files = make(map[*os.File]*watch)
	}
	if len(watched.files) >= max(watched.prune, 64) {
		prune()
	}
	watched.files[f] = &watch{f: f, name: name, path: path, flag: flag}
}

// prune forgets files that are closed.
func prune() {
	for f := range watched.files {
		if _, err := f.Stat(); errors.Is(err, os.ErrClosed) {
			delete(watched.files, f)
		}
	}
	watched.prune = 2 * len(watched.files)
}

// rewatch begins a part.
func (j *fileJournal) rewatch() {
	watched.Lock()
	defer watched.Unlock()
	for _, w := range watched.files {
		w.tail.Store(false)
		w.sure = false
	}
}

// renamed says that a file or folder has another name.
func (j *fileJournal) renamed(from, to string) {
	watched.Lock()
	defer watched.Unlock()
	for _, w := range watched.files {
		if rest, ok := cutFolder(w.path, from); ok {
			w.path = to + rest
		}
	}
}

// cutFolder is what comes after a folder's name in a path.
func cutFolder(path, dir string) (string, bool) {
	rest, ok := strings.CutPrefix(path, dir)
	return rest, ok && (rest == "" || rest[0] == os.PathSeparator)
}

// unnamed says that a file, or all in a folder, may have lost its name. The
// journal has it under another one, if it is to be brought back.
func (j *fileJournal) unnamed(path string) {
	watched.Lock()
	defer watched.Unlock()
	for _, w := range watched.files {
		if _, ok := cutFolder(w.path, path); !ok || w.is(w.path) {
			continue
		}
		kept := j.names[w.path]
		if w.alone = kept == "" || !w.is(j.keptPath(kept)); !w.alone {
			w.path = j.keptPath(kept)
		}
	}
}

// is reports whether a name leads to the file.
func (w *watch) is(name string) bool {
	st, err := w.f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(name)
	return err == nil && os.SameFile(st, there)
}

// handle is an open file in a set.
type handle struct {
	File *os.File
	Name string
	Flag int
}

// handles are the open files.
func (j *fileJournal) handles() []handle {
	watched.Lock()
	defer watched.Unlock()
	prune()
	var out []handle
	for f, w := range watched.files {
		out = append(out, handle{f, w.name, w.flag})
	}
	slices.SortFunc(out, func(a, b handle) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// rehandle watches the open files of a set that was restored.
func (j *fileJournal) rehandle(list []handle) {
	for _, h := range list {
		path, err := target(h.Name)
		if err != nil {
			path = h.Name
		}
		j.follow(h.File, h.Name, path, h.Flag)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.touchOpen()
}

// unsettled says why open files can't be opened again by their names; "": they
// can.
func (j *fileJournal) unsettled() string {
	watched.Lock()
	defer watched.Unlock()
	prune()
	for _, w := range watched.files {
		if !w.is(w.name) {
			return fmt.Sprintf("the file %s is open, and was removed, renamed or replaced, so that a restart could not open it again", w.name)
		}
	}
	return ""
}

// written reports whether a file is open for writing.
func (j *fileJournal) written(st fs.FileInfo) bool {
	watched.RLock()
	defer watched.RUnlock()
	for _, w := range watched.files {
		if w.flag&(os.O_WRONLY|os.O_RDWR) != 0 {
			if now, err := w.f.Stat(); err == nil && os.SameFile(st, now) {
				return true
			}
		}
	}
	return false
}

// opened is how many files the program has open.
func opened() int {
	watched.Lock()
	defer watched.Unlock()
	prune()
	return len(watched.files)
}

// changing is called before a file is changed.
func changing(f *os.File, op byte, off, n int64) (func(), error) {
	watched.RLock()
	w := watched.files[f]
	watched.RUnlock()
	if w == nil || suspended.Load() {
		return nil, nil
	}
	if op == 'm' {
		return nil, journal.changeMode(w, fs.FileMode(n))
	}
	if w.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return nil, nil
	}
	if shared {
		return journal.changeShared(w, op, off, n)
	}
	switch op {
	case 's':
		if off != 0 || n != io.SeekCurrent {
			w.tail.Store(false)
		}
		return nil, nil
	case 'w', 'r':
		if w.flag&os.O_APPEND != 0 || w.tail.Load() {
			return nil, nil
		}
		pos, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, nil // it will fail
		}
		if off = pos; op == 'r' {
			n = noSize - pos
		}
	case 't':
		n = noSize - off
	}
	if off < 0 {
		return nil, nil
	}
	return journal.change(w, op, off, n)
}

// changeMode notes the permissions of an open file.
func (j *fileJournal) changeMode(w *watch, mode fs.FileMode) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	path := w.path
	if path == "" { // it is only read
		path = w.name
	}
	if !j.ready || !w.is(path) {
		return nil
	}
	return j.mode(path, mode)
}

// change keeps what a file holds from off on, n bytes. What is returned is called
// when the file has been changed, if it is not nil.
func (j *fileJournal) change(w *watch, op byte, off, n int64) (func(), error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready {
		return nil, nil
	}
	if !w.sure {
		w.alone = !w.is(w.path) // somebody else has removed it
		w.sure = true
	}
	if w.alone {
		return nil, nil
	}
	c, err := j.content(w.path)
	if missing(err) {
		return nil, nil
	}
	if err == nil {
		if (op == 'w' || op == 'r') && (c == nil || off >= c.base) {
			w.tail.Store(true)
			return nil, nil
		}
		var from *os.File
		if w.flag&os.O_RDWR != 0 {
			from = w.f
		}
		err = j.save(c, from, off, off+min(n, noSize-off))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "write", Path: w.f.Name(), Err: err}
	}
	j.underway++
	return j.idle, nil
}
