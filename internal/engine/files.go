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
	"github.com/cairnrun/cairn/internal/store"
)

// OpenFile opens a data file and makes it part of the state; see
// cairn.Run.OpenFile.
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
	} else if flag&os.O_EXCL != 0 && p.phase == phaseRunning && p.onChoose == nil {
		// There is no journal, which would remove what was made after a
		// checkpoint.
		again, err := p.MakesAgain(name, flag)
		if err != nil {
			return nil, err
		}
		if again {
			open = open&^os.O_EXCL | os.O_TRUNC
		}
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

// ProtectFile makes a file part of the state that the program has opened; see
// cairn.Run.ProtectFile.
func (p *Run) ProtectFile(f *os.File, flag int) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return p.files.add(f, f.Name(), flag, st.Mode().Perm(), false)
}

// FilesClaimed says that the program has its files from restored values and
// does not open them again: from now on OpenFile opens a new file.
func (p *Run) FilesClaimed() {
	for _, o := range p.files.open {
		o.unclaimed = false
	}
}

// fileTable holds the run's open data files.
type fileTable struct {
	resuming   bool // there are checkpoints, and Restore has not been called
	restored   bool // Restore has been called
	open       []*openFile
	next       int
	closed     closedFiles
	saved      []*openFile // while restoring: by the checkpoint's ids
	migrated   bool        // this process is a destination, and has changed no file yet
	formerDirs []string    // where the run was started before it was moved or copied
	workDir    string      // where it is started now
	journaled  bool        // package resume restores files: see SetJournal
	dirInode   uint64      // inode of the checkpoint directory; 0: not known

	unrecorded []store.MadeFile // files made by the run that could not be recorded yet

	output       outputDigest    // of standard output
	printed      int64           // size of standard output when entries was called; see control.NoStdout
	digestInputs bool            // entries get digests: see RecordInputs
	stdin        *ckpt.FileEntry // while restoring: its entry in the checkpoint
	inputs       []openFile      // while restoring: files that are only read, as in the checkpoint
}

type openFile struct {
	entry     ckpt.FileEntry
	f         *os.File
	truncate  bool // Restore truncates it, unless the checkpoint holds it
	created   bool // did not exist before
	early     bool // opened before Restore, as at every start
	unclaimed bool // opened by Restore, and not yet returned by OpenFile

	// Size and offset when the program opened it, or after Restore.
	firstSize, firstOff int64
}

// The standard streams have no entry. These are their ids.
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
		return fmt.Errorf("cairn: %s is not a regular file: it cannot be positioned when the run is restored", name)
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
		f:     f, truncate: truncate, early: !t.restored, firstSize: st.Size(), firstOff: off,
	})
	t.next++
	return nil
}

// stdoutPath names the file of standard output in a checkpoint, if it belongs
// to the run.
const stdoutPath = "/dev/stdout"

// adoptOutput makes standard output part of the state. The supervisor has
// opened a file for it.
func (t *fileTable) adoptOutput() error {
	st, err := control.StdoutFile.Stat()
	if err != nil {
		return err
	}
	if err := t.add(control.StdoutFile, stdoutPath, os.O_WRONLY|os.O_APPEND, st.Mode().Perm(), false); err != nil {
		return err
	}
	o := t.open[len(t.open)-1]
	if o.entry.Abs, err = os.Readlink("/proc/self/fd/1"); err != nil {
		return err
	}
	return nil
}

// redirectOutput makes standard output the file of the rank that this process
// takes over. Call settle when the takeover is decided; taken says whether this
// process has taken over.
func (t *fileTable) redirectOutput(path string) (settle func(taken bool), err error) {
	if path == "" {
		return func(bool) {}, nil
	}
	for _, o := range t.open {
		if o.f == control.StdoutFile {
			o.entry.Abs = path
		}
	}
	return control.TakeStdout(path)
}

// portablePath is the path that the program gave, with forward slashes. A
// relative path is relative to the working directory of the process that
// restores it.
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

// claim returns the file of that name that Restore has opened, if OpenFile has
// not returned it yet.
func (t *fileTable) claim(name string, flag int) *os.File {
	o := t.unclaimed(name, flag)
	if o == nil {
		return nil
	}
	o.unclaimed = false
	return o.f
}

// unclaimed returns the entry of the file that claim returns.
func (t *fileTable) unclaimed(name string, flag int) *openFile {
	path := portablePath(name)
	if fd, ok := control.StreamOf(name); ok && fd > 0 {
		path = streamPath(fd)
	}
	for _, o := range t.open {
		if o.unclaimed && o.entry.Path == path && o.entry.Mode == modeOf(flag) {
			return o
		}
	}
	return nil
}

func (t *fileTable) id(f *os.File) (int, bool) {
	switch f {
	case control.StdinFile:
		return idStdin, true
	case control.StdoutFile:
		return idStdout, true
	case control.StderrFile:
		return idStderr, true
	}
	for _, o := range t.open {
		if o.f == f {
			return o.entry.ID, true
		}
	}
	return t.closed.id(f, &t.next)
}

