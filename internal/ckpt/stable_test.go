package ckpt

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// spyFS sees what is written.
type spyFS struct {
	vfs.FS
	wrote func(p []byte)
}

type spyFile struct {
	vfs.File
	fs *spyFS
}

func (f *spyFS) Create(name string) (vfs.File, error) {
	file, err := f.FS.Create(name)
	if err == nil {
		file = &spyFile{file, f}
	}
	return file, err
}

func (f *spyFile) WriteV(bufs [][]byte, off int64) error {
	err := f.File.WriteV(bufs, off)
	for _, p := range bufs {
		f.fs.wrote(p)
	}
	return err
}

// grid is larger than some segments, and its last block is a short one.
type grid [3*mem.SegmentSize/8 + 100]float64

func newGrid() (*grid, func(p []byte) bool) {
	memory := mem.Aligned(int(unsafe.Sizeof(grid{})))
	g := (*grid)(unsafe.Pointer(unsafe.SliceData(memory)))
	return g, func(p []byte) bool {
		lo, hi := overlap(memory, p)
		return hi-lo == len(p)
	}
}

// TestStable_WrittenWithoutCopy saves memory that stays as it is: it is written
// from where it is, all but the last block, and restored as it was.
func TestStable_WrittenWithoutCopy(t *testing.T) {
	for _, c := range []Compression{None, Zstd} {
		t.Run(fmt.Sprintf("compression %q", c), func(t *testing.T) {
			g, stable := newGrid()
			small, odd := 7, make([]float64, 30_001) // not in that memory
			roots := []graph.Root{{Name: "g", Ptr: g}, {Name: "small", Ptr: &small}, {Name: "odd", Ptr: &odd}}
			var direct atomic.Int64
			fsys := &spyFS{vfstest.NewMem(), func(p []byte) {
				if stable(p) {
					direct.Add(int64(len(p)))
				}
			}}
			dir, err := store.Create(fsys, "/ckpt", 0)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			s, err := NewSaver(dir, nil, Options{Stable: stable, Compression: c, Keep: 10})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			whole := int64(len(g)) * 8 / BlockSize * BlockSize
			for i, want := range []int64{whole, whole, 2 * BlockSize, 0, whole - 100*BlockSize} {
				direct.Store(0)
				switch i {
				case 0, 1:
					for k := range g {
						g[k] = float64(i + k + 1)
					}
				case 2: // two blocks, and the last one
					g[0], g[len(g)/2], g[len(g)-1] = -1, -2, -3
				case 4: // a part is zero
					for k := range g {
						g[k] = float64(k + 5)
					}
					clear(g[:100*BlockSize/8])
				}
				small, odd[30_000] = i, float64(i)
				img, err := graph.Collect(roots, nil)
				if err != nil {
					t.Fatal(err)
				}
				index, err := s.Save(ctx, img, nil, Note{})
				if err != nil {
					t.Fatal(err)
				}
				r := <-s.Done()
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				s.Collect(r)
				if got := direct.Load(); c == None && got != want {
					t.Errorf("save %d: %d bytes were written without a copy, want %d", i, got, want)
				}
				read(t, fsys, dir.File(index), g, small, odd)
			}
			if n := s.staging.Len() * mem.SegmentSize; n >= 3*mem.SegmentSize+copiers()*mem.SegmentSize {
				t.Errorf("there are %d bytes of staging memory", n)
			}
		})
	}
}

// read loads a checkpoint and compares its values.
func read(t *testing.T, fsys vfs.FS, path string, g *grid, small int, odd []float64) {
	t.Helper()
	f, err := Open(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := f.Image()
	if err != nil {
		t.Fatal(err)
	}
	got, gotSmall, gotOdd := new(grid), 0, []float64(nil)
	if err := f.Load(ctx, img, []graph.Root{{Name: "g", Ptr: got}, {Name: "small", Ptr: &gotSmall}, {Name: "odd", Ptr: &gotOdd}}, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if *got != *g || gotSmall != small || gotOdd[30_000] != odd[30_000] {
		t.Errorf("%s was restored with other values", path)
	}
}

// TestStable_ChangedMeanwhile breaks the promise that memory stays as it is:
// restoring finds that.
func TestStable_ChangedMeanwhile(t *testing.T) {
	g, stable := newGrid()
	for k := range g {
		g[k] = float64(k + 1)
	}
	changed := false
	fsys := &spyFS{vfstest.NewMem(), nil}
	fsys.wrote = func(p []byte) {
		if stable(p) && &p[0] == (*byte)(unsafe.Pointer(g)) {
			g[5], changed = -5, true // it is written, and not yet digested
		}
	}
	dir, err := store.Create(fsys, "/ckpt", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, err := NewSaver(dir, nil, Options{Stable: stable})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	img, err := graph.Collect([]graph.Root{{Name: "g", Ptr: g}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	index, err := s.Save(ctx, img, nil, Note{})
	if err != nil {
		t.Fatal(err)
	}
	r := <-s.Done()
	s.Collect(r)
	if r.Err != nil || !changed {
		t.Fatal(r.Err, changed)
	}
	f, err := Open(fsys, dir.File(index))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if img, err = f.Image(); err == nil {
		err = f.Load(ctx, img, []graph.Root{{Name: "g", Ptr: new(grid)}}, nil, nil, nil)
	}
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("restored: %v", err)
	}
}
