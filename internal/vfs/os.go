package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"
)

// OS returns the real file system.
func OS() FS { return osFS{} }

type osFS struct{}

// directMin is the smallest transfer for which bypassing the page cache pays.
const directMin = 64 << 10

func (osFS) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return &osFile{File: f, direct: openDirect(name, os.O_RDONLY)}, nil
}

func (osFS) Create(name string) (File, error) {
	perm := filePerm(name)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	if perm != 0o600 { // despite the umask
		if err := f.Chmod(perm); err != nil {
			f.Close()
			return nil, err
		}
	}
	return &osFile{File: f, direct: openDirect(name, os.O_RDWR|noFollow)}, nil
}

func (osFS) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }
func (osFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }

func (osFS) Mkdir(name string) error {
	err := os.Mkdir(name, 0o700)
	if err == nil && groupReads(filepath.Dir(name)) {
		var st fs.FileInfo
		if st, err = os.Stat(name); err == nil {
			err = os.Chmod(name, 0o750|st.Mode()&fs.ModeSetgid) // which it may have from its parent
		}
	}
	return err
}

func (osFS) Remove(name string) error {
	err := os.Remove(name)
	if isNotEmpty(err) {
		err = fmt.Errorf("%w: %w", ErrNotEmpty, err)
	}
	return err
}

func (osFS) Link(from, to string) error { return linkError(os.Link(from, to)) }

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := OpenLock(name)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: filepath.Clean(name), Err: err}
	}
	return f, nil
}

// osFile is a file with two descriptors: an ordinary one, and one that bypasses
// the page cache, for large aligned transfers.
type osFile struct {
	*os.File
	direct *os.File // nil if the file system does not support it
}

// through returns the descriptor for a transfer of p at off.
func (f *osFile) through(p []byte, off int64) *os.File {
	if f.direct != nil && len(p) >= directMin && aligned(p, off) {
		return f.direct
	}
	return f.File
}

func aligned(p []byte, off int64) bool {
	return (uintptr(unsafe.Pointer(unsafe.SliceData(p)))|uintptr(len(p))|uintptr(off))%Align == 0
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	d := f.through(p, off)
	n, err := d.ReadAt(p, off)
	if err != nil && err != io.EOF && d == f.direct {
		return f.File.ReadAt(p, off) // some file systems refuse only here
	}
	return n, err
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	d := f.through(p, off)
	n, err := d.WriteAt(p, off)
	if isInvalid(err) && d == f.direct {
		return f.File.WriteAt(p, off)
	}
	return n, err
}

func (f *osFile) WriteV(bufs [][]byte, off int64) error {
	d, total := f.File, 0
	if f.direct != nil {
		d = f.direct
		for _, b := range bufs {
			if !aligned(b, off) {
				d = f.File
			}
			total += len(b)
		}
		if total < directMin {
			d = f.File
		}
	}
	err := writeV(d, bufs, off)
	if isInvalid(err) && d == f.direct {
		err = writeV(f.File, bufs, off)
	}
	return err
}

func (f *osFile) Allocate(size int64) error { return allocate(f.File, size) }

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *osFile) Close() error {
	if f.direct != nil {
		f.direct.Close()
	}
	return f.File.Close()
}
