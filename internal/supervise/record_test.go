//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/supervise/scheduler"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// recorded is a run on a file system in memory, as a supervisor writes it.
type recorded struct {
	t    *testing.T
	disk *vfstest.Mem
	fs   vfs.FS
}

const crashRun = "/cairn-test/run" // it does not exist on the real file system

func newRecorded(t *testing.T, before func(op, name string) error) *recorded {
	disk := vfstest.NewMem()
	for _, dir := range []string{"/cairn-test", crashRun, crashRun + "/ckpt"} {
		if err := disk.Mkdir(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"/", "/cairn-test", crashRun} {
		if err := disk.SyncDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	return &recorded{t, disk, vfstest.Hook(disk, before)}
}

// adopts returns what a start decides.
func adopts(fsys vfs.FS, fresh bool) (*Supervisor, error) {
	d := &rundir.Dir{FS: fsys, Path: crashRun, Cwd: "/cairn-test"}
	in, err := d.Claim([]string{"/cairn-test/sim", "-x"}, 1, d.File("ckpt"), "", d.File("output"), fresh, scheduler.Job{})
	if err != nil {
		return nil, err
	}
	return &Supervisor{dir: d, rec: in.Record, intent: in, commits: commits{last: in.Record.Last}}, nil
}

// checkpoint creates a checkpoint and the journal of files, durably.
func (r *recorded) checkpoint() {
	for _, name := range []string{"lock", "ckpt-00000001/rank-0000.h5", "journal.json"} {
		path := filepath.Join(crashRun, "ckpt", name)
		if strings.Contains(name, "/") {
			if err := r.disk.Mkdir(filepath.Dir(path)); err != nil {
				r.t.Fatal(err)
			}
		}
		if err := vfs.Replace(r.disk, path, []byte(name)); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.disk.SyncDir(crashRun + "/ckpt"); err != nil {
		r.t.Fatal(err)
	}
}

// whole reports whether everything that checkpoint created exists.
func whole(fsys vfs.FS) bool {
	for _, name := range []string{"lock", "ckpt-00000001/rank-0000.h5", "journal.json"} {
		if _, err := fsys.Stat(filepath.Join(crashRun, "ckpt", name)); err != nil {
			return false
		}
	}
	return true
}

// TestRecord_CrashAtEveryOperation cuts the power before every operation in the
// life of a record. After each cut, the next start must decide correctly: it
// resumes a run with all of its checkpoints, completes the end of a run that
// was recorded as finishing, and begins a new one only after that, or if
// nothing was recorded.
func TestRecord_CrashAtEveryOperation(t *testing.T) {
	const (
		nothing = iota
		started
		committed
		finishing
		finished
		freshly
	)
	var disk *vfstest.Mem
	phase, n := nothing, 0
	check := func(fsys vfs.FS, phase int) error {
		s, err := adopts(fsys, false)
		if err != nil {
			return err
		}
		in, rec := s.intent, s.rec
		switch {
		case phase == nothing && in.New:
			return nil
		case in.New && phase == freshly && len(rec.Clear) == 0:
			if there, err := store.Holds(fsys, crashRun+"/ckpt"); err != nil || there {
				return fmt.Errorf("a new run begins with what an earlier one has left (%v)", err)
			}
			return nil
		case in.New && phase < finishing:
			return errors.New("a new run begins, and the earlier one has not finished")
		case in.New && len(rec.Clear) == 0:
			return errors.New("a new run begins, and what an earlier one has left is not discarded")
		case in.New:
			return nil
		case in.Finish:
			if rec.Status != 7 || phase < committed || phase > finishing {
				return fmt.Errorf("the end of a run with status %d is completed in phase %d", rec.Status, phase)
			}
			return nil
		case rec.Attempt == 0 && phase >= finished: // a new run, which has started nothing yet
			if there, err := store.Holds(fsys, crashRun+"/ckpt"); err != nil || there {
				return fmt.Errorf("a new run was recorded, and something of the earlier one is there (%v)", err)
			}
			return nil
		case phase >= finishing && phase != freshly:
			return errors.New("a run that has finished is started again")
		case phase >= committed && !whole(fsys):
			return errors.New("the run continues without its checkpoint")
		}
		return nil
	}
	r := newRecorded(t, func(op, name string) error {
		n++
		for _, l := range []vfstest.Loss{vfstest.LoseAll, vfstest.LoseData, vfstest.Torn} {
			if err := check(disk.Crash(l), phase); err != nil {
				t.Errorf("crash %d in phase %d, before %s %s, loss %v: %v", n, phase, op, name, l, err)
			}
		}
		return nil
	})
	disk = r.disk
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	life := func(s *Supervisor, end bool) {
		t.Helper()
		must(s.take())
		phase = started
		s.rec.State, s.rec.Attempt = rundir.Running, 1
		must(s.record())
		r.checkpoint()
		s.last = &control.CheckpointState{Index: 1}
		must(s.record())
		phase = committed
		if !end {
			return
		}
		must(s.recordFinishing(7, true))
		phase = finishing
		must(store.Clear(s.dir.FS, s.rec.CheckpointDir))
		s.rec.State = rundir.Finished
		must(s.record())
		phase = finished
	}
	s, err := adopts(r.fs, false)
	must(err)
	life(s, true)
	if s, err = adopts(r.fs, false); err != nil || !s.intent.New || !strings.Contains(s.intent.Note, "has finished with status 7") {
		t.Fatalf("%+v, %v", s, err)
	}
	life(s, false)
	phase = freshly
	s, err = adopts(r.fs, true)
	must(err)
	must(s.take())
	phase = started
	if n < 60 {
		t.Fatalf("only %d operations", n)
	}
}

// TestRecord_WriteFails makes every operation that writes the record fail. The
// error must be reported, and the earlier record must stay valid.
func TestRecord_WriteFails(t *testing.T) {
	for i := 0; ; i++ {
		n := -1 // not counted
		r := newRecorded(t, func(op, name string) error {
			if n < 0 {
				return nil
			}
			if n++; n == i+1 {
				return errors.New("injected fault")
			}
			return nil
		})
		s, err := adopts(r.fs, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.take(); err != nil {
			t.Fatal(err)
		}
		r.checkpoint()
		s.last = &control.CheckpointState{Index: 1}
		s.rec.State, s.rec.Attempt = rundir.Running, 1
		if err := s.record(); err != nil {
			t.Fatal(err)
		}
		n = 0
		err = s.recordFinishing(7, true)
		next, nerr := adopts(r.disk, false)
		if nerr != nil || next.intent.New || err == nil && !next.intent.Finish {
			t.Fatalf("operation %d failed (%v); the next start: %+v, %v", i, err, next, nerr)
		}
		if n <= i {
			if i < 10 {
				t.Fatalf("only %d operations", i)
			}
			return
		}
	}
}

// interruptedRun makes a run that was killed when it had checkpoint 1.
func interruptedRun(t *testing.T, o Options) {
	t.Helper()
	gate := ""
	for _, a := range o.Command {
		if _, path, ok := strings.Cut(a, "gate:0:8:"); ok {
			gate = path
		}
	}
	p := startSupervisor(t, o)
	p.await("rank 0 at point 8")
	p.cmd.Process.Kill()
	p.cmd.Wait()
	open(t, gate) // its ranks save and stop
	free := &rundir.Dir{FS: vfs.OS(), Path: o.Run}
	if err := free.AwaitHelpers(context.Background(), func(string, string) {}); err != nil {
		t.Fatal(err)
	}
}

// TestRecord_Damaged damages the record's files in all ways. The run must
// resume from its checkpoint, and report what was wrong. Without a checkpoint
// it must be refused.
func TestRecord_Damaged(t *testing.T) {
	empty := func(name string) error { return os.Truncate(name, 0) }
	flip := func(name string) error {
		text, err := os.ReadFile(name)
		if err == nil {
			text[len(text)/2] ^= 1
			err = os.WriteFile(name, text, 0o600)
		}
		return err
	}
	older := func(name string) error { // the first one that was written
		text, err := os.ReadFile(filepath.Dir(name) + "/older")
		if err == nil {
			err = os.WriteFile(name, text, 0o600)
		}
		return err
	}
	for _, c := range []struct {
		name string
		run  func(string) error
		copy func(string) error
		say  string
	}{
		{"empty", empty, nil, "it is empty; the other file of the record is used"},
		{"flipped", flip, nil, "its digest differs; the other file"},
		{"removed", os.Remove, nil, "run.json is missing; the other file"},
		{"copy empty", nil, empty, "run-copy.json: the record is damaged: it is empty"},
		{"both empty", empty, empty, "the record was made anew from checkpoint "},
		{"both flipped", flip, flip, "the record was made anew from checkpoint "},
		{"both removed", os.Remove, os.Remove, "run.json is missing, but"},
		{"older", older, nil, "run.json is an older one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := fifo(t)
			o := options(t, 1, "gate:0:8:"+gate)
			s, err := New(o) // it ends at once
			if err != nil {
				t.Fatal(err)
			}
			if err := s.take(); err != nil {
				t.Fatal(err)
			}
			s.dir.Close()
			first, err := os.ReadFile(filepath.Join(o.Run, rundir.RecordName))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(o.Run, "older"), first, 0o600); err != nil {
				t.Fatal(err)
			}
			interruptedRun(t, o)
			for name, f := range map[string]func(string) error{rundir.RecordName: c.run, rundir.CopyName: c.copy} {
				if f != nil {
					if err := f(filepath.Join(o.Run, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			begin(t, o).ends(rundir.Finished, 0).says(c.say, "restored checkpoint ")
			exact(t, o, 20)
		})
	}
	t.Run("no checkpoint", func(t *testing.T) {
		o := options(t, 1, "points=3", "kill:0:2:0")
		o.Retries = -1
		begin(t, o).ends(rundir.Failed, 128+9)
		for _, name := range []string{rundir.RecordName, rundir.CopyName} {
			if err := empty(filepath.Join(o.Run, name)); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), 0, 1))
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "--fresh") || strings.Contains(err.Error(), "remove") {
			t.Errorf("started: %v", err)
		}
		if after, _ := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), 0, 1)); string(after) != string(before) || len(before) == 0 {
			t.Errorf("output was %q and is %q", before, after)
		}
		o.Fresh = true
		begin(t, o).ends(rundir.Failed, 128+9)
	})
}

