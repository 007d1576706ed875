package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// undoing is the work of bringing files back to what they were at a checkpoint.
type undoing struct {
	set  uint64
	logs []*logFile
	from []int // the first line of each journal that is undone, or cut
	all  []noted

	of map[uint64][]int // lines about a file, by its inode

	origins []keptOrigin
}

// keptOrigin is a kept file that has become a file of its own, and the program's file
// that it was a name of.
type keptOrigin struct{ kept, name string }

// noted is a line of one of several journals.
type noted struct {
	entry
	log   *logFile
	index int // in log
	undo  bool
}

// planUndo finds out what to do. It changes nothing.
func planUndo(set uint64, logs ...*logFile) (*undoing, error) {
	p := &undoing{set: set}
	for _, l := range logs {
		if len(l.lines) == 0 {
			continue
		}
		first, epoch := l.lines[0], l.epochOf(set)
		switch {
		case first.Lost && epoch < first.Epoch:
			return nil, lostError(l.path())
		case epoch < first.Epoch:
			return nil, fmt.Errorf("%s does not tell any more what files held when checkpoint %d was taken; start with --fresh, or move the checkpoint directory away", l.path(), set)
		}
		from := slices.IndexFunc(l.lines, func(e entry) bool {
			return e.Op == opSet && e.Epoch > epoch || e.Op != opSet && e.Op != opFirst && e.Epoch >= epoch
		})
		if from < 0 {
			from = len(l.lines)
		}
		p.logs, p.from = append(p.logs, l), append(p.from, from)
		for i, e := range l.lines {
			if e.Op != opFirst && e.Op != opSet {
				p.all = append(p.all, noted{e, l, i, i >= from})
			}
		}
	}
	if len(p.logs) > 1 {
		slices.SortStableFunc(p.all, func(a, b noted) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Now, b.Now))
		})
	}
	p.of = make(map[uint64][]int)
	for i, e := range p.all {
		if e.Ino != 0 {
			p.of[e.Ino] = append(p.of[e.Ino], i)
		}
	}
	return p, nil
}

