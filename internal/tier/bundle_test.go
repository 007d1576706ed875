package tier_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/dir"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// bundled publishes a checkpoint of five ranks as two objects. Each rank has an
// extra file.
func bundled(t *testing.T, p *tiertest.Program, m tier.Tier, index uint64) *tier.Manifest {
	t.Helper()
	o := p.Upload(index)
	o.Files = 2
	for r := range 5 {
		text := strings.Repeat("extra ", 1000*(r+1))
		o.Extra = append(o.Extra, tier.ExtraFile{Kind: "pack", Rank: r, Path: "x.pack", Source: tier.BytesSource([]byte(text))})
	}
	mf, err := tier.Publish(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	return mf
}

// sound checks every object of a checkpoint.
func sound(t *testing.T, m tier.Tier, mf *tier.Manifest) {
	t.Helper()
	if read, err := tier.Verify(t.Context(), m, mf, map[string]error{}, func(object string, err error) { t.Errorf("%s: %v", object, err) }); err != nil || read == 0 {
		t.Errorf("%d bytes, %v", read, err)
	}
}

// TestBundle publishes full and differential checkpoints with few files. They
// have the right values, old ones are collected, copies are whole, and what is
// damaged in a bundle is repaired.
func TestBundle(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 5)
	m := tiertest.NewMem()
	var last *tier.Manifest
	for i := range 3 {
		last = bundled(t, p, m, p.Save())
		p.Fetchable(m, last)
		sound(t, m, last)
		if got := count(t, m, p.Run+"/files/"); got != 2*(i+1) {
			t.Fatalf("%d checkpoints are in %d files: %v", i+1, got, tiertest.All(t, m, p.Run+"/files/"))
		}
	}
	p.Full()
	last = bundled(t, p, m, p.Save())
	if _, err := tier.Collect(t.Context(), m, p.Run, tier.CollectOptions{Retain: []uint64{last.Index}}); err != nil {
		t.Fatal(err)
	}
	p.Fetchable(m, last)
	if err := complete(m, p.Run); err != nil {
		t.Error(err)
	}

	other := tiertest.NewMem()
	as := store.NewID()
	if _, err := tier.CopyRun(t.Context(), m, other, as, []*tier.Manifest{last}); err != nil {
		t.Fatal(err)
	}
	made, err := tier.Checkpoints(t.Context(), other, as)
	if err != nil || len(made) != 1 {
		t.Fatal(made, err)
	}
	sound(t, other, made[0])

	// The other tier has everything, under other names.
	part, err := last.Part(t.Context(), m, 0)
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context, w *tier.Wanted) (*os.File, string, error) {
		from, err := made[0].Part(ctx, other, 0)
		if err != nil {
			return nil, "", err
		}
		f, err := os.CreateTemp(t.TempDir(), "")
		from.Objects(func(o tier.Object) {
			if err == nil && o.Digest == w.Digest && o.Size == w.Size {
				err = tier.Download(ctx, other, o, io.NewOffsetWriter(f, 0))
			}
		})
		return f, "the other tier", err
	}
	repaired := 0
	options := func() tier.RepairOptions {
		return tier.RepairOptions{Get: get, Seen: map[string]error{}, Done: func(w *tier.Wanted, from string, err error) {
			if err != nil {
				t.Errorf("%s: %v", w, err)
			}
			repaired++
		}}
	}
	for _, o := range []tier.Object{part.Ranks[0].Files[0].Object, part.Ranks[4].Files[0].Object, part.Extra[2].Object} {
		m.Change(o.Name, func(data []byte) []byte {
			data = slices.Clone(data)
			data[o.At+o.Size/2] ^= 1
			return data
		})
	}
	if err := tier.Repair(t.Context(), m, last, options()); err != nil || repaired != 3 {
		t.Errorf("%d of 3 repaired: %v", repaired, err)
	}
	sound(t, m, last)
	p.Fetchable(m, last)

	// A repair is killed while it replaces a bundle. The next one continues,
	// and the files of other ranks are not lost, also if there was a
	// collection.
	o := part.Ranks[1].Files[0].Object
	m.Change(o.Name, func(data []byte) []byte {
		data = slices.Clone(data)
		data[o.At+o.Size/2] ^= 1
		return data
	})
	faulty := tiertest.Faulty(m, func(op, name string) tiertest.Fault {
		if op == "put" && name == o.Name {
			return tiertest.Fail
		}
		return 0
	})
	failed := options()
	failed.Done = func(w *tier.Wanted, from string, err error) {
		if err == nil {
			t.Errorf("%s: repaired by a store that fails", w)
		}
	}
	tier.Repair(t.Context(), faulty, last, failed)
	if _, err := m.Stat(t.Context(), o.Name); !errors.Is(err, tier.ErrNotExist) {
		t.Fatalf("the bundle was not being replaced: %v", err)
	}
	if _, err := tier.Collect(t.Context(), m, p.Run, tier.CollectOptions{Retain: []uint64{last.Index}}); err != nil {
		t.Fatal(err)
	}
	if err := tier.Repair(t.Context(), m, last, options()); err != nil {
		t.Error(err)
	}
	sound(t, m, last)
	for _, name := range tiertest.All(t, m, p.Run+"/files/") {
		if strings.HasSuffix(name, "-repaired") {
			t.Errorf("%s is left", name)
		}
	}
	if err := m.Remove(t.Context(), part.Ranks[0].Files[0].Name); err != nil {
		t.Fatal(err)
	}
	if err := tier.Repair(t.Context(), m, last, options()); !errors.Is(err, tier.ErrNotExist) {
		t.Errorf("without a bundle: %v", err)
	}
}

