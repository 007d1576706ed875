package store

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// publish commits a checkpoint whose file holds text, with links to bases.
func publish(t *testing.T, d *Dir, index uint64, text string, from uint64, bases ...uint64) {
	t.Helper()
	p, err := d.Begin(index)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
	for _, b := range bases {
		if _, err := p.Link(b, from); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Commit(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, fsys vfs.FS, path string) string {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, _ := f.Size()
	p, err := io.ReadAll(io.NewSectionReader(f, 0, n))
	if err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// TestLink_BaseRemoved removes a base: a checkpoint that links to it keeps it,
// with hard links and without.
func TestLink_BaseRemoved(t *testing.T) {
	for _, links := range []bool{true, false} {
		t.Run(fmt.Sprintf("links=%v", links), func(t *testing.T) {
			fsys := vfs.FS(vfstest.NewMem())
			if !links {
				fsys = vfstest.Hook(fsys, func(op, _ string) error {
					if op == "link" {
						return vfs.ErrNoLink
					}
					return nil
				})
			}
			d, err := Create(fsys, "/ckpt", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			publish(t, d, 1, "one", 0)
			publish(t, d, 2, "two", 1, 1)
			publish(t, d, 3, "three", 2, 1, 2)
			removed, err := d.Prune(1, nil)
			if err != nil || !slices.Equal(removed, []uint64{2, 1}) {
				t.Fatalf("Prune removed %v: %v", removed, err)
			}
			for base, want := range map[uint64]string{1: "one", 2: "two"} {
				if got := content(t, fsys, "/ckpt/ckpt-00000003/"+d.BaseName(base)); got != want {
					t.Errorf("base %d holds %q", base, got)
				}
			}
			if list, _ := fsys.ReadDir("/ckpt"); len(list) != 2 { // lock and checkpoint 3
				t.Errorf("the directory holds %v", list)
			}
		})
	}
}

// TestPrune_Leftovers cleans up after crashes, and tells them from a lost file.
func TestPrune_Leftovers(t *testing.T) {
	fsys := vfstest.NewMem()
	d, err := Create(fsys, "/ckpt", 0)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, d, 1, "one", 0)
	p, err := d.Begin(2) // never finished
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Link(1, 1); err != nil {
		t.Fatal(err)
	}
	if lost, err := d.Lost(); err != nil || len(lost) != 0 {
		t.Fatalf("an unfinished set counts as lost: %v, %v", lost, err)
	}
	if indices, _ := d.Committed(); !slices.Equal(indices, []uint64{1}) {
		t.Fatalf("sets %v", indices)
	}
	if next, _ := d.Next(); next != 3 {
		t.Fatalf("the next index is %d", next)
	}
	publish(t, d, 3, "three", 1, 1)
	if err := fsys.Remove(d.File(3)); err != nil {
		t.Fatal(err)
	}
	if lost, err := d.Lost(); err != nil || !slices.Equal(lost, []uint64{3}) {
		t.Fatalf("lost sets %v, %v; want 3", lost, err)
	}
	if _, err := d.Prune(2, nil); err != nil {
		t.Fatal(err)
	}
	if list, _ := fsys.ReadDir("/ckpt"); len(list) != 2 {
		t.Errorf("the directory holds %v", list)
	}
}

// TestCreate_Locked shows that a directory can be opened for writing once at a
// time.
func TestCreate_Locked(t *testing.T) {
	fsys := vfstest.NewMem()
	d, err := Create(fsys, "/a/b/ckpt", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(fsys, "/a/b/ckpt", 0); !errors.Is(err, ErrLocked) {
		t.Fatalf("second Create: %v", err)
	}
	d.Close()
	if d, err = Create(fsys, "/a/b/ckpt", 0); err != nil {
		t.Fatal(err)
	}
	d.Close()
}

// TestDir_OldFormat refuses a directory with checkpoints of an older format,
// rather than start a run beside them.
func TestDir_OldFormat(t *testing.T) {
	fsys := vfstest.NewMem()
	d, err := Create(fsys, "/ckpt", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := fsys.Mkdir("/ckpt/set-notes"); err != nil { // not Cairn's
		t.Fatal(err)
	}
	if _, err := d.Committed(); err != nil {
		t.Error(err)
	}
	if err := fsys.Mkdir(fmt.Sprintf("/ckpt/set-%08d", 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Committed(); !errors.Is(err, ErrOld) {
		t.Errorf("%v, want ErrOld", err)
	}
}
