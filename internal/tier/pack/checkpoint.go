//go:build linux

package pack

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// readCheckpoint reads what a rank's file of the checkpoint says. When the run
// has ended, the newest checkpoint names files that the rank has written.
func (m *maker) readCheckpoint(p *rankPack, rank int, sizes map[string]int64) error {
	end := m.File == nil
	f, err := m.openCheckpoint(rank)
	if err != nil || f == nil {
		return err
	}
	defer f.Close()
	if !end {
		p.x.Run, p.x.Attempt = f.Header.Run, f.Header.Attempt
	}
	files, err := f.Files()
	if err != nil {
		return err
	}
	for i := range files {
		e := &files[i]
		switch name := m.nameOf(e); {
		case e.IsStream() || e.Closed && !end || e.Mode == "r":
		case e.Path == "/dev/stdout":
			if !end {
				p.stdout = e.Size
			}
		case filepath.IsAbs(name):
			path, err := realPath(name)
			if err != nil {
				return err
			}
			p.more = append(p.more, path)
			if m.All == 1 && !end { // otherwise other ranks may have made it longer
				sizes[path] = e.Size
			}
		}
	}
	return nil
}

// nameOf returns the path of a file of a checkpoint. If the checkpoint was
// saved in another directory, the path that the file had there does not count:
// the program was started here since. (The last checkpoint of a run that has
// ended may be older than its last start.)
func (m *maker) nameOf(e *ckpt.FileEntry) string {
	name := filepath.FromSlash(e.Path)
	st, err := os.Stat(m.Checkpoints)
	switch {
	case e.At == "":
		return name
	case err != nil || e.In == 0 || e.In == control.Inode(st):
		return filepath.FromSlash(e.At)
	case filepath.IsAbs(name):
		return name
	case m.Home != "":
		return filepath.Join(m.home(), name)
	}
	return filepath.FromSlash(e.At)
}

// openCheckpoint opens a rank's file of the checkpoint, or when the run has
// ended, the newest that can be opened; nil: there is none.
func (m *maker) openCheckpoint(rank int) (*ckpt.File, error) {
	if m.File != nil {
		return ckpt.Open(vfs.OS(), m.File(rank))
	}
	d := store.Open(vfs.OS(), m.Checkpoints, rank)
	list, err := d.Committed()
	slices.Sort(list)
	for _, index := range slices.Backward(list) {
		if f, err := ckpt.Open(vfs.OS(), d.File(index)); err == nil {
			return f, nil
		}
	}
	return nil, err
}

// realPath returns the path of the file that a name leads to.
func realPath(name string) (string, error) {
	real, err := filepath.EvalSymlinks(name)
	if errors.Is(err, fs.ErrNotExist) {
		dir, derr := filepath.EvalSymlinks(filepath.Dir(name))
		if derr != nil {
			return name, nil // the directory is gone, too
		}
		return filepath.Join(dir, filepath.Base(name)), nil
	}
	return real, err
}
