package vfstest

import "github.com/cairnrun/cairn/internal/vfs"

// Discard returns a file system in memory whose files discard what is written
// to them, to measure everything but the disk. If written is not nil, it is
// called after every large write.
func Discard(written func(bytes int)) vfs.FS { return discard{NewMem(), written} }

type discard struct {
	*Mem
	written func(int)
}

func (d discard) Create(name string) (vfs.File, error) {
	f, err := d.Mem.Create(name)
	return discardFile{f, d.written}, err
}

type discardFile struct {
	vfs.File
	written func(int)
}

func (f discardFile) WriteV(bufs [][]byte, _ int64) error {
	n := 0
	for _, b := range bufs {
		n += len(b)
	}
	if f.written != nil {
		f.written(n)
	}
	return nil
}

func (discardFile) Allocate(int64) error                     { return nil }
func (discardFile) WriteAt(p []byte, off int64) (int, error) { return len(p), nil }
func (discardFile) Truncate(int64) error                     { return nil }
