package device

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/mem"
)

// TestRestore_FreesUnused restores an intact checkpoint, and one whose last
// block is damaged. Only memory of arrays that the program has is kept.
func TestRestore_FreesUnused(t *testing.T) {
	d := discrete(t, 0, 0)
	st := &state{Arrays: []*Array[uint32]{New[uint32](100_000), New[uint32](300_000)}}
	for _, a := range st.Arrays {
		must(t, d.Launch(put, Size{a.Len()}, Out(a), uint32(1), n32(a.Len())))
	}
	s := newSaver(t)
	set, wait, err := s.save(st)
	must(t, err)
	must(t, wait())
	runtime.KeepAlive(st)

	var made []unsafe.Pointer
	mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) {
		m, err := newMemory(n)
		must(t, err)
		made = append(made, m.addr)
		return m.addr, nil
	})
	defer mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) {
		m, err := newMemory(n)
		if err != nil {
			return nil, err
		}
		return m.addr, nil
	})
	kept := func() (n int) {
		for _, p := range made {
			if r, _ := mem.FindRemote(p); r != nil {
				n++
			}
		}
		return n
	}
	back := new(state)
	must(t, s.load(set, back))
	if len(made) != 2 || kept() != 2 {
		t.Fatalf("%d of %d memories are there", kept(), len(made))
	}
	runtime.KeepAlive(back)
	made = nil
	f, err := ckpt.Open(s.dir.FS(), s.dir.File(set))
	must(t, err)
	defer f.Close()
	img, err := f.Image()
	must(t, err)
	f.Blocks[len(f.Blocks)-1].Digest.Lo ^= 1
	for i := range f.Header.Datasets {
		if d := &f.Header.Datasets[i]; d.Chunk != nil {
			f.Blocks[d.First].Digest.Lo ^= 1
		}
	}
	if err := f.Load(context.Background(), img, new(state).roots(), nil, nil, nil); !errors.Is(err, ckpt.ErrCorrupt) {
		t.Fatal(err)
	}
	if len(made) != 2 || kept() != 0 {
		t.Fatalf("%d of %d memories are left of a checkpoint that was not loaded", kept(), len(made))
	}
}
