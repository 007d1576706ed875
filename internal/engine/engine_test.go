package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/vfs"
)

var ctx = context.Background()

// open starts a run on dir that saves only on request.
func open(t *testing.T, dir string, change ...func(*Options)) *Run {
	t.Helper()
	o := Options{Dir: dir, Every: time.Hour, Signals: map[os.Signal]SignalAction{}}
	for _, f := range change {
		f(&o)
	}
	p, err := Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func restore(t *testing.T, p *Run, want bool) {
	t.Helper()
	got, err := p.Restore(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("Restore = %v, want %v", got, want)
	}
}

func checkpoint(t *testing.T, p *Run) {
	t.Helper()
	if err := p.Checkpoint(ctx); err != nil {
		t.Fatal(err)
	}
}

func closeRun(t *testing.T, p *Run) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

type shape interface{ area() float64 }

type square struct{ side float64 }

func (s square) area() float64 { return s.side * s.side }

type node struct {
	name string
	next *node
	kids map[string]*node
}

type world struct {
	step    int
	grid    []float64
	rows    [][]float32
	window  []float64 // of grid
	center  *float64  // into grid
	shape   shape
	ring    *node
	rng     *rand.Rand
	big     *big.Int
	buf     bytes.Buffer
	when    time.Time
	z       complex128
	flags   [3]bool
	nothing []int
	empty   []int
}

func newWorld() *world {
	w := &world{grid: make([]float64, 100_000), shape: square{3}, rng: rand.New(rand.NewSource(7)), big: big.NewInt(1)}
	for i := range w.grid {
		w.grid[i] = float64(i) * 1.5
	}
	for i := range 10 {
		w.rows = append(w.rows, make([]float32, 50))
		w.rows[i][i] = float32(i)
	}
	w.window = w.grid[100:200]
	w.center = &w.grid[50_000]
	w.ring = &node{name: "a", kids: map[string]*node{}}
	w.ring.next = &node{name: "b", next: w.ring}
	w.ring.kids["self"] = w.ring
	w.empty = []int{}
	w.when = time.Date(2026, 2, 3, 4, 5, 6, 7, time.UTC)
	w.big.Lsh(w.big, 200)
	w.buf.WriteString("hello")
	w.flags[1] = true
	w.z = complex(1, -2)
	return w
}

// TestRestore_AllKindsOfValues restores a state with values of all kinds, with
// each compression.
func TestRestore_AllKindsOfValues(t *testing.T) {
	for _, c := range []Compression{None, Zstd, Gzip} {
		t.Run("compression="+string(c), func(t *testing.T) {
			dir := t.TempDir()
			a := newWorld()
			a.step = 42
			a.rng.Float64()
			p := open(t, dir, func(o *Options) { o.Compression = c })
			if err := Protect(p, "world", &a); err != nil {
				t.Fatal(err)
			}
			restore(t, p, false)
			checkpoint(t, p)
			closeRun(t, p)

			var b *world
			q := open(t, dir)
			Protect(q, "world", &b)
			restore(t, q, true)
			if b.step != 42 || b.shape.area() != 9 || b.ring.next.next != b.ring || b.ring.kids["self"] != b.ring || b.ring.next.name != "b" {
				t.Fatalf("restored %+v", b)
			}
			if !reflect.DeepEqual(a.grid, b.grid) || !reflect.DeepEqual(a.rows, b.rows) || a.z != b.z || a.flags != b.flags || !a.when.Equal(b.when) || a.big.Cmp(b.big) != 0 || b.buf.String() != "hello" {
				t.Fatal("values differ")
			}
			if b.nothing != nil || b.empty == nil {
				t.Fatal("nil-ness differs")
			}
			if b.window[0] = -1; b.grid[100] != -1 {
				t.Fatal("window no longer shares memory with grid")
			}
			if *b.center = -2; b.grid[50_000] != -2 {
				t.Fatal("center no longer points into grid")
			}
			if x, y := a.rng.Float64(), b.rng.Float64(); x != y {
				t.Fatalf("generator gives %v, want %v", y, x)
			}
		})
	}
}

// TestDifferential_ManyCheckpoints changes a few blocks between many
// checkpoints and restores each.
func TestDifferential_ManyCheckpoints(t *testing.T) {
	for _, tracking := range []bool{true, false} {
		t.Run(fmt.Sprintf("tracking=%v", tracking), func(t *testing.T) {
			dir := t.TempDir()
			grid := make([]float64, 1<<20)
			for i := range grid {
				grid[i] = rand.Float64()
			}
			var saved []CheckpointInfo
			found, canTrack := map[string]int{}, false
			p := open(t, dir, func(o *Options) {
				o.OnSaved = func(s CheckpointInfo) { saved = append(saved, s) }
				o.NoTracking = !tracking
				o.MaxBases = 3
			})
			Protect(p, "grid", &grid)
			restore(t, p, false)
			for round := range 14 {
				checkpoint(t, p)
				clone := t.TempDir()
				index := fmt.Sprintf("ckpt-%08d", round+1) // whole by itself
				if err := os.CopyFS(filepath.Join(clone, index), os.DirFS(filepath.Join(dir, index))); err != nil {
					t.Fatal(err)
				}
				q := open(t, clone)
				var copied []float64
				Protect(q, "grid", &copied)
				restore(t, q, true)
				if !reflect.DeepEqual(grid, copied) {
					t.Fatalf("round %d: restored values differ", round)
				}
				closeRun(t, q)
				files, err := os.ReadDir(filepath.Join(dir, index))
				if err != nil || len(files) > 1+3 {
					t.Fatalf("round %d: %d files in the checkpoint (%v), want it and at most 3 bases", round, len(files), err)
				}
				s, err := ckpt.Open(vfs.OS(), filepath.Join(dir, index, "rank-0000.h5"))
				if err != nil {
					t.Fatal(err)
				}
				found[s.Header.Note.Finding]++
				canTrack = s.Header.Note.Tracking == "available"
				s.Close()
				for range 3 {
					grid[rand.Intn(len(grid))]++
				}
				if round == 6 {
					clear(grid[1000:200_000])
				}
			}
			want := "digest"
			if canTrack {
				want = "kernel"
			}
			if found[want] < 8 {
				t.Errorf("changes were found by %v, want mostly by %s", found, want)
			}
			if n := saved[2].WrittenBytes; n > 8<<20/10 {
				t.Errorf("third set wrote %d bytes for three changed numbers", n)
			}
			closeRun(t, p)
			indices, _ := p.dir.Committed()
			if len(indices) != 2 {
				t.Errorf("sets %v are kept, want 2", indices)
			}
		})
	}
}

// TestOpenFile_RestoredAndTruncated cuts off what a program wrote after the
// checkpoint. A file that has become shorter is refused.
func TestOpenFile_RestoredAndTruncated(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out.txt")
	start := func() (*Run, *os.File, *bufio.Writer, *int) {
		p := open(t, dir)
		f, err := p.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		w := bufio.NewWriter(f)
		n := new(int)
		Protect(p, "w", &w)
		Protect(p, "n", n)
		return p, f, w, n
	}
	p, f, _, n := start()
	restore(t, p, false)
	fmt.Fprintln(f, "one")
	*n = 1
	checkpoint(t, p)
	fmt.Fprintln(f, "lost")
	closeRun(t, p)
	f.Close()

	p, f, _, n = start()
	restore(t, p, true)
	if *n != 1 {
		t.Fatalf("n = %d", *n)
	}
	fmt.Fprintln(f, "two")
	f.Close()
	if b, _ := os.ReadFile(out); string(b) != "one\ntwo\n" {
		t.Fatalf("file holds %q", b)
	}
	closeRun(t, p)
	os.Truncate(out, 2)
	p, _, _, _ = start()
	if _, err := p.Restore(ctx); err == nil || !strings.Contains(err.Error(), "out.txt has 2 bytes, but had 4") {
		t.Fatalf("Restore with a shortened file: %v", err)
	}
}

// TestRestore_OtherVariables shows that a checkpoint with other variables is
// refused, unless Drop and Optional allow the difference.
func TestRestore_OtherVariables(t *testing.T) {
	dir := t.TempDir()
	a, b := 1, []float64{1, 2}
	p := open(t, dir)
	Protect(p, "a", &a)
	Protect(p, "b", &b)
	restore(t, p, false)
	checkpoint(t, p)
	closeRun(t, p)
	for _, c := range []struct {
		name    string
		protect func(p *Run)
		want    string
	}{
		{"removed", func(p *Run) { Protect(p, "a", new(int)) }, `the checkpoint holds variable "b"`},
		{"added", func(p *Run) {
			Protect(p, "a", new(int))
			Protect(p, "b", new([]float64))
			Protect(p, "c", new(int))
		}, `the program protects variable "c"`},
		{"retyped", func(p *Run) { Protect(p, "a", new(int)); Protect(p, "b", new([]float32)) }, "has []float64, the program []float32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := open(t, dir)
			c.protect(p)
			_, err := p.Restore(ctx)
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("Restore: %v\nwant %q", err, c.want)
			}
		})
	}
	t.Run("accepted", func(t *testing.T) {
		p := open(t, dir, func(o *Options) { o.Drop = []string{"b"} })
		x, c := 0, 7
		Protect(p, "a", &x)
		Protect(p, "c", &c, Optional)
		restore(t, p, true)
		if x != 1 || c != 7 {
			t.Fatalf("a = %d, c = %d", x, c)
		}
	})
}

