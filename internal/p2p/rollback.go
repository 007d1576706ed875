package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Rollback: all ranks return to a checkpoint in their running processes, over
// the links that they have.
//
//	rank A                            rank B
//	Rollback   ── Rollback 1, why ──▶  every operation fails with ErrRollback,
//	                                   and the program calls Rollback, too
//	drops what ◀─ frames ───────────   that were sent before
//	comes from B
//	           ◀─ Rollback 1 ───────   Rollback
//	what comes from B now is new       what comes from A now is new
//
// Links deliver frames in order. So what comes from a peer before its Rollback
// frame belongs to the abandoned time, and what comes after it does not. A rank
// sends nothing new to a peer before it has that peer's Rollback frame. When
// Rollback returns, nothing of the abandoned time is in flight, and no link
// writes into the program's memory.
//
// Rollbacks are numbered. If a rank begins another one before all ranks have
// completed the last, the others get ErrRollback in it and join.

// ErrRollback: another rank rolls back, for example because it has lost a
// device. All ranks have to.
var ErrRollback = errors.New("another rank rolls back")

// rollbackError is the error of all operations until this rank rolls back, too.
type rollbackError struct {
	rank int
	why  string
}

func (r *rollbackError) Error() string {
	if r.why == "" {
		return fmt.Sprintf("rank %d rolls back, and so must all ranks", r.rank)
	}
	return fmt.Sprintf("rank %d rolls back, and so must all ranks: %s", r.rank, r.why)
}

func (*rollbackError) Unwrap() error { return ErrRollback }

// rollbackArrived handles a Rollback frame of a peer.
func (e *Engine) rollbackArrived(from int, number uint64, by int, why string) {
	e.peers[from].rollbacks = number
	if number <= e.rollbacks || e.closed {
		e.sleep.broadcast()
		return
	}
	if e.err == nil {
		e.rollbackBy, e.rollbackWhy = by, why
		e.err = &rollbackError{by, why}
		if e.observer != nil {
			e.observer.Rollback()
		}
	}
	e.sleep.broadcast()
}

// RollbackWanted returns an error that wraps ErrRollback if another rank rolls
// back and this one has not done so yet. The lock is held.
func (e *Engine) RollbackWanted() error {
	if errors.Is(e.err, ErrRollback) {
		return e.err
	}
	return nil
}

// RollbackCause returns the rank that began the last rollback, and its reason.
// The lock is held.
func (e *Engine) RollbackCause() (rank int, why string) { return e.rollbackBy, e.rollbackWhy }

// Rollback abandons all messages, here and on all other ranks, which call it,
// too. When it returns nil, all have called it. Then the engine is as it was
// when it was connected: nothing is counted, posted or waiting. why is for the
// other ranks. If it returns an error that does not wrap ErrRollback, the
// engine does not work any more. The lock is held.
func (e *Engine) Rollback(ctx context.Context, why string) error {
	if err := e.canRollback(); err != nil {
		return err
	}
	number := e.rollbacks + 1
	if e.err == nil {
		e.rollbackBy, e.rollbackWhy = e.rank, why
	}
	for i := range e.peers {
		number = max(number, e.peers[i].rollbacks)
	}
	e.abandon(e.rollbackWhy)
	e.rollbacks, e.err = number, nil
	for _, i := range e.others() {
		e.head = frame{kind: kindRollback, seq: number, tag: int32(e.rollbackBy)}
		e.emit(i, []byte(e.rollbackWhy), nil)
	}
	stop := context.AfterFunc(ctx, e.Wake)
	defer stop()
	var ended error
	err := e.until(none, func() bool {
		all := e.working == 0 // no flow writes to arrays
		for _, i := range e.others() {
			if all = all && e.peers[i].rollbacks >= number; e.peers[i].ended {
				ended = fmt.Errorf("%w: rank %d, instead of rolling back", ErrEnded, i)
			}
		}
		return all || ended != nil || ctx.Err() != nil
	})
	if err == nil {
		err = ended
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil && !errors.Is(err, ErrRollback) {
		e.fail(err) // the others rely on this rank
	}
	return err
}

// canRollback returns an error if this rank cannot roll back.
func (e *Engine) canRollback() error {
	if e.err != nil && !errors.Is(e.err, ErrRollback) {
		return e.err
	}
	switch {
	case e.closed:
		return ErrClosed
	case e.unconnected:
		return ErrNotConnected
	}
	for i := range e.peers {
		p := &e.peers[i]
		switch {
		case i == e.rank:
		case p.ended:
			return fmt.Errorf("%w: rank %d", ErrEnded, i)
		case p.muted || p.detached || p.link == nil:
			return fmt.Errorf("the link to rank %d is being replaced", i)
		}
	}
	return nil
}

// abandon ends all operations with an error, and forgets all messages. Sends
// whose payload a link still has end when the link returns it.
func (e *Engine) abandon(why string) {
	err := &rollbackError{e.rollbackBy, why}
	end := func(r *Request) {
		if r != nil && !r.done {
			e.complete(r, err)
		}
	}
	for _, b := range e.matchers {
		for _, q := range b.posted {
			for _, r := range q {
				end(r)
			}
		}
		for _, q := range b.unexpected {
			for _, m := range q {
				end(m.want)
			}
		}
	}
	for _, m := range slices.Concat(e.deferred, e.pulls) {
		end(m.want)
	}
	for _, r := range e.requests {
		end(r)
	}
	e.abandonFlows(end)
	for i := range e.peers {
		p := &e.peers[i]
		end(p.into)
		if p.incoming != nil {
			end(p.incoming.want)
		}
		p.into, p.incoming, p.recorded = nil, nil, nil
		p.sent, p.received, p.taken = 0, 0, 0
	}
	clear(e.matchers)
	clear(e.requests)
	e.lastQueues, e.deferred, e.pulls, e.restored, e.saved = nil, nil, nil, nil, 0
	e.paused, e.pulling, e.epoch = false, false, 0
	e.sleep.broadcast()
}
