package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/step"
)

// Point is a place where a checkpoint may be taken; see cairn.Run.Point.
func (p *Run) Point(ctx context.Context) error {
	if p.increment.begun {
		return nil
	}
	p.points++
	p.pointsLeft--
	if p.observed {
		p.reportedPoints.Store(p.points)
		if p.identity.Size > 1 {
			if p.peers.nothingDue() && !p.wake.Load() {
				return nil
			}
			return p.pointTogether(ctx)
		}
	}
	if p.pointsLeft != 0 && !p.wake.Load() {
		return nil
	}
	return p.point(ctx)
}

// pointTogether is a point in a run of several ranks that may have something to
// do.
func (p *Run) pointTogether(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	p.Pause()
	defer p.Continue()
	p.wake.Store(false)
	p.precopyImage()
	select {
	case r := <-p.outcome:
		p.collect(r)
	default:
	}
	return p.peers.point(ctx)
}

// point is a point in a run of one rank that may have something to do.
func (p *Run) point(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	stop := p.stop.Load()
	if stop != nil {
		ctx = context.WithoutCancel(ctx)
	} else if err := ctx.Err(); err != nil {
		p.retryNext()
		return err
	}
	p.wake.Store(false)
	p.precopyImage()
	if err := p.moveSingle(ctx); err != nil {
		return err
	}
	select {
	case r := <-p.outcome:
		p.collect(r)
	default:
	}
	reason := p.deferredReason
	if p.pointsLeft == 0 && p.opts.EveryPoints > 0 {
		reason = "points"
	}
	if p.due.Swap(false) {
		reason = "time"
	}
	must := false
	if by := p.request.Swap(nil); by != nil {
		reason, must = *by, true
	}
	if stop != nil {
		reason, must = *stop, true
	}
	if reason != "" && !must && p.saver.Busy() { // the disk is too slow: take it when the writer is done
		p.deferredReason = reason
		return p.takeError()
	}
	if reason != "" {
		p.deferredReason = ""
		if err := p.save(ctx, reason); err != nil {
			if ctx.Err() != nil {
				p.deferredReason = reason
			}
			p.fail(err)
		}
	}
	if stop != nil {
		return p.stopped(ctx, *stop)
	}
	return p.takeError()
}

// stopped waits until the checkpoint before a stop is written, and returns the
// error that ends the program. A program that continues anyway is not stopped
// again.
func (p *Run) stopped(ctx context.Context, by string) error {
	if err := p.awaitWriter(ctx); err != nil {
		return err
	}
	p.stop.Store(nil)
	p.pendingErr = nil
	step.At("stop.saved")
	p.identity.supervisor.send(&control.Stopped{Index: p.lastCommitted, Error: errorText(p.lastErr)})
	if p.lastErr != nil && p.lastCommitted == 0 {
		return fmt.Errorf("cairn: %w: %s: the state is NOT saved, and there is no checkpoint: %w", ErrStopped, by, p.lastErr)
	}
	if p.lastErr != nil {
		return fmt.Errorf("cairn: %w: %s: the state is NOT saved; the last committed checkpoint is %d: %w", ErrStopped, by, p.lastCommitted, p.lastErr)
	}
	return p.stoppedWith(p.lastCommitted, by+": ")
}

// stoppedWith returns the error of a run that has saved and stops. Under a
// supervisor the error is short, because the supervisor reports the rest.
func (p *Run) stoppedWith(index uint64, by string) error {
	if p.identity.supervisor != nil {
		return fmt.Errorf("cairn: %w", ErrStopped)
	}
	return fmt.Errorf("cairn: %w: %scheckpoint %d is committed; start the program again to resume", ErrStopped, by, index)
}

// Checkpoint saves now, and waits until the checkpoint is committed; see
// cairn.Run.Checkpoint.
func (p *Run) Checkpoint(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	if p.increment.begun {
		return errors.New("cairn: Checkpoint after Begin: call Commit or Cancel before")
	}
	if p.identity.Size > 1 {
		return p.checkpointTogether(ctx)
	}
	err := p.save(ctx, "call")
	if err != nil {
		p.fail(err)
	} else if err := p.awaitWriter(ctx); err != nil {
		return err
	}
	if p.lastErr != nil {
		p.pendingErr = nil
	}
	return p.lastErr
}

// ready returns an error if no checkpoint can be taken.
func (p *Run) ready() error {
	if err := p.usable(); err != nil {
		return err
	}
	return p.stateErr
}

