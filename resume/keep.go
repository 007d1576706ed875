package resume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
)

// What is done before a program changes files. All of it is called with the
// journal's lock.

// missing reports whether an error says that there is nothing of a name.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// place is a name without links in the folders that lead to it.
func place(name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if missing(err) { // perhaps it is about to be made
		up, err := place(filepath.Dir(path))
		return filepath.Join(up, filepath.Base(path)), err
	}
	if err != nil || filepath.Base(path) == string(filepath.Separator) {
		return path, err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// target is the name of the file that is opened by a name.
func target(name string) (string, error) {
	for range 40 {
		path, err := place(name)
		if err != nil {
			return "", err
		}
		to, err := os.Readlink(path)
		if err != nil { // it is no link
			return path, nil
		}
		if name = to; !filepath.IsAbs(to) {
			name = filepath.Join(filepath.Dir(path), to)
		}
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// name notes what has a name, before that is changed.
func (j *fileJournal) name(path string) error {
	if _, ok := j.names[path]; ok {
		return nil
	}
	e := entry{Op: opName, Path: path}
	st, err := os.Lstat(path)
	switch {
	case missing(err):
	case err != nil:
		return nil // nor can the program do anything
	case st.IsDir():
		e.Was, e.Mode = "dir", uint32(st.Mode().Perm())
	case st.Mode()&fs.ModeSymlink != 0:
		if e.To, err = os.Readlink(path); err != nil {
			return err
		}
		e.Was = "link"
	case st.Mode().IsRegular():
		if e.Kept, e.Copy, err = j.keep(path); err != nil {
			return fmt.Errorf("what it holds can't be kept for a restart: %w", err)
		}
		e.Was, e.Mode, e.Time = "file", uint32(st.Mode().Perm()), st.ModTime().UnixNano()
	default: // a pipe, a device, a socket
		return nil
	}
	if err := j.write(e); err != nil {
		return err
	}
	j.names[path] = e.Kept
	return nil
}

// made notes that a name is about to be given to a new file, if there is none.
func (j *fileJournal) made(path string) (bool, error) {
	if _, err := os.Lstat(path); !missing(err) {
		return false, nil
	}
	if err := j.name(path); err != nil {
		return false, err
	}
	j.fresh[path] = true
	delete(j.contents, path)
	return true, nil
}

// link is os.Link; tests have one that fails, as it does from one file system to
// another.
var link = os.Link

// keep gives a file another name in the journal's folder; where that can't be, it
// is copied.
func (j *fileJournal) keep(path string) (name string, copied bool, err error) {
	name, to, err := j.next()
	if err != nil {
		return "", false, err
	}
	if link(path, to) == nil {
		step()
		return name, false, nil
	}
	from, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", false, err
	}
	if !clone(f, from) {
		_, err = io.Copy(f, from)
	}
	return name, true, errors.Join(err, f.Close())
}

// next returns a name in the journal's folder that nothing has.
func (j *fileJournal) next() (name, path string, err error) {
	j.kept++
	name = strconv.FormatUint(j.kept, 10)
	path = j.keptPath(name)
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", "", err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a kill
		return "", "", err
	}
	return name, path, nil
}

// content is a file that there was when the part began, and is changed.
type content struct {
	path  string
	base  int64  // its size
	sized bool   // … is in the journal
	had   []span // what is kept of it, in order
	name  string // of what is kept
	to    *os.File
	at    int64 // bytes in it
}

type span struct{ lo, hi int64 }

// block is what files are kept by, unless they are kept as a whole.
const block = 4096

// content returns what is known of a file; nil: it was made in this part. It is an
// error if there is no such file.
func (j *fileJournal) content(path string) (*content, error) {
	if j.fresh[path] {
		return nil, nil
	}
	if c := j.contents[path]; c != nil {
		return c, nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fs.ErrInvalid
	}
	c := &content{path: path, base: st.Size()}
	j.contents[path] = c
	return c, nil
}

// size notes how long a file is.
func (j *fileJournal) size(c *content) error {
	if c == nil || c.sized {
		return nil
	}
	if err := j.write(entry{Op: opSize, Path: c.path, Size: c.base}); err != nil {
		return err
	}
	c.sized = true
	return nil
}

// save keeps a piece of a file, as far as it was there when the part began and is
// not kept yet. from reads it, if it is not nil.
func (j *fileJournal) save(c *content, from *os.File, lo, hi int64) (err error) {
	if c == nil {
		return nil
	}
	lo, hi = max(lo, 0)&^(block-1), min(hi, c.base)
	if rest := hi % block; rest > 0 {
		hi = min(hi-rest+block, c.base)
	}
	gaps := c.gaps(lo, hi)
	if len(gaps) == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("what %s holds can't be kept for a restart: %w", c.path, err)
		}
	}()
	if from == nil {
		if from, err = os.Open(c.path); err != nil {
			return err
		}
		defer from.Close()
	}
	if c.to == nil {
		name, path, err := j.next()
		if err != nil {
			return err
		}
		if c.to, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
			return err
		}
		c.name, c.at = name, 0
	}
	for _, g := range gaps {
		n := g.hi - g.lo
		if g.lo != 0 || g.hi != c.base || c.at != 0 || !clone(c.to, from) {
			w := io.NewOffsetWriter(c.to, c.at)
			if n, err = io.Copy(w, io.NewSectionReader(from, g.lo, n)); err != nil {
				return err
			}
		}
		if n < g.hi-g.lo {
			return fmt.Errorf("it has %d bytes now, and had %d", g.lo+n, c.base)
		}
		if err := j.write(entry{Op: opData, Path: c.path, Kept: c.name, Off: g.lo, At: c.at, Size: n}); err != nil {
			return err
		}
		c.at += n
	}
	c.add(span{lo, hi})
	return nil
}

