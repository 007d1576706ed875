package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/vfs"
)

// fileFrame announces the content of a file.
type fileFrame struct {
	File int   `json:"file"` // index in rest.Files
	Size int64 `json:"size"`
}

// fileStep is how many bytes of a file are sent at once.
const fileStep = 1 << 20

func (g *Source) hello() *helloFrame {
	return &helloFrame{g.o.Rank, g.o.Ranks, g.o.BatchSize, g.o.Files, g.o.Output}
}

// sendFiles sends the contents of the run's files, each path once.
func (g *Source) sendFiles(files []ckpt.FileEntry) error {
	var buf []byte
	done := make(map[string]bool)
	for i := range files {
		if !g.hello().sends(&files[i]) || done[files[i].Path] {
			continue
		}
		done[files[i].Path] = true
		if buf == nil {
			buf = make([]byte, fileStep)
		}
		if err := g.sendFile(i, &files[i], buf); err != nil {
			return fmt.Errorf("data file %s: %w", files[i].Path, err)
		}
	}
	return nil
}

func (g *Source) sendFile(i int, e *ckpt.FileEntry, buf []byte) error {
	path := e.Abs
	if path == "" {
		path = filepath.FromSlash(e.Path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return err
	} else if !st.Mode().IsRegular() {
		return errors.New("it is not a regular file")
	}
	if err := g.s.frameJSON(frameFile, fileFrame{i, e.Size}); err != nil {
		return err
	}
	for left := e.Size; left > 0; {
		p := buf[:min(left, int64(len(buf)))]
		if _, err := io.ReadFull(f, p); err != nil {
			return fmt.Errorf("it ends %d bytes before the size it had: %w", left, err)
		}
		if err := g.s.frame(frameData, p); err != nil {
			return err
		}
		left -= int64(len(p))
	}
	return nil
}

// incomingFile is a file that is received. As long as its content is that of
// the file on this host, as on a common file system, nothing is written. From
// the first difference on, the content is written to a temporary file.
type incomingFile struct {
	entry ckpt.FileEntry
	path  string
	size  int64
	at    int64    // bytes received
	old   *os.File // the file on this host; nil: none
	tmp   *os.File // nil: no difference so far
}

// newIncomingFile prepares to receive a file, at the path where the program
// will open it.
func newIncomingFile(e ckpt.FileEntry, size int64) (*incomingFile, error) {
	path, err := filepath.Abs(filepath.FromSlash(e.Path))
	if err != nil {
		return nil, err
	}
	a := &incomingFile{entry: e, path: path, size: size}
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a, os.MkdirAll(filepath.Dir(path), 0o777)
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file on this host", path)
	}
	if a.old, err = os.Open(path); errors.Is(err, fs.ErrPermission) {
		a.old, err = nil, nil // it cannot be compared, only written
	}
	return a, err
}

// write takes the next bytes.
func (a *incomingFile) write(p []byte) error {
	if int64(len(p)) > a.size-a.at {
		return fmt.Errorf("%w: more bytes of %s than there are", ckpt.ErrCorrupt, a.entry.Path)
	}
	if a.tmp == nil && a.old != nil {
		q := make([]byte, len(p))
		if n, _ := a.old.ReadAt(q, a.at); n == len(p) && bytes.Equal(p, q) {
			a.at += int64(len(p))
			return nil
		}
	}
	if err := a.beginTemp(); err != nil {
		return err
	}
	n, err := a.tmp.WriteAt(p, a.at)
	a.at += int64(n)
	return err
}

// beginTemp creates the temporary file, with the bytes received so far.
func (a *incomingFile) beginTemp() error {
	if a.tmp != nil {
		return nil
	}
	// In the file's own directory, if possible.
	var err error
	if a.tmp, err = os.CreateTemp(filepath.Dir(a.path), "."+filepath.Base(a.path)+".*"); err != nil {
		if a.tmp, err = os.CreateTemp("", "cairn-move-*"); err != nil {
			return err
		}
	}
	if a.at > 0 {
		_, err = io.Copy(a.tmp, io.NewSectionReader(a.old, 0, a.at))
	}
	return err
}

