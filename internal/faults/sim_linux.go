package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// Simulated cases run a program that saves itself, in this process, on a file
// system in memory. The file system fails, loses what was not synced, or is
// damaged. The program has several lives: each restores the state of the one
// before.

// simState is the program's state. Every part of it depends on all earlier
// steps.
type simState struct {
	Step  int
	Grid  []uint64
	Names map[string]int
	List  *simNode
}

type simNode struct {
	Value uint64
	Next  *simNode
}

// simulation is a simulated case.
type simulation struct {
	t      *faultCase
	size   int // size of the grid
	steps  int
	every  int
	compr  cairn.Compression
	safe   atomic.Int64 // step of the newest checkpoint that was reported safe
	ending atomic.Bool  // Finish was called
}

func (t *faultCase) simulation() *simulation {
	return &simulation{t: t, size: 64 << t.r.IntN(9), steps: 6 + t.r.IntN(12), every: 1 + t.r.IntN(3),
		compr: []cairn.Compression{cairn.None, cairn.Zstd}[t.r.IntN(2)]}
}

func (m *simulation) newState() *simState {
	s := &simState{Grid: make([]uint64, m.size), Names: map[string]int{}}
	for i := range s.Grid {
		s.Grid[i] = uint64(i)
	}
	return s
}

// advance performs one step. Most steps change only a part of the grid, so that
// there are differential checkpoints.
func (s *simState) advance() {
	s.Step++
	n := len(s.Grid)
	if s.Step%4 != 1 {
		n = n/4 + 1
	}
	for i := range s.Grid[:min(n, len(s.Grid))] {
		s.Grid[i] = s.Grid[i]*6364136223846793005 + uint64(s.Step)
	}
	s.Names[fmt.Sprint("n", s.Step%5)] += s.Step
	s.List = &simNode{s.Grid[0], s.List}
	if s.Step%3 == 0 {
		s.List = s.List.Next
	}
}

// check compares a state with the expected one after its number of steps.
func (m *simulation) check(s *simState) error {
	want := m.newState()
	for range s.Step {
		want.advance()
	}
	a, b := s.List, want.List
	for a != nil && b != nil && a.Value == b.Value {
		a, b = a.Next, b.Next
	}
	if !slices.Equal(s.Grid, want.Grid) || !maps.Equal(s.Names, want.Names) || a != nil || b != nil {
		return judged(wrong, "the state of step %d is not what that step computes", s.Step)
	}
	return nil
}

