// Package dir keeps objects as files in a directory: of a local disk, or of a
// file system that several hosts share.
//
//	PATH/
//	  RUN/files/rank-0000-00000010-TOKEN.h5   the object of that name
//	  RUN/files/.tmp-5e0c…                    being written, or left by a crash
//	  .lock                                   only where there are no hard links
//
// An object is written under a temporary name in its directory and synced; then
// it gets its name by a hard link, which fails if the name is taken; then the
// directories are synced. Where there are no hard links, a lock of the whole
// tier and a rename do the same. Directories have mode 0700 and files 0600,
// unless the directory is open to its group (package vfs). Symbolic links below
// PATH are not followed.
package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

type dir struct {
	fs   vfs.FS
	root string
}

const tmpPrefix = ".tmp-"

// lockRetry is for the lock, which is taken for a moment only.
var lockRetry = tier.Retry{Tries: 1000, First: 2 * time.Millisecond, Max: 100 * time.Millisecond}

// Open returns the tier in the directory at root, and creates the directory if
// there is none. It refuses a directory that belongs to another user or that
// all users may write to, unless access allows it; see vfs.Trust.
func Open(fsys vfs.FS, root string, access vfs.Access) (tier.Tier, error) {
	root = filepath.Clean(root)
	if err := (&dir{fsys, ""}).mkdirs(root); err != nil {
		return nil, fmt.Errorf("tier directory: %w", err)
	}
	return OpenExisting(fsys, root, access)
}

// OpenExisting is Open of a directory that must exist. The tier never creates
// it, not even later: its file system may have been unmounted.
func OpenExisting(fsys vfs.FS, root string, access vfs.Access) (tier.Tier, error) {
	d := &dir{fsys, filepath.Clean(root)}
	if err := vfs.Trust(fsys, d.root, access); err != nil {
		return nil, fmt.Errorf("tier directory: %w", err)
	}
	return tier.Retrying(d, tier.Retry{}), nil
}

func (d *dir) String() string { return d.root }

// path returns where an object is. It refuses symbolic links on the way.
func (d *dir) path(name string) (string, error) {
	if err := tier.CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(d.root, filepath.FromSlash(name)), vfs.NoLinks(d.fs, d.root, name)
}

// fail gives an error of the file system its type.
func (d *dir) fail(err error) error {
	for _, e := range []syscall.Errno{syscall.EINTR, syscall.EAGAIN, syscall.EBUSY, syscall.ESTALE, syscall.ETIMEDOUT} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", tier.ErrTemporary, err)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", tier.ErrNotExist, err)
	}
	return err
}

// mkdirs creates a directory and its parents, but not the root.
func (d *dir) mkdirs(p string) error {
	st, err := d.fs.Stat(p)
	if err == nil && !st.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: p, Err: syscall.ENOTDIR}
	}
	if !errors.Is(err, fs.ErrNotExist) || p == d.root {
		return err
	}
	parent := filepath.Dir(p)
	if parent != p {
		if err := d.mkdirs(parent); err != nil {
			return err
		}
	}
	if err := d.fs.Mkdir(p); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.fs.SyncDir(parent)
}

// sync makes the entry of a file durable, and those of its directories: another
// process may have created them a moment ago.
func (d *dir) sync(p string) error {
	for p != d.root {
		p = filepath.Dir(p)
		if err := d.fs.SyncDir(p); err != nil {
			return err
		}
	}
	return nil
}

func (d *dir) Create(ctx context.Context, name string, data []byte) error {
	return d.Put(ctx, name, tier.BytesSource(data))
}

func (d *dir) Put(ctx context.Context, name string, src tier.Source) error {
	p, err := d.path(name)
	if err != nil {
		return err
	}
	for {
		err = d.put(ctx, p, src)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
		if err = d.compare(ctx, p, src); err == nil {
			err = d.sync(p)
		}
		if !errors.Is(err, fs.ErrNotExist) { // otherwise it was removed meanwhile
			break
		}
	}
	if err != nil {
		return d.fail(err)
	}
	return nil
}