// verify looks whether everything that is needed is there, as it was kept, and
// may be used. It comes before anything is changed.
func (p *undoing) verify() error {
	for i := range p.all {
		e := &p.all[i]
		if e.undo {
			if err := e.trusted(); err != nil {
				return err
			}
		}
		if e.Kept == "" || !e.undo && !p.finds(i) {
			continue
		}
		path := e.log.keptPath(e.Kept)
		f, err := os.Open(path)
		if err != nil {
			if missing(err) {
				err = &damagedError{path, "it is gone"}
			}
			return err
		}
		sum, err := "", error(nil)
		switch {
		case e.Op != opName:
			sum, err = hashPiece(f, e.At, e.Size)
		case e.Hash == "": // it was changed when it was kept, or is large
		case !e.Copy && (e.Live || p.changedAfter(i)): // a copy's inode may be another file's by now
			if sum, err = p.hashThen(i, f); err == nil && !p.changedAfter(i) && p.replaced(i, f) {
				sum = "another"
			}
		default:
			if sum, err = hashKept(f, e.Copy); err == nil && !e.Copy {
				if st, serr := f.Stat(); serr == nil && (st.Size() != e.Size || st.Size() > wholeHash && st.ModTime().UnixNano() != e.Time) {
					sum = "another"
				}
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if err != nil || sum != e.Hash {
			return &damagedError{path, fmt.Sprintf("it is not what was kept of %s", e.log.abs(e.Path))}
		}
	}
	return p.findOrigins()
}

// run undoes, from the last line to the first.
func (p *undoing) run(j *Journal) error {
	if err := p.relink(); err != nil {
		return err
	}
	uncut := 0
	for i, e := range slices.Backward(p.all) {
		if !e.undo || e.index >= len(e.log.lines) { // done together with another one
			continue
		}
		step()
		if err := p.undo(j, i); err != nil {
			return fmt.Errorf("a file that was changed after the checkpoint was taken: %w", err)
		}
		// What was overwritten can be written back often.
		if uncut++; e.Op == opData && uncut < 256 && i > 0 && p.all[i-1].Op == opData && p.all[i-1].log == e.log && p.all[i-1].undo {
			continue
		}
		uncut = 0
		index := e.index
		if e.Op == opPut {
			index--
		}
		if err := e.log.cut(index); err != nil {
			return err
		}
	}
	for i, l := range p.logs {
		if err := l.cut(p.from[i]); err != nil {
			return err
		}
	}
	return nil
}

// undo undoes a line.
func (p *undoing) undo(j *Journal, i int) error {
	e := p.all[i]
	path := e.log.abs(e.Path)
	err := error(nil)
	switch {
	case e.Op == opMove:
		return e.moveBack(path, e.log.abs(e.To))
	case e.Op == opName && e.Was == "":
		return p.unmake(j, i, path)
	case e.Op == opName && e.Was == "dir":
		return e.makeFolder(path)
	case e.Op == opName:
		return e.putBack(path)
	case e.Op == opSize:
		err = p.each(i, func(path string) error { return os.Truncate(path, e.Size) })
	case e.Op == opData:
		err = p.each(i, e.refill)
	case e.Op == opMode:
		err = os.Chmod(path, fs.FileMode(e.Mode))
	case e.Op == opGrow:
		err = p.shrink(i)
	case e.Op == opPut:
		if err = e.refill(p.find(i)); err == nil {
			err = os.Truncate(p.find(i), e.Off+e.Size)
		}
	}
	if missing(err) {
		err = nil
	}
	return err
}

// moveBack gives something the name that it had, unless it has it: it was not
// renamed then, or is back.
func (e *entry) moveBack(path, to string) error {
	if _, err := os.Lstat(path); !missing(err) {
		return err
	}
	if _, err := os.Lstat(to); !missing(err) {
		return os.Rename(to, path)
	}
	return fmt.Errorf("%s, which had been %s, is not there any more: bring it back, or start with --fresh", to, path)
}

// unmake removes what did not exist.
func (p *undoing) unmake(j *Journal, i int, path string) error {
	st, err := os.Lstat(path)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.IsDir() && p.needed(i, inode(st)) {
		return nil
	}
	err = os.Remove(path)
	if err != nil && st.IsDir() {
		p.unmakeIn(i, path)
		err = os.Remove(path)
	}
	if err != nil && st.IsDir() { // somebody else has put something there
		if j.leftover == nil {
			j.leftover = make(map[string]bool)
		}
		j.leftover[path] = true
		return nil
	}
	return err
}

// unmakeIn removes what is in a directory that did not exist, and that is noted
// before it: the program tried to make it when there was no such directory.
func (p *undoing) unmakeIn(i int, dir string) {
	var names []string
	for _, e := range p.all[:i] {
		if e.undo && e.Op == opName && e.Was == "" {
			if path := e.log.abs(e.Path); strings.HasPrefix(path, dir+string(filepath.Separator)) {
				names = append(names, path)
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		os.Remove(name)
	}
}

// makeFolder makes a directory that was removed. There may be a new one.
func (e *entry) makeFolder(path string) error {
	st, err := os.Lstat(path)
	if err == nil && !st.IsDir() {
		if err := os.Remove(path); err != nil {
			return err
		}
		err = fs.ErrNotExist
	}
	if missing(err) {
		err = os.MkdirAll(path, 0o777)
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, fs.FileMode(e.Mode))
}

// putBack gives a name back to the file or link that had it.
func (e *noted) putBack(path string) error {
	st, err := os.Lstat(path)
	if err != nil && !missing(err) {
		return err
	}
	there := err == nil
	if e.Was == "link" {
		if to, err := os.Readlink(path); err == nil && to == e.To {
			return nil
		}
	} else if k, err := os.Lstat(e.log.keptPath(e.Kept)); err != nil {
		return err
	} else if there && os.SameFile(st, k) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	tmp := path + ".cairn-undo"
	if err := os.Remove(tmp); err != nil && !missing(err) {
		return err
	}
	switch {
	case e.Was == "link":
		err = os.Symlink(e.To, tmp)
	case e.Copy:
		err = e.copyBack(tmp)
	default:
		if err = os.Link(e.log.keptPath(e.Kept), tmp); err == nil { // one that was brought back may have others
			err = withMode(tmp, fs.FileMode(e.Mode))
		}
	}
	step()
	if err == nil && there && st.IsDir() {
		err = os.Remove(path)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	return err
}

// withMode gives a file its permissions, if it has others.
func withMode(name string, mode fs.FileMode) error {
	st, err := os.Stat(name)
	if err != nil || st.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(name, mode)
}

// copyBack makes a file of one that was kept as a copy.
func (e *noted) copyBack(name string) error {
	from, err := os.Open(e.log.keptPath(e.Kept))
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if !clone(f, from) {
		_, err = io.Copy(f, from)
	}
	if err = errors.Join(err, f.Chmod(fs.FileMode(e.Mode)), f.Close()); err != nil {
		return err
	}
	at := time.Unix(0, e.Time)
	return os.Chtimes(name, at, at)
}

// refill writes back a piece of a file.
func (e *noted) refill(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	from, err := os.Open(e.log.keptPath(e.Kept))
	if err != nil {
		f.Close()
		return fmt.Errorf("what it held is lost: %v", err)
	}
	defer from.Close()
	n, err := io.Copy(io.NewOffsetWriter(f, e.Off), io.NewSectionReader(from, e.At, e.Size))
	if err == nil && n < e.Size {
		err = fmt.Errorf("%s: what is kept of %s is too short", from.Name(), path)
	}
	return errors.Join(err, f.Close())
}

// find returns the file that a line is about. It may have lost its name since,
// and is then one of those that are kept.
func (p *undoing) find(i int) string {
	e := &p.all[i]
	path := e.log.abs(e.Path)
	if e.Ino == 0 {
		return path
	}
	if st, err := os.Lstat(path); err == nil && inode(st) == e.Ino {
		return path
	}
	for _, o := range p.all {
		if o.Op == opName && !o.Copy && o.Kept != "" && o.Ino == e.Ino {
			kept := o.log.keptPath(o.Kept)
			if st, err := os.Lstat(kept); err == nil && inode(st) == e.Ino {
				return kept
			}
		}
	}
	return path
}

// A kept file is another name of a file of the program. It is another file, though,
// if the run's directory was copied, or the kept file was brought back from a copy:
// then it becomes a name of the program's file again, if that is there, and else
// what is undone is undone in both.

// each calls f with the file that a line is about, and with those that are kept
// of it and are files of their own.
func (p *undoing) each(i int, f func(path string) error) error {
	e := &p.all[i]
	path := p.find(i)
	err := f(path)
	if e.Ino == 0 || err != nil && !missing(err) {
		return err
	}
	var done []fs.FileInfo
	if st, err := os.Stat(path); err == nil {
		done = append(done, st)
	}
	for _, k := range p.of[e.Ino] {
		o := &p.all[k]
		if k >= i || o.Op != opName || o.Copy || o.Kept == "" {
			continue
		}
		kept := o.log.keptPath(o.Kept)
		st, serr := os.Stat(kept)
		if serr != nil || slices.ContainsFunc(done, func(d fs.FileInfo) bool { return os.SameFile(d, st) }) {
			continue
		}
		done = append(done, st)
		if err := f(kept); err != nil {
			return err
		}
	}
	return err
}

// findOrigins finds the kept files that have become files of their own while
// the program's file is still there. A kept file may be damaged in a way that
// its own digest can't tell, because lines after it replace all that it holds.
// So the program's file is tried against that digest, too.
func (p *undoing) findOrigins() error {
	names := make(map[string]map[uint64]string) // by directory
	for i := range p.all {
		e := &p.all[i]
		if e.Op != opName || e.Copy || e.Kept == "" || e.Ino == 0 {
			continue
		}
		kept := e.log.keptPath(e.Kept)
		if st, err := os.Lstat(kept); err != nil || inode(st) == e.Ino {
			continue
		}
		if names[e.log.base] == nil {
			names[e.log.base] = namesIn(e.log.base)
		}
		name := names[e.log.base][e.Ino]
		if name == "" {
			continue
		}
		same := sameBytes(name, kept)
		if st, err := os.Stat(e.log.base); !same && err == nil && inode(st) == e.log.lines[0].Home {
			if e.Hash == "" {
				return &damagedError{kept, fmt.Sprintf("it is another file than was kept of %s", e.log.abs(e.Path))}
			}
			same = p.heldThen(i, name)
		}
		if same {
			p.origins = append(p.origins, keptOrigin{kept, name})
		}
	}
	return nil
}

// heldThen reports whether a file held what was kept when line i was written.
func (p *undoing) heldThen(i int, name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	sum, err := p.hashThen(i, f)
	return err == nil && sum == p.all[i].Hash
}

// relink makes kept files names of the program's files again.
func (p *undoing) relink() error {
	for _, o := range p.origins {
		tmp := o.kept + ".tmp"
		if err := os.Remove(tmp); err != nil && !missing(err) {
			return err
		}
		if os.Link(o.name, tmp) != nil { // another file system
			continue
		}
		if err := os.Rename(tmp, o.kept); err != nil {
			return err
		}
	}
	return nil
}

// namesIn returns a name of each file in a directory, by its inode.
func namesIn(dir string) map[uint64]string {
	names := make(map[uint64]string)
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if st, err := d.Info(); err == nil {
				names[inode(st)] = path
			}
		}
		return nil
	})
	return names
}

// sameBytes reports whether two files hold the same.
func sameBytes(a, b string) bool {
	x, err := os.ReadFile(a)
	if err != nil {
		return false
	}
	y, err := os.ReadFile(b)
	return err == nil && bytes.Equal(x, y)
}

// finds reports whether a file that is kept by a line which stays may be found to
// be the one that a line which is undone is about.
func (p *undoing) finds(i int) bool {
	e := &p.all[i]
	return e.Op == opName && !e.Copy && slices.ContainsFunc(p.of[e.Ino], func(k int) bool { return p.all[k].undo })
}

// replaced reports whether a kept file is longer than the one that was kept was, and
// is not that one: another name of that one is kept, or the checkpoint directory
// has not been copied, so this one was not made then either.
func (p *undoing) replaced(i int, f *os.File) bool {
	e := &p.all[i]
	st, err := f.Stat()
	if err != nil || st.Size() <= e.Size || inode(st) == e.Ino {
		return false
	}
	dir, err := os.Stat(e.log.dir)
	return err == nil && inode(dir) == e.log.lines[0].Ino || slices.ContainsFunc(p.of[e.Ino], func(k int) bool {
		o := &p.all[k]
		if o.Op != opName || o.Copy || o.Kept == "" {
			return false
		}
		st, err := os.Lstat(o.log.keptPath(o.Kept))
		return err == nil && inode(st) == e.Ino
	})
}

// changedAfter reports whether lines after one tell of changes of its file.
func (p *undoing) changedAfter(i int) bool {
	return slices.ContainsFunc(p.of[p.all[i].Ino], func(k int) bool { return k > i && p.all[k].Op != opName })
}

// hashThen is the digest of what a file that is kept held when line i was written:
// what lines after it tell of is undone in memory. The file may have become longer
// since, which needs no line.
func (p *undoing) hashThen(i int, f *os.File) (string, error) {
	e := &p.all[i]
	text := make([]byte, e.Size)
	n, err := io.ReadFull(f, text)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return "", err
	}
	has := int64(n)
	for _, k := range slices.Backward(p.of[e.Ino]) {
		o := &p.all[k]
		switch {
		case k <= i:
		case o.Op == opSize:
			if o.Size < has {
				clear(text[o.Size:has])
			}
			has = min(o.Size, e.Size)
		case o.Op == opData:
			lo, hi := min(o.Off, e.Size), min(o.Off+o.Size, e.Size)
			if lo == hi {
				continue
			}
			from, err := os.Open(o.log.keptPath(o.Kept))
			if err != nil {
				return "", err
			}
			_, err = io.ReadFull(io.NewSectionReader(from, o.At, hi-lo), text[lo:hi])
			from.Close()
			if err != nil {
				return "", err
			}
			has = max(has, hi)
		}
	}
	if has < e.Size {
		return "shorter", nil
	}
	var h hasher
	h.Write(text)
	return h.String(), nil
}

// envOutside lets a restart change files outside the working directory that a
// checkpoint from elsewhere names.
const envOutside = "CAIRN_OUTSIDE_FILES"

// trusted returns an error for a line that may not be followed: the checkpoint
// directory is not the one in which the journal was written, so that somebody else
// may have made it, and the file is not in the working directory.
func (e *noted) trusted() error {
	own := &e.log.lines[0]
	if st, err := os.Stat(e.log.dir); err == nil && own.Ino == inode(st) && own.Ino != 0 || os.Getenv(envOutside) != "" {
		return nil
	}
	for _, name := range []string{e.Path, e.To} {
		if name == "" || strings.HasPrefix(name, keptPrefix) || name == e.To && e.Op != opMove {
			continue
		}
		path, err := place(e.log.abs(name))
		if err != nil {
			return err
		}
		if _, ok := cutFolder(path, withoutLinks(e.log.home)); !ok {
			return fmt.Errorf("%s was not written in this directory, and a restart would change %s, which is outside the working directory %s: if you trust these checkpoints, set %s=1", e.log.path(), path, e.log.home, envOutside)
		}
	}
	return nil
}

// withoutLinks is a directory without symbolic links in its name.
func withoutLinks(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}
