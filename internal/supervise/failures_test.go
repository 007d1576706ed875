//go:build linux

package supervise

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
	"golang.org/x/sys/unix"
)

// TestQuarantine_KilledFromOutside shows that a checkpoint is not quarantined
// because ranks are killed from outside.
func TestQuarantine_KilledFromOutside(t *testing.T) {
	o := options(t, 2, "kill:0:13:0")
	o.Quarantine, o.Retries = 1, 2
	l := begin(t, o)
	l.ends(rundir.Failed, 128+9).says("restarting from checkpoint 2")
	if len(l.last.Quarantined) != 0 {
		t.Errorf("put aside: %v", l.last.Quarantined)
	}
}

// TestFailure_NoticedByAnotherRank shows that the user learns which rank was
// killed if another rank, which missed it, ended and was reported first.
func TestFailure_NoticedByAnotherRank(t *testing.T) {
	for _, c := range []struct {
		first failure
		end   control.Exited
		want  string
	}{
		{failure{own: true}, control.Exited{Signal: 9}, "rank 0 on a was killed by signal 9 (SIGKILL), probably before that"},
		{failure{own: true}, control.Exited{Signal: 9, Killed: true}, ""}, // because of the failure
		{failure{own: true}, control.Exited{Code: 1}, ""},
		{failure{}, control.Exited{Signal: 9}, ""},
	} {
		s := &Supervisor{dir: &rundir.Dir{FS: vfs.OS(), Path: t.TempDir()}, rec: new(rundir.Record), history: history{anew: true}, a: &attempt{failure: &c.first}}
		s.exited(&rank{RankState: control.RankState{Host: "a"}}, &c.end)
		told := ""
		for _, e := range s.history.first {
			told += e.Text
		}
		if told != c.want {
			t.Errorf("%+v: %q, want %q", c.end, told, c.want)
		}
	}
}

// TestQuarantine_LastCheckpoint shows that the last usable checkpoint is never
// quarantined.
func TestQuarantine_LastCheckpoint(t *testing.T) {
	o := options(t, 1, "kill:0:13:1", "poison:1", "poison:2")
	o.Quarantine, o.Retries = 1, 3
	l := begin(t, o)
	l.ends(rundir.Failed, 1).says("checkpoint 2 quarantined", "checkpoint 1: 1 attempts from it failed", "the newest is tried again")
	if !slices.Equal(l.last.Quarantined, []uint64{2}) { // once more from the newest checkpoint
		t.Errorf("put aside: %v", l.last.Quarantined)
	}
	// Without quarantine, the list is cleared.
	o.Quarantine, o.Retries = -1, -1
	begin(t, o).ends(rundir.Failed, 1)
	if rec, err := rundir.ReadRecord(o.Run); err != nil || len(rec.Quarantined) != 0 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestQuarantine_RestoreFails shows that a failure during the restore counts
// against the checkpoint that is being restored.
func TestQuarantine_RestoreFails(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:13:"+gate, "kill:0:13:1")
	o.Quarantine = 2
	dir := filepath.Join(o.Run, "ckpt", "ckpt-00000007")
	l := begin(t, o)
	l.reaches(0, 13)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "rank-0000.h5"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, gate)
	l.await("restored checkpoint")
	open(t, gate)
	l.ends(rundir.Finished, 0).says("checkpoint 7 quarantined: 2 attempts", "restored checkpoint 2")
	exact(t, o, 20)
}

// TestRank_ChildrenEnd shows that children of a rank do not outlive a failed
// launch.
func TestRank_ChildrenEnd(t *testing.T) {
	o := options(t, 1)
	dir := t.TempDir()
	o.Retries = -1
	o.Command = []string{"sh", "-c", "sleep 1000 & echo $! > " + dir + "/pid; exit 3"}
	begin(t, o).ends(rundir.Failed, 3)
	gone(t, dir)
}

// gone checks that the process in the file pid has ended.
func gone(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	fmt.Sscan(string(text), &pid)
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
		syscall.Kill(pid, syscall.SIGKILL)
		t.Error("it still runs")
	}
}

// TestRank_Wrapper has a shell around the program: PDEATHSIG reaches only the
// shell.
func TestRank_Wrapper(t *testing.T) {
	o := options(t, 1)
	dir := t.TempDir()
	o.Command = []string{"sh", "-c", "if test -e " + dir + "/pid; then exit; fi; sleep 1000 & echo $! > " + dir + "/new; mv " + dir + "/new " + dir + "/pid; echo here; wait"}
	seen := make(chan bool, 1)
	o.Line = func(_, _ int, _ []byte, done func(bool)) { seen <- true; done(true) }
	l := begin(t, o)
	<-seen
	var rank int
	l.until(func() bool {
		if len(l.last.Ranks) > 0 {
			rank = l.last.Ranks[0].Pid
		}
		return rank != 0
	})
	syscall.Kill(parent(t, rank), syscall.SIGKILL)
	l.ends(rundir.Finished, 0).says("lost host localhost")
	gone(t, dir)
}

