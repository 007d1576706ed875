package journal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// undoPlan lists what has to be undone to set files back to a checkpoint.
type undoPlan struct {
	checkpoint uint64
	logs       []*logFile
	from       []int // the first line of each log that is undone or dropped
	all        []record

	of map[uint64][]int // the lines about a file, by its inode

	origins []origin

	undone map[string]bool // what was changed since the last settle
}

// origin is a kept file that is not a hard link any more, and the program's
// file that it was a link to.
type origin struct{ kept, name string }

// record is a line of one of several logs.
type record struct {
	entry
	log   *logFile
	index int // in log
	undo  bool
}

// planUndo finds out what has to be undone. It changes nothing.
func planUndo(index uint64, logs ...*logFile) (*undoPlan, error) {
	p := &undoPlan{checkpoint: index}
	for _, l := range logs {
		if len(l.lines) == 0 {
			continue
		}
		first, epoch := l.lines[0], l.epochOf(index)
		switch {
		case first.Incomplete && epoch < first.Epoch:
			return nil, incompleteError(l.path())
		case epoch < first.Epoch:
			return nil, fmt.Errorf("%s does not reach back to checkpoint %d any more, so files cannot be restored; start with --fresh, or move the checkpoint directory away", l.path(), index)
		}
		from := slices.IndexFunc(l.lines, func(e entry) bool {
			return e.Op == opCheckpoint && e.Epoch > epoch || e.Op != opCheckpoint && e.Op != opFirst && e.Epoch >= epoch
		})
		if from < 0 {
			from = len(l.lines)
		}
		p.logs, p.from = append(p.logs, l), append(p.from, from)
		for i, e := range l.lines {
			if e.Op != opFirst && e.Op != opCheckpoint {
				p.all = append(p.all, record{e, l, i, i >= from})
			}
		}
	}
	if len(p.logs) > 1 {
		slices.SortStableFunc(p.all, func(a, b record) int {
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

// verify checks that all needed kept files exist and are undamaged, and that
// the lines may be trusted. Call it before any change.
func (p *undoPlan) verify() error {
	for i := range p.all {
		e := &p.all[i]
		if e.undo {
			if err := e.trusted(); err != nil {
				return err
			}
		}
		if e.Kept == "" || !e.undo && !p.mayFind(i) {
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
			sum, err = hashRange(f, e.At, e.Size)
		case e.Hash == "": // it was being changed when it was kept, or is large
		case !e.Copy && (e.Live || p.changedAfter(i)): // not for a copy: another file may have its inode now
			if sum, err = p.hashAt(i, f); err == nil && !p.changedAfter(i) && p.replaced(i, f) {
				sum = "another"
			}
		default:
			if sum, err = hashKept(f, e.Copy); err == nil && !e.Copy {
				if st, serr := f.Stat(); serr == nil && (st.Size() != e.Size || st.Size() > maxFullHash && st.ModTime().UnixNano() != e.Time) {
					sum = "another"
				}
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if err != nil || sum != e.Hash {
			return &damagedError{path, fmt.Sprintf("it is not the old content of %s", e.log.abs(e.Path))}
		}
	}
	return p.findOrigins()
}

// run undoes lines, from the last to the first.
func (p *undoPlan) run(j *Journal) error {
	for i, l := range p.logs {
		if p.from[i] < len(l.lines) {
			l.undos += 1 + l.undos%2 // odd: it is under way, see Snapshot.extends
			if err := l.writeHead(); err != nil {
				return err
			}
		}
	}
	if err := p.relink(); err != nil {
		return err
	}
	uncut := 0
	for i, e := range slices.Backward(p.all) {
		if !e.undo || e.index >= len(e.log.lines) { // undone together with another line
			continue
		}
		step()
		p.markUndone(i)
		if err := p.undo(j, i); err != nil {
			return fmt.Errorf("cannot undo a change of a file after the checkpoint: %w", err)
		}
		// Bytes can be written back several times, so one cut serves several
		// lines.
		if uncut++; e.Op == opData && uncut < 256 && i > 0 && p.all[i-1].Op == opData && p.all[i-1].log == e.log && p.all[i-1].undo {
			continue
		}
		uncut = 0
		index := e.index
		if e.Op == opPut {
			index--
		}
		if err := p.cut(e.log, index); err != nil {
			return err
		}
	}
	for i, l := range p.logs {
		if err := p.cut(l, p.from[i]); err != nil {
			return err
		}
	}
	for _, l := range p.logs {
		if l.undos%2 == 1 {
			l.undos++
			if err := l.writeHead(); err != nil {
				return err
			}
		}
	}
	return nil
}

// markUndone notes the files and names that change when a line is undone.
func (p *undoPlan) markUndone(i int) {
	if p.undone == nil {
		p.undone = make(map[string]bool)
	}
	e := &p.all[i]
	p.undone[e.log.abs(e.Path)] = true
	switch e.Op {
	case opMove:
		p.undone[e.log.abs(e.To)] = true
	case opSize, opData:
		p.eachFile(i, func(path string) error { p.undone[path] = true; return nil })
	case opGrow, opPut:
		p.undone[p.file(i)] = true
	}
}

// syncUndone makes files and names durable. Tests record what they are.
var syncUndone = ckpt.SyncChanged

// cut removes the line with index from, and all later ones, from a log. They
// are undone. cut first makes the restored files durable: otherwise, after a
// power cut, files could have their later content again, without a line to undo
// it.
func (p *undoPlan) cut(l *logFile, from int) error {
	if syncing && len(p.undone) > 0 {
		if err := syncUndone(slices.Sorted(maps.Keys(p.undone))); err != nil {
			return fmt.Errorf("cannot make durable what was undone: %w", err)
		}
	}
	clear(p.undone)
	return l.cut(from)
}

// undo undoes a line.
func (p *undoPlan) undo(j *Journal, i int) error {
	e := p.all[i]
	path := e.log.abs(e.Path)
	err := error(nil)
	switch {
	case e.Op == opMove:
		return e.renameBack(path, e.log.abs(e.To))
	case e.Op == opName && e.Was == "":
		return p.removeNew(j, i, path)
	case e.Op == opName && e.Was == "dir":
		return e.makeDir(path)
	case e.Op == opName:
		return e.restoreFile(path)
	case e.Op == opSize:
		err = p.eachFile(i, func(path string) error { return os.Truncate(path, e.Size) })
	case e.Op == opData:
		err = p.eachFile(i, e.writeBack)
	case e.Op == opMode:
		err = os.Chmod(path, fs.FileMode(e.Mode))
	case e.Op == opGrow:
		err = p.shrink(i)
	case e.Op == opPut:
		if err = e.writeBack(p.file(i)); err == nil {
			err = os.Truncate(p.file(i), e.Off+e.Size)
		}
	}
	if missing(err) {
		err = nil
	}
	return err
}

// renameBack undoes a rename, unless the old name exists: then the rename was
// never made, or is undone already.
func (e *entry) renameBack(path, to string) error {
	if _, err := os.Lstat(path); !missing(err) {
		return err
	}
	if _, err := os.Lstat(to); !missing(err) {
		return os.Rename(to, path)
	}
	return fmt.Errorf("cannot undo the renaming of %[2]s to %[1]s: %[1]s does not exist any more; bring it back, or start with --fresh", to, path)
}

// removeNew removes a name that did not exist at the checkpoint.
func (p *undoPlan) removeNew(j *Journal, i int, path string) error {
	st, err := os.Lstat(path)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.IsDir() && p.writtenByOthers(i, inode(st)) {
		return nil
	}
	err = os.Remove(path)
	if err != nil && st.IsDir() {
		p.removeNewIn(i, path)
		err = os.Remove(path)
	}
	if err != nil && st.IsDir() { // another process has put something there
		if j.leftover == nil {
			j.leftover = make(map[string]bool)
		}
		j.leftover[path] = true
		return nil
	}
	return err
}

// removeNewIn removes new names in a new directory that were recorded before
// it: the program tried to make them when the directory did not exist.
func (p *undoPlan) removeNewIn(i int, dir string) {
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

// makeDir makes a directory again that was removed, unless there is one.
func (e *entry) makeDir(path string) error {
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

// restoreFile makes a name refer to the file or link again that had it.
func (e *record) restoreFile(path string) error {
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
		if err = os.Link(e.log.keptPath(e.Kept), tmp); err == nil { // the kept file may be needed again
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

// withMode sets the permissions of a file.
func withMode(name string, mode fs.FileMode) error {
	st, err := os.Stat(name)
	if err != nil || st.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(name, mode)
}

// copyBack makes a file from a kept copy.
func (e *record) copyBack(name string) error {
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

// writeBack writes a kept range back into a file.
func (e *record) writeBack(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	from, err := os.Open(e.log.keptPath(e.Kept))
	if err != nil {
		f.Close()
		return fmt.Errorf("its old content is lost: %v", err)
	}
	defer from.Close()
	n, err := io.Copy(io.NewOffsetWriter(f, e.Off), io.NewSectionReader(from, e.At, e.Size))
	if err == nil && n < e.Size {
		err = fmt.Errorf("%s, with the old content of %s, is too short", from.Name(), path)
	}
	return errors.Join(err, f.Close())
}

// file returns the path of the file that a line is about. If the file has lost
// its name, that is a kept file.
func (p *undoPlan) file(i int) string {
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

// A kept file is usually a hard link to a file of the program. It becomes a
// separate file if the run's directory is copied, or if the kept file is
// restored from a backup. Then the undo links it to the program's file again,
// if that still exists. Otherwise it undoes lines in both.

// eachFile calls f for the file that a line is about, and for kept files that
// were links to it and are separate files now.
func (p *undoPlan) eachFile(i int, f func(path string) error) error {
	e := &p.all[i]
	path := p.file(i)
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

// findOrigins finds kept files that are separate files now although the
// program's file still exists. Damage to such a kept file may be invisible: if
// later lines replace all its bytes, its digest still fits. So findOrigins
// compares the program's file with that digest, too.
func (p *undoPlan) findOrigins() error {
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
				return &damagedError{kept, fmt.Sprintf("it is not the old content of %s", e.log.abs(e.Path))}
			}
			same = p.heldAt(i, name)
		}
		if same {
			p.origins = append(p.origins, origin{kept, name})
		}
	}
	return nil
}

// heldAt reports whether a file held the kept bytes when line i was written.
func (p *undoPlan) heldAt(i int, name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	sum, err := p.hashAt(i, f)
	return err == nil && sum == p.all[i].Hash
}

// relink replaces kept files by links to the program's files.
func (p *undoPlan) relink() error {
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

// namesIn returns a name of each file below a directory, by inode.
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

// sameBytes reports whether two files have the same content.
func sameBytes(a, b string) bool {
	x, err := os.ReadFile(a)
	if err != nil {
		return false
	}
	y, err := os.ReadFile(b)
	return err == nil && bytes.Equal(x, y)
}

// mayFind reports whether the kept file of line i, which is not undone, may be
// the file that an undone line is about.
func (p *undoPlan) mayFind(i int) bool {
	e := &p.all[i]
	return e.Op == opName && !e.Copy && slices.ContainsFunc(p.of[e.Ino], func(k int) bool { return p.all[k].undo })
}

// replaced reports whether a kept link was replaced by another, longer file. It
// was if another kept link has the right inode, or if the checkpoint directory
// was not copied.
func (p *undoPlan) replaced(i int, f *os.File) bool {
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

// changedAfter reports whether later lines record changes of the file of a
// line.
func (p *undoPlan) changedAfter(i int) bool {
	return slices.ContainsFunc(p.of[p.all[i].Ino], func(k int) bool { return k > i && p.all[k].Op != opName })
}

// hashAt returns the digest that a kept file had when line i was written. It
// undoes the later lines in memory. The file may have grown since, which no
// line records.
func (p *undoPlan) hashAt(i int, f *os.File) (string, error) {
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

// envOutside allows a restart to change files outside the working directory
// even if the checkpoints come from elsewhere.
const envOutside = "CAIRN_OUTSIDE_FILES"

// trusted returns an error for a line that must not be undone: the log was
// written in another directory, perhaps by another user, and the file is
// outside the working directory.
func (e *record) trusted() error {
	own := &e.log.lines[0]
	if st, err := os.Stat(e.log.dir); err == nil && inode(st) != 0 && (own.Ino == inode(st) || own.Adopted == inode(st)) || os.Getenv(envOutside) != "" {
		return nil
	}
	for _, name := range []string{e.Path, e.To} {
		if name == "" || strings.HasPrefix(name, keptPrefix) || name == e.To && e.Op != opMove {
			continue
		}
		path, err := resolveDir(e.log.abs(name))
		if err != nil {
			return err
		}
		if _, ok := cutDir(path, withoutLinks(e.log.home)); !ok {
			return fmt.Errorf("%s was written in another directory, and a restart would change %s, which is outside the working directory %s; if you trust these checkpoints, set %s=1", e.log.path(), path, e.log.home, envOutside)
		}
	}
	return nil
}

// withoutLinks returns a directory without symbolic links.
func withoutLinks(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}
