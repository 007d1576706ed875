//go:build unix

package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/vfs"
)

// TestOpenFile_MadeAgain makes files that must be new. After a restart, the run
// makes those again that it made after the checkpoint, and no others.
func TestOpenFile_MadeAgain(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	step := 0
	begin := func(resumed bool) *Run {
		p := open(t, at("ckpt"))
		Protect(p, "step", &step)
		restore(t, p, resumed)
		return p
	}
	write := func(p *Run, name, text string) {
		t.Helper()
		f, err := p.OpenFile(at(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteString(text)
		f.Close()
	}
	refused := func(p *Run, name string) {
		t.Helper()
		if _, err := p.OpenFile(at(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(at("foreign"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(false)
	write(p, "before", "1")
	checkpoint(t, p)
	write(p, "after", "too much")
	refused(p, "after")
	closeRun(t, p)

	p = begin(true)
	checkpoint(t, p) // before the file is made again
	closeRun(t, p)

	p = begin(true)
	refused(p, "before")
	refused(p, "foreign")
	write(p, "after", "2")
	refused(p, "after")
	checkpoint(t, p)
	closeRun(t, p)

	p = begin(true)
	refused(p, "after") // made before this checkpoint
	closeRun(t, p)
	for name, want := range map[string]string{"before": "1", "after": "2", "foreign": "x"} {
		if text, err := os.ReadFile(at(name)); string(text) != want {
			t.Errorf("%s has %q, %v", name, text, err)
		}
	}

	// Another run in the directory owns none of them.
	p = open(t, at("ckpt"), func(o *Options) { o.Fresh = true })
	Protect(p, "step", &step)
	restore(t, p, false)
	refused(p, "after")
	refused(p, "before")
}

// TestOpenFile_MadeWithJournal makes a file that must be new while the disk of
// the checkpoints is full. A journal removes it before a restart, so nothing
// has to be recorded here.
func TestOpenFile_MadeWithJournal(t *testing.T) {
	disk, full := fillable(newDisk(t))
	p := openFS(t, disk)
	p.SetJournal(func(uint64) error { return nil })
	restore(t, p, false)
	full.Store(true)
	f, err := p.OpenFile(filepath.Join(t.TempDir(), "new"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	full.Store(false)
	closeRun(t, p)
}

// TestOpenFile_MadeOnFullDisk makes a file that must be new while the disk of
// the checkpoints is full. The program continues, and the next checkpoint
// records the file: a restart from an older one makes it again.
func TestOpenFile_MadeOnFullDisk(t *testing.T) {
	disk, full := fillable(vfs.OS())
	dir := t.TempDir()
	path := filepath.Join(dir, "new")
	step := 0
	begin := func(resumed bool) *Run {
		p := open(t, filepath.Join(dir, "ckpt"), func(o *Options) { o.fs = disk })
		Protect(p, "step", &step)
		restore(t, p, resumed)
		return p
	}
	create := func(p *Run) error {
		f, err := p.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			f.Close()
		}
		return err
	}
	p := begin(false)
	checkpoint(t, p)
	full.Store(true)
	if err := create(p); err != nil {
		t.Fatal(err)
	}
	if err := create(p); !errors.Is(err, fs.ErrExist) {
		t.Error("made twice:", err)
	}
	if err := p.Checkpoint(context.Background()); err == nil {
		t.Fatal("saved on a full disk")
	}
	full.Store(false)
	p.recordUnrecorded() // as the next checkpoint does, which does not become durable
	if len(p.files.unrecorded) != 0 {
		t.Error("not recorded")
	}
	closeRun(t, p)
	p = begin(true)
	if err := create(p); err != nil {
		t.Error("not made again:", err)
	}
	closeRun(t, p)
}
