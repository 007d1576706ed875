//go:build unix

package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestDifferential_SlicesShareAPage protects two slices that meet in the middle
// of a page, and changes one next to the border: the scan of the other must not
// hide the change.
func TestDifferential_SlicesShareAPage(t *testing.T) {
	needTracking(t)
	buf := counted(1 << 18)
	const border = 1<<17 + 100 // not where a page begins
	left, right := buf[:border:border], buf[border:]
	disk := newDisk(t)
	p := openFS(t, disk)
	Protect(p, "left", &left)
	Protect(p, "right", &right)
	restore(t, p, false)
	for round := range 8 {
		left[border-1] = float64(-round)
		right[0] = float64(-round)
		checkpoint(t, p)
		var gotLeft, gotRight []float64
		q := openFS(t, disk.Crash(vfstest.LoseAll))
		Protect(q, "left", &gotLeft)
		Protect(q, "right", &gotRight)
		restore(t, q, true)
		if !slices.Equal(left, gotLeft) || !slices.Equal(right, gotRight) {
			t.Fatalf("round %d: restored %v and %v at the border, want %d", round, gotLeft[border-1], gotRight[0], -round)
		}
		closeRun(t, q)
	}
}

// TestDifferential_NeighbouringArrays does the same for arrays that lie side by
// side, as package variables do.
func TestDifferential_NeighbouringArrays(t *testing.T) {
	needTracking(t)
	const n = 100_001
	type arrays struct{ a, b [n]float64 }
	state := new(arrays)
	copy(state.a[:], counted(n))
	copy(state.b[:], counted(n))
	disk := newDisk(t)
	p := openFS(t, disk)
	Protect(p, "a", &state.a)
	Protect(p, "b", &state.b)
	restore(t, p, false)
	for round := range 8 {
		for _, f := range []*float64{&state.a[0], &state.a[n-1], &state.b[0], &state.b[n-1]} {
			*f = float64(-round)
		}
		checkpoint(t, p)
		got := new(arrays)
		q := openFS(t, disk.Crash(vfstest.LoseAll))
		Protect(q, "a", &got.a)
		Protect(q, "b", &got.b)
		restore(t, q, true)
		if *got != *state {
			t.Fatalf("round %d: restored ends %v %v %v %v, want %d", round, got.a[0], got.a[n-1], got.b[0], got.b[n-1], -round)
		}
		closeRun(t, q)
	}
}

// TestDifferential_PathsComeAndGo has memory whose place in the file changes
// with the rest of the state, and a failed checkpoint in between: its changes
// must be in the next one.
func TestDifferential_PathsComeAndGo(t *testing.T) {
	needTracking(t)
	type state struct {
		grid []float64
		note []int32
	}
	disk := newDisk(t)
	fsys, full := fillable(disk)
	s := state{grid: counted(1 << 19)}
	p := openFS(t, fsys)
	Protect(p, "s", &s)
	restore(t, p, false)
	for i := range 5 {
		s.grid[7] = float64(-i)
		checkpoint(t, p)
	}
	s.note = []int32{1}
	for i := range 5 {
		s.grid[8] = float64(-i)
		checkpoint(t, p)
	}
	s.grid[300_000] = -77
	s.note = nil
	full.Store(true)
	if err := p.Checkpoint(ctx); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Checkpoint on a full disk: %v", err)
	}
	full.Store(false)
	s.note = []int32{1}
	checkpoint(t, p)
	closeRun(t, p)
	var got state
	q := openFS(t, disk)
	Protect(q, "s", &got)
	restore(t, q, true)
	if !reflect.DeepEqual(got, s) {
		t.Errorf("restored another state; grid[300000] = %v, want -77", got.grid[300_000])
	}
}

// TestDifferential_SharedMapping changes protected memory through another
// mapping, which the kernel does not track.
func TestDifferential_SharedMapping(t *testing.T) {
	needTracking(t)
	const size = 8 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	mapped := func() []float64 {
		m, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Munmap(m) })
		return unsafe.Slice((*float64)(unsafe.Pointer(&m[0])), size/8)
	}
	grid, alias := mapped(), mapped()
	copy(grid, counted(len(grid)))
	dir := t.TempDir()
	p := open(t, dir)
	Protect(p, "grid", &grid)
	restore(t, p, false)
	for i := range 4 {
		grid[0] = float64(i)
		checkpoint(t, p)
	}
	alias[500_000] = -42
	checkpoint(t, p)
	closeRun(t, p)
	var got []float64
	q := open(t, dir)
	Protect(q, "grid", &got)
	restore(t, q, true)
	if !slices.Equal(got, grid) {
		t.Errorf("restored another state; grid[500000] = %v, want -42", got[500_000])
	}
}

