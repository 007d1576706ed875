package ckpt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// pair returns two connected sockets.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return unixConn(t, os.NewFile(uintptr(fds[0]), "a")), unixConn(t, os.NewFile(uintptr(fds[1]), "b"))
}

func unixConn(t testing.TB, f *os.File) *net.UnixConn {
	t.Helper()
	c, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

// home says where the writer of a Saver runs: in this process, or in a helper.
type home struct {
	name string
	open func(t testing.TB, fsys vfs.FS, opts *Options)
}

var homes = []home{
	{"in the process", func(testing.TB, vfs.FS, *Options) {}},
	{"with a helper", func(t testing.TB, fsys vfs.FS, opts *Options) { serve(t, fsys, opts) }},
}

// serve starts a helper for opts, in this process.
func serve(t testing.TB, fsys vfs.FS, opts *Options) <-chan error {
	rank, helper := pair(t)
	opts.Helper = rank
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, helper, ServeOptions{fs: fsys}) }()
	return done
}

// inHomes runs a test in every home.
func inHomes(t *testing.T, f func(t *testing.T, h home)) {
	for _, h := range homes {
		t.Run(h.name, func(t *testing.T) { f(t, h) })
	}
}

// bench is a Saver with its state.
type bench struct {
	t testing.TB
	*Saver
	dir *store.Dir
	v   *ckpttest.Values
}

func newBench(t testing.TB, h home, fsys vfs.FS, path string, rank int, prev *Table, opts Options) *bench {
	t.Helper()
	dir, err := store.Create(fsys, path, rank)
	if err != nil {
		t.Fatal(err)
	}
	h.open(t, fsys, &opts)
	opts.Rank = rank
	s, err := NewSaver(dir, prev, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{t, s, dir, ckpttest.Sample(100_000)}
}

func (b *bench) close() {
	b.Saver.Close()
	b.dir.Close()
}

// try saves once and returns the result.
func (b *bench) try() Result {
	b.t.Helper()
	img, err := graph.Collect(b.v.Roots(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	note := Note{Reason: "test"}
	if b.opts.Ranks > 1 {
		note.Sent, note.Received = make([]uint64, b.opts.Ranks), make([]uint64, b.opts.Ranks)
		note.Sent[1], note.Received[0] = 3, 5
	}
	if _, err := b.Save(ctx, img, []FileEntry{{ID: 0, Path: "out.txt", Mode: "r", Offset: 5, Size: 9}}, note); err != nil {
		return Result{Err: err}
	}
	r := <-b.Done()
	b.Collect(r)
	return r
}

func (b *bench) save() uint64 {
	b.t.Helper()
	r := b.try()
	if r.Err != nil {
		b.t.Fatal(r.Err)
	}
	return r.Index
}

// check loads and verifies a checkpoint.
func (b *bench) check(index uint64, want *ckpttest.Values) {
	b.t.Helper()
	checkFile(b.t, b.dir, index, want)
}

func checkFile(t testing.TB, dir *store.Dir, index uint64, want *ckpttest.Values) {
	t.Helper()
	v, err := load(dir.FS(), dir.File(index))
	if err != nil {
		t.Fatal(err)
	}
	if want != nil && !sameValues(v, want) {
		t.Fatalf("checkpoint %d holds other values", index)
	}
	s, err := Open(dir.FS(), dir.File(index))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if bad, err := s.Verify(ctx, nil); err != nil || len(bad) > 0 {
		t.Fatalf("checkpoint %d: %v, %v", index, bad, err)
	}
}

// sameValues is like reflect.DeepEqual, but fast for the grid.
func sameValues(v, w *ckpttest.Values) bool {
	a, b := *v, *w
	a.Grid, b.Grid = nil, nil
	return slices.Equal(v.Grid, w.Grid) && reflect.DeepEqual(a, b)
}

func clone(v *ckpttest.Values) *ckpttest.Values {
	w := *v
	w.Grid = slices.Clone(v.Grid)
	return &w
}

// TestSaver_InProcessAndHelper saves full and differential checkpoints in every
// home, and compares them.
func TestSaver_InProcessAndHelper(t *testing.T) {
	for _, c := range []Compression{None, Gzip, Zstd} {
		var tables [][]Block
		for _, h := range homes {
			fsys := vfstest.NewMem()
			b := newBench(t, h, fsys, "/ckpt", 0, nil, Options{Compression: c, Keep: 3, MaxBases: 2, NoTracking: true})
			for i := range 5 {
				b.v.Step, b.v.Grid[1000*i] = i, float64(-i)
				b.check(b.save(), b.v)
				tables = append(tables, b.prev.Blocks)
			}
			b.close() // waits until old checkpoints are removed
			if indices, err := b.dir.Committed(); err != nil || !slices.Equal(indices, []uint64{5, 4, 3}) {
				t.Errorf("%s: sets %v, %v", h.name, indices, err)
			}
			if again, err := store.Create(fsys, "/ckpt", 0); err != nil {
				t.Errorf("%s: after Close: %v", h.name, err)
			} else {
				again.Close()
			}
		}
		for i, n := 0, len(tables)/2; i < n; i++ {
			if !slices.Equal(tables[i], tables[n+i]) {
				t.Errorf("compression %q: checkpoint %d differs between homes", c, i+1)
			}
		}
	}
}

// TestSaver_ContinuesRestored continues from a restored checkpoint: the first
// save is differential.
func TestSaver_ContinuesRestored(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		fsys := vfstest.NewMem()
		b := newBench(t, h, fsys, "/ckpt", 0, nil, Options{})
		b.save()
		b.close()
		s, err := Open(fsys, b.dir.File(1))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		next := newBench(t, h, fsys, "/ckpt", 0, s.Table(), Options{})
		defer next.close()
		next.v.Grid[7] = 7
		next.check(next.save(), next.v)
		if len(next.prev.Bases) != 1 {
			t.Errorf("bases %v", next.prev.Bases)
		}
		next.v.Grid[8] = 8
		next.check(next.save(), next.v)
	})
}

// TestSaver_StateGrows saves states that need more staging memory each time,
// and one that must wait for segments to come back.
func TestSaver_StateGrows(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		for _, memory := range []int64{0, 12 << 20} {
			b := newBench(t, h, vfstest.NewMem(), "/ckpt", 0, nil, Options{Memory: memory})
			for _, n := range []int{1 << 18, 1 << 20, 1 << 21} {
				b.v = ckpttest.Sample(n)
				for i := range b.v.Grid {
					b.v.Grid[i] = float64(i + n)
				}
				b.check(b.save(), b.v)
			}
			b.close()
		}
	})
}

