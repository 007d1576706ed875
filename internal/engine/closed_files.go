package engine

import (
	"cmp"
	"os"
	"slices"
	"sync"
	"weak"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// closedFiles holds files that the program has closed and still refers to, as
// it does after f.Close in a function with 'defer f.Close()'. A restored one is
// closed, too, and has the same name.
type closedFiles struct {
	mu    sync.Mutex
	known map[weak.Pointer[os.File]]closedFile
	saved map[int]*closedFile // while restoring: by the checkpoint's ids
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

// entries returns the entries of closed files, by number, and forgets those that
// the program has dropped.
func (c *closedFiles) entries() []ckpt.FileEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []ckpt.FileEntry
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

// apply makes the closed files of a checkpoint those of the program, and returns
// a number above theirs and next.
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
	c.saved = nil
	return next
}
