package vfstest

import (
	"io"
	"io/fs"

	"github.com/cairnrun/cairn/internal/vfs"
)

// Hook returns base with before called ahead of every operation. If before
// returns an error, the operation is not done and returns that error, except
// that a failed write may have written its first half. before may be called
// concurrently.
func Hook(base vfs.FS, before func(op, name string) error) vfs.FS { return &hookFS{base, before} }

type hookFS struct {
	vfs.FS
	before func(op, name string) error
}

func (h *hookFS) ask(op, name string) error {
	if err := h.before(op, name); err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

func (h *hookFS) file(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &hookFile{f, h, name}, nil
}

func (h *hookFS) Open(name string) (vfs.File, error) {
	if err := h.ask("open", name); err != nil {
		return nil, err
	}
	f, err := h.FS.Open(name)
	return h.file(f, err, name)
}

func (h *hookFS) Create(name string) (vfs.File, error) {
	if err := h.ask("create", name); err != nil {
		return nil, err
	}
	f, err := h.FS.Create(name)
	return h.file(f, err, name)
}

func (h *hookFS) Mkdir(name string) error {
	if err := h.ask("mkdir", name); err != nil {
		return err
	}
	return h.FS.Mkdir(name)
}

func (h *hookFS) Rename(from, to string) error {
	if err := h.ask("rename", to); err != nil {
		return err
	}
	return h.FS.Rename(from, to)
}

func (h *hookFS) Link(from, to string) error {
	if err := h.ask("link", to); err != nil {
		return err
	}
	return h.FS.Link(from, to)
}

func (h *hookFS) Remove(name string) error {
	if err := h.ask("remove", name); err != nil {
		return err
	}
	return h.FS.Remove(name)
}

func (h *hookFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := h.ask("readdir", name); err != nil {
		return nil, err
	}
	return h.FS.ReadDir(name)
}

func (h *hookFS) Stat(name string) (fs.FileInfo, error) {
	if err := h.ask("stat", name); err != nil {
		return nil, err
	}
	return h.FS.Stat(name)
}

func (h *hookFS) SyncDir(name string) error {
	if err := h.ask("syncdir", name); err != nil {
		return err
	}
	return h.FS.SyncDir(name)
}

func (h *hookFS) Lock(name string) (io.Closer, error) {
	if err := h.ask("lock", name); err != nil {
		return nil, err
	}
	return h.FS.Lock(name)
}

type hookFile struct {
	vfs.File
	h    *hookFS
	name string
}

func (f *hookFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.h.ask("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *hookFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.h.ask("write", f.name); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f *hookFile) WriteV(bufs [][]byte, off int64) error {
	if err := f.h.ask("write", f.name); err != nil {
		f.File.WriteV(bufs[:len(bufs)/2], off)
		return err
	}
	return f.File.WriteV(bufs, off)
}

func (f *hookFile) Allocate(size int64) error {
	if err := f.h.ask("allocate", f.name); err != nil {
		return err
	}
	return f.File.Allocate(size)
}

func (f *hookFile) Truncate(size int64) error {
	if err := f.h.ask("truncate", f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *hookFile) Size() (int64, error) {
	if err := f.h.ask("size", f.name); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *hookFile) Sync() error {
	if err := f.h.ask("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) Close() error {
	err := f.h.ask("close", f.name)
	if cerr := f.File.Close(); err == nil {
		err = cerr
	}
	return err
}