// TestProtect_UnsupportedValue shows that the error names the part of the
// variable that cannot be saved.
func TestProtect_UnsupportedValue(t *testing.T) {
	p := open(t, t.TempDir())
	type deep struct {
		list []struct{ c chan int }
	}
	d := deep{list: make([]struct{ c chan int }, 3)}
	d.list[2].c = make(chan int)
	err := Protect(p, "d", &d)
	if err == nil || !strings.Contains(err.Error(), "d.list[2].c") {
		t.Fatalf("Protect: %v", err)
	}
	if _, rerr := p.Restore(ctx); rerr == nil || rerr.Error() != err.Error() {
		t.Fatalf("Restore: %v, want the error of Protect", rerr)
	}
}

// TestProtect_TooManyDimensions protects an array of more dimensions than HDF5
// has.
func TestProtect_TooManyDimensions(t *testing.T) {
	type (
		a = [1][1][1][1][1][1][1][1][1][1]float64
		b = [1][1][1][1][1][1][1][1][1][1]a
		c = [1][1][1][1][1][1][1][1][1][1]b
		d = [1][1][1]c
	)
	if err := Protect(open(t, t.TempDir()), "d", new(d)); err == nil || !strings.Contains(err.Error(), "does not fit into an HDF5 file") {
		t.Fatalf("Protect: %v", err)
	}
	if err := Protect(open(t, t.TempDir()), "c", new(c)); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_DirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := Open(ctx, Options{Dir: dir}); !errors.Is(err, ErrInUse) {
		t.Fatalf("second Open: %v", err)
	}
}