// usable returns an error if the run cannot be used.
func (p *Run) usable() error {
	switch {
	case p.protectErr != nil:
		return p.protectErr
	case p.phase == phaseClosed:
		return errors.New("cairn: the run is closed")
	case p.identity.Size == 1 && p.identity.supervisor.err() != nil:
		if p.identity.tiers != nil {
			return fmt.Errorf("cairn: the tier helper has ended: %w; end the program, and start it again: it resumes from its last checkpoint", p.identity.supervisor.err())
		}
		return fmt.Errorf("cairn: %w; end the program: it is restarted from its last checkpoint", p.identity.supervisor.err())
	case p.phase != phaseRunning:
		return errors.New("cairn: there was no Restore, or it failed: call it once, after Protect and before the loop (it returns false when there is nothing to restore)")
	}
	return nil
}

// save takes a checkpoint in a run of one rank. It waits for the writer before.
func (p *Run) save(ctx context.Context, reason string) error {
	p.Pause()
	defer p.Continue()
	note := ckpt.Note{Points: p.points, Reason: reason}
	if _, err := p.copyState(ctx, &note, new(coord.Save)); err != nil {
		return err
	}
	saving, began, printed, done := p.current, p.began, p.files.printed, p.saver.Done()
	go func() {
		r := <-done
		saving.Pause = p.saver.Paused()
		if p.identity.Size <= 1 { // report it now: the next point may be far away
			p.reportOutcome(saving, began, printed, r)
			if r.Err == nil {
				p.identity.supervisor.send(&control.Committed{Index: r.Index})
			}
		}
		p.outcome <- r
		p.wakePoint()
	}()
	p.schedule()
	return nil
}

// copyState copies the state and hands it to the writer. It adds to note what
// is in flight.
func (p *Run) copyState(ctx context.Context, note *ckpt.Note, s *coord.Save) (uint64, error) {
	if err := p.awaitWriter(ctx); err != nil {
		return 0, err
	}
	p.recordUnrecorded()
	note.Began = time.Now()
	note.Empty = p.driven.emptyArrays()
	if p.increment.used {
		note.Before = p.increment.took
	} else if !p.stoodSince.IsZero() {
		note.Before = note.Began.Sub(p.stoodSince)
	}
	step.At("copy.begin")
	if p.opts.OnCopy != nil {
		if err := p.opts.OnCopy(); err != nil {
			return 0, err
		}
	}
	if p.peers != nil { // after OnCopy: until then, another goroutine may receive
		p.peers.captureInflight(note, s)
	}
	p.saver.Prefetch()
	files, err := p.files.entries() // first: it removes closed files, so that Collect finds them closed
	if err == nil {
		if err = p.recordFiles(files); err != nil && p.identity.Size <= 1 {
			p.reportOutcome(CheckpointInfo{}, time.Time{}, control.NoStdout, ckpt.Result{Index: p.saver.Next(), Err: err})
			err = p.markReported(err)
		}
	}
	if err != nil {
		return 0, err
	}
	if d := p.driven.save; d != nil {
		note.Pause = d.Pause
		d.recorded(p.saver.Next())
	}
	img, err := p.collectState(&p.collector)
	if err != nil {
		return 0, err
	}
	if p.peers != nil {
		if err := p.peers.checkPending(s.Alone); err != nil {
			return 0, err
		}
	}
	files = append(files, p.files.closed.entries()...)
	if !p.files.journaled {
		p.saver.SyncAlso(p.files.closed.paths())
	}
	index, err := p.saver.Save(ctx, img, files, *note)
	p.collector.Release()
	if err != nil {
		return 0, err
	}
	p.cost = p.saver.Paused()
	p.began = note.Began.Add(-note.Before)
	if p.driven.save != nil {
		p.began = note.Began.Add(-p.cost) // the pause is over
	}
	step.At("copy.done")
	p.current = CheckpointInfo{Index: index, Reason: note.Reason, StateBytes: imageBytes(img), Pause: p.cost}
	return index, nil
}

