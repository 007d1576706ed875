//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/output"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// finish ends a run whose ranks have all ended well, with an exit status. If
// discard is set, the checkpoints are not needed any more. finish first records
// this durably: from then on the ranks never start again, and after a crash the
// next start completes the end.
func (s *Supervisor) finish(ctx context.Context, status int, discard bool) (Result, error) {
	step.At("finish.begin")
	s.happens(finishEvent)
	var err error
	if s.local != nil {
		err = s.local.outputErr
	}
	if err == nil {
		err = rundir.SyncOutput(s.o.RankOutput)
	}
	if err == nil {
		err = s.recordFinishing(status, discard)
	}
	if err != nil {
		s.rec.State = rundir.Running
		return s.end(Result{State: rundir.Failed, Status: UnsavedStatus,
			Why: fmt.Sprintf("the ranks have finished, but that could not be recorded: %v; the same command resumes from their last checkpoint", err)})
	}
	step.At("finish.recorded")
	return s.keepAndComplete(ctx)
}

// keepAndComplete brings the end of the run to its tiers, and completes it.
func (s *Supervisor) keepAndComplete(ctx context.Context) (Result, error) {
	switch err := s.keepEnd(ctx); {
	case errors.Is(err, errSuperseded):
		res := s.unfinished(fmt.Sprintf("the ranks have finished, but their end does not count: %v; nothing was removed, and what these ranks have left is in %s", err, s.dir.Path))
		res.Status = 1
		return res, nil
	case err != nil:
		return s.unfinished(fmt.Sprintf("the ranks have finished, but their end could not be brought to the tiers: %v; the same command does that, without starting them again", err)), nil
	}
	return s.complete()
}

func (s *Supervisor) recordFinishing(status int, discard bool) error {
	s.rec.State, s.rec.Status, s.rec.Discard, s.rec.Why = rundir.Finishing, status, discard, ""
	return s.record()
}

// complete writes the output of ranks that have finished and discards their
// checkpoints. It may repeat what an earlier supervisor did.
func (s *Supervisor) complete() (Result, error) {
	if err := s.putTogether(); err != nil {
		return s.incomplete(err), nil
	}
	step.At("finish.output")
	switch {
	case s.rec.Discard && s.local != nil:
		s.discardLocal()
		s.emptyTiers()
	case s.rec.Discard:
		if err := store.Clear(s.dir.FS, s.rec.CheckpointDir); err != nil { // the next run does it
			s.say("the checkpoints of the finished run could not be removed: %v", err)
		}
	}
	step.At("finish.discarded")
	return s.end(Result{State: rundir.Finished, Status: s.rec.Status})
}

// completeEarlier completes the end of a run whose supervisor was killed
// meanwhile, or could not write.
func (s *Supervisor) completeEarlier(ctx context.Context) (res Result, err error) {
	s.happens(finishEvent)
	s.owned = true
	s.say("the ranks have finished before; their end is completed, and they are not started again")
	if s.sink, err = output.New(s.o.sink(), s.n); err != nil {
		return s.incomplete(err), nil
	}
	defer s.sink.Close()
	if err := s.sink.ShowRest(); err != nil {
		return s.incomplete(err), nil
	}
	defer s.dismiss()
	s.gatherToEnd(ctx)
	if s.tick != nil {
		defer s.tick.Stop()
	}
	return s.keepAndComplete(ctx)
}

// incomplete reports why the output of the run could not be completed.
func (s *Supervisor) incomplete(err error) Result {
	return s.unfinished(fmt.Sprintf("the ranks have finished, but their output could not be put together: %v; it is in %s; the same command does that, without starting them again", err, s.o.RankOutput))
}

// unfinished reports why the end of the run could not be completed.
func (s *Supervisor) unfinished(why string) Result {
	res := Result{State: rundir.Finishing, Status: UnsavedStatus, Why: why}
	s.why, s.rec.Why = res.Why, res.Why
	s.report(events.Event{Kind: events.End, State: res.State, Status: res.Status}, "%s", res.Why)
	s.save()
	return res
}

// recordFinished records that the run is complete: all output was shown. From
// here on the same command begins a new run. So this comes last: if the
// supervisor is killed before, the same command reports how the run ended.
func (s *Supervisor) recordFinished() {
	step.At("finish.shown")
	s.rec.State = rundir.Finished
	if err := s.record(); err != nil { // the same command completes the end again
		s.say("cannot record that the run has finished: %v", err)
	}
}

// putTogether finishes the output, and serves requests meanwhile. If it waits
// for a reader of the output, a stop ends the wait.
func (s *Supervisor) putTogether() (err error) {
	done, stopping := false, s.stopping
	go func() {
		e := s.sink.Finish()
		s.post(func() { done, err = true, e })
	}()
	s.until(context.Background(), func() bool {
		if s.stopping && !stopping {
			stopping = true
			s.sink.Hasten(true)
			s.sink.CloseLive()
		}
		return done
	}, nil)
	return err
}