func BenchmarkPoint(b *testing.B) {
	p, err := Open(ctx, Options{Dir: b.TempDir(), Every: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	x := 0
	Protect(p, "x", &x)
	if _, err := p.Restore(ctx); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := p.Point(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// TestOpenFile_LateAndOtherPath opens files late, and under another path.
func TestOpenFile_LateAndOtherPath(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	name := func(s string) string { return filepath.Join(out, s) }
	const flags = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	start := func(file string) (*Run, *os.File) {
		p := open(t, dir)
		f, err := p.OpenFile(file, flags, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return p, f
	}
	p, f := start(name("a"))
	restore(t, p, false)
	late, err := p.OpenFile(name("late"), flags, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "one ")
	fmt.Fprint(late, "eins ")
	checkpoint(t, p)
	fmt.Fprint(late, "lost")
	late.Close()
	closeRun(t, p)

	if err := os.WriteFile(name("b"), []byte("precious"), 0o666); err != nil {
		t.Fatal(err)
	}
	p, _ = start(name("b"))
	if _, err := p.Restore(ctx); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), name("b")) {
		t.Fatalf("Restore with another file: %v", err)
	}
	if b, _ := os.ReadFile(name("b")); string(b) != "precious" {
		t.Fatalf("the other file now holds %q", b)
	}
	closeRun(t, p)

	p, f = start(name("a"))
	restore(t, p, true)
	if late, err = p.OpenFile(name("late"), flags, 0o666); err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	fmt.Fprint(f, "two")
	fmt.Fprint(late, "zwei")
	for file, want := range map[string]string{"a": "one two", "late": "eins zwei"} {
		if b, _ := os.ReadFile(name(file)); string(b) != want {
			t.Errorf("%s holds %q, want %q", file, b, want)
		}
	}
}