// saveTogether saves this rank's part of a checkpoint that all ranks take.
func (p *Run) saveTogether(ctx context.Context, s *coord.Save) error {
	ctx = context.WithoutCancel(ctx)
	if err := p.awaitWriter(ctx); err != nil {
		return err
	}
	t := p.peers
	reopen := false
	if !s.Alone {
		t.engine.Lock()
		var err error
		reopen, err = t.engine.CloseFragile(ctx)
		t.engine.Unlock()
		if err != nil {
			t.engine.Fail(err) // the other ranks cannot reach this one any more
			return err
		}
	}
	err := p.saver.SetNext(s.Index)
	var sums coord.Sums
	if err == nil {
		note := ckpt.Note{Points: s.Point, Reason: s.Reason}
		if d := p.driven.save; d != nil {
			note.Points, note.Reason = d.Points, d.Reason
		}
		_, err = p.copyState(ctx, &note, s)
		if s.Alone {
			sums = coord.SumsOf(p.identity.Rank, note.Sent, note.Received)
		}
	}
	if err == nil {
		saving, began, printed, done := p.current, p.began, p.files.printed, p.saver.Done()
		p.uncommitted[saving.Index] = saving
		t.writing.Go(func() {
			r := <-done
			saving.Pause = p.saver.Paused()
			p.outcome <- r
			p.wakePoint()
			p.reportOutcome(saving, began, printed, r)
			t.reportSaved(s.Index, sums, r.Err)
		})
		p.schedule()
	}
	if reopen {
		if rerr := t.engine.Reopen(ctx); rerr != nil {
			t.engine.Fail(rerr)
			return errors.Join(err, rerr)
		}
	}
	return err
}

// checkpointTogether takes a checkpoint with all ranks, and waits until it is
// committed.
func (p *Run) checkpointTogether(ctx context.Context) error {
	if err := p.takeTogether(ctx); err != nil {
		return err
	}
	if p.lastErr == nil {
		if err := p.peers.await(ctx, p.current.Index); err != nil {
			return err
		}
	}
	if p.lastErr != nil {
		p.pendingErr = nil
	}
	return p.lastErr
}

// takeTogether requests a checkpoint of all ranks, and takes part until this
// rank has copied its state, or lastErr says why there is no checkpoint.
func (p *Run) takeTogether(ctx context.Context) error {
	t, before := p.peers, p.current.Index
	p.lastErr = nil
	t.request("call", false)
	for p.current.Index == before && p.lastErr == nil {
		if t.noMore != nil {
			return fmt.Errorf("cairn: %w: %w", ErrNotSaved, t.noMore)
		}
		t.awaitRound(ctx)
		if err := p.Point(ctx); err != nil {
			return err
		}
	}
	return nil
}

// committed notes that all ranks have saved a checkpoint.
func (p *Run) committed(index uint64) {
	if p.saver.Busy() && p.current.Index == index { // this rank's part is written, too
		p.collect(<-p.outcome)
	}
	p.lastCommitted, p.lastErr, p.failures = index, nil, 0
	p.saver.Line(index)
	saving, ok := p.uncommitted[index]
	for n := range p.uncommitted {
		if n <= index {
			delete(p.uncommitted, n)
		}
	}
	if ok && p.opts.OnSaved != nil {
		p.opts.OnSaved(saving)
	}
}

