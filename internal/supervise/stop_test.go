//go:build linux

package supervise

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// slurmJob makes this process part of a Slurm job, as far as its environment
// and scontrol tell, and returns the file with what scontrol says of the job.
func slurmJob(t *testing.T, state string, left time.Duration, preempted string) (file string) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "job")
	script(t, filepath.Join(dir, "scontrol"), `case "$2" in
config) echo "KillWait                = 40 sec";;
job) cat `+file+`;;
esac`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("SLURM_JOB_ID", "17")
	t.Setenv("SLURM_CLUSTER_NAME", "")
	t.Setenv("SLURM_RESTART_COUNT", "")
	setJob(t, file, state, left, preempted)
	return file
}

func setJob(t *testing.T, file, state string, left time.Duration, preempted string) {
	t.Helper()
	text := fmt.Sprintf("JobId=17 JobName=sim\n   JobState=%s Reason=None\n   StartTime=2026-11-17T14:04:15 EndTime=%s Deadline=N/A\n   PreemptEligibleTime=2026-11-17T14:04:15 PreemptTime=%s\n",
		state, time.Now().Add(left).Format("2006-01-02T15:04:05"), preempted)
	if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// TestGraceOf checks how much of the scheduler's time the ranks get.
func TestGraceOf(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{
		30 * time.Second: 27 * time.Second, 5 * time.Second: 4 * time.Second, time.Second: time.Second / 2,
		5 * time.Minute: 290 * time.Second, 90 * time.Second: 81 * time.Second,
	} {
		if got := graceOf(given); got != want {
			t.Errorf("of %v ranks get %v, not %v", given, got, want)
		}
	}
}

// TestStop_GraceOfScheduler shows that ranks have the time that the scheduler
// gives, unless the user says another one.
func TestStop_GraceOfScheduler(t *testing.T) {
	for _, x := range []struct {
		name, said string
		set        func(t *testing.T, o *Options)
	}{
		{"Slurm kills", "within 36 s (Slurm's KillWait)", func(t *testing.T, o *Options) { slurmJob(t, "COMPLETING", time.Hour, "None") }},
		{"Slurm preempts", "(Slurm's preemption)", func(t *testing.T, o *Options) { slurmJob(t, "RUNNING", time.Hour, "2026-11-17T14:05:00") }},
		{"Slurm is silent", "within 36 s (Slurm's KillWait)", func(t *testing.T, o *Options) { os.Remove(slurmJob(t, "RUNNING", time.Hour, "None")) }},
		{"Kubernetes", "within 27 s (Kubernetes' default)", func(t *testing.T, o *Options) { t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1") }},
		{"CAIRN_GRACE", "within 110 s (CAIRN_GRACE)", func(t *testing.T, o *Options) { t.Setenv("CAIRN_GRACE", "120") }},
		{"--grace", "within 20 s", func(t *testing.T, o *Options) {
			slurmJob(t, "COMPLETING", time.Hour, "None")
			o.Grace = 20 * time.Second
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			gate := fifo(t)
			o := options(t, 2, "gate:0:8:"+gate) // two ranks: they meet at the supervisor, and so not before it has told them
			o.Grace = 0
			x.set(t, &o)
			l := begin(t, o)
			l.reaches(0, 8)
			l.s.Stop("interrupted")
			l.await("interrupted: ranks are to save and stop, ")
			open(t, gate)
			l.ends(rundir.Stopped, StoppedStatus).says(x.said)
		})
	}
	t.Setenv("CAIRN_GRACE", "soon")
	o := options(t, 1)
	o.Grace = 0
	if _, err := New(o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), `CAIRN_GRACE="soon"`) {
		t.Errorf("%v", err)
	}
}

// TestStop_NoTime stops a run whose checkpoints take longer than there is time.
// It must not begin another one, and resumes from the last.
func TestStop_NoTime(t *testing.T) {
	gate := fifo(t)
	o := options(t, 2, "gate:0:8:"+gate, "took=1h")
	l := begin(t, o)
	l.reaches(0, 8)
	l.await("checkpoint 1 committed")
	l.s.Stop("interrupted")
	l.ends(rundir.Stopped, UnsavedStatus).says("no time for another checkpoint: the last ones took 60 min", "could NOT be saved, and the work since checkpoint 1 is lost")
	if slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, "did not stop") }) {
		t.Errorf("it waited: %q", l.said)
	}
	// The next supervisor knows it from the record.
	l = begin(t, o)
	l.reaches(0, 8)
	l.s.Stop("interrupted")
	l.ends(rundir.Stopped, UnsavedStatus).says("restored checkpoint 1", "no time for another checkpoint")
	// With more time, it saves.
	o.Grace = 2 * time.Hour
	l = begin(t, o)
	l.reaches(0, 8)
	l.s.Stop("interrupted")
	l.await("interrupted: ranks are to save and stop")
	open(t, gate)
	l.ends(rundir.Stopped, StoppedStatus).says("checkpoint 2 committed")
	begin(t, o).ends(rundir.Finished, 0)
	exact(t, o, 20)
}

