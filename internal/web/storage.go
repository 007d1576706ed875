//go:build linux

package web

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/control"
)

// storage is what the checkpoints take on the disk that is seen from here.
type storage struct {
	Checkpoints int   `json:"checkpoints"` // in the directory
	Bytes       int64 `json:"bytes"`       // of their files; one with several links counts once
	Total       int64 `json:"total"`       // size of the file system
	Free        int64 `json:"free"`
}

// measureEvery is the time between two walks through the checkpoint directory.
const measureEvery = 5 * time.Second

// measured is the last result.
type measured struct {
	storage
	dir string
	at  time.Time
}

// measure measures the checkpoint directory, but not too often.
func (w *watcher) measure(st *control.RunState) storage {
	if m := &w.measured; m.dir != st.Dir || time.Since(m.at) > measureEvery {
		*m = measured{storage: measureDir(st.Dir), dir: st.Dir}
		m.at = time.Now()
	}
	return w.measured.storage
}

func measureDir(dir string) (s storage) {
	s.Total, s.Free = space(dir)
	seen := make(map[any]bool)
	filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // it was removed meanwhile, or is not ours to read
		}
		if e.IsDir() {
			if ok, _ := filepath.Match("ckpt-*", e.Name()); ok {
				s.Checkpoints++
			}
			return nil
		}
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
			if id := identity(st); id == nil || !seen[id] {
				seen[id] = true
				s.Bytes += st.Size()
			}
		}
		return nil
	})
	return s
}

// space returns the size of the file system of a directory, which need not
// exist yet, and what is free for users.
func space(dir string) (total, free int64) {
	var st unix.Statfs_t
	for unix.Statfs(dir, &st) != nil {
		if dir = filepath.Dir(dir); len(dir) <= 1 {
			return 0, 0
		}
	}
	return int64(st.Blocks) * int64(st.Bsize), int64(st.Bavail) * int64(st.Bsize)
}

// identity returns a value that is equal for all links to a file.
func identity(st fs.FileInfo) any {
	if s, ok := st.Sys().(*syscall.Stat_t); ok && s.Nlink > 1 {
		return [2]uint64{uint64(s.Dev), s.Ino}
	}
	return nil
}

// tail returns the last lines of a file, at most so many bytes.
func tail(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, st.Size()-limit)
	text := make([]byte, st.Size()-from)
	n, err := f.ReadAt(text, from)
	if n == 0 && err != nil && st.Size() > 0 {
		return nil, err
	}
	text = text[:n]
	if from > 0 { // begin with a whole line
		for i, c := range text {
			if c == '\n' {
				return text[i+1:], nil
			}
		}
	}
	return text, nil
}
