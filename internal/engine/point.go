package engine

import (
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

// Point is a place where a checkpoint may be taken: no other goroutine
// changes protected variables while it runs. It returns at once unless a
// checkpoint is due. When one is, it returns as soon as everything that
// belongs to the set has been copied; what the program changes from then on
// never reaches that set. Digesting, writing and publishing go on behind.
//
// It returns ErrStopped after a signal that says save and stop; an error that
// wraps ErrNotSaved when a set could not be saved (the program may go on, and
// the next one is due after a pause, of ten seconds at first, that doubles up to
// the usual interval, or after EveryPoints); both when the signal came and the
// save failed. ctx is looked at only when there is something to do; a signal
// that says stop is obeyed even if ctx was canceled by the same signal.
//
// In a run of several ranks a due point waits for the other ranks. If ctx ends
// meanwhile, this rank has left the run: they may count on it staying where it
// is, so all that it sends or receives after that fails.
func (p *Run) Point(ctx context.Context) error {
	p.points++
	p.pointsLeft--
	if p.observed { // there are others who want to know
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

// pointTogether is point in a run of several ranks.
func (p *Run) pointTogether(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	p.wake.Store(false)
	p.precopyImage()
	select {
	case r := <-p.outcome:
		p.collect(r)
	default:
	}
	return p.peers.point(ctx)
}

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
	if reason != "" && !must && p.saver.Busy() { // the disk is slower than that: when it is done
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

// stopped waits for the set that a signal asked for, and says how it went. A
// program that goes on nevertheless is not asked again.
func (p *Run) stopped(ctx context.Context, by string) error {
	if err := p.awaitWriter(ctx); err != nil {
		return err
	}
	p.stop.Store(nil)
	p.pendingErr = nil
	step.At("stop.saved")
	p.identity.supervisor.send(&control.Stopped{Index: p.lastCommitted, Error: errorText(p.lastErr)})
	if p.lastErr != nil && p.lastCommitted == 0 {
		return fmt.Errorf("cairn: %w: %s: the state is NOT saved, and no set is safe: %w", ErrStopped, by, p.lastErr)
	}
	if p.lastErr != nil {
		return fmt.Errorf("cairn: %w: %s: the state is NOT saved, the last set that is safe is %d: %w", ErrStopped, by, p.lastCommitted, p.lastErr)
	}
	return fmt.Errorf("cairn: %w: %s: set %d is saved; start the program again to go on", ErrStopped, by, p.lastCommitted)
}

// Checkpoint saves now, whether due or not, and returns when the set is safe.
// In a run of several ranks it asks all of them for a set, and returns when
// this rank's part of one is safe on all ranks: it is then best called by all
// of them at the same place, which counts as a point.
func (p *Run) Checkpoint(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
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

// ready tells why no checkpoint can be taken.
func (p *Run) ready() error {
	if err := p.usable(); err != nil {
		return err
	}
	return p.stateErr
}

// usable tells why the run can't be used.
func (p *Run) usable() error {
	switch {
	case p.protectErr != nil:
		return p.protectErr
	case p.closed:
		return errors.New("cairn: the run is closed")
	case p.identity.Size == 1 && p.identity.supervisor.err() != nil:
		return fmt.Errorf("cairn: %w; end the program: it is started again from its last set", p.identity.supervisor.err())
	case !p.restored:
		return errors.New("cairn: there was no Restore, or it failed: call it once, after Protect and before the loop (it returns false when there is nothing to restore)")
	}
	return nil
}

// save starts a set, after the one under way.
func (p *Run) save(ctx context.Context, reason string) error {
	note := ckpt.Note{Points: p.points, Reason: reason}
	if p.peers != nil {
		p.peers.captureInflight(&note, new(coord.Save))
	}
	if _, err := p.copyState(ctx, note, false); err != nil {
		return err
	}
	saving, done := p.current, p.saver.Done()
	go func() {
		r := <-done
		if p.identity.Size <= 1 { // the next point may be far
			p.reportOutcome(saving, r)
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

// copyState copies the state and hands it to the writer.
func (p *Run) copyState(ctx context.Context, note ckpt.Note, alone bool) (uint64, error) {
	if err := p.awaitWriter(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	step.At("copy.begin")
	if p.opts.OnCopy != nil {
		if err := p.opts.OnCopy(); err != nil {
			return 0, err
		}
	}
	p.saver.Prefetch()
	files, err := p.files.entries() // first: it forgets closed files, which Collect then refuses
	if err == nil {
		if err = p.recordFiles(files); err != nil && p.identity.Size <= 1 {
			p.reportOutcome(CheckpointInfo{}, ckpt.Result{Index: p.saver.Next(), Err: err})
			err = p.markReported(err)
		}
	}
	if err != nil {
		return 0, err
	}
	img, err := p.collector.Collect(p.roots, p.env())
	if err != nil {
		return 0, err
	}
	if p.peers != nil {
		if err := p.peers.checkPending(alone); err != nil {
			return 0, err
		}
	}
	index, err := p.saver.Save(ctx, img, files, note)
	p.collector.Release()
	if err != nil {
		return 0, err
	}
	p.cost = time.Since(began)
	step.At("copy.done")
	p.current = CheckpointInfo{Index: index, Reason: note.Reason, StateBytes: imageBytes(img), Pause: p.cost}
	return index, nil
}

// saveTogether saves this rank's part of a set, as all ranks do.
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
			t.engine.Fail(err) // the others can't reach this rank any more
			return err
		}
	}
	err := p.saver.SetNext(s.Index)
	var sums coord.Sums
	if err == nil {
		note := ckpt.Note{Points: s.Point, Reason: s.Reason}
		t.captureInflight(&note, s)
		if s.Alone {
			sums = coord.SumsOf(p.identity.Rank, note.Sent, note.Received)
		}
		_, err = p.copyState(ctx, note, s.Alone)
	}
	if err == nil {
		saving, done := p.current, p.saver.Done()
		p.uncommitted[saving.Index] = saving
		t.writing.Add(1)
		go func() {
			defer t.writing.Done()
			r := <-done
			p.outcome <- r
			p.wakePoint()
			p.reportOutcome(saving, r)
			t.reportSaved(s.Index, sums, r.Err)
		}()
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

// checkpointTogether asks for a set, and takes part until there is one.
func (p *Run) checkpointTogether(ctx context.Context) error {
	before := p.current.Index
	p.lastErr = nil
	p.peers.request("call", false)
	for p.current.Index == before && p.lastErr == nil {
		if err := p.Point(ctx); err != nil {
			return err
		}
		if err := p.peers.noMore; err != nil && p.current.Index == before {
			return fmt.Errorf("cairn: %w: %w", ErrNotSaved, err)
		}
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

// committed takes in that all ranks have a set.
func (p *Run) committed(index uint64) {
	if p.saver.Busy() && p.current.Index == index { // of this rank, too: its outcome is there
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

// awaitWriter waits until no set is being written.
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

// collect takes in what became of a set.
func (p *Run) collect(r ckpt.Result) {
	p.saver.Collect(r)
	p.current.WrittenBytes, p.current.WriteTime = r.Written, r.Took
	if p.identity.Size > 1 {
		if _, ok := p.uncommitted[r.Index]; ok {
			p.uncommitted[r.Index] = p.current
		}
		return // what counts is what became of it on all ranks
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

// reportOutcome tells the supervisor what became of this rank's part of a set.
func (p *Run) reportOutcome(s CheckpointInfo, r ckpt.Result) {
	if r.Err != nil {
		p.identity.supervisor.send(&control.SaveFailed{Index: r.Index, Error: r.Err.Error()})
		return
	}
	p.identity.supervisor.send(&control.Saved{
		Index: r.Index, Reason: s.Reason, State: s.StateBytes, Written: r.Written,
		Pause: s.Pause, Took: r.Took,
	})
}

// markReported marks an error that the supervisor, if there is one, was told of.
func (p *Run) markReported(err error) error {
	if p.identity.supervisor == nil {
		return err
	}
	return control.Reported{Err: err}
}

// fail notes that a set could not be saved. What had become due meanwhile is not
// tried at once: there would be a set that fails at every point.
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

// retryNext makes the next Point try what a canceled one did not do.
func (p *Run) retryNext() {
	if p.pointsLeft == 0 {
		p.pointsLeft = 1
	}
	p.wakePoint()
}

func (p *Run) takeError() error {
	err := p.pendingErr
	p.pendingErr = nil
	return err
}

// schedule sets when the next checkpoint is due.
func (p *Run) schedule() { p.dueIn(p.interval()) }

// interval is the time between checkpoints; 0: they are not due by time.
func (p *Run) interval() time.Duration {
	every := p.opts.Every
	if p.opts.Auto {
		if a := Interval(p.cost, p.opts.MTBF); every == 0 || a < every {
			every = a
		}
	}
	return every
}

// firstRetryDelay is the time between a set that failed and the next one.
const firstRetryDelay = 10 * time.Second

// retryDelay is that time when so many sets in a row have failed. It doubles, up to
// the usual interval.
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

// dueIn makes the next checkpoint due after a time, if not 0, and after
// EveryPoints.
func (p *Run) dueIn(every time.Duration) {
	p.pointsLeft = p.opts.EveryPoints
	if every == 0 || p.identity.Rank != 0 { // one rank asks for all
		return
	}
	p.dueAt = time.Now().Add(every)
	if p.timer != nil {
		p.timer.Reset(every)
		return
	}
	p.timer = time.AfterFunc(every, func() {
		if p.identity.Size > 1 {
			p.peers.request("time", false)
			return
		}
		p.due.Store(true)
		p.wakePoint()
	})
}

// Interval is the time between checkpoints that loses least when each costs
// the program cost and failures come mtbf apart on average: Daly's estimate
// (Future Generation Computer Systems 22, 2006), which refines Young's
// sqrt(2·cost·mtbf).
func Interval(cost, mtbf time.Duration) time.Duration {
	c, m := max(cost.Seconds(), 1e-3), mtbf.Seconds()
	if c >= 2*m {
		return mtbf
	}
	r := c / (2 * m)
	t := math.Sqrt(2*c*m)*(1+math.Sqrt(r)/3+r/9) - c
	return time.Duration(t * float64(time.Second))
}
