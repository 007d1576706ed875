package journal

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

// sharedFiles says that other ranks may change the same files: package os then writes
// by Write what it would have the system copy.
//
//go:linkname sharedFiles os.cairn_shared
var sharedFiles bool

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

// openFiles are the program's open files. The lock is taken after the journal's.
type openFiles struct {
	sync.RWMutex
	files map[*os.File]*watch
	prune int // closed ones are looked for when there are so many
}

// Suspend stops and restarts the recording of changes of open files. It is
// stopped while the run puts its own files back.
func (j *Journal) Suspend(on bool) { j.suspended.Store(on) }

// Track watches a file that was opened.
func (j *Journal) Track(f *os.File, name, path string, flag int) {
	j.open.Lock()
	defer j.open.Unlock()
	if j.open.files == nil {
		j.open.files = make(map[*os.File]*watch)
	}
	if len(j.open.files) >= max(j.open.prune, 64) {
		j.prune()
	}
	j.open.files[f] = &watch{f: f, name: name, path: path, flag: flag}
}

// prune forgets files that are closed.
func (j *Journal) prune() {
	for f := range j.open.files {
		if _, err := f.Stat(); errors.Is(err, os.ErrClosed) {
			delete(j.open.files, f)
		}
	}
	j.open.prune = 2 * len(j.open.files)
}

// rewatch begins a part.
func (j *Journal) rewatch() {
	j.open.Lock()
	defer j.open.Unlock()
	for _, w := range j.open.files {
		w.tail.Store(false)
		w.sure = false
	}
}

// renamed says that a file or folder has another name.
func (j *Journal) renamed(from, to string) {
	j.open.Lock()
	defer j.open.Unlock()
	for _, w := range j.open.files {
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
func (j *Journal) unnamed(path string) {
	j.open.Lock()
	defer j.open.Unlock()
	for _, w := range j.open.files {
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

// OpenFile is an open file in a set.
type OpenFile struct {
	File *os.File
	Name string
	Flag int
}

// OpenFiles are the open files.
func (j *Journal) OpenFiles() []OpenFile {
	j.open.Lock()
	defer j.open.Unlock()
	j.prune()
	var out []OpenFile
	for f, w := range j.open.files {
		out = append(out, OpenFile{f, w.name, w.flag})
	}
	slices.SortFunc(out, func(a, b OpenFile) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Reopened watches the open files of a set that was restored.
func (j *Journal) Reopened(list []OpenFile) {
	for _, h := range list {
		path, err := target(h.Name)
		if err != nil {
			path = h.Name
		}
		j.Track(h.File, h.Name, path, h.Flag)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.touchOpen()
}

// Blocked says why open files can't be opened again by their names; "": they
// can.
func (j *Journal) Blocked() string {
	j.open.Lock()
	defer j.open.Unlock()
	j.prune()
	for _, w := range j.open.files {
		if !w.is(w.name) {
			return fmt.Sprintf("the file %s is open, and was removed, renamed or replaced, so that a restart could not open it again", w.name)
		}
	}
	return ""
}

// written reports whether a file is open for writing.
func (j *Journal) written(st fs.FileInfo) bool {
	j.open.RLock()
	defer j.open.RUnlock()
	for _, w := range j.open.files {
		if w.flag&(os.O_WRONLY|os.O_RDWR) != 0 {
			if now, err := w.f.Stat(); err == nil && os.SameFile(st, now) {
				return true
			}
		}
	}
	return false
}

// openCount is how many files the program has open.
func (j *Journal) openCount() int {
	j.open.Lock()
	defer j.open.Unlock()
	j.prune()
	return len(j.open.files)
}

// changing is called before a file is changed.
func (j *Journal) changing(f *os.File, op byte, off, n int64) (func(), error) {
	j.open.RLock()
	w := j.open.files[f]
	j.open.RUnlock()
	if w == nil || j.suspended.Load() {
		return nil, nil
	}
	if op == 'm' {
		return nil, j.changeMode(w, fs.FileMode(n))
	}
	if w.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return nil, nil
	}
	if sharedFiles {
		return j.changeShared(w, op, off, n)
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
	return j.change(w, op, off, n)
}

// changeMode notes the permissions of an open file.
func (j *Journal) changeMode(w *watch, mode fs.FileMode) error {
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
func (j *Journal) change(w *watch, op byte, off, n int64) (func(), error) {
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