// TestBundle_HDF5 lets h5dump and h5py read a bundle: a full one, and one of
// differential checkpoints with their bases.
func TestBundle_HDF5(t *testing.T) {
	if _, err := exec.LookPath("h5dump"); err != nil {
		t.Skip("there is no h5dump")
	}
	top := t.TempDir()
	p := tiertest.NewProgram(t, vfs.OS(), filepath.Join(top, "ckpt"), 5)
	for _, place := range []string{"full", "differential"} {
		m, err := dir.Open(vfs.OS(), filepath.Join(top, place), vfs.Access{})
		if err != nil {
			t.Fatal(err)
		}
		index := p.Save()
		bundled(t, p, m, index)
		found, err := filepath.Glob(filepath.Join(top, place, p.Run, "files", "*"))
		if err != nil || len(found) != 2 {
			t.Fatal(found, err)
		}
		run := func(name string, args ...string) []byte {
			t.Helper()
			out, err := exec.Command(name, args...).Output()
			if err != nil {
				t.Fatalf("%s %v: %v", name, args, err)
			}
			return out
		}
		own := store.Open(p.FS, p.Dir, 3)
		for _, path := range []string{"/Header", "/MemBlocks/grid"} {
			want := run("h5dump", "-y", "-w", "0", "-d", path, own.File(index))
			got := run("h5dump", "-y", "-w", "0", "-d", "/rank-0003"+path, found[1])
			_, want, _ = bytes.Cut(want, []byte("DATATYPE"))
			_, got, _ = bytes.Cut(got, []byte("DATATYPE"))
			if len(want) < 100 || !bytes.Equal(got, want) {
				t.Errorf("%s: %s differs from rank 3's file:\n%.300s\n%.300s", place, path, got, want)
			}
		}
		run("h5dump", "-H", found[0])
		for _, python := range []string{"python3", "/usr/bin/python3"} {
			if exec.Command(python, "-c", "import h5py").Run() == nil {
				out := run(python, "-c", "import h5py,sys; print(sorted(k for k in h5py.File(sys.argv[1], 'r') if '.' not in k))", found[1])
				if got := strings.TrimSpace(string(out)); got != "['rank-0002', 'rank-0003', 'rank-0004']" {
					t.Errorf("h5py sees %s", got)
				}
				break
			}
		}
	}
}
