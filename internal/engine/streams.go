package engine

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"unsafe"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// openStream opens stdout or stderr by name. The system would open the file
// behind the stream again, truncate it, and write from its beginning; under a
// supervisor that file is the run's output. The program wants to write to the
// stream, so it gets a duplicate.
func (t *fileTable) openStream(name string, fd int) (*os.File, error) {
	f, err := duplicate(fd, name)
	if err != nil {
		return nil, err
	}
	t.open = append(t.open, &openFile{entry: ckpt.FileEntry{ID: t.next, Path: streamPath(fd), Mode: "w"}, f: f})
	t.next++
	return f, nil
}

// streamPath names a stream that was opened by name in a checkpoint.
func streamPath(fd int) string { return "/dev/fd/" + strconv.Itoa(fd) }

// stream returns the number of the stream that was opened by name.
func (o *openFile) stream() (int, bool) {
	for fd := 1; fd <= 2; fd++ {
		if o.entry.Path == streamPath(fd) && o.entry.Mode == "w" {
			return fd, true
		}
	}
	return 0, false
}

// isClosed reports whether a file is closed.
func isClosed(f *os.File) bool {
	_, err := f.Stat()
	return errors.Is(err, os.ErrClosed)
}

// givenName returns a name as the program gave it, if its path in a checkpoint
// differs.
func givenName(name string) string {
	if portablePath(name) == name {
		return ""
	}
	return name
}

// SetFileName sets the name by which the program has opened a file. The file's
// Name method returns it, also after Restore. If path is not empty, it is the
// file's path relative to the directory in which the program was started, and
// Restore opens that.
func (p *Run) SetFileName(f *os.File, name, path string) {
	for _, o := range p.files.open {
		if o.f == f {
			if path != "" {
				o.entry.Path, o.entry.At = portablePath(path), filepath.ToSlash(o.entry.Abs)
			}
			o.entry.Name = givenName(name)
			if o.entry.Path != portablePath(name) {
				o.entry.Name = name
			}
			changeFileName(f, name)
		}
	}
}

// PathOf returns the absolute path of an open data file; "": it is none.
func (p *Run) PathOf(f *os.File) string {
	for _, o := range p.files.open {
		if o.f == f {
			return o.entry.Abs
		}
	}
	return ""
}

// changeFileName sets what a file's Name method returns.
func changeFileName(f *os.File, name string) {
	if f.Name() == name {
		return
	}
	in := reflect.ValueOf(f).Elem().Field(0)
	if in.Kind() != reflect.Pointer {
		return
	}
	if v := in.Elem().FieldByName("name"); v.IsValid() && v.Kind() == reflect.String {
		*(*string)(unsafe.Pointer(v.UnsafeAddr())) = name
	}
}
