package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/driver/faulty"
)

// rollback goes back and expects that there is a checkpoint, or none.
func rollback(t *testing.T, p *Run, want bool) {
	t.Helper()
	got, err := p.Rollback(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Fatalf("Rollback = %v, want %v", got, want)
	}
}

// write appends to a file.
func write(t *testing.T, f *os.File, text string) {
	t.Helper()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, name, want string) {
	t.Helper()
	if got, err := os.ReadFile(name); err != nil || string(got) != want {
		t.Errorf("%s has %q, want %q (%v)", filepath.Base(name), got, want, err)
	}
}

// TestRollback_MoreThanOnce goes back in the running program, more than once.
func TestRollback_MoreThanOnce(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	if _, err := p.Rollback(ctx); err == nil || !strings.Contains(err.Error(), "no Restore") {
		t.Errorf("before Restore: %v", err)
	}
	w := newWorld()
	Protect(p, "world", w)
	restore(t, p, false)
	rollback(t, p, false)
	for i := range 3 {
		w.step = i
		w.grid[7] = float64(i)
		checkpoint(t, p)
		for range 2 {
			w.step, w.grid[7], w.grid[150], w.ring, w.rows[2] = -1, -1, -1, nil, nil
			rollback(t, p, true)
			if w.step != i || w.grid[7] != float64(i) || w.grid[150] != 225 || w.ring.next.next != w.ring || len(w.rows[2]) != 50 {
				t.Fatalf("set %d: step %d, grid %v %v", i+1, w.step, w.grid[7], w.grid[150])
			}
			if &w.window[50] != &w.grid[150] || w.center != &w.grid[50_000] {
				t.Fatal("what shared memory does not any more")
			}
		}
	}
	// A checkpoint that is still being written counts.
	w.step = 10
	p.Request()
	if err := p.Point(ctx); err != nil {
		t.Fatal(err)
	}
	w.step = 11
	rollback(t, p, true)
	if w.step != 10 {
		t.Errorf("step %d, want that of the checkpoint that was being written", w.step)
	}
	w.step = 12
	checkpoint(t, p)
	closeRun(t, p)
	if _, err := p.Rollback(ctx); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("after Close: %v", err)
	}
	p = open(t, dir)
	again := new(world)
	Protect(p, "world", again)
	restore(t, p, true)
	if again.step != 12 || again.grid[7] != 2 || &again.window[50] != &again.grid[150] {
		t.Errorf("in another process: step %d, grid %v", again.step, again.grid[7])
	}
}

