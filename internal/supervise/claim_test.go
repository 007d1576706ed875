//go:build linux

package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestFinish_NotReported runs a program that does not report that it has
// finished. Its checkpoints stay, but the next start begins a new run.
func TestFinish_NotReported(t *testing.T) {
	o := options(t, 2, "nofinish")
	begin(t, o).ends(rundir.Finished, 0)
	if _, _, ok := rundir.NewestCheckpoint(filepath.Join(o.Run, "ckpt"), 2); !ok {
		t.Fatal("no checkpoints are left")
	}
	for range 2 {
		l := begin(t, o).ends(rundir.Finished, 0)
		if slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, "restored") || strings.Contains(s, "status") }) {
			t.Errorf("%q", l.said)
		}
		exact(t, o, 20)
	}
}

// TestFailure_BeforeFirstPoint shows that a program which cannot succeed is not
// tried ten times.
func TestFailure_BeforeFirstPoint(t *testing.T) {
	for _, command := range [][]string{as("rank", "refuse"), {"sh", "-c", "exit 2"}} {
		o := options(t, 2)
		o.Command = command
		l := begin(t, o).ends(rundir.Failed, 2).says("ended with status 2 before its first point, twice: not tried again")
		if l.last.Attempt != 2 {
			t.Errorf("%d starts", l.last.Attempt)
		}
		if st, err := client.Read(context.Background(), o.Run); err != nil || !strings.HasSuffix(st.Why, "not tried again") {
			t.Errorf("%+v, %v", st, err)
		}
	}
	// This does not hold for a rank that is killed, or that fails after a
	// point.
	for _, c := range []struct {
		command []string
		status  int
	}{{[]string{"sh", "-c", "kill -9 $$"}, 128 + 9}, {as("rank", "exit:0:1:0"), 3}} {
		o := options(t, 1)
		o.Command, o.Retries = c.command, 2
		if l := begin(t, o).ends(rundir.Failed, c.status); l.last.Attempt != 3 {
			t.Errorf("%q: %d starts", c.command, l.last.Attempt)
		}
	}
}

// TestClaim_NoCheckpoints shows that another command can use the directory of a
// run without checkpoints.
func TestClaim_NoCheckpoints(t *testing.T) {
	o := options(t, 2, "refuse")
	begin(t, o).ends(rundir.Failed, 2)
	part := filepath.Join(o.Run, "ckpt", "ckpt-00000001", "rank-0000.h5")
	if err := os.MkdirAll(filepath.Dir(part), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(part, []byte("of one rank only"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Command, o.Ranks = as("rank"), 1 // for one rank, this would be a complete checkpoint
	l := begin(t, o).ends(rundir.Finished, 0)
	if slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, "restored") }) {
		t.Errorf("%q", l.said)
	}
	exact(t, o, 20)
}

// TestClaim_KeepsRun shows that a run is not replaced if something could be
// lost: a complete checkpoint, a recovery line, a helper that may be saving
// one, and any checkpoint in a directory that is not the run's own.
func TestClaim_KeepsRun(t *testing.T) {
	file := func(t *testing.T, path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, what := range map[string]func(t *testing.T, o *Options){
		"set": func(t *testing.T, o *Options) {
			file(t, filepath.Join(o.Run, "ckpt", "ckpt-00000003", "rank-0000.h5"))
		},
		"line": func(t *testing.T, o *Options) { file(t, filepath.Join(o.Run, "ckpt", "line")) },
		"helper": func(t *testing.T, o *Options) {
			f, _, err := rundir.TryLock(rundir.HostLock(o.Run, "localhost"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
		},
		"elsewhere": func(t *testing.T, o *Options) {
			file(t, filepath.Join(o.Dir, "ckpt-00000003", "rank-0007.h5"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, 1)
			if name == "elsewhere" {
				o.Dir = t.TempDir()
			}
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.take(); err != nil {
				t.Fatal(err)
			}
			s.dir.Close() // as if it were killed
			what(t, &o)
			o.Command = as("rank", "points=3")
			if _, err := New(o); !errors.Is(err, rundir.ErrDiffers) || !strings.Contains(err.Error(), "(interrupted)") {
				t.Error(err)
			}
		})
	}
}

// TestFresh_WaitsForHelper discards a run whose checkpoints may still be in
// progress. They are discarded when its last helper has ended, and not at all
// if the user cancels before that.
func TestFresh_WaitsForHelper(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:8:"+gate)
	p := startSupervisor(t, o)
	p.await("rank 0 at point 8")
	p.cmd.Process.Kill()
	p.cmd.Wait()
	o.Fresh = true
	l := begin(t, o)
	l.await("waiting for the ranks of the last start on localhost to save and stop (process ")
	l.s.Stop("on second thoughts")
	l.ends(rundir.Stopped, StoppedStatus)
	if rec, err := rundir.ReadRecord(o.Run); err != nil || rec.Attempt != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
	o.Command = as("rank", "points=3")
	l = begin(t, o)
	l.await("waiting for the ranks of the last start")
	open(t, gate)
	l.ends(rundir.Finished, 0)
	if slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, "restored") }) {
		t.Errorf("%q", l.said)
	}
	exact(t, o, 3)
}

// TestCheckpoint_ReportOvertaken has rank 0's Committed arrive before the Saved
// of other ranks.
func TestCheckpoint_ReportOvertaken(t *testing.T) {
	o := options(t, 3, "late", "points=9")
	begin(t, o).ends(rundir.Finished, 0).says("checkpoint 1 committed: 2.9 KiB of state, 30 B written, paused 1 ms, durable after 2 ms, due")
}

// TestCheckpoint_SavedTwice shows that parts of a checkpoint that was not
// committed do not count in the next attempt, which saves the same checkpoint
// again.
func TestCheckpoint_SavedTwice(t *testing.T) {
	o := options(t, 1, "points=5")
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	s.o.Event = func(e Event) { said = append(said, e.Text) }
	s.pending[1] = &partialCheckpoint{CheckpointState: &control.CheckpointState{Index: 1, State: 1000}, parts: 1}
	if _, err := s.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "checkpoint 1 committed: 1000 B") }) {
		t.Errorf("%q", said)
	}
}

// TestFailureReason_Cleared shows that the reason of the last failure is not
// shown any more when the next attempt runs.
func TestFailureReason_Cleared(t *testing.T) {
	gate := fifo(t)
	o := options(t, 2, "kill:0:7:1", "gate:1:8:"+gate)
	l := begin(t, o)
	l.reaches(1, 8) // in the second attempt
	st, err := client.Read(context.Background(), o.Run)
	if err != nil || st.Why != "" {
		t.Errorf("%+v, %v", st, err)
	}
	l.s.Stop("enough")
	l.await("enough: ranks are to save and stop")
	open(t, gate)
	l.ends(rundir.Stopped, StoppedStatus)
	if rec, err := rundir.ReadRecord(o.Run); err != nil || rec.Why != "enough" {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestRunDir_ReadOnly shows that the error names --run when the run directory
// cannot be made.
func TestRunDir_ReadOnly(t *testing.T) {
	o := options(t, 1)
	dir := filepath.Dir(o.Run)
	if os.Geteuid() == 0 {
		dir = "/sys/cairn" // cannot be created, not even by root
	} else if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	o.Run = filepath.Join(dir, "run")
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "--run DIR") {
		t.Error(err)
	}
}
