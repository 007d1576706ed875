package cairn

import (
	"errors"
	"flag"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/ckpt"
)

var writeCorpus = flag.Bool("write-corpus", false, "add files of the present format, written on this machine, to testdata")

// corpus is the state in the files under testdata.
type corpus struct {
	Step    int
	Small   int8
	Flag    bool
	Ratio   float32
	Name    string
	Field   []float64   // several blocks, half zeros
	Matrix  [][]float32 // rows of one length
	Cube    [2][3][4]int32
	Wave    []complex128
	Part    []float64 // a part of Field
	Spot    *float64  // points into Field
	Table   map[string][]int
	Any     any
	List    *link
	Nothing []int
	Empty   []int
	Big     *big.Int
	When    time.Time
	Random  *rand.Rand
}

type link struct {
	Name string
	Next *link
}

func newCorpus(version int) *corpus {
	c := &corpus{
		Step: 1 << 40, Small: -7, Flag: true, Ratio: 0.75, Name: "Größe",
		Field: make([]float64, 40_000), Table: map[string][]int{"a": {1, 2}, "b": nil},
		Any: link{Name: "boxed"}, List: &link{Name: "one"}, Empty: []int{},
		Big: new(big.Int).Exp(big.NewInt(-3), big.NewInt(101), nil), When: time.Date(1999, 12, 31, 23, 59, 59, 5, time.FixedZone("X", 3600)),
		Random: rand.New(rand.NewPCG(1, 2)),
	}
	for i := range c.Field[:20_000] {
		c.Field[i] = 1 / float64(i+1)
	}
	if version > 1 {
		c.Field[11_111] = -1
	}
	for i := range 5 {
		c.Matrix = append(c.Matrix, []float32{float32(i), 1, 2})
	}
	for i := range 24 {
		c.Cube[i/12][i/4%3][i%4] = int32(i - 12)
	}
	c.Wave = []complex128{1 + 2i, -3}
	c.Part, c.Spot = c.Field[100:200], &c.Field[150]
	c.List.Next = &link{Name: "two", Next: c.List}
	return c
}

func byteOrder() string {
	if n := uint16(1); *(*byte)(unsafe.Pointer(&n)) == 1 {
		return "little"
	}
	return "big"
}

// TestCorpus restores files of machines of both byte orders.
func TestCorpus(t *testing.T) {
	if *writeCorpus {
		for _, c := range []Compression{None, Gzip, Zstd} {
			name := "plain"
			if c != None {
				name = string(c)
			}
			makeCorpus(t, filepath.Join("testdata", fmt.Sprintf("format-%d", ckpt.Format), byteOrder()+"-"+name), c)
		}
	}
	dirs := corpusDirs(t)
	if len(dirs) != 6 {
		t.Fatalf("%d directories in the corpus, want 6", len(dirs))
	}
	for _, dir := range dirs {
		t.Run(dir, func(t *testing.T) {
			run := t.TempDir()
			if err := os.CopyFS(filepath.Join(run, "ckpt-00000002"), os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			checkCorpus(t, run)
		})
	}
}

func corpusDirs(t *testing.T) []string {
	t.Helper()
	dirs, err := filepath.Glob(fmt.Sprintf("testdata/format-%d/*", ckpt.Format))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// TestCorpus_Repacked restores them after h5repack has rewritten them.
func TestCorpus_Repacked(t *testing.T) {
	if _, err := exec.LookPath("h5repack"); err != nil {
		t.Skip("h5repack (Debian: hdf5-tools) is not installed")
	}
	dirs := corpusDirs(t)
	for _, dir := range dirs {
		if strings.HasSuffix(dir, "zstd") {
			continue // the tool cannot unpack it
		}
		t.Run(dir, func(t *testing.T) {
			run := t.TempDir()
			set := filepath.Join(run, "ckpt-00000002")
			if err := os.Mkdir(set, 0o777); err != nil {
				t.Fatal(err)
			}
			files, _ := filepath.Glob(filepath.Join(dir, "*.h5"))
			for _, f := range files {
				if out, err := exec.Command("h5repack", f, filepath.Join(set, filepath.Base(f))).CombinedOutput(); err != nil {
					t.Fatalf("h5repack: %v: %s", err, out)
				}
			}
			checkCorpus(t, run)
		})
	}
}

// openCorpus opens a run, and restores the state.
func openCorpus(t *testing.T, dir string, c Compression, state **corpus) *Run {
	t.Helper()
	p, err := Open(t.Context(), Options{Dir: dir, Compression: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	Register[link](p)
	Protect(p, "corpus", state)
	fresh := *state != nil
	if ok, err := p.Restore(t.Context()); err != nil || ok == fresh {
		t.Fatalf("Restore: %v, %v", ok, err)
	}
	return p
}

func checkCorpus(t *testing.T, run string) {
	t.Helper()
	var got *corpus
	openCorpus(t, run, None, &got)
	want := newCorpus(2)
	for range 3 {
		if a, b := want.Random.Uint64(), got.Random.Uint64(); a != b {
			t.Fatalf("the generator gives %d, want %d", b, a)
		}
	}
	if !want.When.Equal(got.When) || want.When.Format(time.RFC3339) != got.When.Format(time.RFC3339) {
		t.Errorf("time %v, want %v", got.When, want.When)
	}
	got.When = want.When
	if !reflect.DeepEqual(got, want) {
		t.Error("restored another state")
	}
	if &got.Part[50] != got.Spot || &got.Field[150] != got.Spot || got.List.Next.Next != got.List {
		t.Error("memory is no longer shared")
	}
}

// makeCorpus saves version 1 and then, as a differential checkpoint, version 2.
func makeCorpus(t *testing.T, dir string, c Compression) {
	t.Helper()
	run := t.TempDir()
	state := newCorpus(1)
	p := openCorpus(t, run, c, &state)
	err := p.Checkpoint(t.Context())
	state.Field[11_111] = -1
	if err = errors.Join(err, p.Checkpoint(t.Context()), p.Close()); err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(run, "ckpt-00000002"))); err != nil {
		t.Fatal(err)
	}
}