// life runs one life of the program on a file system. done says that the
// program reached its end.
func (m *simulation) life(fsys vfs.FS) (done bool, err error) {
	ctx := vfs.With(context.Background(), fsys)
	s := m.newState()
	p, err := cairn.Open(ctx, cairn.Options{Dir: "/run/ckpt", EveryPoints: m.every, Signals: map[os.Signal]cairn.SignalAction{}, Compression: m.compr,
		OnError: func(error) {}, Log: slog.New(slog.DiscardHandler)})
	if errors.Is(err, cairn.ErrFinished) {
		if !m.ending.Load() {
			return false, judged(lost, "the run was not at its end, but: %v", err)
		}
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer p.Close()
	for _, err := range []error{cairn.Protect(p, "step", &s.Step), cairn.Protect(p, "grid", &s.Grid), cairn.Protect(p, "names", &s.Names), cairn.Protect(p, "list", &s.List)} {
		if err != nil {
			return false, err
		}
	}
	restored, err := p.Restore(ctx)
	if err != nil {
		return false, err
	}
	if err := m.check(s); err != nil {
		return false, err
	}
	if safe := m.safe.Load(); int64(s.Step) < safe && !m.ending.Load() {
		return false, judged(lost, "step %d was safe, but step %d was restored (restored: %v)", safe, s.Step, restored)
	}
	for s.Step < m.steps {
		if err := p.Point(ctx); err != nil {
			return false, err
		}
		if m.t.r.IntN(4) == 0 {
			if err := p.Checkpoint(ctx); err == nil {
				m.safe.Store(int64(s.Step))
			} else if !errors.Is(err, cairn.ErrNotSaved) {
				return false, err
			}
		}
		s.advance()
	}
	if err := m.check(s); err != nil {
		return false, err
	}
	m.ending.Store(true)
	p.Finish()
	return true, p.Close()
}

// count returns how many file operations an undisturbed life performs.
func (m *simulation) count() (int, error) {
	disk, err := newDisk()
	if err != nil {
		return 0, err
	}
	var n atomic.Int64
	probe := &simulation{t: &faultCase{r: dice(1, 1)}, size: m.size, steps: m.steps, every: m.every, compr: m.compr}
	_, err = probe.life(vfstest.Hook(disk, func(op, name string) error { n.Add(1); return nil }))
	return int(n.Load()), err
}

func newDisk() (*vfstest.Mem, error) {
	m := vfstest.NewMem()
	return m, errors.Join(m.Mkdir("/run"), m.SyncDir("/"))
}

// verdictOf returns the verdict in an error, or nil.
func verdictOf(err error) error {
	if v := (*verdict)(nil); errors.As(err, &v) {
		return v
	}
	return nil
}

var errCut = errors.New("the power was cut")

// simCrash cuts the power at some operation of several lives.
func simCrash(t *faultCase) error {
	m := t.simulation()
	disk, err := newDisk()
	if err != nil {
		return err
	}
	ops, err := m.count()
	if err != nil {
		return err
	}
	for range 1 + t.r.IntN(4) {
		at := t.r.IntN(ops * 2 / 3)
		loss := []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn}[t.r.IntN(3)]
		var mu sync.Mutex
		n := 0
		var left *vfstest.Mem
		now := disk
		var safe int64
		fsys := vfstest.Hook(now, func(op, name string) error {
			mu.Lock()
			defer mu.Unlock()
			n++
			if left == nil && n > at {
				left, safe = now.Crash(loss), m.safe.Load()
				t.note("power cut before operation %d, %s %s, loss %d", n, op, path.Base(name), loss)
			}
			if left != nil {
				return errCut
			}
			return nil
		})
		done, err := m.life(fsys)
		if v := verdictOf(err); v != nil {
			return v
		}
		mu.Lock()
		cut := left
		mu.Unlock()
		if cut == nil {
			if err != nil || !done {
				return judged(lost, "nothing was wrong, but: %v", err)
			}
			return nil
		}
		m.safe.Store(safe)
		disk = cut
	}
	return m.last(disk)
}

// last runs an undisturbed life.
func (m *simulation) last(disk vfs.FS) error {
	done, err := m.life(disk)
	if v := verdictOf(err); v != nil {
		return v
	}
	if err != nil || !done {
		return judged(lost, "nothing is wrong any more, but: %v", err)
	}
	return nil
}

// simFail makes operations fail, one or all for a while, with an I/O error or
// because the disk is full.
func simFail(t *faultCase) error {
	m := t.simulation()
	disk, err := newDisk()
	if err != nil {
		return err
	}
	ops, err := m.count()
	if err != nil {
		return err
	}
	for range 1 + t.r.IntN(3) {
		at, long := t.r.IntN(ops*2/3), 1
		errno, full := syscall.EIO, false
		switch t.r.IntN(3) {
		case 1:
			long = 1 + t.r.IntN(200)
		case 2:
			errno, full, at, long = syscall.ENOSPC, true, at/3, 1+t.r.IntN(200)
		}
		var n, failed atomic.Int64
		fsys := vfstest.Hook(disk, func(op, name string) error {
			if full && !slices.Contains([]string{"write", "create", "mkdir", "allocate", "link"}, op) {
				return nil
			}
			if k := int(n.Add(1)); k > at && k <= at+long {
				failed.Add(1)
				return errno
			}
			return nil
		})
		done, err := m.life(fsys)
		if v := verdictOf(err); v != nil {
			return v
		}
		if failed.Load() > 0 {
			t.note("operations %d to %d failed (%v)", at+1, at+int(failed.Load()), errno)
		}
		if done && err == nil {
			return nil
		}
	}
	return m.last(disk)
}

