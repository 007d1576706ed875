package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// The tests here run random programs against a model: a plain copy of what
// each checkpoint should hold. A failure names the seed of the program.

// modelSeeds runs a random program for each of a few seeds, or for many where
// CAIRN_LONG is set.
func modelSeeds(t *testing.T, few, many int64, program func(t *testing.T, rng *rand.Rand)) {
	n := few
	if os.Getenv("CAIRN_LONG") != "" {
		n = many
	}
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			program(t, rand.New(rand.NewSource(seed)))
		})
		if t.Failed() {
			return
		}
	}
}

func oneOf[T any](rng *rand.Rand, of ...T) T { return of[rng.Intn(len(of))] }

// countdown fails one of the operations that change a disk.
type countdown struct{ left atomic.Int64 }

func (c *countdown) disarm() { c.left.Store(-1) }

// arm makes the n-th operation from now on fail.
func (c *countdown) arm(n int) { c.left.Store(int64(n)) }

func (c *countdown) on(disk vfs.FS) vfs.FS {
	c.disarm()
	return vfstest.Hook(disk, func(op, name string) error {
		switch op {
		case "read", "readdir", "open", "stat", "lock":
			return nil
		}
		if c.left.Add(-1) == 0 {
			return syscall.EIO
		}
		return nil
	})
}

type modelCell struct {
	X float64
	N int32
}

type modelNode struct {
	V    int
	Next *modelNode
	Data []float32
}

// modelParts is a variable whose parts come and go, so that their memory
// moves about in the file.
type modelParts struct {
	Grid  []float64
	Rows  [][]float64
	Array *[70_000]int64
	Text  string
	Ints  []int32
	Map   map[string]int
	List  *modelNode
	Any   any
	Cells []modelCell
	Spare [2][]float64
}

// modelState is all that a random program protects.
type modelState struct {
	Parts       modelParts
	Left, Right []float64
	Fixed       [40_000]float64
	Version     int
	Bytes       []byte
}

