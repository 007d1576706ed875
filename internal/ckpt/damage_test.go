package ckpt

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

var ctx = context.Background()

// save publishes checkpoints of v on fsys, one per change.
func save(t testing.TB, fsys vfs.FS, opts Options, v *ckpttest.Values, changes ...func()) *store.Dir {
	t.Helper()
	dir, err := store.Create(fsys, "/ckpt", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, err := NewSaver(dir, nil, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, change := range append([]func(){func() {}}, changes...) {
		change()
		img, err := graph.Collect(v.Roots(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Save(ctx, img, []FileEntry{{ID: 0, Path: "out.txt", Mode: "r", Offset: 5, Size: 9}}, Note{Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		r := <-s.Done()
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		s.Collect(r)
	}
	return dir
}

// load reads a checkpoint into fresh values.
func load(fsys vfs.FS, path string) (*ckpttest.Values, error) {
	s, err := Open(fsys, path)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	img, err := s.Image()
	if err != nil {
		return nil, err
	}
	if files, err := s.Files(); err != nil {
		return nil, err
	} else if len(files) != 1 || files[0].Offset != 5 {
		return nil, errors.New("the file map is wrong, and nothing said so")
	}
	v := new(ckpttest.Values)
	return v, s.Load(ctx, img, v.Roots(), nil, nil, nil)
}

func readFile(t testing.TB, fsys vfs.FS, path string) []byte {
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, _ := f.Size()
	p := make([]byte, n)
	if _, err := f.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

// fileFS is a file system with one file.
type fileFS struct {
	vfs.FS
	data []byte
}

func (f *fileFS) Open(string) (vfs.File, error) {
	m := vfstest.NewMem()
	w, err := m.Create("/x")
	if err != nil {
		return nil, err
	}
	_, err = w.WriteAt(f.data, 0)
	return w, err
}

// wrongly returns why the result of loading a damaged file is unacceptable, or
// "".
func wrongly(v *ckpttest.Values, err error, want *ckpttest.Values) string {
	if err != nil {
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrFormat) {
			return "an error that does not say damage: " + err.Error()
		}
		return ""
	}
	if !reflect.DeepEqual(v, want) {
		return "loaded other values"
	}
	return ""
}

// TestLoad_BitFlips flips every bit of a small checkpoint, one at a time. Each
// flip must be detected, or harmless. The daily test flips one bit of every
// eighth byte.
func TestLoad_BitFlips(t *testing.T) {
	for _, c := range []Compression{None, Gzip, Zstd} {
		want := ckpttest.Sample(40)
		if c != None {
			want = ckpttest.Sample(600) // large enough to have a chunk
		}
		fsys := vfstest.NewMem()
		dir := save(t, fsys, Options{Compression: c}, want)
		data := readFile(t, fsys, dir.File(1))
		var detected, harmless atomic.Int64
		parallel(len(data), func(i int, data []byte) {
			long := os.Getenv("CAIRN_LONG") != ""
			if !long && i%24 != 0 {
				return
			}
			for bit := range 8 {
				if !long && bit != i/8*5%8 {
					continue
				}
				data[i] ^= 1 << bit
				v, err := load(&fileFS{data: data}, "x")
				data[i] ^= 1 << bit
				if why := wrongly(v, err, want); why != "" {
					t.Errorf("compression %q, byte %d of %d, bit %d: %s", c, i, len(data), bit, why)
				}
				if err != nil {
					detected.Add(1)
				} else {
					harmless.Add(1)
				}
			}
		}, data)
		t.Logf("compression %q: %d bytes, %d flips detected, %d harmless", c, len(data), detected.Load(), harmless.Load())
		if detected.Load() < harmless.Load()/2 {
			t.Errorf("only %d flips are detected, %d are not", detected.Load(), harmless.Load())
		}
	}
}

// parallel calls f for 0 … n-1, each goroutine with its own copy of data.
func parallel(n int, f func(i int, data []byte), data []byte) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			data := slices.Clone(data)
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				f(i, data)
			}
		})
	}
	wg.Wait()
}

// TestLoad_Truncated truncates a small checkpoint at every length.
func TestLoad_Truncated(t *testing.T) {
	want := ckpttest.Sample(600)
	fsys := vfstest.NewMem()
	dir := save(t, fsys, Options{}, want)
	data := readFile(t, fsys, dir.File(1))
	parallel(len(data), func(n int, data []byte) {
		v, err := load(&fileFS{data: data[:n]}, "x")
		if why := wrongly(v, err, want); why != "" {
			t.Errorf("cut to %d of %d bytes: %s", n, len(data), why)
		}
	}, data)
}

// TestLoad_FlipsInBlocks flips bits spread over a checkpoint with many blocks,
// and over the base files of a differential one.
func TestLoad_FlipsInBlocks(t *testing.T) {
	want := ckpttest.Sample(200_000)
	fsys := vfstest.NewMem()
	dir := save(t, fsys, Options{Keep: 1}, want, func() { want.Grid[5]++ }, func() { want.Grid[150_000]++ })
	files, err := fsys.ReadDir("/ckpt/ckpt-00000003")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 {
		t.Fatalf("%d files in the checkpoint, want it and two bases", len(files))
	}
	for _, f := range files {
		path := "/ckpt/ckpt-00000003/" + f.Name()
		size := int64(len(readFile(t, fsys, path)))
		detected := 0
		for off := int64(0); off < size; off += max(1, size/150) {
			if err := fsys.Corrupt(path, off, 4); err != nil {
				t.Fatal(err)
			}
			v, err := load(fsys, dir.File(3))
			if why := wrongly(v, err, want); why != "" {
				t.Fatalf("%s, byte %d: %s", f.Name(), off, why)
			}
			if err != nil {
				detected++
			}
			fsys.Corrupt(path, off, 4)
		}
		if detected == 0 {
			t.Errorf("%s: no flip was detected", f.Name())
		}
	}
	if v, err := load(fsys, dir.File(3)); err != nil || !reflect.DeepEqual(v, want) {
		t.Fatalf("the mended set does not load: %v", err)
	}
}

// TestVerify_NamesBlocks flips a byte of a block. Verify must name the block.
func TestVerify_NamesBlocks(t *testing.T) {
	want := ckpttest.Sample(200_000)
	fsys := vfstest.NewMem()
	dir := save(t, fsys, Options{}, want)
	if err := fsys.Corrupt(dir.File(1), page+3*BlockSize+99, 0); err != nil {
		t.Fatal(err)
	}
	s, err := Open(fsys, dir.File(1))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, err := s.Verify(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || found[0].Name != "/MemBlocks/grid, block 3 of 25 (bytes 196608 to 262144)" {
		t.Fatalf("found %v", found)
	}
}

// FuzzLoad loads arbitrary bytes: the result is the values that were saved, or
// an error.
func FuzzLoad(f *testing.F) {
	for _, c := range []Compression{None, Gzip, Zstd} {
		fsys := vfstest.NewMem()
		dir := save(f, fsys, Options{Compression: c}, ckpttest.Sample(600))
		f.Add(readFile(f, fsys, dir.File(1)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := load(&fileFS{data: data}, "x")
		if why := wrongly(v, err, ckpttest.Sample(600)); why != "" {
			t.Fatal(why)
		}
	})
}