// TestClaim_CheckpointsVanished shows that a run is refused if its checkpoints
// do not exist now, and that nothing of it is changed.
func TestClaim_CheckpointsVanished(t *testing.T) {
	for _, c := range []struct {
		name string
		dir  bool // --dir
		how  func(t *testing.T, checkpointDir string)
	}{
		{"moved away", false, func(t *testing.T, checkpointDir string) {
			if err := os.Rename(checkpointDir, checkpointDir+".away"); err != nil {
				t.Fatal(err)
			}
		}},
		{"not mounted", true, func(t *testing.T, checkpointDir string) {
			if err := errors.Join(os.Rename(checkpointDir, checkpointDir+".away"), os.Mkdir(checkpointDir, 0o700)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		for _, points := range []string{"every=5", "every=100"} { // with a checkpoint, and with none yet
			t.Run(c.name+" "+points, func(t *testing.T) {
				o := options(t, 1, "points=20", points, "kill:0:8:1")
				o.Retries = -1
				checkpointDir := filepath.Join(o.Run, "ckpt")
				if c.dir {
					o.Dir = filepath.Join(t.TempDir(), "ck")
					checkpointDir = o.Dir
				}
				begin(t, o).ends(rundir.Failed, 128+9)
				before, _ := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), 0, 1))
				c.how(t, checkpointDir)
				if _, err := New(o); err == nil || !strings.Contains(err.Error(), checkpointDir) || !strings.Contains(err.Error(), "mounted") {
					t.Fatalf("started: %v", err)
				}
				if after, _ := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), 0, 1)); string(after) != string(before) || len(before) == 0 {
					t.Errorf("output was %q and is %q", before, after)
				}
				if err := errors.Join(os.RemoveAll(checkpointDir), os.Rename(checkpointDir+".away", checkpointDir)); err != nil {
					t.Fatal(err)
				}
				begin(t, o).ends(rundir.Finished, 0)
				exact(t, o, 20)
			})
		}
	}
}

