package journal

import (
	"errors"
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

// name notes what has a name, before that is changed. With several ranks, which
// may all change it, every change is noted, else the first one in a part.
func (j *Journal) name(path string) error {
	if _, ok := j.names[path]; ok && !j.shared() {
		return nil
	}
	j.touch(path)
	if j.incomplete {
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
		e.Was, e.Mode, e.Time = "file", uint32(st.Mode().Perm()), st.ModTime().UnixNano()
		e.Size, e.Ino = st.Size(), inode(st)
		e.Live = links(st) > 1 || j.written(st)
		if err := j.elsewhere(func() error { return j.keep(path, &e) }); err != nil {
			return j.lose(err)
		}
		// Later changes of it, by another name or an open file, are noted anew: what
		// was there before them is what the digest is of.
		j.renew(contentKey(path, st))
		if e.Live {
			j.rewatch()
		}
	default: // a pipe, a device, a socket
		return nil
	}
	if err := j.write(e); err != nil {
		return err
	}
	j.names[path] = e.Kept
	return nil
}

// renew lets the next change of a file be noted as if it were the first.
func (j *Journal) renew(key string) {
	if c := j.contents[key]; c != nil {
		c.close()
		delete(j.contents, key)
	}
}

// busy says that a file is about to be changed. What is returned is called when
// it has been.
func (j *Journal) busy() (done func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.underway++
	return j.idle
}

func (j *Journal) idle() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.underway--
}

// made notes that a name is about to be given to a new file, if there is none.
func (j *Journal) made(path string) (bool, error) {
	if _, err := os.Lstat(path); !missing(err) {
		return false, nil
	}
	if err := j.name(path); err != nil {
		return false, err
	}
	// Another rank may put something else there.
	j.created[path] = !j.shared()
	return true, nil
}

// madeAll notes that a directory is about to be made, with those that lead to it,
// the outermost first.
func (j *Journal) madeAll(path string) error {
	if _, err := os.Lstat(path); !missing(err) {
		return nil
	}
	if up := filepath.Dir(path); up != path {
		if err := j.madeAll(up); err != nil {
			return err
		}
	}
	_, err := j.made(path)
	return err
}

// link is os.Link; tests have one that fails, as it does from one file system to
// another.
var link = os.Link

// copyUpTo is up to how many bytes a file is kept as a copy where other ranks may
// have it open.
const copyUpTo = 64 << 20

// keep gives a file another name in the journal's directory; where that can't be,
// it is copied.
func (j *Journal) keep(path string, e *entry) error {
	name, to, err := j.next(false)
	if err != nil {
		return err
	}
	e.Kept = name
	if j.shared() {
		e.Live = true
	}
	// A link needs no room, and stays one with other names of the file.
	if (!j.shared() || e.Size > copyUpTo) && link(path, to) == nil {
		step()
		f, err := openAnyway(to)
		if err != nil {
			return err
		}
		if !e.Live || j.underway == 0 && e.Size <= wholeHash {
			e.Hash, err = hashKept(f, false)
		}
		return errors.Join(err, syncKept(f), f.Close())
	}
	if e.Kept, to, err = j.next(true); err != nil {
		return err
	}
	e.Copy, e.Live = true, false
	from, err := openAnyway(path)
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	var h hasher
	if clone(f, from) {
		e.Hash, err = hashKept(f, true)
	} else {
		_, err = io.Copy(io.MultiWriter(f, &h), from)
		e.Hash = h.String()
	}
	return errors.Join(err, syncKept(f), f.Close())
}

// openAnyway opens a file for reading, also one that its owner may only write.
func openAnyway(path string) (*os.File, error) {
	f, err := os.Open(path)
	if !errors.Is(err, fs.ErrPermission) {
		return f, err
	}
	st, serr := os.Stat(path)
	if serr != nil || os.Chmod(path, st.Mode().Perm()|0o400) != nil {
		return nil, err
	}
	f, err = os.Open(path)
	return f, errors.Join(err, os.Chmod(path, st.Mode().Perm()))
}

// next returns a name in the journal's directory that nothing has; or, if copy
// says that there must be room for more than a name, perhaps elsewhere.
func (j *Journal) next(copy bool) (name, path string, err error) {
	j.kept++
	name = strconv.FormatUint(j.kept, 10)
	dir := j.log.beside(keptName)
	if j.overflowing && copy {
		if dir, err = j.log.spill(); err != nil {
			return "", "", err
		}
	} else if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", "", err
	} else if copy {
		if err := room(); err != nil {
			return "", "", err
		}
	}
	path = filepath.Join(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a kill
		return "", "", err
	}
	return name, path, nil
}

// content is a file that there was when the part began, and is changed.
type content struct {
	path  string
	ino   uint64
	base  int64  // its size
	sized bool   // … is in the journal
	had   []span // what is kept of it, in order
	name  string // of what is kept
	to    *os.File
	at    int64 // bytes in it

	// Several ranks: where this one has let the file grow to, and whether by
	// O_APPEND.
	end    int64
	append bool
}

type span struct{ lo, hi int64 }

// block is what files are kept by, unless they are kept as a whole.
const block = 4096

