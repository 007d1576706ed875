//go:build linux

package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/journal"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

// idleTime is how long a peer may ask nothing or take nothing before it counts
// as gone.
const idleTime = 2 * time.Minute

// Server lets helpers of the same run get files of a directory.
type Server struct {
	*control.Listener
	dir *Dir
}

// Serve begins to serve the directory to peers that know the secret.
func (d *Dir) Serve(secret []byte) (*Server, error) {
	s := &Server{dir: d}
	var err error
	s.Listener, err = control.Listen(secret, s.serve)
	return s, err
}

func (s *Server) serve(conn net.Conn, c *control.Conn) {
	c.SetLimit(1 << 16)
	for {
		conn.SetDeadline(time.Now().Add(idleTime))
		m, err := c.Recv()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *control.ListFiles:
			answer := new(control.FileList)
			if answer.Files, err = s.dir.List(m.Rank, m.Ranks, m.Index); err != nil {
				answer.Error = err.Error()
			}
			err = c.Send(answer)
		case *control.GetFile:
			err = s.send(conn, c, m)
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

// List returns the files of a rank: those of a checkpoint, or with index 0 its
// journal and output.
func (d *Dir) List(rank, ranks int, index uint64) ([]control.FileInfo, error) {
	var names map[string]string // where they are, by their paths below the directory
	var err error
	if index > 0 {
		names, err = d.partFiles(rank, index)
	} else {
		names, err = d.ownFiles(rank, ranks)
	}
	if err != nil {
		return nil, err
	}
	var out []control.FileInfo
	for _, name := range slices.Sorted(maps.Keys(names)) {
		st, err := os.Lstat(names[name])
		if err != nil {
			return nil, err
		}
		out = append(out, control.FileInfo{Path: name, Size: st.Size(), Mode: uint32(st.Mode().Perm()), Time: st.ModTime()})
	}
	return out, nil
}

// partFiles returns the files of a rank in a checkpoint: its file, and the
// bases.
func (d *Dir) partFiles(rank int, index uint64) (map[string]string, error) {
	dir := fmt.Sprintf("ckpt-%08d", index)
	entries, err := os.ReadDir(filepath.Join(CheckpointDir(d.Path), dir))
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), fmt.Sprintf("rank-%04d.", rank))
		if ok && e.Type().IsRegular() && (rest == "h5" || strings.HasPrefix(rest, "base-") && strings.HasSuffix(rest, ".h5")) {
			out[path.Join("ckpt", dir, e.Name())] = filepath.Join(CheckpointDir(d.Path), dir, e.Name())
		}
	}
	return out, nil
}

// ownFiles returns a rank's journal, the record of the files that it writes,
// its record of the recovery line, and its output.
func (d *Dir) ownFiles(rank, ranks int) (map[string]string, error) {
	out := make(map[string]string)
	found, err := journal.Files(CheckpointDir(d.Path), rank, ranks)
	if err != nil {
		return nil, err
	}
	for name, at := range found {
		out[path.Join("ckpt", filepath.ToSlash(name))] = at
	}
	for _, name := range ownNames(rank) {
		at := filepath.Join(d.Path, filepath.FromSlash(name))
		switch st, err := os.Lstat(at); {
		case err == nil && st.Mode().IsRegular():
			out[name] = at
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return out, nil
}

// ownNames returns the names of a rank's own files besides those of its
// journal.
func ownNames(rank int) []string {
	line := "ckpt/line"
	if rank > 0 {
		line = fmt.Sprintf("ckpt/line-%04d", rank)
	}
	return []string{line, openedName(rank), stdoutName(rank), fmt.Sprintf("output/rank-%04d.err", rank)}
}

func openedName(rank int) string { return fmt.Sprintf("ckpt/journal.opened-%04d", rank) }

func stdoutName(rank int) string { return fmt.Sprintf("output/rank-%04d.out", rank) }

// find returns where a file is that peers may have. A kept file of a journal
// may be elsewhere.
func (d *Dir) find(name string) (string, error) {
	top, rest, _ := strings.Cut(name, "/")
	if !filepath.IsLocal(filepath.FromSlash(name)) || path.Clean(name) != name || rest == "" || !slices.Contains([]string{"ckpt", "output", "packs", "kept"}, top) {
		return "", fmt.Errorf("%q is no file of a rank", name)
	}
	at := filepath.Join(d.Path, filepath.FromSlash(name))
	if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) {
		var rank int
		kept, _, _ := strings.Cut(rest, "/")
		ranks := 2
		if _, err := fmt.Sscanf(kept, "journal-%d.kept", &rank); err != nil {
			ranks = 1
		}
		if found, err := journal.Files(CheckpointDir(d.Path), rank, ranks); err == nil && found[filepath.FromSlash(rest)] != "" {
			return found[filepath.FromSlash(rest)], nil
		}
	}
	return at, vfs.NoLinks(vfs.OS(), d.Path, name)
}

// send sends a file from an offset on, up to its present end.
func (s *Server) send(conn net.Conn, c *control.Conn, m *control.GetFile) error {
	answer := new(control.FileBytes)
	at, err := s.dir.find(m.Path)
	var f *os.File
	if err == nil {
		f, err = os.Open(at)
	}
	if err == nil {
		defer f.Close()
		var st fs.FileInfo
		if st, err = f.Stat(); err == nil {
			answer.Bytes = max(0, st.Size()-m.Offset)
		}
	}
	if err != nil {
		answer.Error = err.Error()
		return c.Send(answer)
	}
	if err := c.Send(answer); err != nil {
		return err
	}
	buf := tier.NewChunk(answer.Bytes)
	for done := int64(0); done < answer.Bytes; {
		data := buf.Data()
		data = data[:min(int64(len(data)), answer.Bytes-done)]
		if _, err := f.ReadAt(data, m.Offset+done); err != nil { // also if it was cut meanwhile
			return err
		}
		conn.SetDeadline(time.Now().Add(idleTime))
		if err := buf.Send(conn, len(data)); err != nil {
			return err
		}
		done += int64(len(data))
	}
	return nil
}

// receive copies the bytes of one FileBytes.
func receive(conn net.Conn, w io.Writer, bytes int64) error {
	buf := tier.NewChunk(bytes)
	for bytes > 0 {
		conn.SetDeadline(time.Now().Add(idleTime))
		data, err := buf.Receive(conn, bytes)
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		bytes -= int64(len(data))
	}
	return nil
}
