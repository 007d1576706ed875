// Package vfs is the seam between Cairn and the file system. Every file
// operation on checkpoint files goes through FS, so that tests can fail the
// i-th operation, or crash the machine at it, for every i.
//
//	OS()        the real file system; large aligned transfers bypass the page cache
//	Mem         in memory; knows what was synced: Crash gives what a power cut leaves
//	Hook        wraps another one and asks a function before every operation
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// Align is the alignment (file offset, length and memory address) at which a
// transfer may bypass the page cache.
const Align = 4096

// ErrLocked is returned by Lock when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// ErrNoLink says that the file system has no hard links.
var ErrNoLink = errors.New("file system has no hard links")

// ErrNotEmpty is returned by Remove for a directory that holds something.
var ErrNotEmpty = errors.New("directory is not empty")

// FS is a file system. Names are ordinary paths. Errors wrap those of io/fs
// and carry the name.
type FS interface {
	// Open opens for reading.
	Open(name string) (File, error)
	// Create makes a new file for reading and writing; the name must be free.
	Create(name string) (File, error)
	Mkdir(name string) error // the name must be free
	Rename(from, to string) error
	Link(from, to string) error // hard link; errors.Is(err, ErrNoLink) where there are none
	Remove(name string) error   // a file or an empty directory; else errors.Is(err, ErrNotEmpty)
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the directory's entries durable.
	SyncDir(name string) error
	// Lock takes an exclusive lock that the system drops when the process
	// dies; the file is created. It does not wait.
	Lock(name string) (io.Closer, error)
}

// File is an open file. ReadAt and WriteAt may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// WriteV writes bufs one after the other from off on.
	WriteV(bufs [][]byte, off int64) error
	// Allocate reserves size bytes of room where the system can; it never
	// changes what is read. Out of room is an error, "cannot" is not.
	Allocate(size int64) error
	Truncate(size int64) error
	Size() (int64, error)
	// Sync makes the content durable.
	Sync() error
}
