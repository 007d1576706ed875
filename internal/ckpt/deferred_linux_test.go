package ckpt

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestStaging_Bound moves data between host and devices. Staging memory must
// stay within its bound, plus the two segments of a drain.
func TestStaging_Bound(t *testing.T) {
	const big = 1 << 30
	for name, order := range map[string][][2]int64{
		"host first":    {{big, 0}, {0, big}, {big, big}},
		"devices first": {{0, big}, {big, 0}, {big, big}},
		"both":          {{big, big}, {big, 0}},
	} {
		for _, memory := range []int64{1 << 20, 20 << 20, 64 << 20} {
			dir, err := store.Create(vfstest.NewMem(), "/ckpt", 0)
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewSaver(dir, nil, Options{Memory: memory})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range order {
				if err := s.grow(o[0], o[1]); err != nil {
					t.Fatal(err)
				}
			}
			rings := len(s.staging.Ring())
			if n := s.staging.Len(); n > s.limit+2 || rings == 0 || rings == n {
				t.Errorf("%s, %d MiB: %d segments, %d of them in the ring, at most %d are allowed", name, memory>>20, n, rings, s.limit)
			}
			s.Close()
			dir.Close()
		}
	}
}

// TestDeferred_MemoryReleased checks that after a save, whatever its result,
// nothing waits for it, all segments are free, and the Saver does not keep the
// program's memory alive.
func TestDeferred_MemoryReleased(t *testing.T) {
	for _, h := range homes {
		for after := range 4 {
			fsys := vfstest.NewMem()
			dir, err := store.Create(fsys, "/ckpt", 0)
			if err != nil {
				t.Fatal(err)
			}
			opts := Options{Memory: 1 << 20}
			h.open(t, fsys, &opts)
			s, err := NewSaver(dir, nil, opts)
			if err != nil {
				t.Fatal(err)
			}
			a := ckpttest.NewArray(18 << 20)
			for i := range a.Data {
				a.Data[i] = byte(i>>12) | 1
			}
			a.Parts = []ckpttest.Part{{Len: 6 << 20, Dev: &ckpttest.Device{Room: 1 << 30}}, {Len: 6 << 20, Guarded: true}, {Len: 6 << 20}}
			a.Upload(true)
			img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if opts.Helper != nil && after > 0 {
				gone := time.AfterFunc(time.Duration(after)*time.Millisecond, func() { opts.Helper.Close() })
				defer gone.Stop()
			}
			index, err := s.Save(ctx, img, nil, Note{})
			if err == nil {
				res := <-s.Done()
				s.Collect(res)
				err = res.Err
			}
			if err != nil && !errors.Is(err, ErrHelperGone) {
				t.Fatal(err)
			}
			if a.Guarded.Load() != 0 {
				t.Errorf("%d parts are still held, after %v", a.Guarded.Load(), err)
			}
			if err == nil {
				if b := restoreFake(t, dir, index, 0, false); !bytes.Equal(b.Data, a.Data) {
					t.Error("other values")
				}
				if n := len(s.staging.Free()) + len(s.staging.Ring()); n != s.staging.Len() {
					t.Errorf("%d of %d segments came back", n, s.staging.Len())
				}
			}
			for path, h := range s.seen {
				for _, r := range h.runs {
					if r.Place.Host != nil || r.Place.Guard != nil || r.Place.Buffer != nil {
						t.Errorf("%s: memory of the program is kept alive", path)
					}
				}
			}
			s.Close()
			dir.Close()
			mem.Unreserve(a.Ptr)
		}
	}
}

// estimates records the estimates that a writer was given.
type estimates struct {
	Writer
	last int64
}

func (e *estimates) Begin(j Job) {
	e.last = j.Estimate
	e.Writer.Begin(j)
}

