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

// The methods in this file record what a change overwrites or removes, before
// the program makes the change. They are called with the journal's lock.

// missing reports whether an error says that a name does not exist.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// resolveDir returns an absolute path without links in the directories of a
// name.
func resolveDir(name string) (string, error) {
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if missing(err) { // it may be about to be made
		up, err := resolveDir(filepath.Dir(path))
		return filepath.Join(up, filepath.Base(path)), err
	}
	if err != nil || filepath.Base(path) == string(filepath.Separator) {
		return path, err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// resolve returns the path of the file that a name leads to.
func resolve(name string) (string, error) {
	for range 40 {
		path, err := resolveDir(name)
		if err != nil {
			return "", err
		}
		to, err := os.Readlink(path)
		if err != nil { // not a link
			return path, nil
		}
		if name = to; !filepath.IsAbs(to) {
			name = filepath.Join(filepath.Dir(path), to)
		}
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// recordName records the file, link or directory that has a name, before the
// name changes. With several ranks it does so for each change, otherwise once
// in a segment.
func (j *Journal) recordName(path string) error {
	if _, ok := j.names[path]; ok && !j.shared() {
		return nil
	}
	j.markChanged(path)
	if j.incomplete {
		return nil
	}
	e := entry{Op: opName, Path: path}
	st, err := os.Lstat(path)
	switch {
	case missing(err):
	case err != nil:
		return nil // the program cannot change it either
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
		e.Live = links(st) > 1 || j.openForWriting(st)
		if err := j.withOverflow(func() error { return j.keep(path, &e) }); err != nil {
			return j.giveUp(err)
		}
		// Record later changes again, by another name or by an open file: the
		// digest is of the file as it is now.
		j.forgetContent(contentKey(path, st))
		if e.Live {
			j.resetOpen()
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

// forgetContent makes the journal record the next change of a file as if it
// were the first in the segment.
func (j *Journal) forgetContent(key string) {
	if c := j.contents[key]; c != nil {
		c.close()
		delete(j.contents, key)
	}
}

// busy tells the journal that the program is about to change a file. Call done
// when it has.
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

// recordNew records that a name does not exist and is about to be made. It
// reports false if the name exists.
func (j *Journal) recordNew(path string) (bool, error) {
	if _, err := os.Lstat(path); !missing(err) {
		return false, nil
	}
	if err := j.recordName(path); err != nil {
		return false, err
	}
	// Another rank may make something else there.
	j.created[path] = !j.shared()
	return true, nil
}

// recordNewDirs records that a directory is about to be made, and its missing
// parents, the outermost first.
func (j *Journal) recordNewDirs(path string) error {
	if _, err := os.Lstat(path); !missing(err) {
		return nil
	}
	if up := filepath.Dir(path); up != path {
		if err := j.recordNewDirs(up); err != nil {
			return err
		}
	}
	_, err := j.recordNew(path)
	return err
}

// link is os.Link. Tests let it fail, as it does across file systems.
var link = os.Link

// maxCopy is the largest size of a file that is kept as a copy if other ranks
// may have it open.
const maxCopy = 64 << 20

// keep makes a hard link to a file among the kept files, or a copy if that is
// not possible.
func (j *Journal) keep(path string, e *entry) error {
	name, to, err := j.newKept(false)
	if err != nil {
		return err
	}
	e.Kept = name
	if j.shared() {
		e.Live = true
	}
	// A link needs no room, and stays a name of the same file.
	if (!j.shared() || e.Size > maxCopy) && link(path, to) == nil {
		step()
		f, err := openForReading(to)
		if err != nil {
			return err
		}
		if !e.Live || j.underway == 0 && e.Size <= maxFullHash {
			e.Hash, err = hashKept(f, false)
		}
		return errors.Join(err, syncKept(f), f.Close())
	}
	if e.Kept, to, err = j.newKept(true); err != nil {
		return err
	}
	e.Copy, e.Live = true, false
	from, err := openForReading(path)
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

// openForReading opens a file for reading, even if its owner may only write it.
func openForReading(path string) (*os.File, error) {
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

// newKept returns the name and path of a new kept file. A copy needs room, so
// its path may be in an overflow directory.
func (j *Journal) newKept(copy bool) (name, path string, err error) {
	j.kept++
	name = strconv.FormatUint(j.kept, 10)
	dir := j.log.rankFile(keptName)
	if j.overflow && copy {
		if dir, err = j.log.overflowDir(); err != nil {
			return "", "", err
		}
	} else if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", "", err
	} else if copy {
		if err := checkSpace(); err != nil {
			return "", "", err
		}
	}
	path = filepath.Join(dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a kill
		return "", "", err
	}
	return name, path, nil
}

// content is a file that existed when the segment began, and is changed.
type content struct {
	path         string
	ino          uint64
	base         int64  // its size when the segment began
	sizeRecorded bool   // base is in the log
	kept         []span // the ranges that are kept, in order
	name         string // of the kept file
	to           *os.File
	at           int64 // bytes in the kept file

	// Several ranks: where this rank's last write ended that made the file
	// longer, and whether it was by O_APPEND.
	end    int64
	append bool
}

type span struct{ lo, hi int64 }

// block is the unit in which parts of files are kept.
const block = 4096

// contentKey returns a key that is the same for all names of a file.
func contentKey(path string, st fs.FileInfo) string {
	if n := inode(st); n != 0 {
		return strconv.FormatUint(device(st), 16) + ":" + strconv.FormatUint(n, 16)
	}
	return path
}

// content returns the record of a file; nil: the file was made in this segment.
// It is an error if the file does not exist.
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
	if j.shared() { // other ranks may change it, and its name
		c.path, c.base = path, st.Size()
	}
	return c, nil
}

// recordSize records the length of a file.
func (j *Journal) recordSize(c *content) error {
	if c == nil || c.sizeRecorded {
		return nil
	}
	if err := j.write(entry{Op: opSize, Path: c.path, Ino: c.ino, Size: c.base}); err != nil {
		return err
	}
	c.sizeRecorded = !j.shared()
	c.end = -1
	return nil
}

// recordData keeps the part of a range of a file that existed when the segment
// began and is not kept yet. If from is not nil, it reads from there. A single
// rank keeps whole blocks. Several ranks keep exactly the bytes that are
// overwritten, because another rank may change the bytes beside them.
func (j *Journal) recordData(c *content, from *os.File, lo, hi int64) (err error) {
	if c != nil {
		j.markChanged(c.path)
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
		if from, err = openForReading(c.path); err != nil {
			return j.giveUp(err)
		}
		defer from.Close()
	}
	if err := j.withOverflow(func() error { return j.recordGaps(c, from, gaps) }); err != nil {
		return j.giveUp(err)
	}
	c.add(span{lo, hi})
	return nil
}

// recordGaps keeps ranges of a file and records that.
func (j *Journal) recordGaps(c *content, from *os.File, gaps []span) error {
	if c.to == nil {
		name, path, err := j.newKept(true)
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
		} else if s, err := hashRange(c.to, 0, n); err != nil {
			return err
		} else {
			sum = s
		}
		if n == 0 { // another process has truncated it
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

// gaps returns the parts of a range that are not kept.
func (c *content) gaps(lo, hi int64) (out []span) {
	for _, s := range c.kept {
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

// add notes that a range is kept.
func (c *content) add(s span) {
	i, _ := slices.BinarySearchFunc(c.kept, s.lo, func(h span, lo int64) int { return int(min(max(h.hi-lo, -1), 1)) })
	k := i
	for ; k < len(c.kept) && c.kept[k].lo <= s.hi; k++ {
		s.lo, s.hi = min(s.lo, c.kept[k].lo), max(s.hi, c.kept[k].hi)
	}
	c.kept = slices.Replace(c.kept, i, k, s)
}

func (c *content) close() {
	if c.to != nil {
		c.to.Close()
		c.to = nil
	}
}

// recordOpening records that a file is about to be opened for writing, or is
// about to be made. path has no links.
func (j *Journal) recordOpening(path string, flag int) error {
	if made, err := j.recordNew(path); made || err != nil {
		return err
	}
	c, err := j.content(path)
	if err != nil {
		return nil // the program cannot open it either
	}
	if j.shared() && flag&os.O_TRUNC == 0 { // see beforeSharedChange
		return nil
	}
	if err := j.recordSize(c); err != nil {
		return err
	}
	if flag&os.O_TRUNC != 0 {
		return j.recordData(c, nil, 0, noSize)
	}
	return nil
}

// noSize is larger than any file.
const noSize = 1<<63 - 1

// recordMode records the permissions of a file. It does so for each change,
// because an undo of later lines may need those permissions.
func (j *Journal) recordMode(path string, mode fs.FileMode) error {
	st, err := os.Stat(path)
	if err != nil || j.created[path] && !st.IsDir() || st.Mode().Perm() == mode.Perm() {
		return nil
	}
	return j.write(entry{Op: opMode, Path: path, Mode: uint32(st.Mode().Perm())})
}

// recordTree records all names below a directory, and then the directory's own,
// so that an undo makes the directory first.
func (j *Journal) recordTree(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return nil // the program cannot reach it either
	}
	if st.IsDir() {
		list, err := os.ReadDir(path)
		if err != nil {
			return nil
		}
		for _, e := range list {
			if err := j.recordTree(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return j.recordName(path)
}

// rename does what os.Rename does, and ends the segment. The segment does not
// end if the renamed file was made in it.
func (j *Journal) rename(from, to string, do func() error) error {
	st, err := os.Lstat(from)
	if err != nil || from == to {
		return do()
	}
	if other, err := os.Lstat(to); err == nil && os.SameFile(st, other) {
		return do() // does nothing
	}
	if err := j.recordName(to); err != nil {
		return err
	}
	if j.created[from] && !st.IsDir() {
		if err = do(); err == nil {
			delete(j.created, from)
			j.created[to] = true
			j.nameGone(to)
			j.renamed(from, to)
		}
		return err
	}
	before := *j.log
	if err := j.write(entry{Op: opMove, Path: from, To: to}); err != nil {
		return err
	}
	err = do()
	step()
	if err == nil {
		j.nameGone(to)
		j.renamed(from, to)
	} else if !j.incomplete {
		j.log.retract(&before)
	}
	j.beginSegment()
	return err
}

// link does what os.Link does, and ends the segment, because the program may
// change the file by its new name, too.
func (j *Journal) link(to string, do func() error) error {
	if _, err := os.Lstat(to); !missing(err) {
		return do()
	}
	if err := j.recordName(to); err != nil {
		return err
	}
	err := do()
	j.beginSegment()
	return err
}
