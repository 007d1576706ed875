//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// live is a run under test.
type live struct {
	t    *testing.T
	s    *Supervisor
	o    Options
	kill context.CancelFunc
	mu   sync.Mutex
	some sync.Cond
	said []string
	seen []string // events, and lines as in out, in the order in which they came
	last control.RunState
	out  strings.Builder
	done bool
	res  Result
	err  error
}

// options returns options for a run of the fake program.
func options(t *testing.T, n int, args ...string) Options {
	dir := t.TempDir()
	return Options{Command: as("rank", args...), Ranks: n, Helper: as("helper"), Run: filepath.Join(dir, "run"), Grace: 20 * time.Second}
}

func begin(t *testing.T, o Options) *live {
	t.Helper()
	l := &live{t: t, o: o}
	l.some.L = &l.mu
	o.Event = func(e Event) {
		l.mu.Lock()
		if e.Text != "" {
			l.said, l.seen = append(l.said, e.Text), append(l.seen, e.Text)
		}
		l.last = e.Run
		l.some.Broadcast()
		l.mu.Unlock()
	}
	if o.Line == nil {
		o.Line = func(rank, stream int, line []byte, done func(bool)) {
			l.mu.Lock()
			fmt.Fprintf(&l.out, "[%d.%d] %s\n", rank, stream, line)
			l.seen = append(l.seen, fmt.Sprintf("[%d.%d] %s", rank, stream, line))
			l.mu.Unlock()
			done(true)
		}
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l.s = s
	ctx, cancel := context.WithCancel(context.Background())
	l.kill = cancel
	go func() {
		res, err := s.Run(ctx)
		l.mu.Lock()
		l.res, l.err, l.done = res, err, true
		l.some.Broadcast()
		l.mu.Unlock()
	}()
	t.Cleanup(func() {
		cancel()
		l.until(func() bool { return l.done })
		if t.Failed() {
			for _, s := range l.said {
				t.Log(s)
			}
			for line := range strings.Lines(l.out.String()) {
				if strings.Contains(line, ".2] ") { // stderr
					t.Log(line)
				}
			}
		}
	})
	return l
}

func (l *live) until(cond func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !cond() {
		l.some.Wait()
	}
}

// await waits for an event.
func (l *live) await(text string) {
	l.t.Helper()
	found := false
	l.until(func() bool {
		found = slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, text) })
		return found || l.done
	})
	if !found {
		l.t.Fatalf("the run ended (%+v, %v) without %q: %q", l.res, l.err, text, l.said)
	}
}

// ends waits for the end and checks the state and the status.
func (l *live) ends(state string, status int) *live {
	l.t.Helper()
	l.until(func() bool { return l.done })
	if l.err != nil || l.res.State != state || l.res.Status != status {
		l.t.Fatalf("the run ended as %+v, %v; want %s, %d", l.res, l.err, state, status)
	}
	return l
}

// says checks that all of these events came.
func (l *live) says(texts ...string) *live {
	l.t.Helper()
	for _, text := range texts {
		if !slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, text) }) {
			l.t.Errorf("no event says %q: %q", text, l.said)
		}
	}
	return l
}

// once checks that there is an event with exactly this text, and no other one
// about the same.
func (l *live) once(text string) *live {
	l.t.Helper()
	if !slices.Equal(l.said, []string{text}) {
		l.t.Errorf("said %q, want only %q", l.said, text)
	}
	return l
}

// pid waits until a rank of that attempt runs and returns its process.
func (l *live) pid(rank, attempt int) (pid int) {
	l.t.Helper()
	l.until(func() bool {
		if l.last.Attempt == attempt && len(l.last.Ranks) > rank && l.last.Ranks[rank].Cairn {
			pid = l.last.Ranks[rank].Pid
		}
		return pid != 0 || l.done
	})
	if pid == 0 {
		l.t.Fatal("the run has ended")
	}
	return pid
}

// reaches waits until a rank has reached a point.
func (l *live) reaches(rank int, point uint64) {
	l.t.Helper()
	l.until(func() bool {
		return l.done || len(l.last.Ranks) > rank && l.last.Ranks[rank].Points == point
	})
	if l.done {
		l.t.Fatal("the run has ended")
	}
}