// TestSave_AllocatesForChangesOnly checks that a save allocates file space for
// what will probably be stored, not for everything that it examines. A disk
// that has room for the changes must be enough.
func TestSave_AllocatesForChangesOnly(t *testing.T) {
	for _, guarded := range []bool{true, false} {
		dir, err := store.Create(vfstest.NewMem(), "/ckpt", 0)
		if err != nil {
			t.Fatal(err)
		}
		a := ckpttest.NewArray(16 << 20)
		for i := range a.Data {
			a.Data[i] = byte(i>>12) | 1
		}
		a.Parts = []ckpttest.Part{{Len: 16 << 20, Guarded: guarded}}
		if !guarded {
			a.Parts[0].Dev = &ckpttest.Device{Room: 1 << 30}
		}
		a.Upload(true)
		var s *Saver
		var w *estimates
		var prev *Table
		for step, most := range []int64{16 << 20, 1 << 20, 2 << 20, -1, 1 << 20} {
			if most < 0 || s == nil { // restart the program
				if s != nil {
					s.Close()
				}
				if s, err = NewSaver(dir, prev, Options{}); err != nil {
					t.Fatal(err)
				}
				w = &estimates{Writer: s.writer}
				s.writer = w
				most = max(most, 1<<20)
			}
			a.Data[step]++
			a.Upload(false)
			img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = s.Save(ctx, img, nil, Note{}); err != nil {
				t.Fatal(err)
			}
			res := <-s.Done()
			if s.Collect(res); res.Err != nil {
				t.Fatal(res.Err)
			}
			prev = res.Table
			if w.last > most || step == 0 && w.last < most {
				t.Errorf("still %v, step %d: %d bytes were expected, the file has %d", guarded, step, w.last, res.Written)
			}
		}
		s.Close()
		dir.Close()
		mem.Unreserve(a.Ptr)
	}
}

// stuck is a writer that accepts nothing until it is released.
type stuck struct {
	Writer
	mu   sync.Mutex
	kept []Segment
	free chan struct{}
}

func (s *stuck) Put(seg Segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.free:
		s.Writer.Put(seg)
	default:
		s.kept = append(s.kept, seg)
	}
}

func (s *stuck) Commit(t Tail) <-chan Result {
	<-s.free
	return s.Writer.Commit(t)
}

func (s *stuck) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.kept {
		s.Writer.Put(seg)
	}
	close(s.free)
}

// TestDeferred_ProgramWrites writes to deferred memory while the disk is stuck.
// The program does not wait, and the checkpoint has the old content.
func TestDeferred_ProgramWrites(t *testing.T) {
	const size = 20 << 20
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 5))
		dir, err := store.Create(vfstest.NewMem(), "/ckpt", 0)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSaver(dir, nil, Options{})
		if err != nil {
			t.Fatal(err)
		}
		a := ckpttest.NewArray(size)
		for i := range a.Data {
			a.Data[i] = byte(i>>12) | 1
		}
		for round := range 3 {
			a.Parts, a.Yield = nil, nil
			for left := int64(size); left > 0; {
				n := min(left, 4*(1+r.Int64N(3<<20)))
				a.Parts = append(a.Parts, ckpttest.Part{Len: n, Guarded: len(a.Parts) == 0 || r.IntN(4) > 0})
				left -= n
			}
			a.Upload(true)
			w := &stuck{Writer: s.writer, free: make(chan struct{})}
			s.writer = w
			img, err := graph.Collect([]graph.Root{{Name: "a", Ptr: a}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			was := bytes.Clone(a.Data)
			index, err := s.Save(ctx, img, nil, Note{})
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				lo := r.IntN(size)
				p := a.Data[lo:min(size, lo+1+r.IntN(4<<20))]
				for _, f := range a.Yield {
					f(p)
				}
				word := byte(r.Uint32())
				for i := range p {
					p[i] += word
				}
			}
			w.letGo()
			res := <-s.Done()
			if s.Collect(res); res.Err != nil {
				t.Fatal(res.Err)
			}
			s.writer = w.Writer
			if b := restoreFake(t, dir, index, 0, false); !bytes.Equal(b.Data, was) {
				t.Fatalf("seed %d, round %d: the checkpoint has what was written after the point", seed, round)
			}
			for i := range s.buffers.free {
				for k := range s.buffers.free[:i] {
					if lo, hi := overlap(s.buffers.free[i], s.buffers.free[k]); lo < hi {
						t.Fatal("a buffer was given back twice")
					}
				}
			}
		}
		s.Close()
		dir.Close()
		mem.Unreserve(a.Ptr)
	}
}
