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

// hook is called by package os before an open file changes. 'cairn build' puts
// these calls into package os. In a program that was built in another way,
// nothing calls hook, and the journal does not keep what is overwritten in open
// files.
//
// op is 'w' for Write, n bytes at the current position; 'a' for WriteAt, n
// bytes at off; 'r' for ReadFrom; 't' for Truncate to off; 's' for Seek to off
// from n; 'm' for Chmod to n. If the result is not nil, package os calls it
// when the file is changed.
//
//go:linkname hook os.cairn_hook
var hook func(f *os.File, op byte, off, n int64) (func(), error)

// sharedFiles tells package os that other ranks may change the same files.
// ReadFrom then calls Write, and does not let the kernel copy.
//
//go:linkname sharedFiles os.cairn_shared
var sharedFiles bool

// openFile is an open file of the program.
type openFile struct {
	f        *os.File
	path     string // its name in the log
	name     string // the absolute name that it was opened by
	flag     int
	unneeded bool // it has no name, and an undo does not need it
	// appending says that the program only writes bytes that did not exist when
	// the segment began.
	appending atomic.Bool
	// checked says that unneeded is valid in this segment.
	checked bool
}

// openFiles are the program's open files. The lock is taken after the
// journal's.
type openFiles struct {
	sync.RWMutex
	files map[*os.File]*openFile
	prune int // closed ones are removed when there are so many
}

// Suspend(true) stops the recording of changes of open files, and
// Suspend(false) starts it again. Recording is stopped while the run restores
// its own files.
func (j *Journal) Suspend(on bool) { j.suspended.Store(on) }

// Track adds a file that the program has opened. name is the name that the
// program gave, path is what Opening returned.
func (j *Journal) Track(f *os.File, name, path string, flag int) {
	j.open.Lock()
	defer j.open.Unlock()
	if j.open.files == nil {
		j.open.files = make(map[*os.File]*openFile)
	}
	if len(j.open.files) >= max(j.open.prune, 64) {
		j.prune()
	}
	j.open.files[f] = &openFile{f: f, name: name, path: path, flag: flag}
}

// prune removes files that are closed.
func (j *Journal) prune() {
	for f := range j.open.files {
		if _, err := f.Stat(); errors.Is(err, os.ErrClosed) {
			delete(j.open.files, f)
		}
	}
	j.open.prune = 2 * len(j.open.files)
}

// resetOpen begins a segment.
func (j *Journal) resetOpen() {
	j.open.Lock()
	defer j.open.Unlock()
	for _, w := range j.open.files {
		w.appending.Store(false)
		w.checked = false
	}
}

// renamed tells the open files that a file or directory has another name.
func (j *Journal) renamed(from, to string) {
	j.open.Lock()
	defer j.open.Unlock()
	for _, w := range j.open.files {
		if rest, ok := cutDir(w.path, from); ok {
			w.path = to + rest
		}
	}
}

// cutDir returns what follows a directory in a path.
func cutDir(path, dir string) (string, bool) {
	rest, ok := strings.CutPrefix(path, dir)
	return rest, ok && (rest == "" || rest[0] == os.PathSeparator)
}

// nameGone tells the open files that a file, or all files in a directory, may
// have lost their name. A file that is kept gets the name of the kept file.
func (j *Journal) nameGone(path string) {
	j.open.Lock()
	defer j.open.Unlock()
	for _, w := range j.open.files {
		if _, ok := cutDir(w.path, path); !ok || w.is(w.path) {
			continue
		}
		kept := j.names[w.path]
		if w.unneeded = kept == "" || !w.is(j.keptPath(kept)); !w.unneeded {
			w.path = j.keptPath(kept)
		}
	}
}

// is reports whether a name leads to the file.
func (w *openFile) is(name string) bool {
	st, err := w.f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(name)
	return err == nil && os.SameFile(st, there)
}

// OpenFile is an open file in a checkpoint.
type OpenFile struct {
	File *os.File
	Name string
	Flag int
}

// OpenFiles returns the program's open files, to be saved with the state.
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

// Reopened adds the open files of a checkpoint that was restored.
func (j *Journal) Reopened(list []OpenFile) {
	for _, h := range list {
		path, err := resolve(h.Name)
		if err != nil {
			path = h.Name
		}
		j.Track(h.File, h.Name, path, h.Flag)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.markOpen()
}

// Blocked returns why a restart could not open the program's open files by
// their names; "" if it could.
func (j *Journal) Blocked() string {
	if j == nil {
		return ""
	}
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

// openForWriting reports whether a file is open for writing.
func (j *Journal) openForWriting(st fs.FileInfo) bool {
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

// openCount returns how many files the program has open.
func (j *Journal) openCount() int {
	j.open.Lock()
	defer j.open.Unlock()
	j.prune()
	return len(j.open.files)
}

// beforeWrite is called by package os before an open file changes: see hook.
func (j *Journal) beforeWrite(f *os.File, op byte, off, n int64) (func(), error) {
	j.open.RLock()
	w := j.open.files[f]
	j.open.RUnlock()
	if w == nil || j.suspended.Load() {
		return nil, nil
	}
	if op == 'm' {
		return nil, j.beforeModeChange(w, fs.FileMode(n))
	}
	if w.flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return nil, nil
	}
	if sharedFiles {
		return j.beforeSharedChange(w, op, off, n)
	}
	switch op {
	case 's':
		if off != 0 || n != io.SeekCurrent {
			w.appending.Store(false)
		}
		return nil, nil
	case 'w', 'r':
		if w.flag&os.O_APPEND != 0 || w.appending.Load() {
			return nil, nil
		}
		pos, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, nil // the write will fail
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
	return j.beforeChange(w, op, off, n)
}

// beforeModeChange records the permissions of an open file.
func (j *Journal) beforeModeChange(w *openFile, mode fs.FileMode) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	path := w.path
	if path == "" { // open for reading only
		path = w.name
	}
	if !j.ready || !w.is(path) {
		return nil
	}
	return j.recordMode(path, mode)
}

// beforeChange keeps n bytes of a file from off on. Call the result when the
// file is changed, if it is not nil.
func (j *Journal) beforeChange(w *openFile, op byte, off, n int64) (func(), error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.ready {
		return nil, nil
	}
	if !w.checked {
		w.unneeded = !w.is(w.path) // another process has removed it
		w.checked = true
	}
	if w.unneeded {
		return nil, nil
	}
	c, err := j.content(w.path)
	if missing(err) {
		return nil, nil
	}
	if err == nil {
		if (op == 'w' || op == 'r') && (c == nil || off >= c.base) {
			w.appending.Store(true)
			return nil, nil
		}
		var from *os.File
		if w.flag&os.O_RDWR != 0 {
			from = w.f
		}
		err = j.recordData(c, from, off, off+min(n, noSize-off))
	}
	if err != nil {
		return nil, &fs.PathError{Op: "write", Path: w.f.Name(), Err: err}
	}
	j.underway++
	return j.idle, nil
}
