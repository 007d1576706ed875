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
	p.left--
	if p.slow { // there are others who want to know
		p.shown.Store(p.points)
		if p.seat.Size > 1 {
			if p.team.quiet() && !p.wake.Load() {
				return nil
			}
			return p.pointTogether(ctx)
		}
	}
	if p.left != 0 && !p.wake.Load() {
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
	p.ahead()
	select {
	case r := <-p.outcome:
		p.collect(r)
	default:
	}
	return p.team.point(ctx)
}

func (p *Run) point(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	stop := p.stop.Load()
	if stop != nil {
		ctx = context.WithoutCancel(ctx)
	} else if err := ctx.Err(); err != nil {
		p.again()
		return err
	}
	p.wake.Store(false)
	p.ahead()
	if err := p.moveHere(ctx); err != nil {
		return err
	}
	select {
	case r := <-p.outcome:
		p.collect(r)
	default:
	}
	reason := p.late
	if p.left == 0 && p.opts.EveryPoints > 0 {
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
		p.late = reason
		return p.takeError()
	}
	if reason != "" {
		p.late = ""
		if err := p.save(ctx, reason); err != nil {
			if ctx.Err() != nil {
				p.late = reason
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
	if err := p.await(ctx); err != nil {
		return err
	}
	p.stop.Store(nil)
	p.unsaid = nil
	step.At("stop.saved")
	p.seat.ctl.say(&control.Stopped{Index: p.safe, Error: errorText(p.lost)})
	if p.lost != nil && p.safe == 0 {
		return fmt.Errorf("cairn: %w: %s: the state is NOT saved, and no set is safe: %w", ErrStopped, by, p.lost)
	}
	if p.lost != nil {
		return fmt.Errorf("cairn: %w: %s: the state is NOT saved, the last set that is safe is %d: %w", ErrStopped, by, p.safe, p.lost)
	}
	return fmt.Errorf("cairn: %w: %s: set %d is saved; start the program again to go on", ErrStopped, by, p.safe)
}

// Checkpoint saves now, whether due or not, and returns when the set is safe.
// In a run of several ranks it asks all of them for a set, and returns when
// this rank's part of one is safe on all ranks: it is then best called by all
// of them at the same place, which counts as a point.
func (p *Run) Checkpoint(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	if p.seat.Size > 1 {
		return p.checkpointTogether(ctx)
	}
	err := p.save(ctx, "call")
	if err != nil {
		p.fail(err)
	} else if err := p.await(ctx); err != nil {
		return err
	}
	if p.lost != nil {
		p.unsaid = nil
	}
	return p.lost
}

// ready tells why no checkpoint can be taken.
func (p *Run) ready() error {
	if err := p.usable(); err != nil {
		return err
	}
	return p.spoiled
}

// usable tells why the run can't be used.
func (p *Run) usable() error {
	switch {
	case p.broken != nil:
		return p.broken
	case p.closed:
		return errors.New("cairn: the run is closed")
	case p.seat.Size == 1 && p.seat.ctl.lost() != nil:
		return fmt.Errorf("cairn: %w; end the program: it is started again from its last set", p.seat.ctl.lost())
	case !p.restored:
		return errors.New("cairn: there was no Restore, or it failed: call it once, after Protect and before the loop (it returns false when there is nothing to restore)")
	}
	return nil
}

// save starts a set, after the one under way.
func (p *Run) save(ctx context.Context, reason string) error {
	note := ckpt.Note{Points: p.points, Reason: reason}
	if p.team != nil {
		p.team.pack(&note, new(coord.Save))
	}
	if _, err := p.start(ctx, note, false); err != nil {
		return err
	}
	saving, done := p.saving, p.saver.Done()
	go func() {
		r := <-done
		if p.seat.Size <= 1 { // the next point may be far
			p.sayOutcome(saving, r)
			if r.Err == nil {
				p.seat.ctl.say(&control.Committed{Index: r.Index})
			}
		}
		p.outcome <- r
		p.rouse()
	}()
	p.schedule()
	return nil
}

// start copies the state and hands it to the writer.
func (p *Run) start(ctx context.Context, note ckpt.Note, alone bool) (uint64, error) {
	if err := p.await(ctx); err != nil {
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
		if err = p.vouch(files); err != nil && p.seat.Size <= 1 {
			p.sayOutcome(CheckpointInfo{}, ckpt.Result{Index: p.saver.Next(), Err: err})
			err = p.toldOf(err)
		}
	}
	if err != nil {
		return 0, err
	}
	img, err := p.collector.Collect(p.roots, p.env())
	if err != nil {
		return 0, err
	}
	if p.team != nil {
		if err := p.team.packed(alone); err != nil {
			return 0, err
		}
	}
	set, err := p.saver.Save(ctx, img, files, note)
	p.collector.Release()
	if err != nil {
		return 0, err
	}
	p.held = time.Since(began)
	step.At("copy.done")
	p.saving = CheckpointInfo{Index: set, Reason: note.Reason, StateBytes: imageBytes(img), Pause: p.held}
	return set, nil
}

// saveSet saves this rank's part of a set, as all ranks do.
func (p *Run) saveSet(ctx context.Context, s *coord.Save) error {
	ctx = context.WithoutCancel(ctx)
	if err := p.await(ctx); err != nil {
		return err
	}
	t := p.team
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
		t.pack(&note, s)
		if s.Alone {
			sums = coord.SumsOf(p.seat.Rank, note.Sent, note.Received)
		}
		_, err = p.start(ctx, note, s.Alone)
	}
	if err == nil {
		saving, done := p.saving, p.saver.Done()
		p.savings[saving.Index] = saving
		t.writing.Add(1)
		go func() {
			defer t.writing.Done()
			r := <-done
			p.outcome <- r
			p.rouse()
			p.sayOutcome(saving, r)
			t.saved(s.Index, sums, r.Err)
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
	before := p.saving.Index
	p.lost = nil
	p.team.ask("call", false)
	for p.saving.Index == before && p.lost == nil {
		if err := p.Point(ctx); err != nil {
			return err
		}
		if err := p.team.never; err != nil && p.saving.Index == before {
			return fmt.Errorf("cairn: %w: %w", ErrNotSaved, err)
		}
	}
	if p.lost == nil {
		if err := p.team.await(ctx, p.saving.Index); err != nil {
			return err
		}
	}
	if p.lost != nil {
		p.unsaid = nil
	}
	return p.lost
}

// committed takes in that all ranks have a set.
func (p *Run) committed(set uint64) {
	if p.saver.Busy() && p.saving.Index == set { // of this rank, too: its outcome is there
		p.collect(<-p.outcome)
	}
	p.safe, p.lost, p.failed = set, nil, 0
	p.saver.Line(set)
	saving, ok := p.savings[set]
	for n := range p.savings {
		if n <= set {
			delete(p.savings, n)
		}
	}
	if ok && p.opts.OnSaved != nil {
		p.opts.OnSaved(saving)
	}
}

// await waits until no set is being written.
func (p *Run) await(ctx context.Context) error {
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
	p.saving.WrittenBytes, p.saving.WriteTime = r.Written, r.Took
	if p.seat.Size > 1 {
		if _, ok := p.savings[r.Index]; ok {
			p.savings[r.Index] = p.saving
		}
		return // what counts is what became of it on all ranks
	}
	if r.Err != nil {
		p.fail(p.toldOf(r.Err))
		return
	}
	p.safe, p.lost, p.failed = r.Index, nil, 0
	if p.opts.OnSaved != nil {
		p.opts.OnSaved(p.saving)
	}
}

// sayOutcome tells the supervisor what became of this rank's part of a set.
func (p *Run) sayOutcome(s CheckpointInfo, r ckpt.Result) {
	if r.Err != nil {
		p.seat.ctl.say(&control.SaveFailed{Index: r.Index, Error: r.Err.Error()})
		return
	}
	p.seat.ctl.say(&control.Saved{
		Index: r.Index, Reason: s.Reason, State: s.StateBytes, Written: r.Written,
		Pause: s.Pause, Took: r.Took,
	})
}

// toldOf marks an error that the supervisor, if there is one, was told of.
func (p *Run) toldOf(err error) error {
	if p.seat.ctl == nil {
		return err
	}
	return control.Reported{Err: err}
}

// fail notes that a set could not be saved. What had become due meanwhile is not
// tried at once: there would be a set that fails at every point.
func (p *Run) fail(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		p.unsaid, p.lost = err, err
		p.again()
		return
	}
	p.failed++
	p.late = ""
	p.due.Store(false)
	p.dueIn(pause(p.failed, p.interval()))
	err = fmt.Errorf("cairn: %w: %w", ErrNotSaved, err)
	p.lost = err
	if p.opts.OnError != nil {
		p.opts.OnError(err)
		return
	}
	p.unsaid = err
}

// again makes the next Point try what a canceled one did not do.
func (p *Run) again() {
	if p.left == 0 {
		p.left = 1
	}
	p.rouse()
}

func (p *Run) takeError() error {
	err := p.unsaid
	p.unsaid = nil
	return err
}

// schedule sets when the next checkpoint is due.
func (p *Run) schedule() { p.dueIn(p.interval()) }

// interval is the time between checkpoints; 0: they are not due by time.
func (p *Run) interval() time.Duration {
	every := p.opts.Every
	if p.opts.Auto {
		if a := Interval(p.held, p.opts.MTBF); every == 0 || a < every {
			every = a
		}
	}
	return every
}

// firstPause is the time between a set that failed and the next one.
const firstPause = 10 * time.Second

// pause is that time when so many sets in a row have failed. It doubles, up to
// the usual interval.
func pause(failed int, every time.Duration) time.Duration {
	d := firstPause
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
	p.left = p.opts.EveryPoints
	if every == 0 || p.seat.Rank != 0 { // one rank asks for all
		return
	}
	p.dueAt = time.Now().Add(every)
	if p.timer != nil {
		p.timer.Reset(every)
		return
	}
	p.timer = time.AfterFunc(every, func() {
		if p.seat.Size > 1 {
			p.team.ask("time", false)
			return
		}
		p.due.Store(true)
		p.rouse()
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
