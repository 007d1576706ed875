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

// A program that forgets to say that it has finished leaves its checkpoints: the next
// start begins anew all the same.
func TestFinish_Forgotten(t *testing.T) {
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

// What can never succeed is not tried ten times.
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
	// Killed is another matter, and so is a failure after a point.
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

// The directory of a run that has no checkpoint is free for another command.
func TestClaim_Worthless(t *testing.T) {
	o := options(t, 2, "refuse")
	begin(t, o).ends(rundir.Failed, 2)
	part := filepath.Join(o.Run, "ckpt", "ckpt-00000001", "rank-0000.h5")
	if err := os.MkdirAll(filepath.Dir(part), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(part, []byte("of one rank only"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.Command, o.Ranks = as("rank"), 1 // of whom that would be a complete checkpoint
	l := begin(t, o).ends(rundir.Finished, 0)
	if slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, "restored") }) {
		t.Errorf("%q", l.said)
	}
	exact(t, o, 20)
}

// What could be lost is not replaced: a complete checkpoint, a recovery line, a helper
// that may be saving one, and any checkpoint in a directory that is not the run's own.
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

// Checkpoints of a run to be discarded may still be on their way: they are discarded
// when its last helper has ended, and not at all if the user thinks better of
// it.
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

// Rank 0's word that a checkpoint is committed overtakes what others tell of it.
func TestCheckpoint_ReportOvertaken(t *testing.T) {
	o := options(t, 3, "late", "points=9")
	begin(t, o).ends(rundir.Finished, 0).says("checkpoint 1 committed: 2.9 KiB, 30 B written, paused 1 ms, durable after 2 ms, due")
}

// What an attempt saved of a checkpoint that was not committed counts no more in the
// next one, which takes the same set again.
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

// Why the last start failed is no reason any more when the next one runs.
func TestWhy_Cleared(t *testing.T) {
	gate := fifo(t)
	o := options(t, 2, "kill:0:7:1", "gate:1:8:"+gate)
	l := begin(t, o)
	l.reaches(1, 8) // in the second start
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

func TestRunDir_ReadOnly(t *testing.T) {
	o := options(t, 1)
	dir := filepath.Dir(o.Run)
	if os.Geteuid() == 0 {
		dir = "/sys/cairn" // not even for root
	} else if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	o.Run = filepath.Join(dir, "run")
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "--run DIR") {
		t.Error(err)
	}
}