func (t *fileTable) file(id int) (*os.File, error) {
	switch id {
	case idStdin:
		return control.StdinFile, nil
	case idStdout:
		return control.StdoutFile, nil
	case idStderr:
		return control.StderrFile, nil
	}
	for _, o := range t.saved {
		if o.entry.ID == id {
			return o.f, o.reopen()
		}
	}
	if f, err := t.closed.file(id); f != nil || err != nil {
		return f, err
	}
	return nil, fmt.Errorf("%w: no file %d in the file map", ErrCorrupt, id)
}

// entries returns the entries of all open files, with their sizes and offsets.
// It removes closed files from the table; those to which the program refers get
// an entry after the state was collected.
func (t *fileTable) entries() ([]ckpt.FileEntry, error) {
	var out []ckpt.FileEntry
	var live []*openFile
	t.printed = control.NoStdout
	for _, o := range t.open {
		if _, ok := o.stream(); ok {
			if !isClosed(o.f) {
				live, out = append(live, o), append(out, o.entry)
			}
			continue
		}
		off, err := o.f.Seek(0, io.SeekCurrent)
		if errors.Is(err, os.ErrClosed) {
			if o.early && o.entry.Mode != "r" {
				t.closed.add(&o.entry)
			}
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
		if o.f == control.StdoutFile && o.entry.Path == stdoutPath {
			t.printed = o.entry.Size
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

// mark records the sizes and offsets of all files after Restore.
func (t *fileTable) mark() error {
	if _, err := t.entries(); err != nil {
		return err
	}
	for _, o := range t.open {
		o.firstSize, o.firstOff = o.entry.Size, o.entry.Offset
	}
	return nil
}

// begin pairs the files of a checkpoint with those that the program has opened
// again.
func (t *fileTable) begin(saved []ckpt.FileEntry) {
	used := make(map[*openFile]bool)
	t.saved, t.stdin, t.inputs = nil, nil, nil
	t.closed.abandon()
	for _, e := range saved {
		if e.Closed {
			t.closed.begin(&e)
			continue
		}
		if e.Stdin {
			t.stdin = &e
			continue
		}
		o := &openFile{entry: e, unclaimed: true}
		if e.Path == stdoutPath && !slices.ContainsFunc(t.open, func(c *openFile) bool { return c.f == control.StdoutFile }) {
			continue // standard output belonged to the run only at that time
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

// reopen opens the file if the program has not. It does not change the file.
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

// unmatched returns a written file that only the program has opened, and one
// that only the checkpoint names: the program may have been started with other
// paths.
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

// tooShort is the error for a file that is shorter than in the checkpoint.
func (t *fileTable) tooShort(o *openFile, size int64) error {
	has := fmt.Sprintf("%s has %d bytes", o.entry.Abs, size)
	if o.created {
		has = o.entry.Abs + " does not exist any more"
	}
	if t.migrated {
		if o.created {
			has = o.entry.Abs + " is not on this host"
		}
		return fmt.Errorf("data file: %s, but has %d where the rank runs now: if the hosts do not share it, copy it with --copy-files", has, o.entry.Size)
	}
	return fileMismatch(fmt.Sprintf("data file of the checkpoint: %s, but had %d bytes in the checkpoint: restore it%s, or move the checkpoint directory away to start over", has, o.entry.Size, o.formerPath()))
}

// finish positions all files and truncates those that are written. The values
// of the checkpoint are loaded by now, so nothing is truncated for a checkpoint
// that is not used. In a running program (back), files that are not in the
// checkpoint were opened after it: they get the content that they had then.
func (t *fileTable) finish(back bool) error {
	if err := t.check(); err != nil {
		return err
	}
	return t.apply(back)
}

// check returns an error if a file is not what the checkpoint needs. It changes
// nothing. With several ranks, all of them check before any calls apply.
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
			return fmt.Errorf("data file: %s differs from the file where the rank runs now: if the hosts do not share it, copy it with --copy-files", o.entry.Abs)
		}
	}
	if t.stdin != nil {
		return checkStdin(t.stdin)
	}
	return nil
}

// apply positions and truncates files.
func (t *fileTable) apply(back bool) error {
	open := t.saved
	next := t.closed.apply(0)
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
		if o.truncate && !t.migrated && !t.closed.has(&o.entry) { // not in the checkpoint: its content is newer
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

// restoredElsewhere reports whether package resume restores a written file.
// Other ranks may write it, too, so that its size may differ from what this
// rank has seen.
func (t *fileTable) restoredElsewhere(o *openFile) bool {
	return t.journaled && o.entry.Mode != "r" && o.entry.Path != stdoutPath
}

// truncateAndSeek sets the position of a file. If shorten is set and the file
// is open for writing, it first truncates the file.
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
	return slices.ContainsFunc(t.saved, func(o *openFile) bool { return o.f == f })
}

// abandon closes the files that were opened for a checkpoint that is not used.
func (t *fileTable) abandon() {
	for _, o := range t.saved {
		if o.unclaimed && o.f != nil {
			o.f.Close()
		}
	}
	t.saved = nil
	t.closed.abandon()
}
