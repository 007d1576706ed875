package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/vfs"
)

// TestClosedFiles saves closed files with others. They are restored as closed
// files, again and again, and each as one file.
func TestClosedFiles(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	type files struct {
		data, first *os.File
		more        []*os.File
	}
	path := filepath.Join(out, "data")
	var s files
	start := func() *Run {
		t.Helper()
		p := open(t, dir)
		var err error
		if s.data, err = p.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
			t.Fatal(err)
		}
		Protect(p, "files", &s)
		return p
	}
	p := start()
	restore(t, p, false)
	made, err := p.OpenFile(filepath.Join(out, "made"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.Create(filepath.Join(out, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{made, plain} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.first, s.more = made, []*os.File{made, plain, made}
	for life := range 3 {
		checkpoint(t, p)
		closeRun(t, p)
		for _, f := range s.more {
			os.Remove(f.Name()) // closed files are not opened
		}
		s = files{}
		p = start()
		restore(t, p, true)
		if len(s.more) != 3 || s.first == nil || s.more[0] != s.first || s.more[2] != s.first || s.more[1] == s.first {
			t.Fatalf("life %d: %v, %v", life, s.first, s.more)
		}
		for f, name := range map[*os.File]string{s.first: "made", s.more[1]: "plain"} {
			if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) || f.Name() != filepath.Join(out, name) {
				t.Errorf("life %d: %s: %v", life, f.Name(), err)
			}
		}
		if _, err := s.data.WriteString("x"); err != nil {
			t.Error(err)
		}
	}
	closeRun(t, p)
	names, err := filepath.Glob(filepath.Join(dir, "ckpt-*", "rank-0000.h5"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	f, err := ckpt.Open(vfs.OS(), names[len(names)-1])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries, err := f.Files()
	if err != nil {
		t.Fatal(err)
	}
	closed := 0
	for _, e := range entries {
		if e.Closed {
			closed++
			if !strings.HasPrefix(e.Path, filepath.ToSlash(out)) {
				t.Errorf("%+v", e)
			}
		}
	}
	if closed != 2 || len(entries) != 3 {
		t.Errorf("%+v", entries)
	}
}