// exact checks the output files of a finished run.
func exact(t *testing.T, o Options, points int) {
	t.Helper()
	for r := range o.Ranks {
		got, err := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), r, 1))
		if err != nil {
			t.Fatal(err)
		}
		if want := expected(r, points); string(got) != want {
			t.Errorf("rank %d wrote %q, want %q", r, got, want)
		}
	}
}

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// open opens a rank's gate. It blocks until the rank is there.
func open(t *testing.T, gate string) {
	t.Helper()
	f, err := os.OpenFile(gate, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// TestRun_Finish runs a program to its end, with exact output. The next command
// begins a new run.
func TestRun_Finish(t *testing.T) {
	o := options(t, 3)
	l := begin(t, o)
	l.ends(rundir.Finished, 0).says("started: 3 ranks on localhost:3", "checkpoint 4 committed: 2.9 KiB of state, 30 B written, paused 1 ms, durable after 2 ms, due", "finished")
	exact(t, o, 20)
	for r := range 3 {
		var want strings.Builder
		for line := range strings.Lines(expected(r, 20)) {
			fmt.Fprintf(&want, "[%d.1] %s", r, line)
		}
		var got strings.Builder
		for line := range strings.Lines(l.out.String()) {
			if strings.HasPrefix(line, fmt.Sprintf("[%d.", r)) {
				got.WriteString(line)
			}
		}
		if got.String() != want.String() {
			t.Errorf("shown of rank %d: %q", r, got.String())
		}
	}
	// In the directory of a finished run, any command begins a new run.
	o.Command = as("rank", "points=3")
	begin(t, o).ends(rundir.Finished, 0)
	exact(t, o, 3)
}

// TestRun_Restart kills ranks repeatedly. The output must be that of an
// undisturbed run, in the ranks' files, in the requested file, and on the
// screen.
func TestRun_Restart(t *testing.T) {
	for _, out := range []string{"", "all", "each-%r"} {
		t.Run(strings.Trim("out"+out, "-%r"), func(t *testing.T) {
			o := options(t, 4, "kill:2:3:1", "kill:0:7:2", "exit:3:14:3", "kill:1:20:4")
			if out != "" {
				o.Out = filepath.Join(t.TempDir(), out)
				os.WriteFile(strings.ReplaceAll(o.Out, "%r", "0000"), []byte(strings.Repeat("left from something else\n", 100)), 0o666)
			}
			l := begin(t, o)
			l.ends(rundir.Finished, 0).says("rank 2 on localhost was killed by signal 9 (SIGKILL)", "restarting from the beginning in 0.1 s (1st of 10)",
				"restarting from checkpoint 1 in", "rank 3 on localhost ended with status 3", "restored checkpoint 2", "restored checkpoint 3")
			exact(t, o, 20)
			whole := ""
			for r := range 4 {
				whole += expected(r, 20)
			}
			switch out {
			case "":
				if got := len(strings.Split(l.out.String(), "\n")); got != 4*21+1 {
					t.Errorf("%d lines were shown: %s", got, l.out.String())
				}
			case "all":
				if got, _ := os.ReadFile(o.Out); string(got) != whole {
					t.Errorf("%s has %q", o.Out, got)
				}
			default:
				for r := range 4 {
					if got, _ := os.ReadFile(strings.ReplaceAll(o.Out, "%r", fmt.Sprintf("%04d", r))); string(got) != expected(r, 20) {
						t.Errorf("rank %d: %q", r, got)
					}
				}
			}
		})
	}
}

// TestRun_Retries shows that a run is given up after some failures without a
// new checkpoint.
func TestRun_Retries(t *testing.T) {
	o := options(t, 2, "exit:1:2:0")
	o.Retries = 2
	l := begin(t, o)
	l.ends(rundir.Failed, 3).says("in 0.1 s (1st of 2)", "in 0.2 s (2nd of 2)", "3 failures in a row")
	if l.last.Attempt != 3 {
		t.Errorf("%d starts", l.last.Attempt)
	}
	// The same command tries again. No retries are allowed here.
	o.Retries = -1
	begin(t, o).ends(rundir.Failed, 3)
	// A new checkpoint resets the count, so there may be more failures than
	// retries.
	o = options(t, 2, "kill:1:6:1", "kill:1:11:2", "kill:1:16:3")
	o.Retries = 1
	begin(t, o).ends(rundir.Finished, 0)
	exact(t, o, 20)
}

// TestPause_Doubles checks the pauses before restarts.
func TestPause_Doubles(t *testing.T) {
	var got []string
	for n := 1; n <= 11; n++ {
		got = append(got, pause(n).String())
	}
	if want := "100ms 200ms 400ms 800ms 1.6s 3.2s 6.4s 12.8s 25.6s 30s 30s"; strings.Join(got, " ") != want {
		t.Error(got)
	}
}

// TestQuarantine_OlderCheckpoint shows that a checkpoint from which attempts
// fail is quarantined, and an older one used.
func TestQuarantine_OlderCheckpoint(t *testing.T) {
	o := options(t, 2, "kill:0:13:1", "poison:2")
	o.Quarantine = 2
	l := begin(t, o)
	l.ends(rundir.Finished, 0).says("checkpoint 2 quarantined: 2 attempts from it failed without a new checkpoint", "restarting from an older checkpoint", "restored checkpoint 1")
	exact(t, o, 20)
	if !slices.Equal(l.last.Quarantined, []uint64{2}) {
		t.Errorf("put aside: %v", l.last.Quarantined)
	}
	if rec, err := rundir.ReadRecord(o.Run); err != nil || !slices.Equal(rec.Quarantined, []uint64{2}) {
		t.Errorf("recorded: %+v, %v", rec, err)
	}
}

// TestRun_Stall shows that ranks without progress are restarted.
func TestRun_Stall(t *testing.T) {
	o := options(t, 2, "hang:1:8:1")
	o.Stall = 2 * time.Second
	begin(t, o).ends(rundir.Finished, 0).says("no rank reached a point or passed a message for 2 s", "restored checkpoint 1")
	exact(t, o, 20)
}

// TestStop_Resume stops a run, and resumes it by the same command. Other
// commands are refused.
func TestStop_Resume(t *testing.T) {
	gate := fifo(t)
	o := options(t, 2, "gate:1:8:"+gate)
	l := begin(t, o)
	l.reaches(1, 8)
	answer := make(chan error, 1)
	go func() {
		st, err := client.Stop(context.Background(), o.Run, "")
		if err == nil && (st.State != rundir.Stopped || st.Last == nil || st.Last.Index != 2) {
			err = fmt.Errorf("%+v", st)
		}
		answer <- err
	}()
	l.await("cairn stop: ranks are to save and stop")
	open(t, gate)
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	l.ends(rundir.Stopped, StoppedStatus).says("stopped with checkpoint 2; the same command resumes")
	if st, err := client.Read(context.Background(), o.Run); err != nil || st.State != rundir.Stopped || st.Last.Index != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	other := o
	other.Command = as("rank", "points=21")
	if _, err := New(other); !errors.Is(err, rundir.ErrDiffers) || !strings.Contains(err.Error(), "--fresh") {
		t.Error(err)
	}
	other = o
	other.Ranks = 3
	if _, err := New(other); !errors.Is(err, rundir.ErrDiffers) || !strings.Contains(err.Error(), "2 ranks, not 3") {
		t.Error(err)
	}
	begin(t, o).ends(rundir.Finished, 0).says("restored checkpoint 2")
	exact(t, o, 20)
}

// TestFresh_Discards shows that --fresh discards an earlier run, and begins
// anew.
func TestFresh_Discards(t *testing.T) {
	o := options(t, 2, "exit:0:8:0")
	o.Retries = -1
	begin(t, o).ends(rundir.Failed, 3)
	o.Command, o.Fresh = as("rank"), true
	l := begin(t, o)
	l.ends(rundir.Finished, 0)
	if slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, "restored") }) {
		t.Errorf("%q", l.said)
	}
	exact(t, o, 20)
}