// put moves the file to its path and makes it durable. An existing file keeps
// its inode, since the program may have it open.
func (a *incomingFile) put() (err error) {
	if a.at != a.size {
		return fmt.Errorf("%w: %d of %d bytes of %s", ckpt.ErrCorrupt, a.at, a.size, a.entry.Path)
	}
	if a.tmp == nil {
		if a.old != nil {
			if st, err := a.old.Stat(); err != nil || st.Size() == a.size {
				return err
			}
		}
		if err := a.beginTemp(); err != nil { // shorter than the file on this host, or empty
			return err
		}
	}
	into, err := os.OpenFile(a.path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return a.rename()
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, into.Close()) }()
	if _, err := io.Copy(io.NewOffsetWriter(into, 0), io.NewSectionReader(a.tmp, 0, a.size)); err != nil {
		return err
	}
	if err := into.Truncate(a.size); err != nil {
		return err
	}
	return into.Sync()
}

// rename gives the temporary file the name of a missing one.
func (a *incomingFile) rename() error {
	if filepath.Dir(a.tmp.Name()) != filepath.Dir(a.path) {
		return fmt.Errorf("cannot create a file in %s", filepath.Dir(a.path))
	}
	mode := fs.FileMode(a.entry.Perm) & fs.ModePerm
	mode = cmp.Or(mode, 0o644)
	if err := errors.Join(a.tmp.Chmod(mode), a.tmp.Sync(), a.tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(a.tmp.Name(), a.path); err != nil {
		return err
	}
	return vfs.OS().SyncDir(filepath.Dir(a.path))
}

// close releases everything.
func (a *incomingFile) close() {
	if a.old != nil {
		a.old.Close()
	}
	if a.tmp != nil {
		a.tmp.Close()
		os.Remove(a.tmp.Name()) // fails if it was renamed
	}
}

// file begins to receive a file.
func (n *destination) file(payload []byte) error {
	var m fileFrame
	if err := json.Unmarshal(payload, &m); err != nil {
		return fmt.Errorf("%w: a file: %v", ckpt.ErrCorrupt, err)
	}
	if n.head == nil || !n.head.Last || m.File < 0 || m.File >= len(n.rest.Files) || m.Size != n.rest.Files[m.File].Size || !n.hello.sends(&n.rest.Files[m.File]) {
		return fmt.Errorf("%w: a file that was not announced", ckpt.ErrCorrupt)
	}
	e := n.rest.Files[m.File]
	for _, a := range n.files {
		if a.entry.Path == e.Path {
			return fmt.Errorf("%w: file %s was sent twice", ckpt.ErrCorrupt, e.Path)
		}
	}
	a, err := newIncomingFile(e, m.Size)
	if err != nil {
		return fmt.Errorf("data file %s: %w", e.Path, err)
	}
	n.files = append(n.files, a)
	return nil
}

// fileData receives bytes of a file.
func (n *destination) fileData(p []byte) error {
	if len(n.files) == 0 {
		return fmt.Errorf("%w: bytes of no file", ckpt.ErrCorrupt)
	}
	a := n.files[len(n.files)-1]
	if err := a.write(p); err != nil {
		return fmt.Errorf("data file %s: %w", a.entry.Path, err)
	}
	return nil
}

// putFiles puts all files into place.
func (n *destination) putFiles() error {
	for _, e := range n.rest.Files {
		found := !n.hello.sends(&e)
		for _, a := range n.files {
			found = found || a.entry.Path == e.Path
		}
		if !found {
			return fmt.Errorf("%w: file %s was not sent", ckpt.ErrCorrupt, e.Path)
		}
	}
	for _, a := range n.files {
		if err := a.put(); err != nil {
			return fmt.Errorf("data file %s: %w", a.entry.Path, err)
		}
	}
	return nil
}
