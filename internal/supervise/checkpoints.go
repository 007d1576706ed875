//go:build linux

package supervise

import (
	"cmp"
	"fmt"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// reportWait is how long the report of a committed checkpoint waits for the
// Saved of all ranks. Rank 0's Committed may overtake those of other hosts.
const reportWait = 5 * time.Second

// commits are the checkpoints of a run.
type commits struct {
	last         *control.CheckpointState
	pending      map[uint64]*partialCheckpoint // checkpoints that some ranks have saved
	unreported   *partialCheckpoint            // committed, and not reported yet
	saveFailures control.SaveFailures          // failures to save since the last commit
	saveTimes    []time.Duration               // how long the last checkpoints took, as many as savesKept
}

// partialCheckpoint is a checkpoint, and how many ranks have said Saved.
type partialCheckpoint struct {
	*control.CheckpointState
	parts int
}

// completeCheckpoints returns the checkpoints of which every rank has a file,
// the newest first. With a directory per host, they are those of the last scan.
func (s *Supervisor) completeCheckpoints() []rundir.Checkpoint {
	if s.local != nil {
		return s.completeLocal()
	}
	list, _ := rundir.CompleteCheckpoints(s.rec.CheckpointDir, s.n)
	return list
}

// newest returns the newest of completeCheckpoints.
func (s *Supervisor) newest() (rundir.Checkpoint, bool) {
	if list := s.completeCheckpoints(); len(list) > 0 {
		return list[0], true
	}
	return rundir.Checkpoint{}, false
}

// foundCheckpoint records a checkpoint whose commit no rank has reported.
func (s *Supervisor) foundCheckpoint(c rundir.Checkpoint) {
	if s.last == nil || s.last.Index != c.Index {
		s.last = &control.CheckpointState{Index: c.Index, Time: c.Time}
	}
}

// saved adds a rank's part of a checkpoint.
func (s *Supervisor) saved(m *control.Saved) {
	p := s.pending[m.Index]
	switch {
	case s.unreported != nil && s.unreported.Index == m.Index:
		p = s.unreported
	case s.a.newCheckpoint && m.Index == s.last.Index: // late: the checkpoint has been reported
		p = &partialCheckpoint{CheckpointState: s.last}
	case s.a.newCheckpoint && m.Index < s.last.Index:
		return
	case p == nil:
		p = &partialCheckpoint{CheckpointState: &control.CheckpointState{Index: m.Index}}
		s.pending[m.Index] = p
	}
	p.Reason = cmp.Or(p.Reason, m.Reason)
	p.parts++
	p.State += m.State
	p.Written += m.Written
	p.PauseNS, p.TookNS = max(p.PauseNS, int64(m.Pause)), max(p.TookNS, int64(m.Took))
	if p == s.unreported && p.parts == s.n {
		s.reportCheckpoint()
	}
}

// unsaved records that a rank has not saved its part of a checkpoint.
func (s *Supervisor) unsaved(r *rank, m *control.SaveFailed) {
	text := fmt.Sprintf("rank %d: checkpoint %d was not saved: %s", r.Rank, m.Index, m.Error)
	for _, w := range s.requests {
		if w.isCheckpoint() && !w.done {
			w.reply(&control.Answer{Error: text})
		}
	}
	now := time.Now()
	count, tell := s.saveFailures.Add(m.Index, m.Error, now)
	if s.rec.Unsaved == nil {
		s.rec.Unsaved = &control.Unsaved{Since: now}
	}
	s.rec.Unsaved = &control.Unsaved{Since: s.rec.Unsaved.Since, Count: count, Why: fmt.Sprintf("rank %d: %s", r.Rank, m.Error)}
	s.changed()
	if !tell {
		return
	}
	s.save()
	if count > 1 {
		text += fmt.Sprintf(" (%d checkpoints in a row)", count)
	}
	s.report(events.Event{Kind: events.Unsaved, Index: m.Index, Rank: &r.Rank}, "%s", text)
}

// committed records that all ranks have saved a checkpoint. It reports the
// checkpoint when all have said Saved, or after reportWait.
func (s *Supervisor) committed(index uint64) {
	if s.a.newCheckpoint && index <= s.last.Index { // several ranks may report the same commit
		return
	}
	s.reportCheckpoint()
	p := s.pending[index]
	if p == nil {
		p = &partialCheckpoint{CheckpointState: &control.CheckpointState{Index: index}}
	}
	p.Time = time.Now()
	for k := range s.pending {
		if k <= index {
			delete(s.pending, k)
		}
	}
	s.last, s.unreported, s.rec.Unsaved = p.CheckpointState, p, nil
	s.a.newCheckpoint = true
	s.a.moved = p.Time
	s.reached = max(s.reached, index)
	s.suspectFailures, s.failuresBeforePoint = 0, 0
	s.forgetRemoved()
	s.secureOutput(index, false)
	if s.local != nil {
		s.local.commits++
		s.tidyHosts()
		s.uploadCheckpoint(index)
	}
	if s.progress.saved(s.a, index, p.Time.Add(-time.Duration(p.TookNS))) {
		s.failures = 0
	}
	if p.parts >= s.n {
		s.reportCheckpoint()
		return
	}
	s.save()
	s.after(reportWait, func() {
		if s.unreported == p {
			s.reportCheckpoint()
		}
	})
}

// reportCheckpoint reports the last committed checkpoint, once.
func (s *Supervisor) reportCheckpoint() {
	if s.unreported == nil {
		return
	}
	p := s.unreported.CheckpointState
	s.unreported = nil
	s.addSaveTime(time.Duration(p.TookNS))
	s.save()
	why := p.Reason
	if why != "" {
		why = ", " + why
	}
	if n := s.saveFailures.Over(); n > 0 {
		why += fmt.Sprintf("; checkpoints succeed again, after %d failures", n)
	}
	state := *p
	s.report(events.Event{Kind: events.Checkpoint, Checkpoint: &state}, "checkpoint %d committed: %s of state, %s written, paused %s, durable after %s%s", p.Index, control.BytesText(p.State), control.BytesText(p.Written),
		control.TimeText(time.Duration(p.PauseNS)), control.TimeText(time.Duration(p.TookNS)), why)
	for _, w := range s.requests {
		if w.isCheckpoint() && !w.done {
			index := *p
			w.reply(&control.Answer{Run: &control.RunState{Last: &index}})
		}
	}
}
