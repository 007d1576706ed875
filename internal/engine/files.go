package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
)

// OpenFile opens a data file of the program as os.OpenFile does, and makes it
// part of the state: sets hold its path, mode, offset and size. When a run is
// restored, the file is positioned where it was, and one that is written is
// cut back to the size it had, so that output is neither doubled nor lost.
// What was overwritten in place since the set was saved is not undone.
//
// SetFileName it before Restore, as on a fresh start: an existing file is then not
// truncated if a set will say what it holds. After Restore, a file that was
// open when the set was saved is handed out as it is, not opened anew. A
// *os.ProtectFile that came from here may itself be part of protected values. A
// relative name is relative to the working folder when the run is restored, too.
func (p *Run) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	if f := p.files.claim(name, flag); f != nil {
		return f, nil
	}
	if fd, ok := control.StreamOf(name); ok && fd > 0 && flag&(os.O_WRONLY|os.O_RDWR) != 0 {
		return p.files.openStream(name, fd)
	}
	truncate := false
	open := flag
	if p.files.resuming {
		truncate = flag&os.O_TRUNC != 0
		open &^= os.O_TRUNC | os.O_EXCL
	}
	_, gone := os.Stat(name)
	f, err := os.OpenFile(name, open, perm)
	if err != nil {
		return nil, err
	}
	if err := p.files.add(f, name, flag, perm, truncate); err != nil {
		f.Close()
		return nil, err
	}
	p.files.open[len(p.files.open)-1].created = gone != nil
	return f, nil
}

// ProtectFile makes a file that the program opened itself, with these flags, part of
// the state; see OpenFile.
func (p *Run) ProtectFile(f *os.File, flag int) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return p.files.add(f, f.Name(), flag, st.Mode().Perm(), false)
}

// FilesClaimed says that the program has its files from the values that were
// restored, and asks for none of them again: what OpenFile opens is new.
func (p *Run) FilesClaimed() {
	for _, o := range p.files.open {
		o.unclaimed = false
	}
}

// fileTable holds the run's open data files.
type fileTable struct {
	resuming   bool // sets exist, and Restore has not been called
	open       []*openFile
	next       int
	saved      []*openFile // while restoring: by the set's ids
	migrated   bool        // nothing has been written since the state was taken
	formerDirs []string    // where the run was started before it was moved or copied,
	workDir    string      // and where it is started now
	journaled  bool        // somebody else brings files back: see SetJournal
	dirInode   uint64      // inode of the checkpoint directory; 0: not known

	output       outputDigest    // of standard output
	digestInputs bool            // entries have digests: see RecordInputs
	stdin        *ckpt.FileEntry // while restoring: what it was
	inputs       []openFile      // … files that were only read, as the set has them
}

type openFile struct {
	entry     ckpt.FileEntry
	f         *os.File
	truncate  bool // was asked for, and waits for Restore
	created   bool // did not exist before
	unclaimed bool // opened by Restore, and the program has not asked for it yet

	// Where it stood when the program got it, or when Restore was over.
	firstSize, firstOff int64
}

// The standard streams are known without being opened; they have no entry.
const (
	idStdin = 1<<30 + iota
	idStdout
	idStderr
)

func (t *fileTable) add(f *os.File, name string, flag int, perm fs.FileMode, truncate bool) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("cairn: %s is not a regular file: it can't be positioned when the run is restored", name)
	}
	abs, err := filepath.Abs(name)
	if err != nil {
		return err
	}
	off, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	at := ""
	if !filepath.IsAbs(name) {
		at = filepath.ToSlash(abs)
	}
	t.open = append(t.open, &openFile{
		entry: ckpt.FileEntry{ID: t.next, Path: portablePath(name), Name: givenName(name), Abs: abs, Mode: modeOf(flag), Perm: uint32(perm), At: at, In: t.dirInode},
		f:     f, truncate: truncate, firstSize: st.Size(), firstOff: off,
	})
	t.next++
	return nil
}