// awaitWriter waits until no checkpoint is being written.
func (p *Run) awaitWriter(ctx context.Context) error {
	if !p.saver.Busy() {
		return nil
	}
	select {
	case r := <-p.outcome:
		p.collect(r)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func imageBytes(img *graph.Image) int64 {
	n := int64(0)
	for i := range img.Pools {
		n += int64(img.Pools[i].Bytes())
	}
	return n
}

// collect notes the outcome of a checkpoint on this rank.
func (p *Run) collect(r ckpt.Result) {
	p.saver.Collect(r)
	p.recordUnrecorded()
	p.current.WrittenBytes, p.current.CopyTime, p.current.WriteTime = r.Written, r.Copied, r.Took
	if pause := p.saver.Paused(); r.Err == nil && pause != p.cost { // devices still copied when the point returned
		before := p.interval()
		p.cost, p.current.Pause = pause, pause
		p.postpone(p.interval() - before)
	}
	if p.identity.Size > 1 {
		if _, ok := p.uncommitted[r.Index]; ok {
			p.uncommitted[r.Index] = p.current
		}
		return // the outcome on all ranks counts
	}
	if r.Err != nil {
		p.fail(p.markReported(r.Err))
		return
	}
	p.lastCommitted, p.lastErr, p.failures = r.Index, nil, 0
	if p.opts.OnSaved != nil {
		p.opts.OnSaved(p.current)
	}
}

// reportOutcome tells the supervisor the outcome of this rank's part of a
// checkpoint, whose pause began at began. printed is the size of stdout in the
// checkpoint.
func (p *Run) reportOutcome(s CheckpointInfo, began time.Time, printed int64, r ckpt.Result) {
	if r.Err != nil {
		p.identity.supervisor.send(&control.SaveFailed{Index: r.Index, Error: r.Err.Error()})
		return
	}
	p.identity.supervisor.send(&control.Saved{
		Index: r.Index, Reason: s.Reason, State: s.StateBytes, Written: r.Written,
		Pause: s.Pause, Took: time.Since(began), Stdout: printed,
	})
}

// markReported marks an error that the supervisor, if there is one, knows
// already.
func (p *Run) markReported(err error) error {
	if p.identity.supervisor == nil {
		return err
	}
	return control.Reported{Err: err}
}

// fail notes that a checkpoint failed. If another one became due meanwhile, it
// is not taken at once: it would fail at every point.
func (p *Run) fail(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		p.pendingErr, p.lastErr = err, err
		p.retryNext()
		return
	}
	p.failures++
	p.deferredReason = ""
	p.due.Store(false)
	p.dueIn(retryDelay(p.failures, p.interval()))
	err = fmt.Errorf("cairn: %w: %w", ErrNotSaved, err)
	p.lastErr = err
	if p.opts.OnError != nil {
		p.opts.OnError(err)
		return
	}
	p.pendingErr = err
}

// retryNext makes the next Point repeat what a canceled one did not do.
func (p *Run) retryNext() {
	p.pointsLeft = cmp.Or(p.pointsLeft, 1)
	p.wakePoint()
}

func (p *Run) takeError() error {
	err := p.pendingErr
	p.pendingErr = nil
	return err
}

// schedule sets when the next checkpoint is due. The program gets at least as
// much time as the last one paused it.
func (p *Run) schedule() {
	every := p.interval()
	if every > 0 {
		every = max(every, p.cost)
	}
	p.dueIn(every)
}

// interval returns the time between checkpoints. 0: none is due by time.
func (p *Run) interval() time.Duration {
	every := p.opts.Every
	if p.opts.Auto {
		if a := Interval(p.cost, p.opts.MTBF); every == 0 || a < every {
			every = a
		}
	}
	return every
}

// firstRetryDelay is the time between a failed checkpoint and the next one.
const firstRetryDelay = 10 * time.Second

// retryDelay returns the time until the next checkpoint after a number of
// failed checkpoints in a row. The time doubles with each failure, up to the
// usual interval.
func retryDelay(failed int, every time.Duration) time.Duration {
	d := firstRetryDelay
	for ; failed > 1; failed-- {
		if d >= every/2 {
			return every
		}
		d *= 2
	}
	return min(d, every)
}

// dueIn makes the next checkpoint due after a time (0: none is due by time),
// and after EveryPoints.
func (p *Run) dueIn(every time.Duration) {
	p.pointsLeft = p.opts.EveryPoints
	if every == 0 || p.identity.Rank != 0 { // rank 0 requests it for all
		return
	}
	p.dueAt = time.Now().Add(every)
	if p.timer == nil {
		p.timer = control.NewAlarm(func() {
			if p.identity.Size > 1 && p.opts.Driver == nil {
				p.peers.request("time", false)
				return
			}
			p.due.Store(true)
			p.wakePoint()
		})
	}
	p.timer.Set(every)
}

// postpone makes the next checkpoint due later (or earlier) by d, unless it is
// due already.
func (p *Run) postpone(d time.Duration) {
	if d == 0 || p.timer == nil || !time.Now().Before(p.dueAt) {
		return
	}
	p.dueAt = p.dueAt.Add(d)
	p.timer.Set(max(time.Until(p.dueAt), time.Millisecond))
}

// Interval returns the time between checkpoints that loses the least work if
// each costs the program cost and failures are mtbf apart on average. This is
// Daly's estimate (Future Generation Computer Systems 22, 2006), which refines
// Young's sqrt(2·cost·mtbf).
func Interval(cost, mtbf time.Duration) time.Duration {
	c, m := max(cost.Seconds(), 1e-3), mtbf.Seconds()
	if c >= 2*m {
		return mtbf
	}
	r := c / (2 * m)
	t := math.Sqrt(2*c*m)*(1+math.Sqrt(r)/3+r/9) - c
	return time.Duration(t * float64(time.Second))
}