// TestRollback_Files: output is neither duplicated nor lost.
func TestRollback_Files(t *testing.T) {
	outputs := t.TempDir()
	path := func(name string) string { return filepath.Join(outputs, name) }
	if err := os.WriteFile(path("old"), []byte("old\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	p := open(t, t.TempDir())
	create := func(name string, flag int) *os.File {
		t.Helper()
		f, err := p.OpenFile(path(name), os.O_CREATE|flag, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first := create("first", os.O_WRONLY|os.O_TRUNC)
	write(t, first, "head\n")
	step, current := 0, first
	Protect(p, "step", &step)
	Protect(p, "current", &current)
	restore(t, p, false)

	// There is no checkpoint: all is as it was after Restore.
	write(t, first, "lost\n")
	appended := create("old", os.O_WRONLY|os.O_APPEND)
	write(t, appended, "lost too\n")
	rollback(t, p, false)
	holds(t, path("first"), "head\n")
	holds(t, path("old"), "old\n")
	write(t, first, "1\n")
	write(t, appended, "1\n")
	checkpoint(t, p)

	// The program continues with another file, and comes back.
	for range 2 {
		write(t, first, "lost\n")
		first.Close()
		current = create("second", os.O_RDWR|os.O_TRUNC)
		write(t, current, "lost\n")
		write(t, appended, "lost\n")
		second := current
		rollback(t, p, true)
		holds(t, path("first"), "head\n1\n")
		holds(t, path("second"), "")
		holds(t, path("old"), "old\n1\n")
		if current == nil || current == second {
			t.Fatal("the variable has the wrong file")
		}
		first = create("first", os.O_WRONLY|os.O_TRUNC) // is handed out as it is
		if first != current {
			t.Fatal("the file was opened once more")
		}
	}
	write(t, first, "2\n")
	current = create("second", os.O_RDWR|os.O_TRUNC)
	write(t, current, "2\n")
	write(t, appended, "2\n")
	checkpoint(t, p)
	write(t, current, "lost\n")
	rollback(t, p, true)
	write(t, current, "3\n")
	holds(t, path("first"), "head\n1\n2\n")
	holds(t, path("second"), "2\n3\n")
	holds(t, path("old"), "old\n1\n2\n")
}

// TestRollback_Damaged skips damaged checkpoints, and reports it when there is
// no other: nothing is saved until a Rollback succeeds.
func TestRollback_Damaged(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir, func(o *Options) { o.MaxBases = -1; o.Keep = 3 })
	x, file := make([]float64, 100_000), filepath.Join(t.TempDir(), "out")
	Protect(p, "x", &x)
	restore(t, p, false)
	f, err := p.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	good := make(map[uint64][]byte)
	for i := range 3 {
		for j := range x {
			x[j] = float64(i) + 0.5
		}
		fmt.Fprintln(f, i)
		checkpoint(t, p)
		if good[p.lastCommitted], err = os.ReadFile(p.dir.File(p.lastCommitted)); err != nil {
			t.Fatal(err)
		}
	}
	damage := func(index uint64, at int) {
		t.Helper()
		b := slices.Clone(good[index])
		b[at] ^= 1
		if err := os.WriteFile(p.dir.File(index), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	// The last value: others are in place when that is found.
	value := binary.LittleEndian.AppendUint64(nil, math.Float64bits(2.5))
	last := bytes.LastIndex(good[3], value)
	if last < 8*len(x) {
		t.Fatal("the values are not in the file")
	}
	damage(3, last)
	rollback(t, p, true)
	if x[0] != 1.5 || x[99_999] != 1.5 {
		t.Errorf("x is %v … %v, want that of checkpoint 2", x[0], x[99_999])
	}
	holds(t, file, "0\n1\n")
	damage(2, last)
	damage(1, last)
	if _, err := p.Rollback(ctx); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "none of 3 checkpoints") {
		t.Fatalf("all are damaged: %v", err)
	}
	if _, err := p.Rollback(ctx); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "checkpoint 3 was skipped before") {
		t.Fatalf("once more: %v", err)
	}
	for range 2 {
		if err := p.Point(ctx); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "undefined") {
			t.Fatalf("a point of a spoiled state: %v", err)
		}
	}
	if err := p.Checkpoint(ctx); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a checkpoint of a spoiled state: %v", err)
	}
}

// fill writes i·n into element i.
var fill = device.NewKernel("", "fill", func(w *device.Work) {
	p, n := device.Slice[float64](w, 0), device.Value[float64](w, 1)
	lo, hi := w.Range(0)
	for i := lo; i < hi; i++ {
		p[i] = float64(i) * n
	}
})

func fillWith(t *testing.T, d *device.Device, a *device.Array[float64], n float64) {
	t.Helper()
	if err := d.Launch(fill, device.Size{a.Len()}, device.Out(a), n); err != nil {
		t.Fatal(err)
	}
}

// filled fails the test unless an array is as fill leaves it.
func filled(t *testing.T, what string, a *device.Array[float64], n float64, dims ...int) {
	t.Helper()
	p, err := a.Read()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !slices.Equal(a.Dims(), dims) {
		t.Errorf("%s has dimensions %v, want %v", what, a.Dims(), dims)
	}
	for i, x := range p {
		if x != float64(i)*n {
			t.Fatalf("%s: element %d is %v, want %v", what, i, x, float64(i)*n)
		}
	}
}

// TestCheckpoint_DeviceLost loses the device while a checkpoint is copied: the
// previous one stays, and the error says what happened.
func TestCheckpoint_DeviceLost(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, kind := range []faulty.Kind{faulty.Lost, faulty.Late} {
			failed := 0
			for n := 0; ; n++ {
				f := &faulty.Fault{Kind: kind}
				d := use(t, faulty.Wrap(discrete(t, 0, 0), f))
				dir := t.TempDir()
				p := open(t, dir)
				a := device.New[float64](30_000)
				Protect(p, "a", &a)
				restore(t, p, false)
				fillWith(t, d, a, 2)
				checkpoint(t, p)
				fillWith(t, d, a, 3)
				if err := d.Finish(); err != nil {
					t.Fatal(err)
				}
				f.At = f.Calls() + 1 + n
				var err error
				if late { // Point returns at once; a later one tells
					p.Request()
					for err = p.Point(ctx); err == nil && p.saver.Busy(); err = p.Point(ctx) {
						runtime.Gosched()
					}
				} else {
					err = p.Checkpoint(ctx)
				}
				if err == nil && f.Calls() < f.At {
					closeRun(t, p)
					break
				}
				if err != nil {
					failed++
					if !errors.Is(err, ErrNotSaved) || !errors.Is(err, device.ErrLost) || !strings.Contains(err.Error(), "host:0") {
						t.Fatalf("%v at %s: %v", kind, f.Name(f.At), err)
					}
				}
				want := 2.0
				if err == nil {
					want = 3 // what failed was not needed for the checkpoint
				}
				for range 3 { // a device that is late is found out here
					var ok bool
					if ok, err = p.Rollback(ctx); err == nil && !ok || err != nil && !errors.Is(err, device.ErrLost) {
						t.Fatalf("%v at %s: Rollback = %v, %v", kind, f.Name(f.At), ok, err)
					}
					if err == nil {
						break
					}
				}
				filled(t, fmt.Sprintf("%v at %s", kind, f.Name(f.At)), a, want, 30_000)
				checkpoint(t, p) // without the device
				closeRun(t, p)
				p = open(t, dir)
				again := device.New[float64](30_000)
				Protect(p, "a", &again)
				restore(t, p, true)
				filled(t, "afterwards", again, want, 30_000)
				closeRun(t, p)
			}
			if failed < 2 {
				t.Errorf("%v: only %d checkpoints failed", kind, failed)
			}
		}
	}
}

