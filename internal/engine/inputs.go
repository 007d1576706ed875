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

// A program that is gone on with has to read what it read before. So a set that
// package resume asks for has a digest of each file that is only read, and of
// stdin where that is a file:
//
//	0            piece                 offset-piece   offset        size
//	├─ compared ──┤                     ├── compared ──┤             │
//
// What is appended to a file meanwhile, or changed behind the position, is the
// program's to find; its beginning is compared though it may lie behind the
// position, since files are read by ReadAt, too.

// envChanged lets a program go on though what it read has changed.
const envChanged = "CAIRN_CHANGED_INPUT"

const (
	pieceSize = 64 << 10
	// maxDigested bounds what is read of all files for a set.
	maxDigested  = 16 << 20
	minPieceSize = 4 << 10
)

// RecordInputs makes what identifies the files that the program only reads, and its
// stdin, part of the state; see CheckInputs. It is for package resume, and called
// before Restore.
func (p *Run) RecordInputs() { p.files.digestInputs = true }

// CheckInputs compares what the program had read when the set was saved that was
// restored with what is there now. read is how much of stdin that was. It is for
// package resume, and called after Restore.
func (p *Run) CheckInputs(read int64) error {
	t := &p.files
	var errs []error
	if in := t.stdin; in == nil && read > 0 { // a set from before they had it
		errs = append(errs, checkStdin(&ckpt.FileEntry{Offset: read, Stdin: true}))
	} else if in != nil && in.Offset == 0 && in.Size > 0 { // perhaps it is not read at all
		if what := stdinProblem(in); what != "" {
			p.log.Warn("cairn: stdin was a file when the set was saved, of which nothing had been read, and is another one now", "was", in.Path, "bytes", in.Size, "now", what)
		}
	}
	for _, o := range t.inputs {
		if sameContent(o.f, &o.entry) {
			continue
		}
		errs = append(errs, fileMismatch(fmt.Sprintf("data file of the checkpoint: %s, which the program reads and was at position %d of, begins otherwise than when the set was saved, or has other bytes before that position: bring the old one back%s%s", o.entry.Abs, o.entry.Offset, o.formerPath(), changedRemedy())))
	}
	t.stdin, t.inputs = nil, nil
	return p.Refuse(errors.Join(errs...))
}

func changedRemedy() string {
	return ", or let the program go on with what is there now by " + envChanged + "=1"
}

// stdinProblem says what stdin is, if what was read of it can't be before the
// position that it was at; else it returns "".
func stdinProblem(e *ckpt.FileEntry) string {
	st, err := os.Stdin.Stat()
	name := stdinName()
	switch {
	case err != nil:
		return "it is closed"
	case name == os.DevNull:
		return "it is " + name
	case st.Mode()&os.ModeCharDevice != 0:
		return "it is a terminal, or another device"
	case st.IsDir():
		return "it is a folder"
	case !st.Mode().IsRegular():
		return "it is a pipe, which can't be set to a position"
	case st.Size() < e.Offset:
		return fmt.Sprintf("it is %s, which has %d bytes", cmp.Or(name, "a file"), st.Size())
	case !sameContent(os.Stdin, e):
		return fmt.Sprintf("it is %s, which begins otherwise", cmp.Or(name, "a file"))
	}
	return ""
}

// checkStdin returns an error if stdin is not what it was.
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
	msg := fmt.Sprintf("stdin is not what it was: the program had read %d bytes of %s when the set was saved, but now %s: start it again with %s as stdin (< FILE)", e.Offset, was, now, again)
	if st, err := os.Stdin.Stat(); err == nil && st.Mode().IsRegular() && st.Size() >= e.Offset {
		msg += changedRemedy()
	}
	return fileMismatch(msg)
}

// stdinName is the file that stdin is, as far as the system tells; it may have
// been removed.
func stdinName() string {
	if runtime.GOOS != "linux" || os.Stdin.Name() != "/dev/stdin" {
		return ""
	}
	name, err := os.Readlink("/proc/self/fd/0")
	if err != nil || !filepath.IsAbs(name) {
		return ""
	}
	return name
}

// fileMismatch is an error of files that are not what they were. Nothing is wrong with
// the set, and trying again is of no use.
type fileMismatch string

func (m fileMismatch) Error() string { return string(m) + ". The checkpoints are kept" }

// Lasting makes it an error that another start does not mend.
func (m fileMismatch) Lasting() {}