// TestRunDir_TwoSupervisors shows that a second supervisor of a run is refused.
func TestRunDir_TwoSupervisors(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:1:"+gate)
	l := begin(t, o)
	if _, err := New(o); !errors.Is(err, rundir.ErrBusy) || !strings.Contains(err.Error(), fmt.Sprintf("process %d on ", os.Getpid())) {
		t.Error(err)
	}
	open(t, gate)
	l.ends(rundir.Finished, 0)
}

// TestRun_KilledAtOnce shows that ranks which were asked to save can be killed
// at once.
func TestRun_KilledAtOnce(t *testing.T) {
	o := options(t, 2, "hang:1:8:0")
	l := begin(t, o)
	l.reaches(1, 8)
	l.s.Stop("interrupted")
	l.await("interrupted: ranks are to save")
	l.kill()
	l.ends(rundir.Stopped, StoppedStatus)
}

// TestStop_Grace shows that a rank which does not stop is killed when the grace
// time is over.
func TestStop_Grace(t *testing.T) {
	o := options(t, 2, "hang:1:8:0")
	o.Grace = 100 * time.Millisecond
	l := begin(t, o)
	l.reaches(1, 8)
	l.s.Stop("interrupted")
	l.ends(rundir.Stopped, UnsavedStatus).says("did not stop within 100 ms", "--grace gives them more time")
}

