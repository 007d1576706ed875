//go:build linux

package helper

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/supervise/scheduler"
)

// orphaned stops the ranks when the supervisor is gone, and waits for their
// end. Then it sees to it that a batch system does not forget the job, until
// SIGTERM comes.
func (h *helper) orphaned(term <-chan os.Signal) error {
	close(h.gone)
	h.up.Finish()
	h.stopRanks()
	if h.secret != nil && h.lock != nil {
		for len(term) > 0 { // it was for the supervisor
			<-term
		}
		h.lock.Close() // ranks may start here again
		watchJob(h.dir, scheduler.Find(), term)
	}
	return nil
}

// stopRanks asks the ranks to save and stop, and kills those that do not.
func (h *helper) stopRanks() {
	l := h.now
	if l == nil {
		return
	}
	until := time.Now().Add(l.start.Grace + 2*PingEvery) // other helpers may notice the loss later
	asked := false
	for _, c := range h.all() {
		if c.waits() { // it may be waiting for the supervisor's decision
			c.dismiss()
		} else if c.greeted() {
			c.tell(&control.Checkpoint{Reason: "the supervisor is gone", Stop: true})
			asked = true
		}
	}
	if !asked {
		h.signal(syscall.SIGTERM)
	}
	select {
	case <-l.done:
	case <-time.After(l.start.Grace):
		h.signal(syscall.SIGKILL)
		<-l.done
	}
	if h.secret != nil {
		awaitRanks(h.dir, l.start.Launch, until)
	}
}

const (
	jobEvery = 10 * time.Second // time between two looks at the job
	jobTime  = 30 * time.Minute // how long Slurm may take to notice that a node is dead
)

// watchJob makes Slurm start a job again that has lost the node of its script,
// and with it the supervisor of the run. One helper of the run does that. It
// ends when there is another supervisor, or when Slurm ends the job.
func watchJob(run string, s *scheduler.Scheduler, term <-chan os.Signal) {
	if !s.Slurm() {
		return
	}
	lock, _, err := rundir.TryLock(filepath.Join(run, rundir.RequeueLock))
	if err != nil {
		return
	}
	defer lock.Close()
	then, err := rundir.ReadRecord(run)
	if err != nil || then == nil {
		return
	}
	for end := time.Now().Add(jobTime); time.Now().Before(end); {
		switch s.State(context.Background()) {
		case scheduler.JobOver:
			return
		case scheduler.JobAbandoned:
			if s.Requeue(context.Background()) == nil {
				return
			}
		}
		if now, err := rundir.ReadRecord(run); err == nil && now != nil && now.Seq != then.Seq { // a supervisor wrote it
			return
		}
		select {
		case <-term:
			return
		case <-time.After(jobEvery):
		}
	}
}

// awaitRanks waits until a time for the end of a launch's ranks under all
// helpers of a run. mpirun kills all its processes when a process ends in which
// MPI was initialised and not finalised, as happens after a move. Ranks that
// are still saving would be lost.
func awaitRanks(run, launch string, until time.Time) {
	dir := filepath.Dir(rundir.HostLock(run, ""))
	for waited := true; waited; { // ranks may have moved meanwhile
		waited = false
		list, _ := os.ReadDir(dir) // ranks of a lost helper save nothing either
		for _, x := range list {
			name := filepath.Join(dir, x.Name())
			for wait := 25 * time.Millisecond; filepath.Ext(name) == ".lock" && hasRanks(name, launch); wait = min(2*wait, time.Second) {
				if time.Now().Add(wait).After(until) {
					return
				}
				time.Sleep(wait)
				waited = true
			}
		}
	}
}

// hasRanks reports whether the helper of a lock file lives and has ranks of a
// launch.
func hasRanks(path, launch string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	err = syscall.EINTR
	for err == syscall.EINTR {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	}
	if err != syscall.EWOULDBLOCK {
		return false // it is not locked, or nothing is known
	}
	var who rundir.Holder
	if err := json.NewDecoder(f).Decode(&who); err != nil {
		return true // it is being written
	}
	return who.Launch == launch && len(who.Ranks) > 0
}
