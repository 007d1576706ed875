package scheduler

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What scontrol prints. A job's name may contain anything, so a key counts only
// in the line that Slurm begins with it.
var (
	killWaitLine = regexp.MustCompile(`(?m)^KillWait\s*=\s*(\d+) sec`)
	stateLine    = regexp.MustCompile(`(?m)^\s+JobState=(\S+)`)
	endLine      = regexp.MustCompile(`(?m)^\s+StartTime=\S+ EndTime=(\S+)`)
	preemptLine  = regexp.MustCompile(`(?m)^\s+PreemptEligibleTime=\S+ PreemptTime=(\S+)`)
	requeueLine  = regexp.MustCompile(`(?m)^\s+Requeue=(1 Restarts=\d+ BatchFlag=1) `)
	nodesLine    = regexp.MustCompile(`(?m)^\s+NodeList=(\S+)`)
	batchLine    = regexp.MustCompile(`(?m)^\s+BatchHost=(\S+)`)
	graceTime    = regexp.MustCompile(`\bGraceTime=(\d+)\b`)
)

// runs are the states of a job that Slurm is not ending.
var runs = []string{"RUNNING", "SIGNALING", "RESIZING", "SUSPENDED", "STOPPED", "CONFIGURING"}

func found(r *regexp.Regexp, text string) string {
	if m := r.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

func seconds(text string) time.Duration {
	n, _ := strconv.Atoi(text) // it matched digits
	return time.Duration(n) * time.Second
}

// askKillWait returns Slurm's time between SIGTERM and SIGKILL, or 0.
func (s *Scheduler) askKillWait(ctx context.Context) time.Duration {
	text, err := command(ctx, "scontrol", "show", "config")
	if err != nil {
		return 0
	}
	return seconds(found(killWaitLine, text))
}

// Now returns how much time there is from now on, when the job was sent
// SIGTERM. Slurm sends it in good time before the end of a job if sbatch
// --signal or a partition's GraceTime says so, and KillWait before it
// otherwise. If Slurm does not answer, the time is not known.
func (s *Scheduler) Now(ctx context.Context) Notice {
	text, err := command(ctx, "scontrol", "show", "job", s.slurm)
	if err != nil {
		return Notice{}
	}
	n, preempted := s.notice(text, time.Now())
	if preempted && n.Time == 0 {
		// Slurm shows no end of a job without a time limit, even while it
		// is preempted.
		grace, _ := command(ctx, "scontrol", "show", "partition", s.getenv("SLURM_JOB_PARTITION")) // without it, KillWait alone counts
		n.Time = seconds(found(graceTime, grace)) + s.killWait
	}
	return n
}

// notice reads what scontrol shows of a job.
func (s *Scheduler) notice(job string, now time.Time) (n Notice, preempted bool) {
	state := found(stateLine, job)
	if state == "" {
		return Notice{}, false
	}
	at := found(preemptLine, job)
	preempted = at != "" && at != "None" && at != "N/A"
	switch {
	case !slices.Contains(runs, state): // its times are those of the next start
		return Notice{Time: s.killWait, By: "Slurm's KillWait", Ending: true}, false
	case preempted:
		n = Notice{By: "Slurm's preemption", Ending: true}
	default:
		n.By = "the end of the Slurm job"
	}
	if end, err := time.ParseInLocation("2006-01-02T15:04:05", found(endLine, job), time.Local); err == nil {
		n.Time = max(0, end.Sub(now)) + s.killWait
	} else if !preempted {
		return Notice{NoEnd: true}, false
	}
	return n, preempted
}

// JobState is what a process finds out about its job when it has lost the
// supervisor.
type JobState int

const (
	JobRuns      JobState = iota // as far as Slurm says; or nothing is known
	JobAbandoned                 // it runs without the node of its script
	JobOver                      // Slurm ends it, has started it again, or cannot do that
)

// State returns what Slurm says of the job. If a job keeps its nodes when one
// of them dies (sbatch --no-kill), and the node of its script dies, Slurm
// leaves it running with nobody in it.
func (s *Scheduler) State(ctx context.Context) JobState {
	text, err := command(ctx, "scontrol", "show", "job", s.slurm)
	if err != nil {
		return JobRuns
	}
	batch := found(batchLine, text)
	switch {
	case !slices.Contains(runs, found(stateLine, text)), found(requeueLine, text) != "1 Restarts="+cmp.Or(s.getenv("SLURM_RESTART_COUNT"), "0")+" BatchFlag=1":
		return JobOver
	case batch == "":
		return JobRuns
	}
	nodes, err := command(ctx, "scontrol", "show", "hostnames", found(nodesLine, text))
	if err != nil || nodes == "" || slices.Contains(strings.Fields(nodes), batch) {
		return JobRuns
	}
	return JobAbandoned
}

// Requeue makes Slurm start the job again.
func (s *Scheduler) Requeue(ctx context.Context) error {
	_, err := command(ctx, "scontrol", "requeue", s.slurm)
	return err
}