// TestRecord_RunMoved moves, copies and links the directory of an interrupted
// run, which must continue in the other place.
func TestRecord_RunMoved(t *testing.T) {
	for _, how := range []string{"moved", "moved with --dir", "copied", "linked"} {
		t.Run(how, func(t *testing.T) {
			t.Chdir(t.TempDir())
			old, now := "a", "b"
			if err := os.Mkdir(old, 0o700); err != nil {
				t.Fatal(err)
			}
			in := func(dir string) Options {
				t.Chdir(dir)
				o := options(t, 1, "points=20", "kill:0:8:1")
				o.Retries, o.Run = -1, "run"
				if how == "moved with --dir" {
					o.Dir = "ck"
				}
				return o
			}
			top, _ := os.Getwd()
			begin(t, in(filepath.Join(top, old))).ends(rundir.Failed, 128+9)
			t.Chdir(top)
			var err error
			switch how {
			case "copied":
				err = errors.Join(os.Remove(filepath.Join(old, "run", rundir.SocketName)), // CopyFS cannot copy it
					os.CopyFS(now, os.DirFS(old)), os.RemoveAll(filepath.Join(old, "run", "ckpt")))
			case "linked":
				err = os.Symlink(old, now)
			default:
				err = os.Rename(old, now)
			}
			if err != nil {
				t.Fatal(err)
			}
			o := in(filepath.Join(top, now))
			if st, err := client.Read(context.Background(), o.Run); err != nil || st.Last == nil || st.State != rundir.Failed {
				t.Errorf("%+v, %v", st, err)
			}
			begin(t, o).ends(rundir.Finished, 0).says("restored checkpoint 1")
			o.Ranks = 1
			exact(t, o, 20)
		})
	}
}