// simDamage ends a life at some operation, damages a file, and starts another
// life, which must avoid the damage or refuse.
func simDamage(t *faultCase) error {
	m := t.simulation()
	disk, err := newDisk()
	if err != nil {
		return err
	}
	ops, err := m.count()
	if err != nil {
		return err
	}
	var old map[string][]byte
	for k := range 2 {
		at := ops/3 + t.r.IntN(ops/4)
		if k > 0 { // later lives have less to do
			at = 10 + t.r.IntN(ops/5)
		}
		var n atomic.Int64
		fsys := vfstest.Hook(disk, func(op, name string) error {
			if int(n.Add(1)) > at {
				return errCut
			}
			return nil
		})
		done, err := m.life(fsys)
		if v := verdictOf(err); v != nil {
			return v
		}
		if done && err == nil {
			return nil
		}
		if old == nil {
			if old, err = memFiles(disk, "/run"); err != nil {
				return err
			}
		}
	}
	now, err := memFiles(disk, "/run")
	if err != nil {
		return err
	}
	if len(now) == 0 {
		return m.last(disk)
	}
	saved, err := m.damage(disk, now, old)
	if err != nil {
		return err
	}
	m.safe.Store(0) // an older checkpoint may be restored
	done, err := m.life(disk)
	if v := verdictOf(err); v != nil {
		return v
	}
	if done && err == nil {
		return nil
	}
	said := fmt.Sprint(err)
	for name, text := range saved {
		if err := memWrite(disk, name, text); err != nil {
			return err
		}
	}
	if err := m.last(disk); err != nil {
		return fmt.Errorf("%w (before that it was refused: %s)", err, said)
	}
	if !strings.Contains(said, "ckpt-") && !strings.Contains(said, "/run/ckpt") && !strings.Contains(said, "checkpoint") {
		return judged(lost, "refused, but the message does not say what is wrong: %s", said)
	}
	return judged(refused, "%s", said)
}

// damage changes a file and returns the original contents.
func (m *simulation) damage(disk *vfstest.Mem, now, old map[string][]byte) (map[string][]byte, error) {
	names := slices.Sorted(maps.Keys(now))
	r := m.t.r
	name := names[r.IntN(len(names))]
	saved := map[string][]byte{name: now[name]}
	text := slices.Clone(now[name])
	switch k := r.IntN(6); {
	case k == 0 && len(text) > 0:
		at := r.IntN(len(text))
		text[at] ^= 1 << r.IntN(8)
		m.t.note("a bit of byte %d of %d flipped in %s", at, len(text), name)
	case k == 1 && len(text) > 0:
		text = text[:r.IntN(len(text))]
		m.t.note("%s cut to %d bytes", name, len(text))
	case k == 2:
		m.t.note("%s deleted", name)
		return saved, disk.Remove(name)
	case k == 3 && len(names) > 1:
		other := names[r.IntN(len(names))]
		saved[other], text = now[other], now[other]
		m.t.note("%s and %s swapped", name, other)
		if err := memWrite(disk, other, now[name]); err != nil {
			return nil, err
		}
	case k == 4 && old[name] != nil:
		text = old[name]
		m.t.note("%s replaced by an older version", name)
	default:
		text = append(text, randomBytes(r, 1+r.IntN(100))...)
		m.t.note("%s made longer", name)
	}
	return saved, memWrite(disk, name, text)
}

func randomBytes(r *rand.Rand, n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

// memFiles returns all files under a directory, except the directory of locks,
// which holds no data.
func memFiles(m *vfstest.Mem, dir string) (map[string][]byte, error) {
	out := make(map[string][]byte)
	entries, err := m.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			more, err := memFiles(m, name)
			if err != nil {
				return nil, err
			}
			maps.Copy(out, more)
			continue
		}
		f, err := m.Open(name)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<40))
		if err != nil {
			return nil, err
		}
		out[name] = text
	}
	return out, nil
}

// memWrite replaces a file, with all its links.
func memWrite(m *vfstest.Mem, name string, text []byte) error {
	f, err := m.Open(name)
	if err != nil {
		if f, err = m.Create(name); err != nil {
			return nil // its directory is gone: Cairn has removed it
		}
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Sync()
}
