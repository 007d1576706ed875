// Package scheduler finds out which job of Slurm, systemd or Kubernetes this
// process belongs to, and how long that system waits between SIGTERM and
// SIGKILL.
//
// Slurm and systemd are asked by their commands, scontrol and systemctl. Inside
// a container, nothing tells how long Kubernetes waits, so its default counts
// unless CAIRN_GRACE is set.
package scheduler

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Variables that a job's description may set.
const (
	EnvGrace = "CAIRN_GRACE" // time between SIGTERM and SIGKILL
	EnvJob   = "CAIRN_JOB"   // name of the job, the same at each of its starts
)

// askTime is how long a scheduler's command may take.
const askTime = 5 * time.Second

// kubernetesGrace is Kubernetes' default terminationGracePeriodSeconds.
const kubernetesGrace = 30 * time.Second

// Job is a job of a scheduler. The zero value means none.
type Job struct {
	Name string `json:"name"`
	// Restart is how often the scheduler has started the job again, or
	// Uncounted.
	Restart int `json:"restart"`
}

// Uncounted is the Restart of a job whose starts look all the same.
const Uncounted = -1

// String returns the job for messages.
func (j Job) String() string {
	if j.Restart > 0 {
		return fmt.Sprintf("%s, restart %d", j.Name, j.Restart)
	}
	return j.Name
}

// Repeats reports whether j is a later start of the same job. A job whose
// starts are not counted repeats every start with the same name.
func (j Job) Repeats(old Job) bool {
	return j.Name != "" && j.Name == old.Name && (j.Restart == Uncounted || j.Restart > old.Restart)
}

// Notice is the time between SIGTERM and SIGKILL.
type Notice struct {
	Time   time.Duration // 0: not known
	By     string        // whose time that is, for messages
	Ending bool          // the scheduler is ending the job
	NoEnd  bool          // the scheduler will not kill the job
}

// Scheduler is what has started this process.
type Scheduler struct {
	Job Job

	getenv   func(string) string
	slurm    string // identity of the Slurm job; "": none
	unit     string // systemd's unit; "": none
	user     bool   // the unit belongs to the user's systemd
	killWait time.Duration
}

// Find finds the scheduler of this process.
func Find() *Scheduler {
	cgroups, _ := os.ReadFile("/proc/self/cgroup") // where it is missing, there is no systemd
	return find(os.Getenv, string(cgroups))
}

func find(getenv func(string) string, cgroups string) *Scheduler {
	s := &Scheduler{getenv: getenv}
	if id := getenv("SLURM_JOB_ID"); id != "" {
		s.slurm = id
		s.Job.Name = "Slurm job " + id
		if cluster := getenv("SLURM_CLUSTER_NAME"); cluster != "" {
			s.Job.Name += " of " + cluster
		}
		s.Job.Restart, _ = strconv.Atoi(getenv("SLURM_RESTART_COUNT")) // it is not set at the first start
	}
	if name := getenv(EnvJob); name != "" {
		s.Job = Job{Name: name, Restart: Uncounted}
	}
	if getenv("INVOCATION_ID") != "" {
		s.unit, s.user = unitOf(cgroups)
	}
	return s
}

// Slurm reports whether this process belongs to a Slurm job.
func (s *Scheduler) Slurm() bool { return s.slurm != "" }

// Usual returns the time between SIGTERM and SIGKILL, as far as that is known
// in advance. It takes up to some seconds. The error is about CAIRN_GRACE.
func (s *Scheduler) Usual(ctx context.Context) (Notice, error) {
	if text := s.getenv(EnvGrace); text != "" {
		d, err := parseGrace(text)
		return Notice{Time: d, By: EnvGrace}, err
	}
	switch {
	case s.slurm != "":
		if s.killWait = s.askKillWait(ctx); s.killWait > 0 {
			return Notice{Time: s.killWait, By: "Slurm's KillWait"}, nil
		}
	case s.unit != "":
		if d := s.stopTime(ctx); d > 0 {
			return Notice{Time: d, By: "TimeoutStopSec of " + s.unit}, nil
		}
	case s.getenv("KUBERNETES_SERVICE_HOST") != "":
		return Notice{Time: kubernetesGrace, By: "Kubernetes' default"}, nil
	}
	return Notice{}, nil
}

// parseGrace reads a time such as 90s or 2m; a number alone means seconds, as
// in the descriptions of jobs.
func parseGrace(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if n, e := strconv.ParseUint(text, 10, 31); e == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%q: not a time such as 90s; it says how long after SIGTERM the processes are killed", EnvGrace, text)
	}
	return d, nil
}

// Asks reports whether Now may tell more than Usual.
func (s *Scheduler) Asks() bool { return s.slurm != "" && s.getenv(EnvGrace) == "" }

// command runs a scheduler's command and returns its output.
func command(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SLURM_TIME_FORMAT=standard")
	cmd.WaitDelay = time.Second // for children that keep its output open
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}
