package tier_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// program saves real checkpoints: differential ones, whose bases are hard links.
type program struct {
	t            testing.TB
	fs           vfs.FS
	dir          string
	run, attempt string
	values       []*ckpttest.Values
	dirs         []*store.Dir
	savers       []*ckpt.Saver
	index        uint64
}

func newProgram(t testing.TB, fsys vfs.FS, dir string, ranks int) *program {
	t.Helper()
	p := &program{t: t, fs: fsys, dir: dir, run: store.NewID(), attempt: store.NewID()}
	for r := range ranks {
		d, err := store.Create(fsys, dir, r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.savers[r].Close(); d.Close() })
		p.dirs, p.savers = append(p.dirs, d), append(p.savers, nil)
		v := ckpttest.Sample(40_000)
		v.Step = r
		p.values = append(p.values, v)
	}
	p.full()
	return p
}

// full lets the next checkpoint be a full one.
func (p *program) full() {
	p.t.Helper()
	for r, d := range p.dirs {
		if s := p.savers[r]; s != nil {
			s.Close()
		}
		s, err := ckpt.NewSaver(d, nil, ckpt.Options{Rank: r, Ranks: len(p.dirs), Run: p.run, Attempt: p.attempt, Keep: 100, NoTracking: true})
		if err != nil {
			p.t.Fatal(err)
		}
		p.savers[r] = s
	}
}

// save saves a checkpoint of all ranks.
func (p *program) save() uint64 {
	p.t.Helper()
	p.index++
	for r, s := range p.savers {
		v := p.values[r]
		v.Grid[p.index%100] = float64(p.index)
		v.Name = fmt.Sprintf("rank %d at checkpoint %d", r, p.index)
		img, err := graph.Collect(v.Roots(), nil)
		if err != nil {
			p.t.Fatal(err)
		}
		if _, err := s.Save(context.Background(), img, nil, ckpt.Note{Reason: "test"}); err != nil {
			p.t.Fatal(err)
		}
		res := <-s.Done()
		if res.Err != nil || res.Index != p.index {
			p.t.Fatal(res.Index, res.Err)
		}
		s.Collect(res)
	}
	return p.index
}

func (p *program) upload(index uint64, ranks ...int) tier.UploadOptions {
	return tier.UploadOptions{FS: p.fs, Dir: p.dir, Index: index, Ranks: ranks, Part: "host", Parallel: 1}
}

func (p *program) publish(m tier.Tier, index uint64) *tier.Manifest {
	p.t.Helper()
	mf, err := tier.Publish(p.t.Context(), m, p.upload(index))
	if err != nil {
		p.t.Fatal(err)
	}
	return mf
}

// load returns the values of a rank in a checkpoint.
func load(t testing.TB, fsys vfs.FS, dir string, index uint64, rank int) *ckpttest.Values {
	t.Helper()
	f, err := ckpt.Open(fsys, store.Open(fsys, dir, rank).File(index))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if damage, err := f.Verify(t.Context(), nil); err != nil || len(damage) > 0 {
		t.Fatalf("rank %d of checkpoint %d: %v, %v", rank, index, damage, err)
	}
	img, err := f.Image()
	if err != nil {
		t.Fatal(err)
	}
	v := new(ckpttest.Values)
	if err := f.Load(t.Context(), img, v.Roots(), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	return v
}

// fetchable checks that a checkpoint on a tier has the program's values.
func (p *program) fetchable(m tier.Tier, mf *tier.Manifest) {
	p.t.Helper()
	fsys := vfstest.NewMem()
	if err := fsys.Mkdir("/new"); err != nil {
		p.t.Fatal(err)
	}
	if err := tier.Fetch(p.t.Context(), m, mf, tier.FetchOptions{FS: fsys, Dir: "/new", Parallel: 1}); err != nil {
		p.t.Fatal(err)
	}
	for r := range p.savers {
		got, want := load(p.t, fsys, "/new", mf.Index, r), load(p.t, p.fs, p.dir, mf.Index, r)
		if !reflect.DeepEqual(got.Grid, want.Grid) || got.Name != want.Name {
			p.t.Fatalf("rank %d of checkpoint %d has other values", r, mf.Index)
		}
	}
}

func indexes(t testing.TB, m tier.Tier, run string) (out []uint64) {
	t.Helper()
	all, err := tier.Checkpoints(t.Context(), m, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, mf := range all {
		out = append(out, mf.Index)
	}
	return out
}

// count returns how many objects are in a directory of a run.
func count(t testing.TB, m tier.Tier, prefix string) int { return len(tiertest.All(t, m, prefix)) }

// complete returns what is wrong with manifests on a tier in memory: each must
// have all its objects.
func complete(m *tiertest.Mem, run string) error {
	ctx := context.Background()
	names := m.Names()
	for _, name := range names {
		if !strings.HasPrefix(name, run+"/checkpoints/") {
			continue
		}
		text, err := tier.ReadAll(ctx, m, name, 1<<20)
		if err != nil {
			return err
		}
		mf, err := tier.ParseManifest(text)
		if err != nil {
			return err
		}
		if mf.Abandoned {
			continue
		}
		for i := range mf.Parts {
			part, err := mf.Part(ctx, m, i)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, r := range part.Ranks {
				for _, f := range r.Files {
					if _, ok := slices.BinarySearch(names, f.Name); !ok {
						return fmt.Errorf("%s needs %s, which is missing", name, f.Name)
					}
					if err := tier.Download(ctx, m, f.Object, new(bytes.Buffer)); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
			}
		}
	}
	return nil
}

// filesIn returns the names of all files under a directory.
func filesIn(t testing.TB, fsys vfs.FS, dir string) (out []string) {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if p := filepath.Join(dir, e.Name()); e.IsDir() {
			out = append(out, filesIn(t, fsys, p)...)
		} else {
			out = append(out, p)
		}
	}
	return out
}
