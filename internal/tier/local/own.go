//go:build linux

package local

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cairnrun/cairn/internal/tier"
)

// The own files of a rank as one object, for other hosts: a tar archive of its
// output and of the record of the files that it writes.

// The extensions of such objects. One that lacks something, such as a journal,
// cannot take the place of the rank's home.
const (
	OwnExt   = "own"
	LacksExt = "lacks"
)

// PackOwn returns the own files of a rank as one object, and the extension of
// its name. The caller calls close.
func (d *Dir) PackOwn(ctx context.Context, rank, all int) (src tier.Source, ext string, close func() error, err error) {
	missing, err := d.absentNames(rank, all)
	if err != nil {
		return src, "", nil, err
	}
	if ext = OwnExt; len(missing) > 0 {
		ext = LacksExt
	}
	f, err := os.CreateTemp(d.Path, "own-")
	if err != nil {
		return src, "", nil, err
	}
	os.Remove(f.Name()) // only this process needs it
	w := tar.NewWriter(f)
	for _, name := range carriedNames(rank) {
		if err == nil && ext == OwnExt {
			err = addTar(ctx, w, name, filepath.Join(d.Path, filepath.FromSlash(name)))
		}
	}
	if err == nil {
		err = w.Close()
	}
	var size int64
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		src, err = tier.NewSource(ctx, f, size)
	}
	if err != nil {
		return src, "", nil, errors.Join(err, f.Close())
	}
	return src, ext, f.Close, nil
}

// addTar adds a file with its present size. A file that is not there is left
// out.
func addTar(ctx context.Context, w *tar.Writer, name, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: st.Size(), Format: tar.FormatPAX})
	}
	if err == nil {
		err = tier.Copy(ctx, w, f, st.Size())
	}
	return err
}

// UnpackOwn makes a rank's own files those of an object that PackOwn made, and
// records the recovery line.
func (d *Dir) UnpackOwn(ctx context.Context, r io.Reader, rank, ranks int, line uint64, attempt string) error {
	if err := d.MakeCheckpoints(); err != nil {
		return err
	}
	err := d.replaceOwn(rank, ranks, func(in string) (names []string, err error) {
		for t := tar.NewReader(r); ; {
			h, err := t.Next()
			if err == io.EOF {
				return names, nil
			}
			if err == nil && (!slices.Contains(carriedNames(rank), h.Name) || slices.Contains(names, h.Name)) {
				err = fmt.Errorf("%w: it has %.100q", tier.ErrDamaged, h.Name)
			}
			if err != nil {
				return nil, err
			}
			f, err := os.OpenFile(filepath.Join(in, filepath.FromSlash(h.Name)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return nil, err
			}
			if err = tier.Copy(ctx, f, t, h.Size); err == nil {
				err = f.Sync()
			}
			if err = errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
			names = append(names, h.Name)
		}
	})
	if err != nil {
		return err
	}
	return d.setLine(rank, ranks, line, attempt)
}
