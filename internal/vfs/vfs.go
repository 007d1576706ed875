// Package vfs is the interface between Cairn and the file system. Every
// operation on checkpoint files goes through FS. So tests can let the i-th
// operation fail, or simulate a power failure there, for every i; package
// vfstest has file systems for that. OS is the real file system; its large
// aligned transfers bypass the page cache.
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// Align is the alignment (file offset, length and memory address) at which a
// transfer may bypass the page cache.
const Align = 4096

// ErrLocked means that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// ErrNoLink means that the file system has no hard links.
var ErrNoLink = errors.New("file system has no hard links")

// ErrNotEmpty means that a directory to be removed is not empty.
var ErrNotEmpty = errors.New("directory is not empty")

// FS is a file system. Names are ordinary paths. Errors wrap those of io/fs and
// have the name.
type FS interface {
	// Open opens a file for reading.
	Open(name string) (File, error)
	// Create creates a file for reading and writing; the name must be free.
	Create(name string) (File, error)
	Mkdir(name string) error // the name must be free
	Rename(from, to string) error
	Link(from, to string) error // hard link; fails with ErrNoLink if there are none
	Remove(name string) error   // a file or an empty directory; otherwise fails with ErrNotEmpty
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the directory's entries durable.
	SyncDir(name string) error
	// Lock creates the file and takes an exclusive lock, which the system
	// releases when the process dies. It does not wait.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt and WriteAt may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteV writes bufs, one after the other, from off on.
	WriteV(bufs [][]byte, off int64) error
	// Allocate reserves space for size bytes, if the file system can; it does
	// not change the content. A full disk is an error; a file system without
	// reservations is not.
	Allocate(size int64) error
	Truncate(size int64) error
	Size() (int64, error)
	// Sync makes the content durable.
	Sync() error
}