// lasting is an error that another start does not mend.
type lasting interface {
	error
	Lasting()
}

// allDamaged says that there is no checkpoint that can be loaded.
type allDamaged struct{ error }

func (a allDamaged) Unwrap() error { return a.error }
func (a allDamaged) Lasting()      {}

// Refuse tells whoever supervises the run that it can't continue as it is started
// now, if err, or an error that it wraps, has a method Lasting(). It returns err.
// It is for package resume.
func (p *Run) Refuse(err error) error {
	var l lasting
	var n notCorrupt
	if (errors.As(err, &l) || errors.As(err, &n) && errors.As(n.error, &l)) && p.identity.supervisor != nil {
		p.identity.supervisor.send(&control.Refused{Error: strings.TrimPrefix(err.Error(), "cairn: ")})
	}
	return err
}

// formerPath tells where a file was, if the program was started in another folder
// than this one then.
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

// openError is the error of a file that can't be opened.
func (o *openFile) openError(err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) { // that may pass
		return fmt.Errorf("data file of the checkpoint: %w", err)
	}
	return fileMismatch(fmt.Sprintf("data file of the checkpoint: %v: bring it back%s, or move the checkpoint folder away to start afresh", err, o.formerPath()))
}

// wrongFile returns an error if a file would be cut and written that only has the
// same relative name, in another folder: the program's own is where it was.
func (t *fileTable) wrongFile(o *openFile, now fs.FileInfo) error {
	if !t.digestInputs || t.migrated || o.entry.Mode == "r" || o.formerPath() == "" || t.relocated(o) {
		return nil
	}
	if o.entry.In != 0 && t.dirInode != 0 && o.entry.In != t.dirInode {
		return nil // the checkpoints were copied, and the file with them
	}
	if was, err := os.Stat(filepath.FromSlash(o.entry.At)); err != nil || os.SameFile(was, now) {
		return nil // it was moved here, with its folder
	}
	return fileMismatch(fmt.Sprintf("data file of the checkpoint: the program was writing to %s, which is still there, but would now write to %s%s", filepath.FromSlash(o.entry.At), o.entry.Abs, o.formerPath()))
}

// relocated reports whether a file was moved or copied together with the run: it
// is where it was, relative to the directory that the run is started in.
func (t *fileTable) relocated(o *openFile) bool {
	for _, from := range t.formerDirs {
		if rel, err := filepath.Rel(from, filepath.FromSlash(o.entry.At)); err == nil && filepath.IsLocal(rel) && filepath.Join(t.workDir, rel) == o.entry.Abs {
			return true
		}
	}
	return false
}

// stdinEntry says where stdin stands, if it is a file.
func (t *fileTable) stdinEntry(piece int64) (ckpt.FileEntry, bool) {
	st, err := os.Stdin.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return ckpt.FileEntry{}, false
	}
	off, err := os.Stdin.Seek(0, io.SeekCurrent)
	if err != nil {
		return ckpt.FileEntry{}, false
	}
	e := ckpt.FileEntry{ID: idStdin, Path: filepath.ToSlash(stdinName()), Mode: "r", Offset: off, Size: st.Size(), Stdin: true}
	e.Digest = contentDigest(os.Stdin, &e, piece)
	return e, true
}

// digests adds what identifies them to entries of files that are only read.
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

// isKernelFile reports whether a file's content is made when it is read.
func isKernelFile(path string) bool {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return strings.HasPrefix(path, "/proc/") || strings.HasPrefix(path, "/sys/")
}

// contentDigest is a digest of a file's beginning, and of what comes before the
// position, with how much of each that is; "" if it can't be made.
func contentDigest(f *os.File, e *ckpt.FileEntry, piece int64) string {
	end := min(e.Offset, e.Size)
	head := min(e.Size, piece)
	if e.Stdin { // it is read from its beginning, or not at all
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

// sameContent reports whether a file has what it had when the entry was made, as
// far as that is known. Its size is that at least.
func sameContent(f *os.File, e *ckpt.FileEntry) bool {
	size, _, ok := strings.Cut(e.Digest, ":")
	piece, err := strconv.ParseInt(size, 10, 64)
	if !ok || err != nil || piece <= 0 || piece > pieceSize || os.Getenv(envChanged) != "" {
		return true
	}
	return contentDigest(f, e, piece) == e.Digest
}