// put writes a file. If the name is taken, the error is fs.ErrExist.
func (d *dir) put(ctx context.Context, p string, src tier.Source) error {
	if _, err := d.fs.Stat(p); err == nil {
		return fs.ErrExist
	}
	f, tmp, err := d.createTemp(filepath.Dir(p))
	if err != nil {
		return err
	}
	err = write(ctx, f, src)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		step.At("tier.store")
		err = d.name(ctx, tmp, p)
		step.At("tier.stored")
	}
	rerr := d.fs.Remove(tmp)
	if err == nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = rerr
	}
	if err != nil {
		return err
	}
	return d.sync(p)
}

func (d *dir) createTemp(in string) (vfs.File, string, error) {
	tmp := filepath.Join(in, tmpPrefix+store.NewID())
	for try := 0; ; try++ {
		if err := d.mkdirs(in); err != nil {
			return nil, "", err
		}
		f, err := d.fs.Create(tmp)
		// Remove may have removed the directory while it was empty.
		if err == nil || !errors.Is(err, fs.ErrNotExist) || try == 100 {
			return f, tmp, err
		}
	}
}

// write writes the content of src through a buffer that is aligned for
// transfers that bypass the page cache.
func write(ctx context.Context, f vfs.File, src tier.Source) error {
	if err := f.Allocate(src.Size); err != nil {
		return err
	}
	buf := alignedBuffer(src.Size)
	for off := int64(0); off < src.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := buf[:min(int64(len(buf)), src.Size-off)]
		if err := readAt(src, p, off); err != nil {
			return err
		}
		if _, err := f.WriteAt(p, off); err != nil {
			return err
		}
		off += int64(len(p))
	}
	return nil
}

func alignedBuffer(size int64) []byte {
	n := min(max(size, 1), 1<<20)
	p := make([]byte, n+vfs.Align)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(p))) % vfs.Align
	return p[skip : int64(skip)+n]
}