// stdoutPath is how the file that standard output goes to is named in a set,
// where it belongs to the run.
const stdoutPath = "/dev/stdout"

// adoptOutput makes standard output part of the state, a file that somebody
// who supervises the run has opened for it.
func (t *fileTable) adoptOutput() error {
	st, err := os.Stdout.Stat()
	if err != nil {
		return err
	}
	if err := t.add(os.Stdout, stdoutPath, os.O_WRONLY|os.O_APPEND, st.Mode().Perm(), false); err != nil {
		return err
	}
	o := t.open[len(t.open)-1]
	if o.entry.Abs, err = os.Readlink("/proc/self/fd/1"); err != nil {
		return err
	}
	return nil
}

// redirectOutput makes standard output the file of the rank whose place this process
// takes. settle is told whether it has.
func (t *fileTable) redirectOutput(path string) (settle func(taken bool), err error) {
	if path == "" {
		return func(bool) {}, nil
	}
	for _, o := range t.open {
		if o.f == os.Stdout {
			o.entry.Abs = path
		}
	}
	return control.TakeStdout(path)
}

// portablePath is the path as the program gave it, with forward slashes: a
// relative one is looked up in the working folder of whoever restores it.
func portablePath(name string) string { return filepath.ToSlash(filepath.Clean(name)) }

// modeOf is the part of open flags that matters when a file is opened again.
func modeOf(flag int) string {
	mode := "r"
	switch flag & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR) {
	case os.O_WRONLY:
		mode = "w"
	case os.O_RDWR:
		mode = "rw"
	}
	if flag&os.O_APPEND != 0 {
		mode += "a"
	}
	return mode
}

// claim returns the file of that name that Restore has opened, if nobody has
// asked for it yet.
func (t *fileTable) claim(name string, flag int) *os.File {
	path := portablePath(name)
	if fd, ok := control.StreamOf(name); ok && fd > 0 {
		path = streamPath(fd)
	}
	for _, o := range t.open {
		if o.unclaimed && o.entry.Path == path && o.entry.Mode == modeOf(flag) {
			o.unclaimed = false
			return o.f
		}
	}
	return nil
}

func (t *fileTable) id(f *os.File) (int, bool) {
	switch f {
	case os.Stdin:
		return idStdin, true
	case os.Stdout:
		return idStdout, true
	case os.Stderr:
		return idStderr, true
	}
	for _, o := range t.open {
		if o.f == f {
			return o.entry.ID, true
		}
	}
	return 0, false
}

func (t *fileTable) file(id int) (*os.File, error) {
	switch id {
	case idStdin:
		return os.Stdin, nil
	case idStdout:
		return os.Stdout, nil
	case idStderr:
		return os.Stderr, nil
	}
	for _, o := range t.saved {
		if o.entry.ID == id {
			return o.f, o.reopen()
		}
	}
	return nil, fmt.Errorf("%w: no file %d in the file map", ErrCorrupt, id)
}

// entries says where all files stand. Closed ones are forgotten.
func (t *fileTable) entries() ([]ckpt.FileEntry, error) {
	var out []ckpt.FileEntry
	var live []*openFile
	for _, o := range t.open {
		if _, ok := o.stream(); ok {
			if !isClosed(o.f) {
				live, out = append(live, o), append(out, o.entry)
			}
			continue
		}
		off, err := o.f.Seek(0, io.SeekCurrent)
		if errors.Is(err, os.ErrClosed) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
		st, err := o.f.Stat()
		if err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
		o.entry.Offset, o.entry.Size = off, st.Size()
		if o.f == os.Stdout && o.entry.Path == stdoutPath {
			t.digestOutput(o)
		}
		live = append(live, o)
		out = append(out, o.entry)
	}
	t.open = live
	if t.digestInputs {
		out = t.digests(out, live)
	}
	return out, nil
}

