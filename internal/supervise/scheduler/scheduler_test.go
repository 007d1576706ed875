//go:build unix

package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// commands makes shell scripts that stand for the schedulers' commands.
func commands(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func environ(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if n, v, _ := strings.Cut(p, "="); n == name {
				return v
			}
		}
		return ""
	}
}

// TestFind_Job finds the job in the environment.
func TestFind_Job(t *testing.T) {
	for _, x := range []struct {
		env  []string
		text string
		job  Job
	}{
		{nil, "", Job{}},
		{[]string{"SLURM_JOB_ID=17"}, "Slurm job 17", Job{"Slurm job 17", 0}},
		{[]string{"SLURM_JOB_ID=17", "SLURM_CLUSTER_NAME=c", "SLURM_RESTART_COUNT=2"}, "Slurm job 17 of c, restart 2", Job{"Slurm job 17 of c", 2}},
		{[]string{"SLURM_JOB_ID=17", "CAIRN_JOB=sim"}, "sim", Job{"sim", Uncounted}},
	} {
		s := find(environ(x.env...), "")
		if s.Job != x.job || s.Job.String() != x.text {
			t.Errorf("%v: %+v, %q", x.env, s.Job, s.Job.String())
		}
	}
}

// TestJob_Repeats checks when a job is a repetition of an earlier one.
func TestJob_Repeats(t *testing.T) {
	for _, x := range []struct {
		now, old Job
		want     bool
	}{
		{Job{}, Job{}, false},
		{Job{"a", 1}, Job{}, false},
		{Job{"a", 0}, Job{"a", 0}, false}, // twice in one start of a job
		{Job{"a", 1}, Job{"a", 0}, true},
		{Job{"a", 1}, Job{"b", 0}, false},
		{Job{"a", Uncounted}, Job{"a", Uncounted}, true},
		{Job{"a", Uncounted}, Job{"b", Uncounted}, false},
	} {
		if got := x.now.Repeats(x.old); got != x.want {
			t.Errorf("%+v after %+v: %v", x.now, x.old, got)
		}
	}
}

// TestUsualNotice_BySystem finds the time between signal and kill, for each
// system.
func TestUsualNotice_BySystem(t *testing.T) {
	commands(t, map[string]string{
		"scontrol":  `echo "KeepAliveTime = 9 sec"; echo "KillWait                = 45 sec"` + "\n",
		"systemctl": `test "$*" = "--user show --property=TimeoutStopUSec sim.service" && echo "TimeoutStopUSec=1min 30s"` + "\n",
	})
	cgroup := "12:cpu:/x.service\n0::/user.slice/user-1.slice/user@1.service/app.slice/sim.service\n"
	for _, x := range []struct {
		env  string
		want Notice
		bad  bool
	}{
		{env: ""},
		{env: "SLURM_JOB_ID=17", want: Notice{Time: 45 * time.Second, By: "Slurm's KillWait"}},
		{env: "INVOCATION_ID=x", want: Notice{Time: 90 * time.Second, By: "TimeoutStopSec of sim.service"}},
		{env: "KUBERNETES_SERVICE_HOST=10.0.0.1", want: Notice{Time: 30 * time.Second, By: "Kubernetes' default"}},
		{env: "CAIRN_GRACE=120 KUBERNETES_SERVICE_HOST=10.0.0.1", want: Notice{Time: 2 * time.Minute, By: "CAIRN_GRACE"}},
		{env: "CAIRN_GRACE=1m SLURM_JOB_ID=17", want: Notice{Time: time.Minute, By: "CAIRN_GRACE"}},
		{env: "CAIRN_GRACE=soon", bad: true},
		{env: "CAIRN_GRACE=0", bad: true},
		{env: "CAIRN_GRACE=-5s", bad: true},
	} {
		n, err := find(environ(strings.Fields(x.env)...), cgroup).Usual(t.Context())
		if (err != nil) != x.bad || err == nil && n != x.want {
			t.Errorf("%s: %+v, %v", x.env, n, err)
		}
	}
}

