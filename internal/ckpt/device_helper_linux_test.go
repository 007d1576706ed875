package ckpt

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestSave_OnDevicesHelperGone kills the helper while devices are being drained
// through one segment. The save must fail, or be complete.
func TestSave_OnDevicesHelperGone(t *testing.T) {
	for _, h := range homes {
		for _, room := range []int64{1 << 30, 0} {
			for after := range 5 {
				fsys := vfstest.NewMem()
				dir, err := store.Create(fsys, "/ckpt", 0)
				if err != nil {
					t.Fatal(err)
				}
				opts := Options{Memory: 1 << 20}
				if h.open(t, fsys, &opts); opts.Helper == nil {
					dir.Close()
					break
				}
				s, err := NewSaver(dir, nil, opts)
				if err != nil {
					t.Fatal(err)
				}
				a := ckpttest.NewArray(12 << 20)
				for i := range a.Data {
					a.Data[i] = byte(i>>12) | 1
				}
				a.Parts = []ckpttest.Part{{Len: 6 << 20, Dev: &ckpttest.Device{Room: room}}, {Len: 6 << 20, Dev: &ckpttest.Device{Room: 1 << 30}}}
				a.Upload(true)
				img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				gone := time.AfterFunc(time.Duration(after*after)*500*time.Microsecond, func() { opts.Helper.Close() })
				index, err := s.Save(ctx, img, nil, Note{})
				if err == nil {
					res := <-s.Done()
					s.Collect(res)
					err = res.Err
				}
				gone.Stop()
				if err == nil {
					if b := restoreFake(t, dir, index, 0, false); !bytes.Equal(b.Data, a.Data) {
						t.Fatal("other values")
					}
				} else if !errors.Is(err, ErrHelperGone) {
					t.Fatal(err)
				}
				s.Close()
				dir.Close()
				mem.Unreserve(a.Ptr)
			}
		}
	}
}
