package cairn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cairnrun/cairn/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
)

// Point is a place where a checkpoint may be taken: no other goroutine
// changes protected variables while it runs. It returns at once unless a
// checkpoint is due. When one is, it returns as soon as everything that
// belongs to the set has been copied; what the program changes from then on
// never reaches that set. Digesting, writing and publishing go on behind.
//
// It returns ErrStopped after a signal that says save and stop; an error that
// wraps ErrNotSaved when a set could not be saved (the program may go on, and
// the next one is tried when it is due); both when the signal came and the
// save failed. ctx is looked at only when there is something to do; a signal
// that says stop is obeyed even if ctx was canceled by the same signal.
func (p *Run) Point(ctx context.Context) error {
	p.points++
	p.left--
	if p.left != 0 && !p.wake.Load() {
		return nil
	}
	return p.point(ctx)
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
	select {
	case r := <-p.outcome:
		p.collect(r)
	default:
	}
	reason := p.late
	if p.left == 0 {
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
		reason, must = (*stop).String(), true
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
		return p.stopped(ctx, (*stop).String())
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
	if p.lost != nil && p.safe == 0 {
		return fmt.Errorf("cairn: %w: %s: the state is NOT saved, and no set is safe: %w", ErrStopped, by, p.lost)
	}
	if p.lost != nil {
		return fmt.Errorf("cairn: %w: %s: the state is NOT saved, the last set that is safe is %d: %w", ErrStopped, by, p.safe, p.lost)
	}
	return fmt.Errorf("cairn: %w: %s: set %d is saved; start the program again to go on", ErrStopped, by, p.safe)
}

// Checkpoint saves now, whether due or not, and returns when the set is safe.
func (p *Run) Checkpoint(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
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
	switch {
	case p.broken != nil:
		return p.broken
	case p.closed:
		return errors.New("cairn: the run is closed")
	case !p.restored:
		return errors.New("cairn: there was no Restore, or it failed: call it once, after Protect and before the loop (it returns false when there is nothing to restore)")
	}
	return nil
}

// save starts a set, after the one under way.
func (p *Run) save(ctx context.Context, reason string) error {
	if err := p.await(ctx); err != nil {
		return err
	}
	began := time.Now()
	files, err := p.files.entries() // first: it forgets closed files, which Collect then refuses
	if err != nil {
		return err
	}
	img, err := p.collector.Collect(p.roots, p.env())
	if err != nil {
		return err
	}
	set, err := p.saver.Save(ctx, img, files, ckpt.Note{Points: p.points, Reason: reason})
	if err != nil {
		return err
	}
	p.held = time.Since(began)
	p.saving = Saved{Set: set, Reason: reason, State: imageBytes(img), Held: p.held}
	done := p.saver.Done()
	go func() {
		p.outcome <- <-done
		p.wake.Store(true)
	}()
	p.schedule()
	return nil
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
	if r.Err != nil {
		p.fail(r.Err)
		return
	}
	p.safe, p.lost = r.Set, nil
	p.saving.Written, p.saving.Took = r.Written, r.Took
	if p.opts.OnSaved != nil {
		p.opts.OnSaved(p.saving)
	}
}

// fail notes that a set could not be saved.
func (p *Run) fail(err error) {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		p.unsaid, p.lost = err, err
		p.again()
		return
	}
	p.schedule()
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
	p.wake.Store(true)
}

func (p *Run) takeError() error {
	err := p.unsaid
	p.unsaid = nil
	return err
}

// schedule sets when the next checkpoint is due.
func (p *Run) schedule() {
	p.left = p.opts.EveryPoints
	every := p.opts.Every
	if p.opts.Auto {
		if a := Interval(p.held, p.opts.MTBF); every == 0 || a < every {
			every = a
		}
	}
	if every == 0 {
		return
	}
	if p.timer != nil {
		p.timer.Reset(every)
		return
	}
	p.timer = time.AfterFunc(every, func() {
		p.due.Store(true)
		p.wake.Store(true)
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
