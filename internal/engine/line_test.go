package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/mpi"
)

// counting is a program whose ranks sum up the values of all. from has, for
// each rank, the step at which it began.
func counting(steps int, each func(p *Run, step int) error, from, sum []int) func(p *Run) error {
	return func(p *Run) error {
		ctx := context.Background()
		w := p.World()
		step, total := 0, 0
		Protect(p, "step", &step)
		Protect(p, "total", &total)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		from[p.Rank()] = step
		for ; step < steps; step++ {
			if err := p.Point(ctx); err != nil {
				return err
			}
			if each != nil {
				if err := each(p, step); err != nil {
					return err
				}
			}
			out := []int{0}
			if err := mpi.Allreduce(w, []int{p.Rank() + step}, out, mpi.Sum); err != nil {
				return err
			}
			total += out[0]
		}
		sum[p.Rank()] = total
		return nil
	}
}

// stopAt stops such a program at a step.
func stopAt(n int) func(p *Run, step int) error {
	return func(p *Run, step int) error {
		if p.Rank() == 0 && step == n {
			p.requestStop("test")
		}
		return nil
	}
}

func mustStop(t *testing.T, errs []error) {
	t.Helper()
	for r, err := range errs {
		if !errors.Is(err, ErrStopped) || errors.Is(err, ErrNotSaved) {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

func mustEnd(t *testing.T, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// newest returns the newest checkpoint of a directory.
func newest(t *testing.T, dir string) string {
	t.Helper()
	indices, err := filepath.Glob(filepath.Join(dir, "ckpt-0*"))
	if err != nil || len(indices) == 0 {
		t.Fatal("no checkpoints", err)
	}
	return indices[len(indices)-1]
}

// TestRestore_OneRankDamaged damages, removes and truncates one rank's file of
// the newest checkpoint: all ranks restore the previous one.
func TestRestore_OneRankDamaged(t *testing.T) {
	const n, steps = 3, 30
	for name, harm := range map[string]func(path string) error{
		"damaged": func(path string) error {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 4
			return os.WriteFile(path, b, 0o600)
		},
		"missing": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			from, sum := make([]int, n), make([]int, n)
			opts := Options{Dir: dir, EveryPoints: 5, Keep: 3}
			mustStop(t, newCrew(n, mem.Options{}).run(opts, counting(steps, stopAt(12), from, sum)))
			if err := harm(filepath.Join(newest(t, dir), "rank-0001.h5")); err != nil {
				t.Fatal(err)
			}
			mustEnd(t, newCrew(n, mem.Options{}).run(opts, counting(steps, nil, from, sum)))
			for r := range n {
				if from[r] != from[0] || from[r] < 5 || from[r] > 10 {
					t.Errorf("rank %d began at step %d", r, from[r])
				}
				if want := n*steps*(steps-1)/2 + steps*(0+1+2); sum[r] != want {
					t.Errorf("rank %d: %d, want %d", r, sum[r], want)
				}
			}
		})
	}
}

// TestRestore_OneRankLostAll loses the files of one rank in all checkpoints.
func TestRestore_OneRankLostAll(t *testing.T) {
	const n = 3
	dir := t.TempDir()
	from, sum := make([]int, n), make([]int, n)
	mustStop(t, newCrew(n, mem.Options{}).run(Options{Dir: dir, EveryPoints: 5}, counting(30, stopAt(12), from, sum)))
	files, _ := filepath.Glob(filepath.Join(dir, "ckpt-0*", "rank-0002*"))
	for _, f := range files {
		os.Remove(f)
	}
	for r, err := range newCrew(n, mem.Options{}).run(Options{Dir: dir, EveryPoints: 5}, counting(30, nil, from, sum)) {
		if err == nil || !strings.Contains(err.Error(), "move that directory away") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestRestore_OtherNumberOfRanks shows that a checkpoint of another number of
// ranks is refused.
func TestRestore_OtherNumberOfRanks(t *testing.T) {
	dir := t.TempDir()
	from, sum := make([]int, 4), make([]int, 4)
	mustStop(t, newCrew(3, mem.Options{}).run(Options{Dir: dir}, counting(30, stopAt(12), from, sum)))
	for _, n := range []int{2, 4} {
		for r, err := range newCrew(n, mem.Options{}).run(Options{Dir: dir}, counting(30, nil, from, sum)) {
			if err == nil {
				t.Errorf("%d ranks, rank %d: no error", n, r)
			}
			if n == 2 && !errors.Is(err, ErrMismatch) {
				t.Errorf("%d ranks, rank %d: %v", n, r, err)
			}
		}
	}
	p, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Restore(t.Context()); !errors.Is(err, ErrMismatch) {
		t.Errorf("one rank: %v", err)
	}
}

// TestSafePoints_Killed saves without messages between ranks, and is killed in
// between.
func TestSafePoints_Killed(t *testing.T) {
	const n, steps = 4, 40
	dir := t.TempDir()
	from, sum := make([]int, n), make([]int, n)
	opts := Options{Dir: dir, EveryPoints: 3, SafePoints: true}
	last := 0
	for attempt := range 10 {
		errs := newCrew(n, mem.Options{}).run(opts, counting(steps, func(p *Run, step int) error {
			if p.Rank() == attempt%n && step >= from[p.Rank()]+7 {
				return errKilled
			}
			return nil
		}, from, sum))
		for r := range n {
			if from[r] != from[0] || from[r] < last {
				t.Fatalf("attempt %d: ranks began at %v, after %d", attempt, from, last)
			}
		}
		last = from[0]
		if errors.Join(errs...) == nil {
			for r := range n {
				if want := n*steps*(steps-1)/2 + steps*(0+1+2+3); sum[r] != want {
					t.Errorf("rank %d: %d, want %d", r, sum[r], want)
				}
			}
			return
		}
	}
	t.Error("no progress")
}

// TestSafePoints_MessageCrosses sets SafePoints although messages cross the
// point: such checkpoints do not count, and all ranks take others together.
func TestSafePoints_MessageCrosses(t *testing.T) {
	dir := t.TempDir()
	var began [2]int
	var reported sync.Map // the indices that OnSaved got
	program := func(p *Run) error {
		ctx := context.Background()
		w := p.World()
		step := 0
		Protect(p, "step", &step)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		began[p.Rank()] = step
		x := []int{0}
		for ; step < 40; step++ {
			if p.Rank() == 0 { // sent before the point, received after it
				if err := mpi.Send(w, x, 1, 0); err != nil {
					return err
				}
			}
			if err := p.Point(ctx); err != nil {
				return err
			}
			if p.Rank() == 1 {
				if _, err := mpi.Recv(w, x, 0, 0); err != nil {
					return err
				}
			}
			if err := w.Barrier(); err != nil {
				return err
			}
			if step == 35 && began[0] == 0 {
				return errKilled
			}
		}
		return nil
	}
	opts := Options{Dir: dir, EveryPoints: 4, SafePoints: true, OnSaved: func(s CheckpointInfo) { reported.Store(s.Index, s.Reason) }}
	newCrew(2, mem.Options{}).run(opts, program)
	reported.Range(func(index, reason any) bool {
		if reason != "unsafe point" {
			t.Errorf("checkpoint %v, taken because of %q, was called saved", index, reason)
		}
		return true
	})
	if line, err := store.Open(vfs.OS(), dir, 0).Line(); err != nil || line.Index == 0 {
		t.Errorf("the recovery line is %v, %v", line, err)
	}
	// At most the kept ones, the last one of each rank, and one in progress.
	if indices, _ := filepath.Glob(filepath.Join(dir, "ckpt-0*")); len(indices) > 5 {
		t.Errorf("checkpoints that do not count are kept: %v", indices)
	}
	mustEnd(t, newCrew(2, mem.Options{}).run(opts, program))
	if began[0] != began[1] || began[0] == 0 {
		t.Errorf("the ranks began at steps %v", began)
	}
}

// TestCheckpoint_PendingReceiveUnprotected has a pending receive at a point
// that no variable holds.
func TestCheckpoint_PendingReceiveUnprotected(t *testing.T) {
	errs := newCrew(2, mem.Options{}).run(Options{Dir: t.TempDir(), EveryPoints: 2}, func(p *Run) error {
		ctx := context.Background()
		w := p.World()
		step := 0
		Protect(p, "step", &step)
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		x := []int{0}
		r := mpi.Irecv(w, x, 1-p.Rank(), 0)
		for ; step < 3; step++ {
			if err := p.Point(ctx); err != nil {
				return err
			}
			if err := w.Barrier(); err != nil {
				return err
			}
		}
		if err := mpi.Send(w, x, 1-p.Rank(), 0); err != nil {
			return err
		}
		_, err := r.Wait()
		return err
	})
	found := false
	for _, err := range errs {
		found = found || errors.Is(err, ErrNotSaved) && strings.Contains(err.Error(), "protect their *mpi.Request")
	}
	if !found {
		t.Errorf("%v", errs)
	}
}

// TestCheckpoint_AllRanks calls Checkpoint on all ranks; the protected
// communicators are restored.
func TestCheckpoint_AllRanks(t *testing.T) {
	const n = 4
	dir := t.TempDir()
	program := func(p *Run) error {
		ctx := context.Background()
		w := p.World()
		var half *mpi.Comm
		step := 0
		Protect(p, "step", &step)
		Protect(p, "half", &half)
		restored, err := p.Restore(ctx)
		if err != nil {
			return err
		}
		if !restored {
			if half, err = w.Split(p.Rank()%2, -p.Rank()); err != nil {
				return err
			}
			step = 7
			if err := p.Checkpoint(ctx); err != nil {
				return err
			}
			if p.lastCommitted == 0 {
				return errors.New("no checkpoint is committed")
			}
		}
		more, err := half.Dup() // a new one does not collide with the old
		if err != nil {
			return err
		}
		for _, c := range []*mpi.Comm{half, more} {
			ranks := make([]int, 2)
			if err := mpi.Allgather(c, []int{p.Rank()}, ranks); err != nil {
				return err
			}
			if ranks[0] != p.Rank()%2+2 || ranks[1] != p.Rank()%2 || step != 7 {
				return fmt.Errorf("ranks %v, step %d", ranks, step)
			}
		}
		return nil
	}
	for range 2 {
		mustEnd(t, newCrew(n, mem.Options{}).run(Options{Dir: dir}, program))
	}
}

// TestRestore_OptionsDiffer shows that options which must be the same on all
// ranks are compared.
func TestRestore_OptionsDiffer(t *testing.T) {
	errs := newCrew(2, mem.Options{}).run(Options{Dir: t.TempDir()}, func(p *Run) error {
		p.opts.EveryPoints = 1 + p.Rank()
		_, err := p.Restore(context.Background())
		return err
	})
	for r, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "same on all ranks") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestWorld_SingleRankMessages saves messages of a rank to itself.
func TestWorld_SingleRankMessages(t *testing.T) {
	dir := t.TempDir()
	for start := range 2 {
		p, err := Open(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		w := p.World()
		step := 0
		Protect(p, "step", &step)
		if _, err := p.Restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		if start == 0 {
			if err := mpi.Send(w, []int{42}, 0, 5); err != nil {
				t.Fatal(err)
			}
			if err := p.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		x := []int{0}
		if _, err := mpi.Recv(w, x, mpi.AnySource, mpi.AnyTag); err != nil || x[0] != 42 {
			t.Error(x, err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
