package ckpt

import (
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestRewind_Damaged goes back past a damaged checkpoint, which must not count
// as kept from then on.
func TestRewind_Damaged(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		fsys := vfstest.NewMem()
		dir, err := store.Create(fsys, "/ckpt", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		var opts Options // Keep is 2
		h.open(t, fsys, &opts)
		s, err := NewSaver(dir, nil, opts)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float64, 100_000)
		tables := make(map[uint64]*Table)
		save := func() {
			t.Helper()
			x[0]++
			img, err := graph.Collect([]graph.Root{{Name: "x", Ptr: &x}}, nil)
			if err == nil {
				_, err = s.Save(ctx, img, nil, Note{})
			}
			if err != nil {
				t.Fatal(err)
			}
			r := <-s.Done()
			if s.Collect(r); r.Err != nil {
				t.Fatal(r.Err)
			}
			tables[r.Index] = r.Table
		}
		save()
		save()
		save()
		damaged := map[uint64]bool{3: true}
		s.Rewind(tables[2], damaged)
		clear(damaged) // the caller may change it
		save()
		s.Close()
		if indices, err := dir.Committed(); err != nil || !slices.Equal(indices, []uint64{4, 2}) {
			t.Fatalf("sets %v, %v; want 4 and 2", indices, err)
		}
	})
}
