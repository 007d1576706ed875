//go:build linux

package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
	"golang.org/x/sys/unix"
)

// Files in checkpoint directories are replaced while ranks may be running: a
// rank adds checkpoints, which may have links to older files, and removes them.
// So a file is exchanged for another one in one step, which fails if the rank
// has removed it.

// PartFiles returns the files of a rank in a checkpoint, the bases among them,
// by their names.
func (d *Dir) PartFiles(rank int, index uint64) (map[string]string, error) {
	found, err := d.partFiles(rank, index)
	out := make(map[string]string, len(found))
	for _, at := range found {
		out[filepath.Base(at)] = at
	}
	return out, err
}

// ScrubDir returns an empty directory for files that are to be put in place of
// damaged ones.
func (d *Dir) ScrubDir() (string, error) {
	dir := filepath.Join(d.Path, "scrub")
	return dir, errors.Join(os.RemoveAll(dir), vfs.SubDir(dir))
}

// errOtherStart says that a file does not count.
var errOtherStart = errors.New("it was saved by another start of the run")

// Sound checks every block of a rank's file of a checkpoint, which must count.
// l, if not nil, bounds the rate. An error that wraps ErrDamaged means that the
// file, or a base of it, is damaged.
func (d *Dir) Sound(ctx context.Context, path string, rank int, index uint64, l *tier.Limiter) error {
	a, err := d.Attempt()
	if err != nil {
		return err
	}
	fsys := d.fs
	if l != nil {
		fsys = &limitedFS{fsys, ctx, l}
	}
	s, err := ckpt.Open(fsys, path)
	if err == nil {
		defer s.Close()
		if a != nil && !a.Counts(index, s.Header.Attempt) {
			err = errOtherStart
		}
	}
	if err == nil {
		err = errors.Join(s.Header.CheckPlace(index, rank), s.Header.CheckRun(d.Run))
	}
	if err == nil {
		var bad []ckpt.Damage
		if bad, err = s.Verify(ctx, nil); err == nil && len(bad) > 0 {
			err = bad[0].Err
		}
	}
	if errors.Is(err, ckpt.ErrCorrupt) || errors.Is(err, ckpt.ErrForeign) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// Replace puts a file in place of a damaged one wherever the checkpoints of a
// rank have links to it. The new one must be on the same file system, and
// durable. It stays where it is, too. One goroutine may call it at a time.
func (d *Dir) Replace(rank int, damaged fs.FileInfo, with string) error {
	members, err := store.Members(d.fs, CheckpointDir(d.Path))
	if err != nil {
		return err
	}
	link := filepath.Join(d.Path, "scrub.link")
	defer os.Remove(link)
	var errs []error
	for index := range members {
		files, err := d.partFiles(rank, index)
		if errors.Is(err, fs.ErrNotExist) { // the rank has removed it
			continue
		}
		errs = append(errs, err)
		for _, at := range files {
			if st, err := os.Lstat(at); err == nil && os.SameFile(st, damaged) {
				errs = append(errs, exchange(at, damaged, with, link))
			}
		}
	}
	return errors.Join(errs...)
}

// exchange puts a link to a file at a path that has a damaged one. It is no
// error if that is not there any more. link is a path for its work.
func exchange(at string, damaged fs.FileInfo, with, link string) error {
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(with, link); err != nil {
		return err
	}
	swap := func() error { return unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, at, unix.RENAME_EXCHANGE) }
	step.At("scrub.exchange")
	err := swap()
	step.At("scrub.exchanged")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &fs.PathError{Op: "exchange", Path: at, Err: err}
	}
	if st, err := os.Lstat(link); err == nil && !os.SameFile(st, damaged) { // the rank has replaced it meanwhile
		return swap()
	}
	return vfs.OS().SyncDir(filepath.Dir(at))
}

// limitedFS bounds the rate at which files are read.
type limitedFS struct {
	vfs.FS
	ctx context.Context
	l   *tier.Limiter
}

func (f *limitedFS) Open(name string) (vfs.File, error) {
	file, err := f.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &limitedFile{file, f}, nil
}

type limitedFile struct {
	vfs.File
	fs *limitedFS
}

func (f *limitedFile) ReadAt(p []byte, off int64) (int, error) {
	return tier.LimitReaderAt(f.fs.ctx, f.File, f.fs.l).ReadAt(p, off)
}