// TestHost_EarlierHelperRuns shows that ranks are not started elsewhere while
// an earlier helper has the host.
func TestHost_EarlierHelperRuns(t *testing.T) {
	o := options(t, 1, "points=3")
	dir, rsh := shell(t)
	o.Hosts, o.RemoteShell = []Host{{"a", 1}, {"b", 1}}, rsh
	// The host is locked after the supervisor has looked for earlier helpers.
	script(t, filepath.Join(dir, "remote"), `host=$1; shift
if test $host = a && ! test -e `+dir+`/taken; then
	: > `+dir+`/taken
	cat `+dir+`/go > /dev/null
fi
exec "$@"`)
	if err := syscall.Mkfifo(filepath.Join(dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := begin(t, o)
	hold, err := os.OpenFile(filepath.Join(dir, "go"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock, _, err := rundir.TryLock(rundir.HostLock(o.Run, "a"))
	if err != nil {
		t.Fatal(err)
	}
	hold.Close()
	l.await("waiting for the ranks of the last start on a to save and stop")
	if st, err := client.Read(context.Background(), o.Run); err != nil || st.State != rundir.Starting {
		t.Errorf("%+v, %v", st, err)
	}
	lock.Close()
	l.ends(rundir.Finished, 0).says("started: 1 rank on a:1")
	exact(t, o, 3)
}

// TestOutput_BlockedScreen shows that a blocked screen delays neither status
// nor stop.
func TestOutput_BlockedScreen(t *testing.T) {
	o := options(t, 1)
	o.Command = []string{"sh", "-c", "echo a; echo b; exec sleep 1000"}
	seen, hold := make(chan bool, 9), make(chan bool)
	defer close(hold)
	o.Line = func(int, int, []byte, func(bool)) { seen <- true; <-hold }
	l := begin(t, o)
	<-seen
	if st, err := client.Read(ctxTimeout(t, 20*time.Second), o.Run); err != nil || st.State != rundir.Running {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err := client.Stop(ctxTimeout(t, time.Minute), o.Run, ""); err != nil || st.State != rundir.Stopped {
		t.Errorf("%+v, %v", st, err)
	}
	l.ends(rundir.Stopped, StoppedStatus)
}

// TestOutput_Repeated has a rank that prints something else after a restart.
// What was shown cannot be taken back, and the user is told so.
func TestOutput_Repeated(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1)
	o.Command = []string{"sh", "-c", `if [ -e mark ]; then echo second; else echo first; : >mark; cat "$0"; kill -9 $$; fi`, gate}
	seen := make(chan string, 9)
	o.Line = func(_, stream int, line []byte, done func(bool)) {
		if stream == control.Stdout {
			seen <- string(line)
		}
		done(true)
	}
	t.Chdir(t.TempDir())
	l := begin(t, o)
	if line := <-seen; line != "first" {
		t.Errorf("shown: %q", line)
	}
	open(t, gate)
	l.ends(rundir.Finished, 0).says("WARNING: rank 0 did not print the same after a restart", "finished")
	if line := <-seen; line != "second" {
		t.Errorf("shown: %q", line)
	}
	if text, err := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), 0, control.Stdout)); string(text) != "second\n" {
		t.Errorf("the rank's file has %q, %v", text, err)
	}
}

// TestOutput_Delayed has ranks that print something else after each restart.
// Delayed output has each line once, as the ranks' files have.
func TestOutput_Delayed(t *testing.T) {
	for _, v := range []struct {
		name    string
		state   string
		args    []string
		want    string // what rank 0 has printed: "1-10:1" are its lines 1 to 10, in attempt 1
		damaged bool   // a checkpoint is, so lines were shown that count no more
	}{
		{"killed", rundir.Finished, []string{"kill:1:13:1", "kill:0:17:2"}, "1-10:1 11-15:2 16-20:3", false},
		{"killed before the first checkpoint", rundir.Finished, []string{"kill:1:4:1"}, "1-20:2", false},
		{"late reports", rundir.Finished, []string{"late", "kill:1:13:1"}, "1-10:1 11-20:2", false},
		{"given up", rundir.Failed, []string{"exit:0:13:0"}, "1-10:1 11-12:3", false},
		{"damaged checkpoint", rundir.Finished, []string{"kill:0:13:1", "poison:2"}, "", true},
	} {
		t.Run(v.name, func(t *testing.T) {
			o := options(t, 2, append([]string{"differs"}, v.args...)...)
			o.Delay, o.Retries = true, 2
			if v.damaged {
				o.Retries, o.Quarantine = 5, 1
			}
			screens := make([]strings.Builder, 2)
			o.Line = func(rank, stream int, line []byte, done func(bool)) {
				if stream == control.Stdout {
					fmt.Fprintf(&screens[rank], "%s\n", line)
				}
				done(true)
			}
			l := begin(t, o)
			status := 0
			if v.state == rundir.Failed {
				status = 3
			}
			log := l.ends(v.state, status)
			if v.damaged {
				log.says("WARNING: rank 0 did not print the same after a restart")
				return
			}
			want := "a line before anything is restored\n"
			for part := range strings.FieldsSeq(v.want) {
				var from, to, attempt int
				if _, err := fmt.Sscanf(part, "%d-%d:%d", &from, &to, &attempt); err != nil {
					t.Fatal(err)
				}
				for p := from; p <= to; p++ {
					want += fmt.Sprintf("rank 0 point %d of attempt %d\n", p, attempt)
				}
			}
			if got := screens[0].String(); got != want {
				t.Errorf("shown:\n%swant:\n%s", got, want)
			}
			for r := range screens {
				if text, err := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), r, control.Stdout)); string(text) != screens[r].String() {
					t.Errorf("rank %d: shown:\n%sin its file (%v):\n%s", r, screens[r].String(), err, text)
				}
			}
		})
	}
}

