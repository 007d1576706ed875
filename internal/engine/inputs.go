package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/mem"
)

// A resumed program must read the same input again. A checkpoint of a compiled
// program therefore holds a digest of each file that is only read, and of stdin
// if that is a file:
//
//	0            piece                 offset-piece   offset        size
//	├─ compared ──┤                     ├── compared ──┤             │
//
// Changes after the position are not detected, except at the beginning of the
// file: programs also read with ReadAt.

// envChanged is the environment variable that lets a program resume although
// its input has changed.
const envChanged = "CAIRN_CHANGED_INPUT"

const (
	pieceSize = 64 << 10
	// maxDigested bounds what is read of all files for a checkpoint.
	maxDigested  = 16 << 20
	minPieceSize = 4 << 10
)

// RecordInputs adds digests of the files that the program only reads, and of
// stdin, to checkpoints; see CheckInputs. Call it before Restore.
func (p *Run) RecordInputs() { p.files.digestInputs = true }

// CheckInputs compares the input consumed before the restored checkpoint with
// the current input. read is the number of bytes read from stdin. Call it after
// Restore.
func (p *Run) CheckInputs(read int64) error {
	t := &p.files
	var errs []error
	if in := t.stdin; in == nil && read > 0 { // a checkpoint without digests
		errs = append(errs, checkStdin(&ckpt.FileEntry{Offset: read, Stdin: true}))
	} else if in != nil && in.Offset == 0 && in.Size > 0 { // nothing was read yet, and perhaps nothing will be
		if what := stdinProblem(in); what != "" {
			p.log.Warn("cairn: stdin is another file than in the checkpoint; nothing had been read of it", "was", in.Path, "bytes", in.Size, "now", what)
		}
	}
	for _, o := range t.inputs {
		if sameContent(o.f, &o.entry) {
			continue
		}
		errs = append(errs, fileMismatch(fmt.Sprintf("data file of the checkpoint: %s, which the program reads, has changed before position %d since the checkpoint: restore it%s%s", o.entry.Abs, o.entry.Offset, o.formerPath(), changedRemedy())))
	}
	t.stdin, t.inputs = nil, nil
	return p.Refuse(errors.Join(errs...))
}

func changedRemedy() string {
	return ", or let the program continue with the new content by " + envChanged + "=1"
}

// stdinProblem describes stdin if it cannot be the input that was read before
// the checkpoint. Otherwise it returns "".
func stdinProblem(e *ckpt.FileEntry) string {
	st, err := control.StdinFile.Stat()
	name := stdinName()
	switch {
	case err != nil:
		return "it is closed"
	case name == os.DevNull:
		return "it is " + name
	case st.Mode()&os.ModeCharDevice != 0:
		return "it is a terminal, or another device"
	case st.IsDir():
		return "it is a directory"
	case !st.Mode().IsRegular():
		return "it is a pipe, which cannot be positioned"
	case st.Size() < e.Offset:
		return fmt.Sprintf("it is %s, which has %d bytes", cmp.Or(name, "a file"), st.Size())
	case !sameContent(control.StdinFile, e):
		return fmt.Sprintf("it is %s, which begins differently", cmp.Or(name, "a file"))
	}
	return ""
}

// checkStdin returns an error if stdin is not the input of the checkpoint.
func checkStdin(e *ckpt.FileEntry) error {
	now := stdinProblem(e)
	if e.Offset == 0 || now == "" {
		return nil
	}
	was, again := "a file", "that file, or a copy of it"
	if e.Path != "" {
		was = filepath.FromSlash(e.Path)
		if _, err := os.Stat(was); err == nil {
			again = was
		}
	}
	msg := fmt.Sprintf("stdin has changed: the program had read %d bytes of %s at the checkpoint, but now %s: start it again with %s as stdin (< FILE)", e.Offset, was, now, again)
	if st, err := control.StdinFile.Stat(); err == nil && st.Mode().IsRegular() && st.Size() >= e.Offset {
		msg += changedRemedy()
	}
	return fileMismatch(msg)
}

// stdinName returns the path of the file that stdin is, if the system tells it.
// The file may have been removed.
func stdinName() string {
	if runtime.GOOS != "linux" || control.StdinFile.Name() != "/dev/stdin" {
		return ""
	}
	name, err := os.Readlink("/proc/self/fd/0")
	if err != nil || !filepath.IsAbs(name) {
		return ""
	}
	return name
}

// fileMismatch is the error for a file that is not what it was. The checkpoint
// is intact, and another start does not help.
type fileMismatch string

func (m fileMismatch) Error() string { return string(m) + ". The checkpoints are kept" }

// Lasting marks the error as lasting.
func (m fileMismatch) Lasting() {}

// lasting is an error that another start does not remove.
type lasting interface {
	error
	Lasting()
}

// allDamaged is the error for a run of which no checkpoint can be loaded.
type allDamaged struct{ error }

func (a allDamaged) Unwrap() error { return a.error }
func (a allDamaged) Lasting()      {}

// Refuse returns err. If err or an error that it wraps has a method Lasting,
// Refuse tells the supervisor that the run cannot continue as it is started
// now.
func (p *Run) Refuse(err error) error {
	var l lasting
	var n notCorrupt
	if (errors.As(err, &l) || errors.As(err, &n) && errors.As(n.error, &l)) && p.identity.supervisor != nil {
		p.identity.supervisor.send(&control.Refused{Error: strings.TrimPrefix(err.Error(), "cairn: ")})
	}
	return err
}