// mark takes note of where all files stand before the loop.
func (t *fileTable) mark() error {
	if _, err := t.entries(); err != nil {
		return err
	}
	for _, o := range t.open {
		o.firstSize, o.firstOff = o.entry.Size, o.entry.Offset
	}
	return nil
}

// begin pairs the files of a set with those that the program has opened again.
func (t *fileTable) begin(saved []ckpt.FileEntry) {
	used := make(map[*openFile]bool)
	t.saved, t.stdin, t.inputs = nil, nil, nil
	for _, e := range saved {
		if e.Stdin {
			t.stdin = &e
			continue
		}
		o := &openFile{entry: e, unclaimed: true}
		if e.Path == stdoutPath && !slices.ContainsFunc(t.open, func(c *openFile) bool { return c.f == os.Stdout }) {
			continue // it belonged to the run then
		}
		for _, c := range t.open {
			if !used[c] && c.entry.Path == e.Path && c.entry.Mode == e.Mode {
				used[c] = true
				o.f, o.unclaimed, o.created, o.entry.Abs = c.f, false, c.created, c.entry.Abs
				o.firstSize, o.firstOff = c.firstSize, c.firstOff
				break
			}
		}
		t.saved = append(t.saved, o)
	}
}

// reopen opens the file if the program has not, without changing it.
func (o *openFile) reopen() error {
	if o.f != nil {
		return nil
	}
	if fd, ok := o.stream(); ok {
		var err error
		o.f, err = duplicate(fd, o.entry.Path)
		return err
	}
	flag := os.O_RDONLY
	switch strings.TrimSuffix(o.entry.Mode, "a") {
	case "w":
		flag = os.O_WRONLY
	case "rw":
		flag = os.O_RDWR
	}
	if strings.HasSuffix(o.entry.Mode, "a") {
		flag |= os.O_APPEND
	}
	if o.entry.Size == 0 && flag != os.O_RDONLY {
		flag |= os.O_CREATE
	}
	abs, err := filepath.Abs(filepath.FromSlash(o.entry.Path))
	if err != nil {
		return fmt.Errorf("data file of the checkpoint: %w", err)
	}
	o.entry.Abs = abs
	f, err := os.OpenFile(abs, flag, fs.FileMode(o.entry.Perm))
	if err != nil {
		return o.openError(err)
	}
	o.f = f
	changeFileName(f, cmp.Or(o.entry.Name, filepath.FromSlash(o.entry.Path)))
	return nil
}

// unmatched returns a written file that only the program opened, and one that
// only the set knows: the program may have been started with other paths.
func (t *fileTable) unmatched() (ours, theirs string) {
	for _, o := range t.open {
		if _, ok := o.stream(); !ok && o.entry.Mode != "r" && !t.has(o.f) {
			ours = o.entry.Path
		}
	}
	for _, o := range t.saved {
		if _, ok := o.stream(); !ok && o.entry.Mode != "r" && o.unclaimed {
			theirs = o.entry.Path
		}
	}
	return ours, theirs
}

// tooShort is the error of a file that has fewer bytes than it had.
func (t *fileTable) tooShort(o *openFile, size int64) error {
	has := fmt.Sprintf("%s has %d bytes", o.entry.Abs, size)
	if o.created {
		has = o.entry.Abs + " did not exist any more"
	}
	if t.migrated {
		if o.created {
			has = o.entry.Abs + " is not on this host"
		}
		return fmt.Errorf("data file: %s, but has %d where the rank is now: if the hosts do not share it, let it be brought with --copy-files", has, o.entry.Size)
	}
	return fileMismatch(fmt.Sprintf("data file of the checkpoint: %s, but had %d bytes when the set was saved: bring it back%s, or move the checkpoint folder away to start afresh", has, o.entry.Size, o.formerPath()))
}

