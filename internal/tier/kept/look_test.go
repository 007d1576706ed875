package kept

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/tier/copies"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// without is a file system in which a directory of the store does not exist.
type without struct {
	vfs.FS
	name string
}

func (f without) ReadDir(name string) ([]fs.DirEntry, error) {
	if filepath.Base(name) == f.name {
		return nil, fs.ErrNotExist
	}
	return f.FS.ReadDir(name)
}

// emptied is a file system in which every directory lists files that are
// removed before anybody can read them.
type emptied struct{ vfs.FS }

func (f emptied) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := f.FS.ReadDir(name)
	if len(entries) == 0 || err != nil {
		return entries, err
	}
	first := entries[0]
	return append([]fs.DirEntry{gone{first, first.Name()}, gone{first, "x" + first.Name()}}, entries...), nil
}

// gone is the entry of a file that does not exist any more.
type gone struct {
	fs.DirEntry
	name string
}

func (g gone) Name() string               { return g.name }
func (g gone) Info() (fs.FileInfo, error) { return nil, fs.ErrNotExist }

// TestLook_ChangedMeanwhile shows that Look finds all that there is, while
// another process makes the store's directories, or removes some of its files.
func TestLook_ChangedMeanwhile(t *testing.T) {
	fsys := vfstest.NewMem()
	prog := tiertest.NewProgram(t, fsys, "/run", 1)
	s := open(t, fsys, prog.Run)
	p, err := s.Link(t.Context(), "/run", prog.Save(), 0, More{})
	if err != nil {
		t.Fatal(err)
	}
	name, data := content(1, 20_000)
	id := copies.ID{Object: name, Data: 2, Parity: 1}
	if err := receive(s, id, len(data), shard(t, id, data)); err != nil {
		t.Fatal(err)
	}
	for _, missing := range []string{"", filesDir, shardsDir, partsDir} {
		var seen vfs.FS = without{fsys, missing}
		if missing == "" {
			seen = emptied{fsys}
		}
		look, err := Look(seen, "/kept", prog.Run)
		if err != nil {
			t.Fatal(err)
		}
		inv := look.Inventory()
		if (len(inv.Copies) > 0) != (missing != filesDir) || (len(inv.Shards) > 0) != (missing != shardsDir) || (len(inv.Parts) > 0) != (missing != partsDir) {
			t.Errorf("without %q: %d copies, %d shards, %d parts", missing, len(inv.Copies), len(inv.Shards), len(inv.Parts))
		}
		if missing == "" {
			all(t, look, p)
		}
	}
}