// TestStop_FastestOfLast: one slow checkpoint does not keep a run from saving.
func TestStop_FastestOfLast(t *testing.T) {
	var c commits
	for _, d := range []time.Duration{1, 9, 5, 0, 7} {
		c.addSaveTime(d)
	}
	s := &Supervisor{commits: c}
	if len(c.saveTimes) != savesKept || s.shortestSave() != 5 {
		t.Errorf("%v", c.saveTimes)
	}
}

// fakeSrun puts an srun into PATH that knows nodes a, b and c, one for each of
// three ranks, and fails while the file dead names one that it is to use. It
// returns a directory with that file, and with its arguments in the file
// starts.
func fakeSrun(t *testing.T) (dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("names of hosts take root")
	}
	dir = t.TempDir()
	script(t, filepath.Join(dir, "srun"), `echo "$SLURM_NNODES $*" >>`+dir+`/starts
nodes="a b c"
while case $1 in /*|env) false;; esac; do
	case $1 in --exclude=b) nodes="a c c";; --exclude=*) exit 1;; esac
	shift
done
dead=$(cat `+dir+`/dead 2>/dev/null)
for node in $nodes; do
	if test "$node" = "$dead"; then echo "srun: error: Task launch for StepId=17.1 failed on node $node: Communication connection failure" >&2; exit 1; fi
done
i=0
for node in $nodes; do
	SLURM_PROCID=$i unshare --uts sh -c "hostname $node; exec \"\$@\"" sh "$@" &
	i=$((i+1))
done
wait`)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("SLURM_NNODES", "3")
	return dir
}

// TestLauncher_LostNode loses a node that srun still uses: Slurm notices
// that only after minutes. The run continues on the others.
func TestLauncher_LostNode(t *testing.T) {
	gate, dir := fifo(t), fakeSrun(t)
	o := options(t, 3, "gate:0:8:"+gate)
	o.Launcher = "srun"
	l := begin(t, o)
	l.reaches(1, 8)
	if err := os.WriteFile(filepath.Join(dir, "dead"), []byte("b"), 0o600); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(parent(t, l.pid(1, 1)), syscall.SIGKILL)
	l.await("failed on node b")
	open(t, gate)
	l.ends(rundir.Finished, 0).says("lost host b-rank-0001", "started again", "restored checkpoint 1")
	exact(t, o, 20)
	text, err := os.ReadFile(filepath.Join(dir, "starts"))
	if err != nil {
		t.Fatal(err)
	}
	starts := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(starts) != 3 || !strings.HasPrefix(starts[0], "3 -n 3 --overlap ") || starts[1] != starts[0] || !strings.HasPrefix(starts[2], " -n 3 --overlap --exclude=b ") {
		t.Errorf("srun was called with %q", starts)
	}
}

// TestLauncher_NoRoom loses a node that srun cannot do without. The same
// command may succeed in another allocation, and the exit status says so.
func TestLauncher_NoRoom(t *testing.T) {
	gate, dir := fifo(t), fakeSrun(t)
	o := options(t, 3, "gate:0:8:"+gate)
	o.Launcher, o.Retries = "srun", 3
	l := begin(t, o)
	l.reaches(1, 8)
	if err := os.WriteFile(filepath.Join(dir, "dead"), []byte("c"), 0o600); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(parent(t, l.pid(2, 1)), syscall.SIGKILL)
	l.ends(rundir.Failed, StoppedStatus).says("failed on node c")
}