// TestOutput_PipeWithoutReader shows that a named pipe that nobody reads is
// refused, rather than waited for.
func TestOutput_PipeWithoutReader(t *testing.T) {
	o := options(t, 1)
	o.Out = fifo(t)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "start its reader first") {
		t.Error(err)
	}
}

// TestControlSocket_ManyCallers has more waiting commands than allowed. Status
// must still be answered. The requests go through a helper to the rank, and no
// event shows that the rank has received them. After the gate is opened, the
// rank may pass many points before that. So it has points without end, and is
// stopped when all requests are answered.
func TestControlSocket_ManyCallers(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:3:"+gate, "every=1000000000", "points=1000000000")
	l := begin(t, o)
	l.reaches(0, 3)
	answers := make(chan error, 2*maxWaiting)
	for range 2 * maxWaiting {
		go func() {
			_, err := client.Checkpoint(context.Background(), o.Run, "")
			answers <- err
		}()
	}
	for range maxWaiting {
		if err := <-answers; err == nil || !strings.Contains(err.Error(), "others wait for a checkpoint") {
			t.Error(err)
		}
	}
	if st, err := client.Read(context.Background(), o.Run); err != nil || st.State != rundir.Running {
		t.Errorf("%+v, %v", st, err)
	}
	open(t, gate)
	for range maxWaiting {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if st, err := client.Stop(ctxTimeout(t, time.Minute), o.Run, ""); err != nil || st.State != rundir.Stopped {
		t.Errorf("%+v, %v", st, err)
	}
	l.ends(rundir.Stopped, StoppedStatus)
}

// TestClient_SilentSupervisor stops a supervisor with a signal: its record is
// used instead. When it continues, its helper and its ranks still exist.
func TestClient_SilentSupervisor(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:8:"+gate)
	p := startSupervisor(t, o)
	p.await("rank 0 at point 8")
	// On a machine with many processes somebody else may continue it.
	for stopped := false; !stopped; {
		p.cmd.Process.Signal(syscall.SIGSTOP)
		if err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED, nil); err != nil {
			t.Fatal(err)
		}
		st, err := client.Read(context.Background(), o.Run)
		var continued unix.Siginfo
		if e := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &continued, unix.WCONTINUED|unix.WNOHANG, nil); e != nil {
			t.Fatal(e)
		}
		if stopped = continued.Signo == 0; !stopped {
			t.Log("the supervisor was continued")
		} else if err != nil || st.State != rundir.Silent || !strings.Contains(st.Why, fmt.Sprint(p.cmd.Process.Pid)) || st.Last == nil {
			t.Errorf("%+v, %v", st, err)
		}
	}
	p.cmd.Process.Signal(syscall.SIGCONT)
	open(t, gate)
	p.await("finished")
}

// TestHost_SilenceCountsChecks shows that checks are counted, not time.
func TestHost_SilenceCountsChecks(t *testing.T) {
	o := options(t, 1, "hang:0:3:1")
	l := begin(t, o)
	l.reaches(0, 3)
	rank := l.pid(0, 1)
	helperPid := parent(t, rank)
	ended := awaitEnd(t, rank)
	syscall.Kill(helperPid, syscall.SIGSTOP)
	for range int(hostSilence/helper.PingEvery) + 2 {
		l.s.post(l.s.look)
	}
	l.await("nothing was heard from it")
	ended() // it died with its helper, which was killed
	l.ends(rundir.Finished, 0)
}

// TestCheckpoint_Unsaved shows that a failure to save is reported once, and so
// is the next success.
func TestCheckpoint_Unsaved(t *testing.T) {
	l := begin(t, options(t, 2, "full=3")).ends(rundir.Finished, 0).says("checkpoint 1 was not saved: ", "no space left on device", "checkpoint 4 committed: ", "; checkpoints succeed again, after 3 failures")
	n := 0
	for _, s := range l.said {
		if strings.Contains(s, "not saved") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("told %d times: %q", n, l.said)
	}
}
