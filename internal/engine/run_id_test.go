package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/transport/mem"

	"github.com/cairnrun/cairn/internal/vfs"
)

// copyOver replaces a file by a copy of another.
func copyOver(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		os.Remove(to) // it may be a link
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exchange swaps two files.
func exchange(t *testing.T, a, b string) {
	t.Helper()
	for _, r := range [][2]string{{a, a + "~"}, {b, a}, {a + "~", b}} {
		if err := os.Rename(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
}

// apart is a program like counting, whose ranks send each other nothing:
// message counts cannot tell their files apart.
func apart(steps int, each func(p *Run, step int) error, from, sum []int) func(p *Run) error {
	return func(p *Run) error {
		ctx := context.Background()
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
				each(p, step)
			}
			total += p.Rank() * step
		}
		sum[p.Rank()] = total
		return nil
	}
}

// TestForeignFile_Ranks puts sound files of other ranks, checkpoints, runs and
// starts into the newest checkpoint: all ranks go back to the one before it.
func TestForeignFile_Ranks(t *testing.T) {
	const n, steps = 3, 30
	opts := func(dir string) Options { return Options{Dir: dir, EveryPoints: 5, Keep: 3} }
	stopped := func(t *testing.T, dir string, at int) {
		from, sum := make([]int, n), make([]int, n)
		mustStop(t, newCrew(n, mem.Options{}).run(opts(dir), apart(steps, stopAt(at), from, sum)))
	}
	for name, harm := range map[string]func(t *testing.T, dir string){
		"ranks exchanged": func(t *testing.T, dir string) {
			exchange(t, filepath.Join(newest(t, dir), "rank-0000.h5"), filepath.Join(newest(t, dir), "rank-0001.h5"))
		},
		"older checkpoint": func(t *testing.T, dir string) {
			indices, _ := filepath.Glob(filepath.Join(dir, "ckpt-0*"))
			copyOver(t, filepath.Join(indices[len(indices)-2], "rank-0002.h5"), filepath.Join(newest(t, dir), "rank-0002.h5"))
		},
		"other run": func(t *testing.T, dir string) {
			other := t.TempDir()
			stopped(t, other, 12)
			if filepath.Base(newest(t, other)) != filepath.Base(newest(t, dir)) {
				t.Fatal("the other run's newest checkpoint has another number")
			}
			copyOver(t, filepath.Join(newest(t, other), "rank-0001.h5"), filepath.Join(newest(t, dir), "rank-0001.h5"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stopped(t, dir, 12)
			harm(t, dir)
			foreign, err := os.ReadFile(filepath.Join(newest(t, dir), "rank-0001.h5"))
			if err != nil {
				t.Fatal(err)
			}
			bad := newest(t, dir)
			from, sum := make([]int, n), make([]int, n)
			mustEnd(t, newCrew(n, mem.Options{}).run(opts(dir), apart(steps, nil, from, sum)))
			for r := range n {
				if want := r * steps * (steps - 1) / 2; from[r] != from[0] || from[r] > 10 || sum[r] != want {
					t.Errorf("rank %d began at step %d and has %d, want %d", r, from[r], sum[r], want)
				}
			}
			if left, err := os.ReadFile(filepath.Join(bad, "rank-0001.h5")); name == "other run" && (err != nil || string(left) != string(foreign)) {
				t.Errorf("the other run's file was removed: %v", err)
			}
		})
	}
}

// TestForeignFile_OtherContinuation mixes two continuations of one run, which
// has been copied, into one checkpoint.
func TestForeignFile_OtherContinuation(t *testing.T) {
	const n, steps = 3, 30
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	from, sum := make([]int, n), make([]int, n)
	run := func(dir string, at int) {
		t.Helper()
		mustStop(t, newCrew(n, mem.Options{}).run(Options{Dir: dir, EveryPoints: 100, Keep: 3}, counting(steps, stopAt(at), from, sum)))
	}
	run(dir, 5)
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	run(dir, 12)
	run(other, 17)
	if a, b := filepath.Base(newest(t, dir)), filepath.Base(newest(t, other)); a != b {
		t.Fatalf("%s and %s", a, b)
	}
	for _, lineToo := range []bool{false, true} { // all of it from the other start, but for the line
		copyOver(t, filepath.Join(newest(t, other), "rank-0001.h5"), filepath.Join(newest(t, dir), "rank-0001.h5"))
		if lineToo {
			copyOver(t, filepath.Join(newest(t, other), "rank-0000.h5"), filepath.Join(newest(t, dir), "rank-0000.h5"))
			copyOver(t, filepath.Join(newest(t, other), "rank-0002.h5"), filepath.Join(newest(t, dir), "rank-0002.h5"))
		}
		copied := filepath.Join(t.TempDir(), "x")
		if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		mustEnd(t, newCrew(n, mem.Options{}).run(Options{Dir: copied, EveryPoints: 100, Keep: 3}, counting(steps, nil, from, sum)))
		for r := range n {
			if want := n*steps*(steps-1)/2 + steps*(0+1+2); from[r] > 6 || sum[r] != want {
				t.Errorf("rank %d began at step %d and has %d, want %d", r, from[r], sum[r], want)
			}
		}
	}
}

// saved makes a run of one rank with n checkpoints, of which all but the first
// have a base.
func saved(t *testing.T, n int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	step, grid := 0, make([]float64, 200_000)
	for i := range grid {
		grid[i] = float64(i)
	}
	p := open(t, dir, func(o *Options) { o.Keep = n })
	Protect(p, "step", &step)
	Protect(p, "grid", &grid)
	restore(t, p, false)
	for step = 1; step <= n; step++ {
		checkpoint(t, p)
	}
	closeRun(t, p)
	return dir
}

// restoredStep restores such a run and returns the step of its checkpoint.
func restoredStep(t *testing.T, dir string) (int, error) {
	t.Helper()
	var step int
	var grid []float64
	p := open(t, dir)
	defer closeRun(t, p)
	Protect(p, "step", &step)
	Protect(p, "grid", &grid)
	_, err := p.Restore(t.Context())
	return step, err
}

// TestForeignFile_SingleRank puts sound files of other checkpoints and runs
// into the newest checkpoint of a run of one rank.
func TestForeignFile_SingleRank(t *testing.T) {
	file := func(dir string, index int, name string) string {
		return filepath.Join(dir, fmt.Sprintf("ckpt-%08d", index), name)
	}
	const mine, base = "rank-0000.h5", "rank-0000.base-00000001.h5"
	for name, harm := range map[string]func(t *testing.T, dir string){
		"older checkpoint": func(t *testing.T, dir string) { copyOver(t, file(dir, 1, mine), file(dir, 3, mine)) },
		"other run":        func(t *testing.T, dir string) { copyOver(t, file(saved(t, 3), 3, mine), file(dir, 3, mine)) },
		"base of other run": func(t *testing.T, dir string) {
			copyOver(t, file(saved(t, 1), 1, mine), file(dir, 3, base))
		},
		"base that is another checkpoint": func(t *testing.T, dir string) { copyOver(t, file(dir, 2, mine), file(dir, 3, base)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := saved(t, 3)
			harm(t, dir)
			if step, err := restoredStep(t, dir); err != nil || step != 2 {
				t.Errorf("step %d, %v; want 2", step, err)
			}
		})
	}
}

// TestRunID_LostOrDamaged loses and damages DIR/run-id: the checkpoints say
// whose they are, and disagreement between them is refused.
func TestRunID_LostOrDamaged(t *testing.T) {
	dir := saved(t, 3)
	id := filepath.Join(dir, "run-id")
	run, err := store.Open(vfs.OS(), dir, 0).ID()
	if err != nil || len(run) != 32 {
		t.Fatal(run, err)
	}
	for _, harm := range []func() error{
		func() error { return os.Remove(id) },
		func() error { return os.Truncate(id, 0) },
		func() error {
			return os.WriteFile(id, []byte(`{"format":1,"run":"00112233445566778899aabbccddeeff","digest":""}`), 0o600)
		},
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if step, err := restoredStep(t, dir); err != nil || step != 3 {
			t.Errorf("step %d, %v", step, err)
		}
		if now, err := store.Open(vfs.OS(), dir, 0).ID(); err != nil || now != run {
			t.Errorf("the identity is %q, was %q: %v", now, run, err)
		}
	}
	if err := os.Remove(id); err != nil {
		t.Fatal(err)
	}
	copyOver(t, filepath.Join(saved(t, 3), "ckpt-00000003", "rank-0000.h5"), filepath.Join(dir, "ckpt-00000003", "rank-0000.h5"))
	if _, err := restoredStep(t, dir); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "run-id") {
		t.Errorf("checkpoints of two runs, and no record: %v", err)
	}
	// All checkpoints are another run's: nothing is started afresh.
	dir, other := saved(t, 2), saved(t, 2)
	copyOver(t, filepath.Join(other, "run-id"), filepath.Join(dir, "run-id"))
	if _, err := restoredStep(t, dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "not a checkpoint of this run") {
		t.Errorf("a directory of another run: %v", err)
	}
}