// readAt fills p, or fails.
func readAt(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// name gives a finished file its name, which must be free.
func (d *dir) name(ctx context.Context, tmp, p string) error {
	err := d.fs.Link(tmp, p)
	if !errors.Is(err, vfs.ErrNoLink) {
		return err
	}
	var lock io.Closer
	err = lockRetry.Do(ctx, func() (err error) {
		lock, err = d.fs.Lock(filepath.Join(d.root, ".lock"))
		if errors.Is(err, vfs.ErrLocked) {
			err = fmt.Errorf("%w: %w", tier.ErrTemporary, err)
		}
		return err
	})
	if err != nil {
		return err
	}
	defer lock.Close()
	if _, err := d.fs.Stat(p); err == nil {
		return fs.ErrExist
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.fs.Rename(tmp, p)
}

// compare checks that a file has the content of src.
func (d *dir) compare(ctx context.Context, p string, src tier.Source) error {
	f, size, err := d.open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	a, b := alignedBuffer(src.Size), alignedBuffer(src.Size)
	for off := int64(0); off < src.Size && size == src.Size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(int64(len(a)), src.Size-off)
		if err := errors.Join(readAt(src, a[:n], off), readAt(f, b[:n], off)); err != nil {
			return err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return fmt.Errorf("%s: %w", p, tier.ErrExists)
		}
		off += n
	}
	if size != src.Size {
		return fmt.Errorf("%s: %w: it has %d bytes, not %d", p, tier.ErrExists, size, src.Size)
	}
	return nil
}

func (d *dir) open(p string) (vfs.File, int64, error) {
	f, err := d.fs.Open(p)
	if err != nil {
		return nil, 0, err
	}
	size, err := f.Size()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

func (d *dir) Get(ctx context.Context, name string, offset, n int64) (io.ReadCloser, error) {
	p, err := d.path(name)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, err := d.stat(p); err != nil { // refuses directories
		return nil, err
	}
	f, size, err := d.open(p)
	if err != nil {
		return nil, d.fail(err)
	}
	if n < 0 {
		n = size - offset
	}
	if offset < 0 || n < 0 || offset > size-n {
		f.Close()
		return nil, fmt.Errorf("%s: %w: it has %d bytes; the request is for %d from %d on", p, tier.ErrDamaged, size, n, offset)
	}
	return &reader{d, ctx, f, io.NewSectionReader(f, offset, n)}, nil
}

type reader struct {
	d   *dir
	ctx context.Context
	f   vfs.File
	r   *io.SectionReader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(p)
	if at, _ := r.r.Seek(0, io.SeekCurrent); err == io.EOF && at < r.r.Size() {
		err = fmt.Errorf("%w: it became shorter while it was read", tier.ErrDamaged)
	}
	if err != nil && err != io.EOF {
		err = r.d.fail(err)
	}
	return n, err
}

func (r *reader) Close() error { return r.f.Close() }

// stat describes a file. A directory is no object.
func (d *dir) stat(p string) (fs.FileInfo, error) {
	st, err := d.fs.Stat(p)
	if err == nil && !st.Mode().IsRegular() || errors.Is(err, syscall.ENOTDIR) {
		err = &fs.PathError{Op: "stat", Path: p, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, d.fail(err)
	}
	return st, nil
}

func (d *dir) Stat(ctx context.Context, name string) (tier.Info, error) {
	p, err := d.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return tier.Info{}, err
	}
	st, err := d.stat(p)
	if err != nil {
		return tier.Info{}, err
	}
	return tier.Info{Name: name, Size: st.Size(), Modified: st.ModTime()}, nil
}

func (d *dir) Remove(ctx context.Context, name string) error {
	p, err := d.path(name)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	if _, err := d.stat(p); errors.Is(err, tier.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	step.At("tier.remove")
	err = d.fs.Remove(p)
	step.At("tier.removed")
	if err == nil {
		err = d.fs.SyncDir(filepath.Dir(p))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.fail(err)
	}
	for p = filepath.Dir(p); p != d.root && d.fs.Remove(p) == nil; p = filepath.Dir(p) { // while they are empty
	}
	return nil
}

func (d *dir) List(ctx context.Context, prefix string) iter.Seq2[tier.Info, error] {
	return func(yield func(tier.Info, error) bool) {
		err := d.each(ctx, prefix, func(p, name string, st fs.FileInfo) error {
			if strings.HasPrefix(path.Base(name), ".") {
				return nil
			}
			if !yield(tier.Info{Name: name, Size: st.Size(), Modified: st.ModTime()}, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && err != errStop {
			yield(tier.Info{}, d.fail(err))
		}
	}
}

func (d *dir) Sweep(ctx context.Context, prefix string, before time.Time) error {
	err := d.each(ctx, prefix, func(p, name string, st fs.FileInfo) error {
		if !strings.HasPrefix(path.Base(name), tmpPrefix) || !st.ModTime().Before(before) {
			return nil
		}
		if err := d.fs.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return d.fail(err)
	}
	return nil
}

var errStop = errors.New("stop")

// each calls f for every file whose name begins with prefix, and for the
// temporary files in the directories where it looks, whatever their names.
func (d *dir) each(ctx context.Context, prefix string, f func(p, name string, st fs.FileInfo) error) error {
	if err := tier.CheckPrefix(prefix); err != nil {
		return err
	}
	in, base := path.Split(prefix)
	in = strings.TrimSuffix(in, "/")
	if in != "" {
		if err := vfs.NoLinks(d.fs, d.root, in); err != nil {
			return err
		}
	}
	return d.walk(ctx, in, base, f)
}

func (d *dir) walk(ctx context.Context, in, base string, f func(p, name string, st fs.FileInfo) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := filepath.Join(d.root, filepath.FromSlash(in))
	entries, err := d.fs.ReadDir(at)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		tmp := strings.HasPrefix(e.Name(), tmpPrefix)
		if !tmp && (!strings.HasPrefix(e.Name(), base) || tier.CheckName(e.Name()) != nil) {
			continue
		}
		switch {
		case e.IsDir() && !tmp:
			err = d.walk(ctx, path.Join(in, e.Name()), "", f)
		case e.Type().IsRegular():
			var st fs.FileInfo
			if st, err = e.Info(); err == nil {
				err = f(filepath.Join(at, e.Name()), path.Join(in, e.Name()), st)
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return err
		}
	}
	return nil
}