// TestAttempt_WhyUnsaved shows that a rank's own reason is given instead of the
// advice to wait longer, which does not help then.
func TestAttempt_WhyUnsaved(t *testing.T) {
	a := &attempt{ranks: make([]rank, 2)}
	a.ranks[1].Rank, a.ranks[1].blocked = 1, "the main goroutine computes without a point"
	if got, want := a.whyUnsaved(), "; rank 1: the main goroutine computes without a point"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestHelper_Killed shows that ranks end with their helper, and that the run
// restarts.
func TestHelper_Killed(t *testing.T) {
	gate := fifo(t)
	o := options(t, 3, "gate:0:8:"+gate)
	l := begin(t, o)
	rank := l.pid(1, 1)
	l.await("checkpoint 1 committed")
	helper := parent(t, rank)
	watch := awaitEnd(t, rank)
	syscall.Kill(helper, syscall.SIGKILL)
	watch() // ranks die with their helper
	l.await("lost host localhost: its helper has ended")
	open(t, gate)
	l.ends(rundir.Finished, 0).says("restored checkpoint 1")
	exact(t, o, 20)
}

// TestHelper_KilledWhileJoining kills the first two helpers before they say
// anything.
func TestHelper_KilledWhileJoining(t *testing.T) {
	o := options(t, 2, "")
	dir := t.TempDir()
	o.Helper = append([]string{"/bin/sh", "-c", `mkdir "$0/1" 2>/dev/null && kill -9 $$; mkdir "$0/2" 2>/dev/null && kill -9 $$; exec "$@"`, dir}, o.Helper...)
	begin(t, o).ends(rundir.Finished, 0)
	exact(t, o, 20)
}

// parent returns the process that started another.
func parent(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	var state string
	var ppid int
	if _, err := fmt.Sscan(string(text[strings.LastIndex(string(text), ")")+1:]), &state, &ppid); err != nil {
		t.Fatal(err)
	}
	return ppid
}

// TestSupervisor_Killed kills a supervisor. Its ranks must save and stop, and
// the next supervisor must wait for them and continue. What they wrote to
// stderr meanwhile comes before the line that says so.
func TestSupervisor_Killed(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:8:"+gate)
	p := startSupervisor(t, o)
	p.await("rank 0 at point 8")
	p.cmd.Process.Kill()
	p.cmd.Wait()
	// The rank waits at its gate, so it cannot have stopped yet.
	if _, _, err := rundir.TryLock(rundir.HostLock(o.Run, "localhost")); !errors.Is(err, rundir.ErrBusy) {
		t.Fatalf("the helper is gone: %v", err)
	}
	l := begin(t, o)
	l.await("waiting for the ranks of the last start on localhost to save and stop")
	open(t, gate)
	l.ends(rundir.Finished, 0).says("restored checkpoint")
	if slices.Contains(l.said, "restored checkpoint 1") { // it may take some more before it is told to stop
		t.Errorf("the rank has not saved when it stopped: %q", l.said)
	}
	old := slices.Index(l.seen, "[0.2] stopped")
	again := slices.IndexFunc(l.seen, func(s string) bool { return strings.HasPrefix(s, "started again") })
	if old < 0 || again < old {
		t.Errorf("the earlier output is not before the start: %q", l.seen)
	}
	exact(t, o, 20)
}

// TestSupervisor_KilledHard has ranks that cannot stop. The helper of a killed
// supervisor must end them.
func TestSupervisor_KilledHard(t *testing.T) {
	o := options(t, 2, "hang:1:8:1")
	o.Grace = 50 * time.Millisecond
	p := startSupervisor(t, o)
	p.await("rank 1 at point 8")
	p.cmd.Process.Kill()
	p.cmd.Wait()
	begin(t, o).ends(rundir.Finished, 0).says("restored checkpoint 1")
	exact(t, o, 20)
}

// TestRun_Uninstrumented runs programs that do not use Cairn.
func TestRun_Uninstrumented(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	o := options(t, 2)
	o.Command = []string{"sh", "-c", `echo rank $CAIRN_RANK of $CAIRN_SIZE; test -e ` + once + ` || { : > ` + once + `; exit 5; }; echo done`}
	l := begin(t, o)
	l.ends(rundir.Finished, 0).says("ended with status 5", "from the beginning", "sh has not reported that it uses Cairn")
	for r := range 2 {
		got, _ := os.ReadFile(rundir.OutputFile(filepath.Join(o.Run, "output"), r, 1))
		if want := fmt.Sprintf("rank %d of 2\ndone\n", r); string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	o = options(t, 1)
	o.Command = []string{"sh", "-c", "echo here; exec sleep 1000"}
	seen := make(chan bool, 1)
	o.Line = func(_, _ int, _ []byte, done func(bool)) { seen <- true; done(true) }
	l = begin(t, o)
	<-seen
	if _, err := client.Checkpoint(ctxTimeout(t, time.Millisecond), o.Run, ""); err == nil {
		t.Error("a checkpoint of a program that knows nothing of them")
	}
	l.s.Stop("enough")
	l.ends(rundir.Stopped, StoppedStatus)
	for _, c := range []struct {
		command []string
		status  int
	}{{[]string{"/dev/null"}, 0}, {[]string{"no such program"}, 0}, {[]string{"/"}, 0}} {
		o.Command = c.command
		if _, err := New(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%q: %v", c.command, err)
		}
	}
}

func ctxTimeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestClient_CheckpointAndStatus requests checkpoints and the state of a run,
// whose directory has a long name.
func TestClient_CheckpointAndStatus(t *testing.T) {
	gate := fifo(t)
	o := options(t, 2, "gate:0:4:"+gate, "every=100")
	o.Run = filepath.Join(t.TempDir(), strings.Repeat("a long name/", 12), "run") // addresses of sockets must be short
	l := begin(t, o)
	l.pid(0, 1)
	l.pid(1, 1)
	st, err := client.Read(context.Background(), o.Run)
	if err != nil || st.State != rundir.Running || len(st.Ranks) != 2 || st.Attempt != 1 || st.Last != nil {
		t.Fatalf("%+v, %v", st, err)
	}
	got := make(chan any, 1)
	go func() {
		index, err := client.Checkpoint(context.Background(), o.Run, "by hand")
		if err == nil && index.Index == 1 && index.State == 2000 {
			err = errors.New("fine")
		}
		got <- err
	}()
	// The request has arrived when it is in the list of waiting requests.
	for waiting := 0; waiting == 0; {
		n := make(chan int)
		l.s.post(func() { n <- len(l.s.requests) })
		waiting = <-n
	}
	open(t, gate)
	if err := <-got; fmt.Sprint(err) != "fine" {
		t.Fatal(err)
	}
	l.ends(rundir.Finished, 0)
	if _, err := client.Checkpoint(context.Background(), o.Run, ""); !errors.Is(err, client.ErrNotRunning) {
		t.Error(err)
	}
	if st, err := client.Read(context.Background(), o.Run); err != nil || st.State != rundir.Finished || st.Pid != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	if _, err := client.Read(context.Background(), t.TempDir()); !errors.Is(err, rundir.ErrNoRun) {
		t.Error(err)
	}
}

// supervisorProcess is the process of a supervisor that can be killed.
type supervisorProcess struct {
	t    *testing.T
	cmd  *exec.Cmd
	said chan string
}

func (p *supervisorProcess) await(text string) {
	p.t.Helper()
	for s := range p.said {
		if strings.Contains(s, text) {
			return
		}
	}
	p.t.Fatalf("the supervisor ended without %q", text)
}