// TestSaver_DiskFull makes writes fail. The rank must get the same error in all
// homes, and continue.
func TestSaver_DiskFull(t *testing.T) {
	var texts []string
	for _, h := range homes {
		var full atomic.Bool
		fsys := vfstest.Hook(vfstest.NewMem(), func(op, name string) error {
			if full.Load() && strings.HasPrefix(op, "write") {
				return syscall.ENOSPC
			}
			return nil
		})
		b := newBench(t, h, fsys, "/ckpt", 0, nil, Options{})
		b.save()
		full.Store(true)
		b.v.Grid[5]++
		r := b.try()
		if r.Err == nil || !errors.Is(r.Err, syscall.ENOSPC) {
			t.Fatalf("%s: %v", h.name, r.Err)
		}
		texts = append(texts, r.Err.Error())
		full.Store(false)
		if index := b.save(); index != 3 {
			t.Errorf("checkpoint %d", index)
		}
		b.check(3, b.v)
		b.check(1, nil)
		b.close()
		if _, err := fsys.Stat("/ckpt/ckpt-00000002"); err == nil {
			t.Errorf("%s: the failed set is still there", h.name)
		}
	}
	if texts[0] != texts[1] {
		t.Errorf("in the process: %s\nwith a helper: %s", texts[0], texts[1])
	}
}

// TestSaver_Canceled cancels a save while it copies.
func TestSaver_Canceled(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		b := newBench(t, h, vfstest.NewMem(), "/ckpt", 0, nil, Options{Memory: 1})
		defer b.close()
		b.v = ckpttest.Sample(2 << 20) // more than one segment
		img, err := graph.Collect(b.v.Roots(), nil)
		if err != nil {
			t.Fatal(err)
		}
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		for _, err := b.Save(canceled, img, nil, Note{}); err == nil; _, err = b.Save(canceled, img, nil, Note{}) {
			b.Collect(<-b.Done()) // each time, a segment was free
		}
		b.check(b.save(), b.v)
	})
}