func (s *modelState) protect(t *testing.T, p *Run) {
	t.Helper()
	err := errors.Join(
		Protect(p, "parts", &s.Parts),
		Protect(p, "left", &s.Left),
		Protect(p, "right", &s.Right),
		Protect(p, "fixed", &s.Fixed),
		Protect(p, "version", &s.Version),
		Protect(p, "bytes", &s.Bytes),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// clone returns a copy that shares no memory with s.
func (s *modelState) clone() *modelState {
	c := *s
	parts := &c.Parts
	parts.Grid = slices.Clone(parts.Grid)
	parts.Rows = slices.Clone(parts.Rows)
	for i := range parts.Rows {
		parts.Rows[i] = slices.Clone(parts.Rows[i])
	}
	if parts.Array != nil {
		array := *parts.Array
		parts.Array = &array
	}
	parts.Ints = slices.Clone(parts.Ints)
	parts.Map = maps.Clone(parts.Map)
	next := &parts.List
	for n := s.Parts.List; n != nil; n = n.Next {
		*next = &modelNode{V: n.V, Data: slices.Clone(n.Data)}
		next = &(*next).Next
	}
	if f, ok := parts.Any.([]float64); ok {
		parts.Any = slices.Clone(f)
	}
	parts.Cells = slices.Clone(parts.Cells)
	for i := range parts.Spare {
		parts.Spare[i] = slices.Clone(parts.Spare[i])
	}
	c.Left = slices.Clone(c.Left)
	c.Right = slices.Clone(c.Right)
	c.Bytes = slices.Clone(c.Bytes)
	return &c
}

// differences names the parts in which two states differ.
func (s *modelState) differences(other *modelState) (names []string) {
	compare := func(a, b reflect.Value) {
		for i := range a.NumField() {
			if !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
				names = append(names, a.Type().Field(i).Name)
			}
		}
	}
	compare(reflect.ValueOf(*s), reflect.ValueOf(*other))
	compare(reflect.ValueOf(s.Parts), reflect.ValueOf(other.Parts))
	return names
}

// modelProgram changes a state at random.
type modelProgram struct {
	*rand.Rand
	calm bool      // mostly keep memory where it is
	pool []float64 // Left and Right may be two parts of it
}

func (m *modelProgram) fill(f []float64) {
	for i := range f {
		f[i] = float64(m.Intn(1000) + 1)
	}
}

// floats returns new memory, sometimes all zero.
func (m *modelProgram) floats() []float64 {
	f := make([]float64, oneOf(m.Rand, 3, 600, 8192, 40_000, 65_536, 70_001, 150_000))
	if m.Intn(4) > 0 {
		m.fill(f)
	}
	return f
}

// poke changes a little.
func (m *modelProgram) poke(f []float64) {
	if len(f) == 0 {
		return
	}
	switch m.Intn(6) {
	case 0:
		f[0]++
	case 1:
		f[len(f)-1]++
	case 2:
		lo := m.Intn(len(f))
		clear(f[lo:min(len(f), lo+m.Intn(20_000))])
	default:
		f[m.Intn(len(f))] = float64(m.Intn(1000))
	}
}

// change makes the next version of a state.
func (m *modelProgram) change(s *modelState) {
	moves := 4 // of ten changes
	if m.calm {
		moves = 1
	}
	for range m.Intn(4) {
		if m.Intn(10) < moves {
			m.move(s)
		} else {
			m.write(s)
		}
	}
	if m.Intn(4) == 0 {
		m.poke(s.Left)
		m.poke(s.Right)
	}
	if m.Intn(10) == 0 {
		s.Bytes = make([]byte, m.Intn(200_000))
		m.Read(s.Bytes)
	}
	s.Version++
}

// write changes values, and which small parts there are.
func (m *modelProgram) write(s *modelState) {
	parts := &s.Parts
	switch m.Intn(12) {
	case 0, 1:
		m.poke(parts.Grid)
	case 2:
		if len(parts.Rows) > 0 {
			m.poke(oneOf(m.Rand, parts.Rows...))
		}
	case 3:
		if parts.Array != nil {
			parts.Array[m.Intn(len(parts.Array))]++
		}
	case 4:
		if parts.Text == "" {
			parts.Text = "some message"
		} else {
			parts.Text = ""
		}
	case 5:
		if parts.Ints == nil {
			parts.Ints = []int32{1, 2}
		} else {
			parts.Ints = nil
		}
	case 6:
		if parts.List != nil && parts.List.Data != nil {
			parts.List.Data[m.Intn(len(parts.List.Data))]++
		}
	case 7:
		if f, ok := parts.Any.([]float64); ok {
			m.poke(f)
		}
	case 8:
		m.poke(s.Left)
	case 9:
		m.poke(s.Right)
	case 10:
		s.Fixed[m.Intn(len(s.Fixed))]++
	case 11:
		if len(parts.Cells) > 0 {
			parts.Cells[m.Intn(len(parts.Cells))].X++
		}
	}
}

// move replaces memory, or has it change places.
func (m *modelProgram) move(s *modelState) {
	parts := &s.Parts
	switch m.Intn(11) {
	case 0:
		parts.Grid = m.floats()
	case 1:
		length := oneOf(m.Rand, 8, 40_000, 33_000)
		parts.Rows = nil
		for range m.Intn(5) {
			row := make([]float64, length)
			m.fill(row)
			parts.Rows = append(parts.Rows, row)
		}
	case 2:
		parts.Array = nil
		if m.Intn(2) == 0 {
			parts.Array = new([70_000]int64)
			parts.Array[5] = 5
		}
	case 3:
		parts.Map = map[string]int{"a": m.Intn(10)}
	case 4:
		m.lengthen(parts)
	case 5:
		parts.Any = nil
	case 6:
		parts.Any = oneOf[any](m.Rand, m.floats(), m.Intn(5))
	case 7:
		s.Left, s.Right = s.Right, s.Left
	case 8:
		cut := 1 + m.Intn(len(m.pool)-2)
		s.Left, s.Right = m.pool[:cut:cut], m.pool[cut:]
	case 9:
		s.Left, s.Right = m.floats(), m.floats()
		parts.Cells = make([]modelCell, m.Intn(60_000))
		for i := range parts.Cells {
			parts.Cells[i].N = int32(i)
		}
	case 10:
		to, from := m.Intn(2), m.Intn(2)
		parts.Spare[to], parts.Grid = parts.Grid, parts.Spare[from]
		if m.Intn(2) == 0 {
			parts.Spare = [2][]float64{}
		}
	}
}

// lengthen puts a node in front of the list, which has a few at most.
func (m *modelProgram) lengthen(parts *modelParts) {
	n := &modelNode{V: m.Intn(9), Next: parts.List}
	if m.Intn(3) == 0 {
		n.Data = make([]float32, 100_000)
		n.Data[m.Intn(len(n.Data))] = 3
	}
	parts.List = n
	for range 5 {
		if n.Next == nil {
			return
		}
		n = n.Next
	}
	n.Next = nil
}

// TestModel_FailingDisk runs programs with various options whose disks fail now
// and then, and starts them again: they restore exactly a version that was
// saved, and none older than the last committed one.
func TestModel_FailingDisk(t *testing.T) {
	modelSeeds(t, 4, 2000, func(t *testing.T, rng *rand.Rand) {
		m := &modelProgram{Rand: rng, calm: rng.Intn(3) > 0, pool: make([]float64, 1<<19)}
		dir := "/run/ckpt"
		var disk vfs.FS = newDisk(t)
		if rng.Intn(3) == 0 {
			dir, disk = filepath.Join(t.TempDir(), "ckpt"), vfs.OS()
		}
		var fault countdown
		opts := Options{
			Dir:         dir,
			Every:       time.Hour,
			Signals:     map[os.Signal]SignalAction{},
			fs:          fault.on(disk),
			Compression: oneOf(rng, None, None, Zstd, Gzip),
			MaxBases:    oneOf(rng, 0, 1, 2, 3, -1),
			Memory:      oneOf[int64](rng, 0, 1, 9<<20, 30<<20),
			NoTracking:  rng.Intn(4) == 0,
			Keep:        1 + rng.Intn(3),
		}
		start := func(s *modelState) *Run {
			p, err := Open(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			s.protect(t, p)
			return p
		}
		state := new(modelState)
		versions := map[int]*modelState{} // that were to be saved
		safe := -1
		p := start(state)
		restore(t, p, false)
		const steps = 40
		for step := range steps {
			m.change(state)
			versions[state.Version] = state.clone()
			if rng.Intn(5) == 0 {
				fault.arm(1 + rng.Intn(30))
			}
			var err error
			if rng.Intn(3) == 0 {
				if err = p.Checkpoint(ctx); err == nil {
					safe = state.Version
				}
			} else {
				p.Request()
				err = p.Point(ctx)
				m.change(state) // at once, while the checkpoint is being written
			}
			if err != nil && !errors.Is(err, ErrNotSaved) {
				t.Fatalf("step %d, %+v: %v", step, opts, err)
			}
			if rng.Intn(6) > 0 && step < steps-1 {
				continue
			}
			p.Close() // its error may be that of the fault
			fault.disarm()
			got := new(modelState)
			if rng.Intn(2) == 0 {
				got = state.clone() // with memory that can be reused
			}
			p = start(got)
			ok, err := p.Restore(ctx)
			if err != nil {
				t.Fatalf("step %d, %+v: %v", step, opts, err)
			}
			state = got
			if !ok && safe >= 0 {
				t.Fatalf("step %d, %+v: nothing to restore, but version %d was safe", step, opts, safe)
			}
			if !ok {
				continue
			}
			if got.Version < safe {
				t.Fatalf("step %d, %+v: restored version %d, but %d was safe", step, opts, got.Version, safe)
			}
			want := versions[got.Version]
			if want == nil {
				t.Fatalf("step %d, %+v: restored version %d, which was never to be saved", step, opts, got.Version)
			}
			if d := want.differences(got); d != nil {
				t.Fatalf("step %d, %+v: version %d was restored with other %s", step, opts, got.Version, strings.Join(d, ", "))
			}
		}
		closeRun(t, p)
	})
}

// pagesState is memory of one buffer, cut in parts that do not end at pages.
type pagesState struct {
	Parts struct {
		Grid []float64
		Note []int32
		Rows [][]float64
	}
	Left, Right []float64
	Version     int
}

func (s *pagesState) protect(p *Run) {
	Protect(p, "parts", &s.Parts)
	Protect(p, "left", &s.Left)
	Protect(p, "right", &s.Right)
	Protect(p, "version", &s.Version)
}

// TestModel_SharedPages runs programs whose variables share pages, change
// places and stay in memory, which tracking must handle, while checkpoints
// fail.
func TestModel_SharedPages(t *testing.T) {
	modelSeeds(t, 3, 2000, func(t *testing.T, rng *rand.Rand) {
		disk := newDisk(t)
		var fault countdown
		p, err := Open(ctx, Options{
			Dir:         "/run/ckpt",
			Every:       time.Hour,
			Signals:     map[os.Signal]SignalAction{},
			fs:          fault.on(disk),
			MaxBases:    1 + rng.Intn(3),
			Memory:      oneOf[int64](rng, 0, 9<<20),
			Compression: oneOf(rng, None, None, Zstd),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		buf := make([]float64, 700_000)
		for i := range buf {
			buf[i] = float64(i + 1)
		}
		rest := buf
		take := func(n int) (part []float64) {
			part, rest = rest[:n:n], rest[n:]
			return part
		}
		var s pagesState
		s.Parts.Grid = take(100_000 + rng.Intn(70_000))
		s.Left = take(130_000 + rng.Intn(140_000))
		row := 40_000 + rng.Intn(10_000)
		for range 4 {
			s.Parts.Rows = append(s.Parts.Rows, take(row))
		}
		s.Right = rest
		s.protect(p)
		restore(t, p, false)
		for step := range 40 {
			for range rng.Intn(4) {
				s.change(rng, buf)
			}
			s.Version++
			if rng.Intn(4) == 0 {
				fault.arm(1 + rng.Intn(14))
			}
			err := p.Checkpoint(ctx)
			fault.disarm()
			if err != nil && !errors.Is(err, ErrNotSaved) {
				t.Fatalf("step %d: %v", step, err)
			}
			if err != nil || rng.Intn(4) > 0 {
				continue
			}
			var got pagesState
			q, err := Open(ctx, Options{Dir: "/run/ckpt", Signals: map[os.Signal]SignalAction{}, fs: disk.Crash(vfstest.LoseAll)})
			if err != nil {
				t.Fatal(err)
			}
			got.protect(q)
			restore(t, q, true)
			if got.Version != s.Version {
				t.Fatalf("step %d: restored version %d, want %d", step, got.Version, s.Version)
			}
			if !reflect.DeepEqual(got, s) {
				t.Fatalf("step %d: restored another state", step)
			}
			closeRun(t, q)
		}
	})
}

// change writes somewhere, most often where two parts meet.
func (s *pagesState) change(rng *rand.Rand, buf []float64) {
	switch rng.Intn(12) {
	case 0:
		if s.Parts.Note == nil {
			s.Parts.Note = []int32{4}
		} else {
			s.Parts.Note = nil
		}
	case 1:
		if rng.Intn(3) == 0 {
			s.Left, s.Right = s.Right, s.Left
		}
	case 2:
		s.Left[0]++
	case 3:
		s.Right[0]++
	case 4:
		s.Left[len(s.Left)-1]++
	case 5:
		s.Parts.Grid[len(s.Parts.Grid)-1]++
	case 6:
		oneOf(rng, s.Parts.Rows...)[0]++
	case 7:
		row := oneOf(rng, s.Parts.Rows...)
		row[len(row)-1]++
	case 8:
		if rng.Intn(20) == 0 {
			clear(buf[rng.Intn(len(buf)):])
		}
	default:
		buf[rng.Intn(len(buf))]++
	}
}

// TestModel_Canceled runs programs whose points and checkpoints are canceled at
// any moment: a checkpoint that is not canceled saves all that the others left.
func TestModel_Canceled(t *testing.T) {
	modelSeeds(t, 2, 1000, func(t *testing.T, rng *rand.Rand) {
		disk := newDisk(t)
		slow := time.Duration(rng.Intn(3)) * time.Millisecond
		fsys := vfstest.Hook(disk, func(op, name string) error {
			if op == "write" {
				time.Sleep(slow) // as a disk may be
			}
			return nil
		})
		p, err := Open(ctx, Options{
			Dir:         "/run/ckpt",
			EveryPoints: 1 + rng.Intn(2),
			Signals:     map[os.Signal]SignalAction{},
			fs:          fsys,
			Memory:      9 << 20,
			Compression: oneOf(rng, None, Zstd),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		grid, version := make([]float64, 3<<20), 0
		for i := range grid {
			grid[i] = float64(i + 1)
		}
		Protect(p, "grid", &grid)
		Protect(p, "version", &version)
		restore(t, p, false)
		for step := range 25 {
			version++
			if rng.Intn(5) == 0 {
				for i := range grid {
					grid[i]++
				}
			} else {
				grid[rng.Intn(len(grid))]++
			}
			short, cancel := context.WithTimeout(ctx, time.Duration(rng.Intn(8000))*time.Microsecond)
			if rng.Intn(2) == 0 {
				p.Request()
			}
			if rng.Intn(3) == 0 {
				err = p.Checkpoint(short)
			} else {
				err = p.Point(short)
			}
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		checkpoint(t, p)
		var got []float64
		gotVersion := 0
		q, err := Open(ctx, Options{Dir: "/run/ckpt", Signals: map[os.Signal]SignalAction{}, fs: disk.Crash(vfstest.LoseAll)})
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		Protect(q, "grid", &got)
		Protect(q, "version", &gotVersion)
		restore(t, q, true)
		if gotVersion != version || !slices.Equal(got, grid) {
			t.Errorf("restored another state than that of version %d, with version %d", version, gotVersion)
		}
	})
}