// TestUsual_NoAnswer: commands that fail, or are not there, leave the time
// unknown.
func TestUsual_NoAnswer(t *testing.T) {
	for _, script := range []map[string]string{nil, {"scontrol": "exit 1\n", "systemctl": "exit 1\n"}, {"scontrol": "echo KillWait\n", "systemctl": "echo TimeoutStopUSec=infinity\n"}} {
		commands(t, script)
		if script == nil {
			t.Setenv("PATH", t.TempDir())
		}
		for _, env := range []string{"SLURM_JOB_ID=17", "INVOCATION_ID=x"} {
			if n, err := find(environ(env), "0::/system.slice/sim.service\n").Usual(t.Context()); n.Time != 0 || err != nil {
				t.Errorf("%v, %s: %+v, %v", script, env, n, err)
			}
		}
	}
}

// jobText is what scontrol shows of a job.
const jobText = `JobId=17 JobName=x
   JobState=COMPLETING EndTime=2000-01-01T00:00:00
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=%s Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A
   StartTime=%s EndTime=%s Deadline=N/A
   PreemptEligibleTime=2026-11-17T14:04:19 PreemptTime=%s
`

// TestNotice_ByJobState finds the time until Slurm kills a job in the state of
// the job.
func TestNotice_ByJobState(t *testing.T) {
	s := &Scheduler{killWait: 30 * time.Second}
	now := time.Date(2026, 11, 17, 14, 0, 0, 0, time.Local)
	at := func(d time.Duration) string { return now.Add(d).Format("2006-01-02T15:04:05") }
	for _, x := range []struct {
		state, end, preempted string
		want                  Notice
		isPreempted           bool
	}{
		{"COMPLETING", at(time.Hour), "None", Notice{Time: 30 * time.Second, By: "Slurm's KillWait", Ending: true}, false},
		{"CANCELLED", "Unknown", "None", Notice{Time: 30 * time.Second, By: "Slurm's KillWait", Ending: true}, false},
		{"RUNNING", at(5 * time.Minute), "None", Notice{Time: 330 * time.Second, By: "the end of the Slurm job", Ending: false}, false},
		{"SIGNALING", at(5 * time.Minute), "None", Notice{Time: 330 * time.Second, By: "the end of the Slurm job", Ending: false}, false},
		{"RUNNING", at(-time.Second), "None", Notice{Time: 30 * time.Second, By: "the end of the Slurm job", Ending: false}, false},
		{"RUNNING", "Unknown", "None", Notice{NoEnd: true}, false},
		{"RUNNING", at(10 * time.Second), at(0), Notice{Time: 40 * time.Second, By: "Slurm's preemption", Ending: true}, true},
		{"RUNNING", "Unknown", at(0), Notice{Time: 0, By: "Slurm's preemption", Ending: true}, true},
	} {
		// The name of this job contains what Slurm prints of others.
		text := strings.Replace(fmt.Sprintf(jobText, x.state, at(-time.Minute), x.end, x.preempted), "x\n   JobState=COMPLETING EndTime=2000-01-01T00:00:00\n", "x JobState=COMPLETING StartTime=a EndTime=2000-01-01T00:00:00\n", 1)
		n, preempted := s.notice(text, now)
		if n != x.want || preempted != x.isPreempted {
			t.Errorf("%s, ends %s, preempted %s: %+v %v", x.state, x.end, x.preempted, n, preempted)
		}
	}
	if n, _ := s.notice("slurm_load_jobs error: Invalid job id specified", now); n != (Notice{}) {
		t.Errorf("no job: %+v", n)
	}
}