// TestRollback_BeyondDamaged goes back to a checkpoint, and then beyond it
// because it is damaged. What is computed and saved again does not depend on
// it.
func TestRollback_BeyondDamaged(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(file, []byte("old\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	p := open(t, dir)
	x := make([]float64, 100_000)
	for i := range x {
		x[i] = float64(i)
	}
	compute := func(n float64) { // a part of it
		for i := range 20_000 {
			x[i] = float64(i) + n
		}
	}
	Protect(p, "x", &x)
	restore(t, p, false)
	compute(1)
	checkpoint(t, p)
	f, err := p.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	write(t, f, "two\n")
	compute(2)
	checkpoint(t, p)
	write(t, f, "three\n")
	compute(3)
	rollback(t, p, true)
	if x[7] != 9 {
		t.Fatalf("x is %v", x[7])
	}
	holds(t, file, "old\ntwo\n")
	b, err := os.ReadFile(p.dir.File(2))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(b, binary.LittleEndian.AppendUint64(nil, math.Float64bits(5_002)))
	if at < 0 {
		t.Fatal("the values are not in the file")
	}
	b[at] ^= 1
	if err := os.WriteFile(p.dir.File(2), b, 0o666); err != nil {
		t.Fatal(err)
	}
	rollback(t, p, true)
	if x[7] != 8 {
		t.Fatalf("x is %v", x[7])
	}
	holds(t, file, "old\n")
	write(t, f, "two\n")
	compute(2)
	checkpoint(t, p)
	write(t, f, "three\n")
	closeRun(t, p)

	p = open(t, dir)
	x = nil
	Protect(p, "x", &x)
	restore(t, p, true)
	if p.lastCommitted != 3 || x[7] != 9 || x[5_000] != 5_002 {
		t.Errorf("set %d, x is %v … %v", p.lastCommitted, x[7], x[5_000])
	}
	holds(t, file, "old\ntwo\n")
}
