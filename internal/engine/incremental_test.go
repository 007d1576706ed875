package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
	"github.com/cairnrun/cairn/mpi"
)

// fields is a state whose parts become ready one after the other.
type fields struct {
	step int
	u, v []float64
	log  map[int]string
}

func (f *fields) protect(p *Run) {
	Protect(p, "step", &f.step)
	Protect(p, "u", &f.u)
	Protect(p, "v", &f.v)
	Protect(p, "log", &f.log)
}

// want is an error unless the state is that after n steps.
func (f *fields) want(n int) error {
	for i := range f.u {
		if f.u[i] != value(i, n) || f.v[i] != -value(i, n) {
			return fmt.Errorf("after step %d, element %d is %v and %v", n, i, f.u[i], f.v[i])
		}
	}
	if f.step != n || len(f.log) != n || n > 0 && f.log[n] != fmt.Sprint("step ", n) {
		return fmt.Errorf("step %d with %v instead of %d", f.step, f.log, n)
	}
	return nil
}

// value is element i of u after step n: few change in a step.
func value(i, n int) float64 {
	if i%1000 == 0 {
		return float64(i + n)
	}
	return float64(i)
}

func newFields(n int) *fields {
	f := &fields{u: make([]float64, n), v: make([]float64, n), log: map[int]string{}}
	for i := range f.u {
		f.u[i], f.v[i] = value(i, 0), -value(i, 0)
	}
	return f
}

// advance computes a step. Each part is added when it is ready, and is
// something else until the checkpoint is committed.
func (f *fields) advance(t *testing.T, p *Run) error {
	t.Helper()
	add := func(names ...string) {
		t.Helper()
		if err := p.Add(names...); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	n := f.step + 1
	f.log[n] = fmt.Sprint("step ", n)
	add("log")
	saved := f.log
	f.log = map[int]string{-1: "changed"}
	for i := range f.u {
		f.u[i], f.v[i] = value(i, n), -value(i, n)
	}
	add("u", "v")
	for i := range f.u {
		f.u[i], f.v[i] = 0, 1
	}
	if err := p.Point(ctx); err != nil { // it does nothing
		t.Fatal(err)
	}
	f.step = n
	err := p.Commit(ctx)
	f.log = saved
	for i := range f.u {
		f.u[i], f.v[i] = value(i, n), -value(i, n)
	}
	return err
}

// TestIncremental_ValuesAtAdd takes incremental checkpoints, and others in
// between, and restores each.
func TestIncremental_ValuesAtAdd(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"usual": func(*Options) {}, "full": func(o *Options) { o.MaxBases = -1 }, "little memory": func(o *Options) { o.Memory = 1 << 20 },
		"compressed": func(o *Options) { o.Compression = Zstd },
	} {
		t.Run(name, func(t *testing.T) {
			const size = 300_000
			dir := t.TempDir()
			for n := range 9 {
				f := newFields(size)
				if n > 0 {
					f.u, f.v = make([]float64, size), make([]float64, size)
				}
				var infos []CheckpointInfo
				p := open(t, dir, change, func(o *Options) { o.OnSaved = func(i CheckpointInfo) { infos = append(infos, i) } })
				f.protect(p)
				restore(t, p, n > 0)
				if err := f.want(n); err != nil {
					t.Fatal(err)
				}
				if n%3 == 2 {
					checkpoint(t, p)
				}
				if err := f.advance(t, p); err != nil {
					t.Fatal(err)
				}
				if err := f.want(n + 1); err != nil {
					t.Fatal(err)
				}
				closeRun(t, p)
				if got := infos[len(infos)-1]; got.Pause <= 0 || got.StateBytes < 16*size || got.Reason != "call" {
					t.Errorf("%+v", got)
				}
			}
		})
	}
}