// gaps are the pieces of lo to hi that are not kept.
func (c *content) gaps(lo, hi int64) (out []span) {
	for _, s := range c.had {
		if s.hi <= lo {
			continue
		}
		if s.lo >= hi {
			break
		}
		if s.lo > lo {
			out = append(out, span{lo, s.lo})
		}
		lo = s.hi
	}
	if lo < hi {
		out = append(out, span{lo, hi})
	}
	return out
}

// add says that a piece is kept.
func (c *content) add(s span) {
	i, _ := slices.BinarySearchFunc(c.had, s.lo, func(h span, lo int64) int { return int(min(max(h.hi-lo, -1), 1)) })
	k := i
	for ; k < len(c.had) && c.had[k].lo <= s.hi; k++ {
		s.lo, s.hi = min(s.lo, c.had[k].lo), max(s.hi, c.had[k].hi)
	}
	c.had = slices.Replace(c.had, i, k, s)
}

func (c *content) close() {
	if c.to != nil {
		c.to.Close()
		c.to = nil
	}
}

// opening notes that a file is about to be opened for writing, or is made. path
// is its target.
func (j *fileJournal) opening(path string, flag int) error {
	if made, err := j.made(path); made || err != nil {
		return err
	}
	c, err := j.content(path)
	if err != nil {
		return nil // nor can the program open it
	}
	if err := j.size(c); err != nil {
		return err
	}
	if flag&os.O_TRUNC != 0 {
		return j.save(c, nil, 0, noSize)
	}
	return nil
}

// noSize is more than any file has.
const noSize = 1<<63 - 1

// mode notes the permissions of a file.
func (j *fileJournal) mode(path string) error {
	st, err := os.Stat(path)
	if err != nil || j.modes[path] || j.fresh[path] {
		return nil
	}
	if err := j.write(entry{Op: opMode, Path: path, Mode: uint32(st.Mode().Perm())}); err != nil {
		return err
	}
	j.modes[path] = true
	return nil
}

// below notes all names in a folder, and its own.
func (j *fileJournal) below(path string) error {
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return nil // nor will the program get at it
		}
		return j.name(path)
	})
}

// rename does what os.Rename does. A file that was made in this part takes the
// place of another; where something else gets a new name, the part ends.
func (j *fileJournal) rename(from, to string, do func() error) error {
	st, err := os.Lstat(from)
	if err != nil || from == to {
		return do()
	}
	if other, err := os.Lstat(to); err == nil && os.SameFile(st, other) {
		return do() // which leaves both
	}
	if err := j.name(to); err != nil {
		return err
	}
	if j.fresh[from] && !st.IsDir() {
		if err = do(); err == nil {
			delete(j.fresh, from)
			delete(j.contents, to)
			j.fresh[to] = true
			j.unnamed(to)
			j.renamed(from, to)
		}
		return err
	}
	if err := j.write(entry{Op: opMove, Path: from, To: to}); err != nil {
		return err
	}
	err = do()
	step()
	if err == nil {
		j.unnamed(to)
		j.renamed(from, to)
	}
	j.part++
	j.clear()
	return err
}

// link does what os.Link does: a file has a second name, by which it may be
// changed, and the part ends.
func (j *fileJournal) link(to string, do func() error) error {
	if _, err := os.Lstat(to); !missing(err) {
		return do()
	}
	if err := j.name(to); err != nil {
		return err
	}
	err := do()
	j.part++
	j.clear()
	return err
}
