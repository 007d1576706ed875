//go:build linux

package supervise

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/supervise/scheduler"
)

// stopRequest says that the ranks are to save and stop, and how much time they
// have for that.
type stopRequest struct {
	stopping    bool
	stopSaid    bool   // the user was told that the ranks are to stop
	stopWhy     string // for this reason
	stopAt      time.Time
	stopGrace   time.Duration // from stopAt on; 0: the scheduler is being asked
	stopGraceBy string        // whose time that is; "": --grace, or the default
}

// findGrace completes Options.Grace: without it, ranks have the time that the
// scheduler gives, less some for the supervisor and its helpers.
func (s *Supervisor) findGrace() error {
	s.scheduler = scheduler.Find()
	if s.o.Grace > 0 {
		return nil
	}
	s.o.Grace = defaultGrace
	n, err := s.scheduler.Usual(context.Background())
	if err != nil {
		return optionError("%v", err)
	}
	s.asksGrace = s.scheduler.Asks()
	if n.Time > 0 {
		s.o.Grace, s.graceBy = graceOf(n.Time), n.By
	}
	return nil
}

// graceOf returns the ranks' part of the time between SIGTERM and SIGKILL.
func graceOf(given time.Duration) time.Duration {
	return given - min(max(given/10, time.Second), 10*time.Second, given/2)
}

// stop makes the ranks save and stop. If a move is decided, it does so after
// the move.
func (s *Supervisor) stop(why string) { s.stopOn(why, scheduler.Notice{}) }

// stopOn is stop after a notice of the scheduler, which may say how much time
// there is.
func (s *Supervisor) stopOn(why string, n scheduler.Notice) {
	if s.stopping || s.stopAfterMove != "" {
		s.proxied.hasty = s.proxied.ended
		return
	}
	if s.move != nil && s.move.decided {
		s.stopAfterMove = why
		s.say("%s: the run stops when %s moved", why, control.RanksText(s.move.Ranks)+isAre(len(s.move.Ranks)))
		return
	}
	s.stopRequest = stopRequest{stopping: true, stopAt: time.Now()}
	s.why = why
	if s.move != nil {
		s.moveFailed("the run is to stop")
	}
	for len(s.moveQueue) > 0 {
		s.drop(s.moveQueue[0], "the run is to stop")
	}
	if !s.asksGrace || n.Time > 0 {
		s.stopWithin(n)
		return
	}
	go func() {
		n := s.scheduler.Now(context.Background())
		s.post(func() { s.stopWithin(n) })
	}()
}

// stopWithin tells the ranks to save and stop within the time that the
// scheduler gives, if it is known and the user did not give another one.
func (s *Supervisor) stopWithin(n scheduler.Notice) {
	s.stopGrace, s.stopGraceBy = s.o.Grace, s.graceBy
	switch {
	case !s.asksGrace:
	case n.Time > 0:
		s.stopGrace, s.stopGraceBy = graceOf(n.Time), n.By
	case n.NoEnd:
		s.stopGrace, s.stopGraceBy = max(s.o.Grace, defaultGrace), ""
	}
	if s.a == nil || !s.a.begun() {
		return
	}
	s.happens(stopEvent)
	s.sink.Hasten(true)
	s.stopSaid, s.stopWhy = true, s.why
	s.report(events.Event{Kind: events.Stop}, "%s: ranks are to save and stop, within %s", s.why, s.graceText())
	step.At("stop.asked")
	s.askStop()
}

// graceText returns the time that the ranks have to stop, and whose it is.
func (s *Supervisor) graceText() string {
	text := control.TimeText(s.stopGrace.Round(time.Millisecond))
	if s.stopGraceBy != "" {
		text += " (" + s.stopGraceBy + ")"
	}
	return text
}

// askStop asks rank 0 to make all ranks save and stop. A program that does not
// use Cairn gets SIGTERM. If a checkpoint would take longer than there is time,
// none is begun: the ranks are killed, and their helpers publish what has been
// copied already.
func (s *Supervisor) askStop() {
	a := s.a
	if a.alive == 0 || s.stopGrace == 0 { // they have ended, and the rest of their output is being shown; or see stopWithin
		return
	}
	left := s.stopGrace - time.Since(s.stopAt)
	if !a.asked && a.greeted() {
		if took := s.shortestSave(); took > left {
			a.asked = true
			a.unsaved = fmt.Sprintf("a checkpoint takes %s, and the ranks had %s to stop", control.TimeText(took.Round(time.Millisecond)), s.graceText())
			s.say("there is no time for another checkpoint: the last ones took %s or more; the ranks are killed", control.TimeText(took.Round(time.Millisecond)))
			s.kill("")
			return
		}
	}
	if !a.asked {
		s.after(max(0, left), func() {
			if a.drained { // only tiers have to get the last checkpoint
				return
			}
			s.say("ranks did not stop within %s and are killed", s.graceText())
			if a.greeted() && a.unsaved == "" {
				a.unsaved = fmt.Sprintf("ranks did not save and stop within %s and were killed%s", s.graceText(), a.whyUnsaved())
			}
			s.kill("")
		})
	}
	switch {
	case a.ranks[0].Cairn:
		s.tellRank(0, &control.Checkpoint{Reason: s.why, Stop: true})
	case !a.greeted() && !a.asked:
		s.tellAll(&control.Terminate{})
	}
	a.asked = true
}

// whyUnsaved returns the rest of a sentence about ranks that did not save.
func (a *attempt) whyUnsaved() string {
	for i := range a.ranks {
		if r := &a.ranks[i]; r.blocked != "" {
			return fmt.Sprintf("; rank %d: %s", r.Rank, r.blocked)
		}
	}
	return "; --grace gives them more time"
}

// savesKept is how many of the last checkpoints tell how long the next one
// takes.
const savesKept = 3

// shortestSave returns how long a checkpoint takes at least, by the last ones;
// 0 if there are none.
func (s *Supervisor) shortestSave() time.Duration {
	if len(s.saveTimes) == 0 {
		return 0
	}
	return slices.Min(s.saveTimes)
}

// addSaveTime adds the time that a checkpoint took.
func (c *commits) addSaveTime(d time.Duration) {
	if d > 0 {
		c.saveTimes = append(c.saveTimes[max(0, len(c.saveTimes)-savesKept+1):], d)
	}
}

// signaled handles SIGTERM to a helper of a launcher. Slurm ends a job that is
// preempted by signals to its steps alone. It signals a failed step in the same
// way, which is no reason to stop.
func (s *Supervisor) signaled() {
	if s.stopping || s.asksEnd || !s.scheduler.Slurm() {
		return
	}
	s.asksEnd = true
	go func() {
		n := s.scheduler.Now(context.Background())
		s.post(func() {
			s.asksEnd = false
			if n.Ending {
				s.stopOn("Slurm ends the job", n)
			}
		})
	}()
}
