package engine

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"weak"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// closedFiles holds files that the program has closed.
//
// The program still refers to some of them, as after f.Close in a function with
// 'defer f.Close()'. After a restart, such a file is closed, too, and has the
// same name.
//
// The program has opened others for writing before Restore, as it does at every
// start. Their content is final: Restore does not truncate them again.
type closedFiles struct {
	mu    sync.Mutex
	known map[weak.Pointer[os.File]]closedFile
	saved map[int]*closedFile // while restoring: by the checkpoint's ids

	written      []ckpt.FileEntry // opened before Restore
	savedWritten []ckpt.FileEntry // while restoring: of the checkpoint
}

type closedFile struct {
	id   int
	name string
	f    *os.File // while restoring
}

// id returns the number of a closed file, which it gets from next the first
// time.
func (c *closedFiles) id(f *os.File, next *int) (int, bool) {
	if !isClosed(f) {
		return 0, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := weak.Make(f)
	known, ok := c.known[at]
	if !ok {
		if c.known == nil {
			c.known = make(map[weak.Pointer[os.File]]closedFile)
		}
		known = closedFile{id: *next, name: f.Name()}
		*next++
		c.known[at] = known
	}
	return known.id, true
}

// add notes a file that the program has opened before Restore, and closed.
func (c *closedFiles) add(e *ckpt.FileEntry) {
	if !listed(c.written, e) {
		c.written = append(c.written, ckpt.FileEntry{ID: e.ID, Path: e.Path, Mode: e.Mode, Closed: true, Abs: e.Abs})
	}
}

func listed(list []ckpt.FileEntry, e *ckpt.FileEntry) bool {
	return slices.ContainsFunc(list, func(c ckpt.FileEntry) bool { return c.Path == e.Path && c.Mode == e.Mode })
}

// has reports whether a file was opened before Restore, and closed.
func (c *closedFiles) has(e *ckpt.FileEntry) bool { return listed(c.written, e) }

// paths returns the files that must be durable with the checkpoint.
func (c *closedFiles) paths() []string {
	var out []string
	for _, e := range c.written {
		out = append(out, e.Abs)
	}
	return out
}

// entries returns the entries of closed files, by number, and forgets those
// that the program has dropped.
func (c *closedFiles) entries() []ckpt.FileEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(c.written)
	for at, k := range c.known {
		if at.Value() == nil {
			delete(c.known, at)
			continue
		}
		out = append(out, ckpt.FileEntry{ID: k.id, Path: portablePath(k.name), Name: givenName(k.name), Mode: "r", Closed: true})
	}
	slices.SortFunc(out, func(a, b ckpt.FileEntry) int { return a.ID - b.ID })
	return out
}

// begin notes a closed file of a checkpoint.
func (c *closedFiles) begin(e *ckpt.FileEntry) {
	if e.Mode != "r" {
		c.savedWritten = append(c.savedWritten, *e)
		return
	}
	if c.saved == nil {
		c.saved = make(map[int]*closedFile)
	}
	c.saved[e.ID] = &closedFile{id: e.ID, name: cmp.Or(e.Name, e.Path)}
}

// file returns the closed file of a checkpoint, or nil.
func (c *closedFiles) file(id int) (*os.File, error) {
	k := c.saved[id]
	if k == nil {
		return nil, nil
	}
	if k.f == nil {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		changeFileName(f, k.name)
		if err := f.Close(); err != nil {
			return nil, err
		}
		k.f = f
	}
	return k.f, nil
}

// apply makes the closed files of a checkpoint those of the program, and
// returns a number above theirs and next.
func (c *closedFiles) apply(next int) int {
	clear(c.known)
	for id, k := range c.saved {
		next = max(next, id+1)
		if k.f == nil {
			continue
		}
		if c.known == nil {
			c.known = make(map[weak.Pointer[os.File]]closedFile)
		}
		c.known[weak.Make(k.f)] = closedFile{id: id, name: k.name}
	}
	for i := range c.savedWritten {
		e := &c.savedWritten[i]
		e.Abs, _ = filepath.Abs(filepath.FromSlash(e.Path))
		next = max(next, e.ID+1)
	}
	c.written = c.savedWritten
	c.abandon()
	return next
}

// abandon forgets a checkpoint that is not restored.
func (c *closedFiles) abandon() { c.saved, c.savedWritten = nil, nil }