// TestSaver_Ranks runs two ranks, with given indices, message totals, and
// removal according to the line.
func TestSaver_Ranks(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		fsys := vfstest.NewMem()
		var ranks []*bench
		for r := range 2 {
			ranks = append(ranks, newBench(t, h, fsys, "/ckpt", r, nil, Options{Ranks: 2, Keep: 2}))
			ranks[r].v.Name = fmt.Sprint("rank ", r)
		}
		all := func(index uint64) {
			t.Helper()
			for _, b := range ranks {
				if err := b.SetNext(index); err != nil {
					t.Fatal(err)
				}
				b.v.Grid[index]++
				if got := b.save(); got != index {
					t.Fatalf("saved checkpoint %d, want %d", got, index)
				}
			}
		}
		line := func(index uint64) {
			for _, b := range ranks {
				b.Line(index)
			}
		}
		for _, index := range []uint64{3, 4, 5, 6} {
			all(index)
		}
		if err := ranks[0].SetNext(6); err == nil {
			t.Error("an index was given twice")
		}
		line(3)
		line(5) // the line skips 4: some rank does not have it
		all(7)
		line(7)
		// Rank 0 saves a checkpoint that rank 1 fails to save.
		if err := ranks[0].SetNext(8); err != nil {
			t.Fatal(err)
		}
		ranks[0].save()
		all(9)
		line(9)
		all(10)
		for r, b := range ranks {
			want := clone(b.v)
			b.close()
			indices, err := b.dir.Committed()
			if err != nil || !slices.Equal(indices, []uint64{10, 9, 7}) {
				t.Errorf("rank %d has sets %v, %v", r, indices, err)
			}
			checkFile(t, b.dir, 10, want)
			checkFile(t, b.dir, 7, nil)
			s, err := Open(fsys, b.dir.File(10))
			if err != nil {
				t.Fatal(err)
			}
			if h := &s.Header; h.Ranks != 2 || h.Rank != r || !slices.Equal(h.Sent, []uint64{0, 3}) || !slices.Equal(h.Received, []uint64{5, 0}) {
				t.Errorf("header %d of %d, sent %v, received %v", h.Rank, h.Ranks, h.Sent, h.Received)
			}
			s.Close()
		}
		if got, err := store.Members(fsys, "/ckpt"); err != nil || len(got) == 0 {
			t.Errorf("members %v, %v", got, err)
		} else {
			for index, ranks := range got {
				if !slices.Equal(ranks, []int{0, 1}) {
					t.Errorf("checkpoint %d has ranks %v", index, ranks)
				}
			}
		}
	})
}

// TestSaver_RemovesNothingWithoutLine checks that nothing is removed before the
// line is known, and that a restart counts from the restored checkpoint.
func TestSaver_RemovesNothingWithoutLine(t *testing.T) {
	inHomes(t, func(t *testing.T, h home) {
		fsys := vfstest.NewMem()
		b := newBench(t, h, fsys, "/ckpt", 1, nil, Options{Ranks: 2, Keep: 1})
		for range 4 {
			b.v.Grid[0]++
			b.save()
		}
		b.close()
		if indices, _ := b.dir.Committed(); len(indices) != 4 {
			t.Fatalf("sets %v, no line was told", indices)
		}
		s, err := Open(fsys, b.dir.File(2))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		// After going back to checkpoint 2, those above it do not count any
		// more.
		b = newBench(t, h, fsys, "/ckpt", 1, s.Table(), Options{Ranks: 2, Keep: 1, Damaged: map[uint64]bool{3: true, 4: true}})
		if b.Next() != 5 {
			t.Errorf("the next checkpoint is %d", b.Next())
		}
		b.save()
		b.close()
		if indices, _ := b.dir.Committed(); !slices.Equal(indices, []uint64{5, 2}) {
			t.Errorf("sets %v", indices)
		}
	})
}