// TestNow_Unlimited preempts a job without a time limit, whose end Slurm does
// not show: the partition says how long it takes.
func TestNow_Unlimited(t *testing.T) {
	job := fmt.Sprintf(jobText[strings.Index(jobText, "   UserId"):], "RUNNING", "2026-11-17T14:00:00", "Unknown", "2026-11-17T14:10:00")
	commands(t, map[string]string{"scontrol": "case \"$*\" in\n" +
		"'show job 17') cat <<END\nJobId=17 JobName=x\n" + job + "END\n;;\n" +
		"'show partition p') echo '   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=120 Hidden=NO';;\n" +
		"'show config') echo 'KillWait                = 30 sec';;\n*) exit 1\nesac\n"})
	s := find(environ("SLURM_JOB_ID=17", "SLURM_JOB_PARTITION=p"), "")
	if _, err := s.Usual(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.Now(t.Context()); n != (Notice{Time: 150 * time.Second, By: "Slurm's preemption", Ending: true}) {
		t.Errorf("%+v", n)
	}
	commands(t, map[string]string{"scontrol": "exit 1\n"})
	if n := s.Now(t.Context()); n != (Notice{}) {
		t.Errorf("without an answer: %+v", n)
	}
}

// TestUnitOf finds the systemd unit in the text of a cgroup file.
func TestUnitOf(t *testing.T) {
	for cgroups, want := range map[string]string{
		"":                                 "",
		"0::/init.scope\n":                 "",
		"0::/system.slice/sim.service\n":   "sim.service",
		"0::/system.slice/sim.service/sub": "sim.service",
		"4:cpu:/y.service\n1:name=systemd:/system.slice/sim.service\n0::/\n":                 "sim.service",
		"0::/user.slice/user-1000.slice/session-3.scope\n":                                   "",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope\n":     "",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/sim@3.service\n":         "sim@3.service --user",
		"0::/user.slice/user-1000.slice/user@1000.service/init.scope\n1:name=systemd:/a.b\n": "",
	} {
		got, user := unitOf(cgroups)
		if user {
			got += " --user"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", cgroups, got, want)
		}
	}
}

// TestParseSpan checks the time spans that systemd prints.
func TestParseSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1min 30s": 90 * time.Second, "5s": 5 * time.Second, "2h": 2 * time.Hour, "500ms": 500 * time.Millisecond,
		"1.5s": 1500 * time.Millisecond, "1d 1h": 25 * time.Hour, "infinity": 0, "": 0, "30": 0, "1min x": 0,
	} {
		if got := parseSpan(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestJobState_SupervisorLost looks at jobs from a node that has lost the
// supervisor.
func TestJobState_SupervisorLost(t *testing.T) {
	const text = "JobId=17 JobName=x BatchHost=n9\n   JobState=%s Reason=None\n   Requeue=%s Reboot=0 ExitCode=0:0\n   ReqNodeList=(null) ExcNodeList=(null)\n   NodeList=%s\n   BatchHost=n1\n"
	for _, x := range []struct {
		state, requeue, nodes string
		want                  JobState
	}{
		{"RUNNING", "1 Restarts=2 BatchFlag=1", "n[1-3]", JobRuns},
		{"RUNNING", "1 Restarts=2 BatchFlag=1", "n[2-3]", JobAbandoned},
		{"RUNNING", "1 Restarts=2 BatchFlag=1", "bad", JobRuns},
		{"RUNNING", "1 Restarts=3 BatchFlag=1", "n[2-3]", JobOver}, // it was started again
		{"RUNNING", "0 Restarts=2 BatchFlag=1", "n[2-3]", JobOver}, // it must not be started again
		{"RUNNING", "1 Restarts=2 BatchFlag=0", "n[2-3]", JobOver}, // it has no script
		{"COMPLETING", "1 Restarts=2 BatchFlag=1", "n[2-3]", JobOver},
	} {
		commands(t, map[string]string{"scontrol": "case \"$*\" in\n'show job 17') cat <<END\n" + fmt.Sprintf(text, x.state, x.requeue, x.nodes) + "END\n;;\n" +
			"'show hostnames n[1-3]') printf 'n1\\nn2\\nn3\\n';;\n'show hostnames n[2-3]') printf 'n2\\nn3\\n';;\n*) exit 1\nesac\n"})
		if got := find(environ("SLURM_JOB_ID=17", "SLURM_RESTART_COUNT=2"), "").State(t.Context()); got != x.want {
			t.Errorf("%+v: %v", x, got)
		}
	}
	commands(t, map[string]string{"scontrol": "exit 1\n"})
	if got := find(environ("SLURM_JOB_ID=17"), "").State(t.Context()); got != JobRuns {
		t.Errorf("without an answer: %v", got)
	}
}
