package ckpt

import (
	"bytes"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestSave_LineMovesWhileDraining moves the recovery line right after each
// save, when the device's memory is still being drained.
func TestSave_LineMovesWhileDraining(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		dev := &ckpttest.Device{Room: 1 << 30}
		fsys := vfstest.NewMem()
		dir, err := store.Create(fsys, "/ckpt", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		opts := Options{Ranks: 2}
		h.open(t, fsys, &opts)
		s, err := NewSaver(dir, nil, opts)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		a := ckpttest.NewArray(1 << 20)
		defer mem.Unreserve(a.Ptr)
		a.Parts = []ckpttest.Part{{Len: 1 << 20, Dev: dev}}
		for i := range 20 {
			a.Data[i*1000]++
			a.Upload(true)
			img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			index, err := s.Save(ctx, img, nil, Note{})
			if err != nil {
				t.Fatal(err)
			}
			s.Line(index - 1)
			r := <-s.Done()
			if s.Collect(r); r.Err != nil {
				t.Fatal(r.Err)
			}
			s.Line(index)
			if b := restoreFake(t, dir, index, 0, false); !bytes.Equal(b.Data, a.Data) {
				t.Fatal("other values")
			}
		}
	})
}
