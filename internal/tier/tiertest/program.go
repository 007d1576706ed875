package tiertest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// Program saves real checkpoints: differential ones, whose bases are hard
// links.
type Program struct {
	FS      vfs.FS
	Dir     string
	Run     string
	Attempt string

	t      testing.TB
	values []*ckpttest.Values
	dirs   []*store.Dir
	savers []*ckpt.Saver
	index  uint64
}

// NewProgram returns a program of so many ranks.
func NewProgram(t testing.TB, fsys vfs.FS, dir string, ranks int) *Program {
	t.Helper()
	return NewProgramOn(t, fsys, store.NewID(), slices.Repeat([]string{dir}, ranks))
}

// NewProgramOn returns a program whose ranks save to a directory each.
func NewProgramOn(t testing.TB, fsys vfs.FS, run string, dirs []string) *Program {
	t.Helper()
	p := &Program{t: t, FS: fsys, Dir: dirs[0], Run: run, Attempt: store.NewID()}
	for r, dir := range dirs {
		d, err := store.Create(fsys, dir, r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.savers[r].Close(); d.Close() })
		p.dirs, p.savers = append(p.dirs, d), append(p.savers, nil)
		v := ckpttest.Sample(25_000)
		v.Step = r
		p.values = append(p.values, v)
	}
	p.Full()
	return p
}

// Full lets the next checkpoint be a full one.
func (p *Program) Full() {
	p.t.Helper()
	for r, d := range p.dirs {
		if s := p.savers[r]; s != nil {
			s.Close()
		}
		s, err := ckpt.NewSaver(d, nil, ckpt.Options{Rank: r, Ranks: len(p.dirs), Run: p.Run, Attempt: p.Attempt, Keep: 100, NoTracking: true})
		if err != nil {
			p.t.Fatal(err)
		}
		p.savers[r] = s
	}
}

// Save saves a checkpoint of all ranks.
func (p *Program) Save() uint64 {
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

// Upload returns the options to upload a checkpoint.
func (p *Program) Upload(index uint64, ranks ...int) tier.UploadOptions {
	return tier.UploadOptions{FS: p.FS, Dir: p.Dir, Index: index, Ranks: ranks, Part: "host", Parallel: 1}
}

// Publish publishes a checkpoint.
func (p *Program) Publish(m tier.Tier, index uint64) *tier.Manifest {
	p.t.Helper()
	mf, err := tier.Publish(p.t.Context(), m, p.Upload(index))
	if err != nil {
		p.t.Fatal(err)
	}
	return mf
}

// Load returns the values of a rank in a checkpoint.
func Load(t testing.TB, fsys vfs.FS, dir string, index uint64, rank int) *ckpttest.Values {
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

// Fetchable checks that a checkpoint on a tier has the program's values.
func (p *Program) Fetchable(m tier.Tier, mf *tier.Manifest) {
	p.t.Helper()
	fsys := vfstest.NewMem()
	if err := fsys.Mkdir("/new"); err != nil {
		p.t.Fatal(err)
	}
	if err := tier.Fetch(p.t.Context(), m, mf, tier.FetchOptions{FS: fsys, Dir: "/new", Parallel: 1}); err != nil {
		p.t.Fatal(err)
	}
	for r := range p.savers {
		got, want := Load(p.t, fsys, "/new", mf.Index, r), Load(p.t, p.FS, p.Dir, mf.Index, r)
		if !reflect.DeepEqual(got.Grid, want.Grid) || got.Name != want.Name {
			p.t.Fatalf("rank %d of checkpoint %d has other values", r, mf.Index)
		}
	}
}