// TestLauncher_Signaled sends SIGTERM to a helper of srun, and not to the
// supervisor. That stops the run only if Slurm ends the job.
func TestLauncher_Signaled(t *testing.T) {
	gate := fifo(t)
	file := slurmJob(t, "RUNNING", time.Hour, "None")
	asked := file + ".asked"
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "scontrol"))
	if err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(filepath.Dir(file), "scontrol"), strings.Replace(string(text), "cat ", "echo >>"+asked+"; cat ", 1))
	fakeSrun(t)
	o := options(t, 3, "gate:0:8:"+gate)
	o.Launcher = "srun"
	l := begin(t, o)
	l.reaches(1, 8)
	helper := parent(t, l.pid(1, 1))
	syscall.Kill(helper, syscall.SIGTERM)
	for {
		if _, err := os.Stat(asked); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	setJob(t, file, "RUNNING", time.Hour, "2026-11-17T14:05:00")
	for end := false; !end; time.Sleep(10 * time.Millisecond) { // the first answer may not have been taken yet
		syscall.Kill(helper, syscall.SIGTERM)
		l.mu.Lock()
		end = slices.ContainsFunc(l.said, func(s string) bool { return strings.HasPrefix(s, "Slurm ends the job: ranks are to save") })
		l.mu.Unlock()
	}
	open(t, gate)
	l.ends(rundir.Stopped, StoppedStatus).says("checkpoint 2 committed")
	if n := slices.IndexFunc(l.said, func(s string) bool { return strings.Contains(s, "ranks are to save") }); n != slices.IndexFunc(l.said, func(s string) bool { return strings.HasPrefix(s, "Slurm ends the job") }) {
		t.Errorf("it stopped before: %q", l.said)
	}
}

// TestJob_Requeued starts a job again whose run has finished, or whose earlier
// start still runs.
func TestJob_Requeued(t *testing.T) {
	slurmJob(t, "RUNNING", time.Hour, "None")
	gate := fifo(t)
	o := options(t, 2, "gate:0:8:"+gate, "status=4")
	o.Fresh = true
	l := begin(t, o)
	l.reaches(0, 8)
	if _, err := New(o); !errors.Is(err, rundir.ErrBusy) || errors.Is(err, ErrStillRuns) {
		t.Errorf("a second supervisor in one start of a job: %v", err)
	}
	t.Setenv("SLURM_RESTART_COUNT", "1")
	if _, err := New(o); !errors.Is(err, ErrStillRuns) {
		t.Errorf("a supervisor in the next start of the job: %v", err)
	}
	l.s.Stop("interrupted")
	l.await("interrupted: ranks are to save")
	open(t, gate)
	l.ends(rundir.Stopped, StoppedStatus).says("started: 2 ranks on localhost:2 (Slurm job 17)")

	l = begin(t, o) // with --fresh, too
	l.ends(rundir.Finished, 4).says("started again: 2 ranks on localhost:2 (Slurm job 17, restart 1)", "restored checkpoint 2", "--fresh was obeyed at an earlier start of this job")
	if l.last.Job != "Slurm job 17, restart 1" {
		t.Errorf("status shows %q", l.last.Job)
	}
	exact(t, o, 20)

	t.Setenv("SLURM_RESTART_COUNT", "2")
	for range 2 {
		l = begin(t, o).ends(rundir.Finished, 4).says("the run has finished in an earlier start of this job (Slurm job 17, ")
		if slices.ContainsFunc(l.said, func(s string) bool { return strings.Contains(s, "started:") }) {
			t.Errorf("it was started: %q", l.said)
		}
		exact(t, o, 20)
		t.Setenv("SLURM_RESTART_COUNT", "3")
	}
	t.Setenv("SLURM_JOB_ID", "18")
	t.Setenv("SLURM_RESTART_COUNT", "")
	l = begin(t, o)
	open(t, gate)
	l.ends(rundir.Finished, 4).says("started: 2 ranks on localhost:2 (Slurm job 18)")
}
