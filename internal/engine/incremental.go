package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/step"
)

// An incremental checkpoint is taken of variables that become ready one after
// the other: Add copies some, Commit copies the rest and saves. Between Begin
// and Commit, points do nothing and are not counted, so that all ranks have
// counted the same number of points at Commit.

// increment is an incremental checkpoint.
type increment struct {
	begun  bool // there was a Begin, and no Commit or Cancel yet
	used   bool // the next image is made with copies
	copies graph.Copies
	took   time.Duration // time that Add took
}

// Begin begins an incremental checkpoint; see cairn.Run.Begin.
func (p *Run) Begin(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	switch {
	case p.increment.begun:
		return errors.New("cairn: Begin was called already: call Commit or Cancel before")
	case p.adopted:
		return errors.New("cairn: a program that 'cairn build' has made is saved as a whole: Begin is not possible in it")
	}
	if err := p.awaitWriter(ctx); err != nil { // the writer may still use the copies of the last checkpoint
		return err
	}
	if err := p.increment.copies.Begin(p.roots); err != nil {
		return fmt.Errorf("cairn: %w", err)
	}
	p.increment.begun, p.increment.took = true, 0
	return nil
}

// Add copies variables for the checkpoint; see cairn.Run.Add.
func (p *Run) Add(names ...string) error {
	if err := p.ready(); err != nil {
		return err
	}
	if !p.increment.begun {
		return errors.New("cairn: Add without Begin: call Begin first")
	}
	for _, name := range names {
		if !p.names[name] {
			return fmt.Errorf("cairn: cannot add %.100q: no variable of that name is protected", name)
		}
	}
	began := time.Now()
	err := p.increment.copies.Add(names, p.env())
	p.increment.took += time.Since(began)
	step.At("add.done")
	if err != nil {
		return fmt.Errorf("cairn: cannot add %q: %w", names, err)
	}
	return nil
}

// Commit saves what was added, and the rest; see cairn.Run.Commit.
func (p *Run) Commit(ctx context.Context) error {
	if err := p.ready(); err != nil {
		return err
	}
	if !p.increment.begun {
		return errors.New("cairn: Commit without Begin: call Begin first")
	}
	p.increment.begun, p.increment.used = false, true
	defer p.Cancel()
	if p.identity.Size > 1 {
		// When all ranks are here, none waits for what another one sends after
		// its Commit.
		if err := p.peers.world.Barrier(); err != nil {
			return fmt.Errorf("cairn: %w: waiting for the other ranks in Commit: %w", ErrNotSaved, err)
		}
		if err := p.takeTogether(ctx); err != nil {
			return err
		}
		return p.takeError()
	}
	stop, reason := p.stop.Load(), "call"
	if stop != nil {
		ctx, reason = context.WithoutCancel(ctx), *stop
	}
	p.request.Store(nil)
	p.due.Store(false)
	p.deferredReason = ""
	if err := p.save(ctx, reason); err != nil {
		p.fail(err)
	}
	if stop != nil {
		return p.stopped(ctx, *stop)
	}
	return p.takeError()
}

// Cancel forgets what was added; see cairn.Run.Cancel.
func (p *Run) Cancel() {
	p.increment.begun, p.increment.used = false, false
	p.increment.copies.Drop()
}

// collectState returns the state of the program: variables that were added as
// they were then.
func (p *Run) collectState(c *graph.Collector) (*graph.Image, error) {
	if p.increment.used {
		return p.increment.copies.Image(c, p.env())
	}
	return c.Collect(p.roots, p.env())
}