// contentKey tells files apart, whatever their names.
func contentKey(path string, st fs.FileInfo) string {
	if n := inode(st); n != 0 {
		return strconv.FormatUint(device(st), 16) + ":" + strconv.FormatUint(n, 16)
	}
	return path
}

// content returns what is known of a file; nil: it was made in this part. It is an
// error if there is no such file.
func (j *Journal) content(path string) (*content, error) {
	if j.created[path] {
		return nil, nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fs.ErrInvalid
	}
	key := contentKey(path, st)
	c := j.contents[key]
	if c == nil {
		c = &content{path: path, ino: inode(st), base: st.Size(), end: -1}
		j.contents[key] = c
	}
	if j.shared() { // others may change it, and its name
		c.path, c.base = path, st.Size()
	}
	return c, nil
}

// size notes how long a file is.
func (j *Journal) size(c *content) error {
	if c == nil || c.sized {
		return nil
	}
	if err := j.write(entry{Op: opSize, Path: c.path, Ino: c.ino, Size: c.base}); err != nil {
		return err
	}
	c.sized = !j.shared()
	c.end = -1
	return nil
}

// save keeps a piece of a file, as far as it was there when the part began and is
// not kept yet. from reads it, if it is not nil. With several ranks it is exactly
// what is overwritten, since what is beside it may be another's.
func (j *Journal) save(c *content, from *os.File, lo, hi int64) (err error) {
	if c != nil {
		j.touch(c.path)
	}
	if c == nil || j.incomplete {
		return nil
	}
	lo, hi = max(lo, 0), min(hi, c.base)
	if !j.shared() {
		lo &^= block - 1
		if rest := hi % block; rest > 0 {
			hi = min(hi-rest+block, c.base)
		}
	}
	gaps := c.gaps(lo, hi)
	if len(gaps) == 0 {
		return nil
	}
	if from == nil {
		if from, err = openAnyway(c.path); err != nil {
			return j.lose(err)
		}
		defer from.Close()
	}
	if err := j.elsewhere(func() error { return j.saveGaps(c, from, gaps) }); err != nil {
		return j.lose(err)
	}
	c.add(span{lo, hi})
	return nil
}

// saveGaps keeps pieces of a file, and notes that.
func (j *Journal) saveGaps(c *content, from *os.File, gaps []span) error {
	if c.to == nil {
		name, path, err := j.next(true)
		if err != nil {
			return err
		}
		if c.to, err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
			c.to = nil
			return err
		}
		c.name, c.at = name, 0
	}
	for _, g := range gaps {
		n := g.hi - g.lo
		var h hasher
		sum := ""
		if g.lo != 0 || g.hi != c.base || c.at != 0 || !clone(c.to, from) {
			w := io.MultiWriter(io.NewOffsetWriter(c.to, c.at), &h)
			var err error
			if n, err = io.Copy(w, io.NewSectionReader(from, g.lo, n)); err != nil {
				return err
			}
			sum = h.String()
		} else if s, err := hashPiece(c.to, 0, n); err != nil {
			return err
		} else {
			sum = s
		}
		if n == 0 { // somebody else has made it shorter
			continue
		}
		if err := syncKept(c.to); err != nil {
			return err
		}
		if err := j.write(entry{Op: opData, Path: c.path, Ino: c.ino, Kept: c.name, Off: g.lo, At: c.at, Size: n, Hash: sum}); err != nil {
			return err
		}
		c.at += n
	}
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
func (j *Journal) opening(path string, flag int) error {
	if made, err := j.made(path); made || err != nil {
		return err
	}
	c, err := j.content(path)
	if err != nil {
		return nil // nor can the program open it
	}
	if j.shared() && flag&os.O_TRUNC == 0 { // see changeShared
		return nil
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

// mode notes the permissions of a file. Each change is noted: what is undone
// before it may need them.
func (j *Journal) mode(path string, mode fs.FileMode) error {
	st, err := os.Stat(path)
	if err != nil || j.created[path] && !st.IsDir() || st.Mode().Perm() == mode.Perm() {
		return nil
	}
	return j.write(entry{Op: opMode, Path: path, Mode: uint32(st.Mode().Perm())})
}

// below notes all names in a directory, and its own: what is in a directory before
// it, so that it is there again when they come back.
func (j *Journal) below(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return nil // nor will the program get at it
	}
	if st.IsDir() {
		list, err := os.ReadDir(path)
		if err != nil {
			return nil
		}
		for _, e := range list {
			if err := j.below(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return j.name(path)
}

// rename does what os.Rename does. A file that was made in this part takes the
// place of another; where something else gets a new name, the part ends.
func (j *Journal) rename(from, to string, do func() error) error {
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
	if j.created[from] && !st.IsDir() {
		if err = do(); err == nil {
			delete(j.created, from)
			j.created[to] = true
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
	j.clear()
	return err
}

// link does what os.Link does: a file has a second name, by which it may be
// changed, and the part ends.
func (j *Journal) link(to string, do func() error) error {
	if _, err := os.Lstat(to); !missing(err) {
		return do()
	}
	if err := j.name(to); err != nil {
		return err
	}
	err := do()
	j.clear()
	return err
}