// TestFinish_SupervisorKilled kills the supervisor at each step of the end of a
// run. The same command must complete the end and return the ranks' status.
// After the end was recorded, it must not start the ranks again.
func TestFinish_SupervisorKilled(t *testing.T) {
	for _, step := range []string{"finish.begin", "finish.recorded", "finish.output", "finish.discarded", "finish.shown"} {
		for _, program := range []string{"cairn", "other"} {
			t.Run(step+" "+program, func(t *testing.T) {
				o := options(t, 2, "status=5")
				starts := filepath.Join(t.TempDir(), "starts")
				if program == "other" {
					o.Command = []string{"sh", "-c", "echo start >> " + starts + "; echo rank $CAIRN_RANK"}
				}
				o.Out = filepath.Join(t.TempDir(), "out")
				t.Setenv("CAIRN_STEP", step+"=kill")
				p := startSupervisor(t, o)
				for range p.said {
				}
				p.cmd.Wait()
				if ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ws.Signaled() {
					t.Fatalf("the supervisor was not killed: %v", p.cmd.ProcessState)
				}
				os.Unsetenv("CAIRN_STEP")
				status, want := 5, expected(0, 20)+expected(1, 20)
				if program == "other" {
					status, want = 0, "rank 0\nrank 1\n"
				}
				l := begin(t, o).ends(rundir.Finished, status)
				if got, _ := os.ReadFile(o.Out); string(got) != want {
					t.Errorf("the output is %q, not %q", got, want)
				}
				switch step {
				case "finish.begin": // the ranks are started again, from their last checkpoint
				default:
					l.says("they are not started again")
					if text, _ := os.ReadFile(starts); program == "other" && strings.Count(string(text), "start") != 2 {
						t.Errorf("the ranks were started again: %q", text)
					}
					if rec, err := rundir.ReadRecord(o.Run); err != nil || rec.Attempt != 1 || rec.State != rundir.Finished {
						t.Errorf("%+v, %v", rec, err)
					}
				}
				if program == "cairn" {
					if there, err := store.Holds(vfs.OS(), filepath.Join(o.Run, "ckpt")); err != nil || there {
						t.Errorf("checkpoints are left (%v)", err)
					}
				}
			})
		}
	}
}