// bigElement is larger than a block, hugeElement than any.
type (
	bigElement struct {
		A  [200_000]float64
		ID int32
	}
	hugeElement struct {
		A  [1_000_000]float64
		ID int32
	}
)

// TestDifferential_BigElements saves and restores single elements that are
// larger than a block.
func TestDifferential_BigElements(t *testing.T) {
	dir := t.TempDir()
	big, huge := &bigElement{ID: 3}, &hugeElement{ID: 4}
	copy(big.A[:], counted(len(big.A)))
	copy(huge.A[:], counted(len(huge.A)))
	p := open(t, dir)
	Protect(p, "big", &big)
	Protect(p, "huge", &huge)
	restore(t, p, false)
	checkpoint(t, p)
	big.A[150_000] = -1
	huge.A[999_999] = -2
	checkpoint(t, p)
	closeRun(t, p)
	var gotBig *bigElement
	var gotHuge *hugeElement
	q := open(t, dir)
	Protect(q, "big", &gotBig)
	Protect(q, "huge", &gotHuge)
	restore(t, q, true)
	if *gotBig != *big || *gotHuge != *huge {
		t.Error("restored another state")
	}
}

// TestDifferential_RowsReshaped changes the lengths of rows: the numbers become
// a list, and its blocks must not be mistaken for those of the table.
func TestDifferential_RowsReshaped(t *testing.T) {
	dir := t.TempDir()
	rows := make([][]float64, 4096)
	for i := range rows {
		rows[i] = []float64{float64(i), 1, 2, 3, 4, 5, 6, 7}
	}
	p := open(t, dir)
	Protect(p, "rows", &rows)
	restore(t, p, false)
	checkpoint(t, p)
	rows[0] = counted(4)
	rows[1] = counted(12)
	checkpoint(t, p)
	closeRun(t, p)

	shape := func(index int) []uint64 {
		s, err := ckpt.Open(vfs.OS(), filepath.Join(dir, fmt.Sprintf("ckpt-%08d", index), "rank-0000.h5"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, d := range s.Header.Datasets {
			if d.Path == "MemBlocks/rows" {
				return d.Dims
			}
		}
		t.Fatalf("checkpoint %d has no dataset of the numbers: %+v", index, s.Header.Datasets)
		return nil
	}
	if before, after := shape(1), shape(2); slices.Equal(before, after) {
		t.Errorf("the shape is %v before and after", after)
	}
	var got [][]float64
	q := open(t, dir)
	Protect(q, "rows", &got)
	restore(t, q, true)
	if !reflect.DeepEqual(rows, got) {
		t.Error("restored another state")
	}
}

// TestDifferential_NoHardLinks saves differential checkpoints where there are
// no hard links: each is complete by itself.
func TestDifferential_NoHardLinks(t *testing.T) {
	disk := newDisk(t)
	var links atomic.Int64
	fsys := vfstest.Hook(disk, func(op, name string) error {
		if op == "link" {
			links.Add(1)
			return vfs.ErrNoLink
		}
		return nil
	})
	v := newVersioned()
	p, err := openOn(fsys, v, None)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	restore(t, p, false)
	for range 6 {
		v.advance()
		checkpoint(t, p)
		if err := resumed(disk.Crash(vfstest.LoseAll), int64(v.version)); err != nil {
			t.Fatalf("version %d: %v", v.version, err)
		}
	}
	closeRun(t, p)
	if links.Load() == 0 {
		t.Error("no checkpoint asked for a link: none was differential")
	}
}

// TestDifferential_Zeros saves a variable that is still all zeros.
func TestDifferential_Zeros(t *testing.T) {
	dir := t.TempDir()
	ctx := t.Context()
	for start := range 3 {
		p, err := Open(ctx, Options{Dir: dir, EveryPoints: 1, Signals: map[os.Signal]SignalAction{}})
		if err != nil {
			t.Fatal(err)
		}
		zeros, other := make([]float64, 1<<20), make([]float64, 1<<20)
		Protect(p, "zeros", &zeros)
		Protect(p, "other", &other)
		if _, err := p.Restore(ctx); err != nil {
			t.Fatal(err)
		}
		for i, x := range other[:len(other)-1] {
			if i < start*10 && x != 1 || i >= start*10 && x != 0 || zeros[i] != 0 {
				t.Fatalf("start %d: other[%d] = %v, zeros[%d] = %v", start, i, x, i, zeros[i])
			}
		}
		for i := range 10 {
			other[start*10+i] = 1
		}
		other[len(other)-1] = 2 // a block that stays as it is
		if err := p.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