// formerPath says where a file was, if the program was started in another
// directory then.
func (o *openFile) formerPath() string {
	was := filepath.FromSlash(o.entry.At)
	if was == "" || was == o.entry.Abs {
		return ""
	}
	where := ""
	if dir, ok := strings.CutSuffix(was, string(filepath.Separator)+filepath.FromSlash(o.entry.Path)); ok {
		where = fmt.Sprintf(" (start the program in %s, as it was then)", cmp.Or(dir, string(filepath.Separator)))
	}
	return fmt.Sprintf("; it was %s then%s", was, where)
}

// openError is the error for a file that cannot be opened.
func (o *openFile) openError(err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) { // it may be temporary
		return fmt.Errorf("data file of the checkpoint: %w", err)
	}
	return fileMismatch(fmt.Sprintf("data file of the checkpoint: %v: restore it%s, or move the checkpoint directory away to start over", err, o.formerPath()))
}

// wrongFile returns an error if a file to be truncated only has the same
// relative name in another directory, and the program's own file is still where
// it was.
func (t *fileTable) wrongFile(o *openFile, now fs.FileInfo) error {
	if !t.digestInputs || t.migrated || o.entry.Mode == "r" || o.formerPath() == "" || t.relocated(o) {
		return nil
	}
	if o.entry.In != 0 && t.dirInode != 0 && o.entry.In != t.dirInode {
		return nil // the checkpoints were copied, and the file with them
	}
	if was, err := os.Stat(filepath.FromSlash(o.entry.At)); err != nil || os.SameFile(was, now) {
		return nil // it was moved here, with its directory
	}
	return fileMismatch(fmt.Sprintf("data file of the checkpoint: the program was writing to %s, which is still there, but would now write to %s%s", filepath.FromSlash(o.entry.At), o.entry.Abs, o.formerPath()))
}

// relocated reports whether a file was moved or copied together with the run:
// its path relative to the directory that the run is started in has not
// changed.
func (t *fileTable) relocated(o *openFile) bool {
	for _, from := range t.formerDirs {
		if rel, err := filepath.Rel(from, filepath.FromSlash(o.entry.At)); err == nil && filepath.IsLocal(rel) && filepath.Join(t.workDir, rel) == o.entry.Abs {
			return true
		}
	}
	return false
}

// stdinEntry returns the entry of stdin, if it is a file.
func (t *fileTable) stdinEntry(piece int64) (ckpt.FileEntry, bool) {
	st, err := control.StdinFile.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return ckpt.FileEntry{}, false
	}
	off, err := control.StdinFile.Seek(0, io.SeekCurrent)
	if err != nil {
		return ckpt.FileEntry{}, false
	}
	e := ckpt.FileEntry{ID: idStdin, Path: filepath.ToSlash(stdinName()), Mode: "r", Offset: off, Size: st.Size(), Stdin: true}
	e.Digest = contentDigest(control.StdinFile, &e, piece)
	return e, true
}

// digests adds digests to the entries of files that are only read.
func (t *fileTable) digests(out []ckpt.FileEntry, files []*openFile) []ckpt.FileEntry {
	n := int64(1)
	for i := range out {
		if out[i].Mode == "r" {
			n++
		}
	}
	piece := min(pieceSize, max(minPieceSize, maxDigested/2/n))
	for i := range out {
		if out[i].Mode == "r" && !isKernelFile(files[i].entry.Abs) {
			out[i].Digest = contentDigest(files[i].f, &out[i], piece)
		}
	}
	if e, ok := t.stdinEntry(piece); ok {
		out = append(out, e)
	}
	return out
}

// isKernelFile reports whether the kernel generates the content of a file when
// it is read.
func isKernelFile(path string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/")
}

// contentDigest returns a digest of the beginning of a file and of what
// precedes its position, and the size of both. It returns "" if the file cannot
// be read.
func contentDigest(f *os.File, e *ckpt.FileEntry, piece int64) string {
	end := min(e.Offset, e.Size)
	head := min(e.Size, piece)
	if e.Stdin { // stdin is read from its beginning
		head = min(end, piece)
	}
	from := max(head, end-piece)
	buf := make([]byte, head+max(0, end-from))
	if len(buf) == 0 {
		return ""
	}
	if _, err := f.ReadAt(buf[:head], 0); err != nil {
		return ""
	}
	if end > from {
		if _, err := f.ReadAt(buf[head:], from); err != nil {
			return ""
		}
	}
	d := mem.Digest(buf)
	return fmt.Sprintf("%d:%016x%016x", piece, d.Hi, d.Lo)
}

// sameContent reports whether a file has the content that it had when the entry
// was made, as far as the digest tells.
func sameContent(f *os.File, e *ckpt.FileEntry) bool {
	size, _, ok := strings.Cut(e.Digest, ":")
	piece, err := strconv.ParseInt(size, 10, 64)
	if !ok || err != nil || piece <= 0 || piece > pieceSize || os.Getenv(envChanged) != "" {
		return true
	}
	return contentDigest(f, e, piece) == e.Digest
}