// TestFresh_SupervisorKilled kills the supervisor while it discards an earlier
// run. The next start must complete that, without being asked again.
func TestFresh_SupervisorKilled(t *testing.T) {
	for _, step := range []string{"start.clearing", "start.cleared", "start.recorded", "start.begin"} {
		t.Run(step, func(t *testing.T) {
			o := options(t, 1, "points=20", "kill:0:8:1")
			o.Retries = -1
			begin(t, o).ends(rundir.Failed, 128+9)
			o.Command, o.Fresh = as("rank", "points=3"), true
			t.Setenv("CAIRN_STEP", step+"=kill")
			p := startSupervisor(t, o)
			for range p.said {
			}
			p.cmd.Wait()
			os.Unsetenv("CAIRN_STEP")
			o.Fresh = false
			l := begin(t, o).ends(rundir.Finished, 0)
			if slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, "restored") }) {
				t.Errorf("%q", l.said)
			}
			exact(t, o, 3)
		})
	}
}

// TestFinish_OutputFull has no room for the file of -o when the ranks have
// finished. The run stays in that state. When there is room, the same command
// must write the output without starting the ranks again.
func TestFinish_OutputFull(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("a small file system cannot be mounted here (it takes root): %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(mount, syscall.MNT_DETACH) })
	fill := filepath.Join(mount, "fill")
	if err := os.WriteFile(fill, make([]byte, 64<<10), 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	o := options(t, 2, "status=5")
	o.Out = filepath.Join(mount, "out")
	for range 2 {
		begin(t, o).ends(rundir.Finishing, UnsavedStatus).says("could not be put together", "no space left on device")
		if st, err := client.Read(context.Background(), o.Run); err != nil || st.State != rundir.Finishing || st.Attempt != 1 {
			t.Errorf("%+v, %v", st, err)
		}
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if l := begin(t, o).ends(rundir.Finished, 5); l.last.Attempt != 1 {
		t.Errorf("%d starts", l.last.Attempt)
	}
	if got, _ := os.ReadFile(o.Out); string(got) != expected(0, 20)+expected(1, 20) {
		t.Errorf("the output is %q", got)
	}
}

// TestStop_Unsaved shows that a stop whose checkpoint fails reports that the
// work since the last one is lost, with its own exit status. Before that,
// status shows that checkpoints fail.
func TestStop_Unsaved(t *testing.T) {
	gate := fifo(t)
	o := options(t, 2, "gate:1:8:"+gate, "full=9")
	l := begin(t, o)
	l.reaches(1, 8)
	st, err := client.Read(context.Background(), o.Run)
	if err != nil || st.Unsaved == nil || st.Unsaved.Count != 1 || st.Unsaved.Since.IsZero() || !strings.Contains(st.Unsaved.Why, "no space left") {
		t.Errorf("%+v, %v", st, err)
	}
	l.s.Stop("enough")
	l.await("enough: ranks are to save and stop")
	open(t, gate)
	l.ends(rundir.Stopped, UnsavedStatus).says("the state could NOT be saved, and the work since the beginning is lost")
	if st, err := client.Read(context.Background(), o.Run); err != nil || st.Unsaved == nil || !st.Unsaved.Lost {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestRecord_CheckpointsMoved shows that checkpoints which were moved are found
// in the directory that the user names, and that those of another run are not
// used.
func TestRecord_CheckpointsMoved(t *testing.T) {
	first := func() Options {
		o := options(t, 1, "points=20", "kill:0:8:1")
		o.Retries, o.Dir = -1, filepath.Join(t.TempDir(), "ck")
		begin(t, o).ends(rundir.Failed, 128+9)
		return o
	}
	o, other := first(), first()
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(o.Dir, away); err != nil {
		t.Fatal(err)
	}
	was := o.Dir
	o.Dir = other.Dir
	if _, err := New(o); !errors.Is(err, rundir.ErrDiffers) {
		t.Errorf("another directory: %v", err)
	}
	o.Dir = was
	if err := os.CopyFS(was, os.DirFS(other.Dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "of another run") {
		t.Errorf("another run's checkpoints: %v", err)
	}
	if err := os.RemoveAll(was); err != nil {
		t.Fatal(err)
	}
	o.Dir = away
	begin(t, o).ends(rundir.Finished, 0).says("restored checkpoint 1")
	exact(t, o, 20)
}