// finish positions all files and cuts back those that are written. The set's
// values are in place by now, so nothing is cut for a set that is not used.
// In a running program (back), files that are not in the set were opened after
// it: they get back what they held then.
func (t *fileTable) finish(back bool) error {
	if err := t.check(); err != nil {
		return err
	}
	return t.apply(back)
}

// check looks whether all files are what a checkpoint needs. It changes nothing,
// and comes before apply: with several ranks, on all of them.
func (t *fileTable) check() error {
	for _, o := range t.saved {
		if err := o.reopen(); err != nil {
			return err
		}
		if _, ok := o.stream(); ok {
			continue
		}
		st, err := o.f.Stat()
		if err != nil {
			return fmt.Errorf("data file of the checkpoint: %w", err)
		}
		if st.Size() < o.entry.Size && !t.restoredElsewhere(o) {
			return t.tooShort(o, st.Size())
		}
		if err := t.wrongFile(o, st); err != nil {
			return err
		}
		if err := t.checkOutput(o); err != nil {
			return err
		}
		if t.migrated && o.entry.Mode == "r" && !sameContent(o.f, &o.entry) {
			return fmt.Errorf("data file: %s has other content here than where the rank is now: if the hosts do not share it, let it be brought with --copy-files", o.entry.Abs)
		}
	}
	if t.stdin != nil {
		return checkStdin(t.stdin)
	}
	return nil
}

// apply positions and cuts files, after check.
func (t *fileTable) apply(back bool) error {
	open := t.saved
	next := 0
	for _, o := range t.saved {
		if err := o.truncateAndSeek(o.entry.Size, o.entry.Offset, !t.migrated && !t.restoredElsewhere(o)); err != nil {
			return fmt.Errorf("data file of the checkpoint: %w", err)
		}
		if o.entry.Mode == "r" && o.entry.Digest != "" {
			t.inputs = append(t.inputs, *o)
		}
		if o.entry.Path != stdoutPath && !filepath.IsAbs(filepath.FromSlash(o.entry.Path)) {
			o.entry.At, o.entry.In = filepath.ToSlash(o.entry.Abs), t.dirInode
		}
		next = max(next, o.entry.ID+1)
	}
	for _, o := range t.open {
		if t.has(o.f) {
			continue
		}
		if o.truncate && !t.migrated { // not in the set, so what it holds came later
			if err := o.f.Truncate(0); err != nil {
				return fmt.Errorf("data file: %w", err)
			}
		}
		o.truncate = false
		if back {
			if err := o.truncateAndSeek(o.firstSize, o.firstOff, true); err != nil {
				return fmt.Errorf("data file: %w", err)
			}
		}
		o.entry.ID = next
		next++
		open = append(open, o)
	}
	t.open, t.saved, t.next = open, nil, next
	return nil
}

// restoredElsewhere reports whether somebody else brings a file back that is written. Its
// size is then perhaps another than this rank has seen: other ranks write it, too.
func (t *fileTable) restoredElsewhere(o *openFile) bool {
	return t.journaled && o.entry.Mode != "r" && o.entry.Path != stdoutPath
}

// truncateAndSeek puts a file back to a size, if it is written and that is asked for, and to
// a position.
func (o *openFile) truncateAndSeek(size, off int64, shorten bool) error {
	if _, ok := o.stream(); ok {
		return nil
	}
	if shorten && o.entry.Mode != "r" {
		if err := o.f.Truncate(size); err != nil {
			return err
		}
	}
	_, err := o.f.Seek(off, io.SeekStart)
	return err
}

func (t *fileTable) has(f *os.File) bool {
	for _, o := range t.saved {
		if o.f == f {
			return true
		}
	}
	return false
}

// abandon closes what was opened for a set that is not used after all.
func (t *fileTable) abandon() {
	for _, o := range t.saved {
		if o.unclaimed && o.f != nil {
			o.f.Close()
		}
	}
	t.saved = nil
}