// TestIncremental_Differential stores the blocks that changed, whether they
// were added or not.
func TestIncremental_Differential(t *testing.T) {
	var last CheckpointInfo
	p := open(t, t.TempDir(), func(o *Options) { o.OnSaved = func(i CheckpointInfo) { last = i } })
	u, v := counted(1<<20), counted(1<<20)
	Protect(p, "u", &u)
	Protect(p, "v", &v)
	restore(t, p, false)
	for n := range 6 {
		u[n*1000], v[5] = -1, float64(-n)
		if n%2 == 0 {
			if err := errors.Join(p.Begin(ctx), p.Add("u"), p.Commit(ctx), p.awaitWriter(ctx)); err != nil {
				t.Fatal(err)
			}
		} else {
			checkpoint(t, p)
		}
		if n > 0 && last.WrittenBytes > 1<<20 {
			t.Errorf("checkpoint %d has %d bytes", n+1, last.WrittenBytes)
		}
	}
}

// TestIncremental_WrongOrderRefused returns errors for calls that are out of
// order, and changes nothing then.
func TestIncremental_WrongOrderRefused(t *testing.T) {
	p := open(t, t.TempDir())
	a, b := 1, []int{2}
	Protect(p, "a", &a)
	Protect(p, "b", &b)
	refused := func(err error, text string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	refused(p.Begin(ctx), "there was no Restore")
	restore(t, p, false)
	refused(p.Add("a"), "call Begin first")
	refused(p.Commit(ctx), "call Begin first")
	p.Cancel()
	if err := p.Begin(ctx); err != nil {
		t.Fatal(err)
	}
	refused(p.Begin(ctx), "Begin was called already")
	refused(p.Checkpoint(ctx), "Checkpoint after Begin")
	refused(p.Add("c"), `cannot add "c": no variable of that name is protected`)
	refused(p.Add("a", "cairn.x"), `cannot add "cairn.x"`)
	if err := p.Add("a"); err != nil {
		t.Fatal(err)
	}
	refused(p.Add("a"), "was added already")
	p.Request()
	if err := p.Point(ctx); err != nil || p.saver.Busy() || p.Due() {
		t.Errorf("a point saves between Begin and Commit: %v", err)
	}
	p.Cancel()
	refused(p.Commit(ctx), "call Begin first")
	if err := p.Point(ctx); err != nil || p.current.Index != 1 {
		t.Errorf("the request is lost after Cancel: %v", err)
	}
	a = 2
	if err := errors.Join(p.Begin(ctx), p.Commit(ctx)); err != nil { // nothing was added
		t.Fatal(err)
	}
	dir := p.Dir()
	closeRun(t, p)
	refused(p.Begin(ctx), "the run is closed")
	p = open(t, dir)
	Protect(p, "a", &a)
	Protect(p, "b", &b)
	a = 0
	restore(t, p, true)
	if a != 2 {
		t.Errorf("a is %d", a)
	}
}

// TestIncremental_SharedMemory saves nothing if variables that were added at
// different times share memory, and the program continues.
func TestIncremental_SharedMemory(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	all := counted(100_000)
	a, b := all[:50_000], all[50_000:] // the capacity of a is that of all
	Protect(p, "a", &a)
	Protect(p, "b", &b)
	restore(t, p, false)
	checkpoint(t, p)
	a[0], b[0] = -1, -2
	if err := errors.Join(p.Begin(ctx), p.Add("a")); err != nil {
		t.Fatal(err)
	}
	var shared *graph.SharedError
	err := p.Add("b")
	if !errors.As(err, &shared) || !strings.Contains(err.Error(), `variable "b" shares memory with variable "a"`) || !strings.Contains(err.Error(), "in one call of Add") {
		t.Errorf("got %v", err)
	}
	b[0] = -3
	err = p.Commit(ctx)
	if !errors.Is(err, ErrNotSaved) || !errors.As(err, &shared) || shared.Name != "b" || shared.Earlier != "a" {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(p.Begin(ctx), p.Add("b", "a")); err != nil {
		t.Fatal(err)
	}
	a[0], b[0] = 0, 0
	if err := p.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	closeRun(t, p)
	p = open(t, dir)
	a, b = nil, nil
	Protect(p, "a", &a)
	Protect(p, "b", &b)
	restore(t, p, true)
	if a[0] != -1 || b[0] != -3 || &a[:cap(a)][50_000] != &b[0] {
		t.Errorf("restored %v %v, %d of capacity", a[0], b[0], cap(a))
	}
}

// TestIncremental_Files saves the positions of files at Commit, and refuses to
// copy what is buffered for them before.
func TestIncremental_Files(t *testing.T) {
	dir := t.TempDir()
	p := open(t, filepath.Join(dir, "ckpt"))
	f, err := p.OpenFile(filepath.Join(dir, "out"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	out := struct {
		f    *os.File
		line []byte
	}{f, nil}
	n := 1
	Protect(p, "out", &out)
	Protect(p, "n", &n)
	restore(t, p, false)
	if err := errors.Join(p.Begin(ctx), p.Add("n")); err != nil {
		t.Fatal(err)
	}
	if err := p.Add("out"); err == nil || !strings.Contains(err.Error(), "out.f (*os.File) cannot be saved: Commit saves the position") {
		t.Errorf("got %v", err)
	}
	out.line = []byte("buffered")
	f.WriteString("first")
	if err := p.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	f.WriteString("second")
	closeRun(t, p)
	f.Close()
	p = open(t, filepath.Join(dir, "ckpt"))
	out.f, out.line = nil, nil
	Protect(p, "out", &out)
	Protect(p, "n", &n)
	restore(t, p, true)
	text, err := os.ReadFile(filepath.Join(dir, "out"))
	if string(text) != "first" || string(out.line) != "buffered" || err != nil {
		t.Errorf("%q %q %v", text, out.line, err)
	}
}

// TestIncremental_Stopped stops with the checkpoint that was begun.
func TestIncremental_Stopped(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	f := newFields(10_000)
	f.protect(p)
	restore(t, p, false)
	p.requestStop("test")
	if err := f.advance(t, p); !errors.Is(err, ErrStopped) || errors.Is(err, ErrNotSaved) {
		t.Fatalf("got %v", err)
	}
	closeRun(t, p)
	p, f = open(t, dir), newFields(10_000)
	f.protect(p)
	restore(t, p, true)
	if err := f.want(1); err != nil {
		t.Error(err)
	}
}

// TestIncremental_DiskFull reports that a checkpoint was not written, and the
// next one is.
func TestIncremental_DiskFull(t *testing.T) {
	fsys, full := fillable(vfstest.NewMem())
	p := openFS(t, fsys)
	f := newFields(100_000)
	f.protect(p)
	restore(t, p, false)
	full.Store(true)
	err := f.advance(t, p)
	if err == nil {
		err = p.Begin(ctx) // waits for the one before, and leaves its error to Commit
		p.Cancel()
		if perr := p.Point(ctx); err == nil {
			err = perr
		}
	}
	if !errors.Is(err, ErrNotSaved) {
		t.Errorf("got %v", err)
	}
	full.Store(false)
	if err := f.advance(t, p); err != nil {
		t.Fatal(err)
	}
	closeRun(t, p)
	p, f = openFS(t, fsys), newFields(100_000)
	f.protect(p)
	restore(t, p, true)
	if err := f.want(2); err != nil {
		t.Error(err)
	}
}

// TestIncremental_Rollback forgets what was added.
func TestIncremental_Rollback(t *testing.T) {
	p := open(t, t.TempDir())
	f := newFields(1000)
	f.protect(p)
	restore(t, p, false)
	if err := f.advance(t, p); err != nil {
		t.Fatal(err)
	}
	f.u[3] = -5
	if err := errors.Join(p.Begin(ctx), p.Add("u")); err != nil {
		t.Fatal(err)
	}
	if ok, err := p.Rollback(ctx); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := f.want(1); err != nil {
		t.Error(err)
	}
	if err := f.advance(t, p); err != nil {
		t.Error(err)
	}
}

// TestIncremental_Devices copies an array of a device when it is added.
func TestIncremental_Devices(t *testing.T) {
	dir := t.TempDir()
	fill := func(a *device.Array[uint64], with uint64) {
		t.Helper()
		p, err := a.Data()
		if err != nil {
			t.Fatal(err)
		}
		for i := range p {
			p[i] = with + uint64(i)
		}
	}
	p := open(t, dir)
	a, b := device.New[uint64](100, 1000), device.New[uint64](100, 1000)
	top := a.Rows(0, 10)
	Protect(p, "a", &a)
	Protect(p, "b", &b)
	Protect(p, "top", &top)
	restore(t, p, false)
	for n := range uint64(3) {
		fill(a, n)
		fill(b, 10*n)
		if err := errors.Join(p.Begin(ctx), p.Add("a", "top")); err != nil {
			t.Fatal(err)
		}
		fill(a, 99)
		fill(b, 20*n)
		if err := p.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		fill(b, 99)
	}
	if err := errors.Join(p.Begin(ctx), p.Add("top")); err != nil {
		t.Fatal(err)
	}
	if err := p.Add("a"); err == nil || !strings.Contains(err.Error(), `variable "a" shares memory with variable "top"`) {
		t.Errorf("got %v", err)
	}
	p.Cancel()
	closeRun(t, p)
	p = open(t, dir)
	a, b, top = nil, nil, nil
	Protect(p, "a", &a)
	Protect(p, "b", &b)
	Protect(p, "top", &top)
	restore(t, p, true)
	x, err := a.Data()
	y, err2 := b.Data()
	z, err3 := top.Data()
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	if x[7] != 9 || y[7] != 47 || len(x) != 100_000 || &x[0] != &z[0] || !slices.Equal(a.Dims(), []int{100, 1000}) {
		t.Errorf("restored %v %v", x[7], y[7])
	}
}

// ringed is a program of several ranks that takes incremental checkpoints. u
// holds something else between Add and the end of Commit, and messages are on
// their way all the time.
func ringed(t *testing.T, steps int, at func(p *Run, step int) error, out []uint64) func(p *Run) error {
	return func(p *Run) error {
		w := p.World()
		step, u, sum := 0, make([]uint64, 20_000), uint64(w.Rank())
		Protect(p, "step", &step)
		Protect(p, "u", &u)
		Protect(p, "sum", &sum)
		resumed, err := p.Restore(ctx)
		if err != nil {
			return err
		}
		n, r := w.Size(), w.Rank()
		send := func() error { return mpi.Send(w, []uint64{sum + uint64(step)}, (r+1)%n, 1) }
		if !resumed { // one message is always under way
			if err := send(); err != nil {
				return err
			}
		}
		for step < steps {
			if err := p.Point(ctx); err != nil {
				return err
			}
			begun := step%3 != 0
			if begun {
				if err := p.Begin(ctx); err != nil {
					return err
				}
			}
			in := []uint64{0}
			if _, err := mpi.Recv(w, in, (r+n-1)%n, 1); err != nil {
				return err
			}
			for i := range u {
				u[i] += in[0] ^ uint64(i)
			}
			if begun && r != 1 { // rank 1 adds nothing
				if err := p.Add("u"); err != nil {
					return err
				}
			}
			if err := at(p, step); err != nil {
				return err
			}
			sum = sum*31 + in[0] + u[step]
			step++
			if err := send(); err != nil {
				return err
			}
			if begun {
				if r != 1 {
					for i := range u {
						u[i] = ^u[i]
					}
				}
				err := p.Commit(ctx)
				if r != 1 {
					for i := range u {
						u[i] = ^u[i]
					}
				}
				if err != nil {
					return err
				}
			}
		}
		if _, err := mpi.Recv(w, []uint64{0}, (r+n-1)%n, 1); err != nil {
			return err
		}
		for _, x := range u {
			sum = sum*31 + x
		}
		out[r] = sum
		p.Finish()
		return nil
	}
}

// TestIncremental_RanksKilled kills ranks that take incremental checkpoints,
// until the work is done.
func TestIncremental_RanksKilled(t *testing.T) {
	const n, steps = 3, 40
	want, got := make([]uint64, n), make([]uint64, n)
	nothing := func(*Run, int) error { return nil }
	for r, err := range newCrew(n, mem.Options{}).run(Options{Dir: t.TempDir(), EveryPoints: 1 << 30}, ringed(t, steps, nothing, want)) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	dir := t.TempDir()
	for attempt := 0; ; attempt++ {
		if attempt == 100 {
			t.Fatal("no progress")
		}
		victim, when := rng.IntN(n), int64(rng.IntN(15))
		var passed atomic.Int64
		opts := Options{Dir: dir, EveryPoints: 1 << 30}
		if attempt%3 == 0 {
			opts.EveryPoints = 4
		}
		errs := newCrew(n, mem.Options{EagerLimit: 64}).run(opts, ringed(t, steps, func(p *Run, step int) error {
			if p.Rank() != victim {
				return nil
			}
			if passed.Add(1) > when {
				return errKilled
			}
			if attempt%2 == 0 && step%4 == 0 {
				p.Request()
			}
			return nil
		}, got))
		if errors.Join(errs...) == nil {
			t.Logf("%d attempts", attempt+1)
			break
		}
		for r, err := range errs {
			if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, mpi.ErrLost) && !errors.Is(err, mpi.ErrEnded) && !errors.Is(err, coord.ErrLost) {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestIncremental_RanksStopped stops ranks between Begin and Commit, and
// resumes.
func TestIncremental_RanksStopped(t *testing.T) {
	const n, steps = 3, 12
	want, got := make([]uint64, n), make([]uint64, n)
	for r, err := range newCrew(n, mem.Options{}).run(Options{Dir: t.TempDir(), EveryPoints: 1 << 30}, ringed(t, steps, func(*Run, int) error { return nil }, want)) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	dir := t.TempDir()
	for i := 0; ; i++ {
		errs := newCrew(n, mem.Options{}).run(Options{Dir: dir, EveryPoints: 1 << 30}, ringed(t, steps, func(p *Run, step int) error {
			if p.Rank() == i%n && step == i {
				p.requestStop("test")
			}
			return nil
		}, got))
		if errors.Join(errs...) == nil {
			break
		}
		for r, err := range errs {
			if !errors.Is(err, ErrStopped) || errors.Is(err, ErrNotSaved) {
				t.Fatalf("stop %d, rank %d: %v", i, r, err)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestIncremental_OneRankFails saves on no rank if one cannot, and the ranks
// continue.
func TestIncremental_OneRankFails(t *testing.T) {
	const n = 3
	dir := t.TempDir()
	failed := make([]error, n)
	errs := newCrew(n, mem.Options{}).run(Options{Dir: dir, EveryPoints: 1 << 30}, func(p *Run) error {
		all := counted(1000)
		a, b := all, all[10:]
		Protect(p, "a", &a)
		Protect(p, "b", &b)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		if err := p.Begin(ctx); err != nil {
			return err
		}
		if p.Rank() == 1 {
			if err := p.Add("a"); err != nil {
				return err
			}
		}
		err := p.Commit(ctx)
		for err == nil && p.lastErr == nil { // the others learn of it
			err = p.Point(ctx)
		}
		failed[p.Rank()] = err
		return p.Checkpoint(ctx)
	})
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for r, err := range failed {
		if !errors.Is(err, ErrNotSaved) || !strings.Contains(err.Error(), `variable "b" shares memory with variable "a"`) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
