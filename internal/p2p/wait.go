package p2p

import (
	"runtime"
	"slices"
	"time"
)

// none says that a wait depends on no particular rank.
const none = -2

const (
	// An idle caller polls links spins times (oversubscribedSpins if ranks
	// share processors) before it counts as blocked. If ranks share processors,
	// it then sleeps. Otherwise it continues to poll for spinTime, because
	// waking up takes as long as a peer takes to read half a megabyte.
	spins               = 4000
	oversubscribedSpins = 20
	spinTime            = time.Millisecond
	// yieldEvery is the number of polls after which other goroutines may take
	// the lock.
	yieldEvery = 32
)

// lock takes the lock. It tells a polling goroutine that another one waits.
func (e *Engine) lock() {
	if e.mu.TryLock() {
		return
	}
	e.wanted.Add(1)
	e.mu.Lock()
	e.wanted.Add(-1)
}

// yieldLock lets other goroutines take the lock. It waits a little for them,
// because they need longer to wake up than this goroutine needs to lock again.
func (e *Engine) yieldLock() {
	e.mu.Unlock()
	runtime.Gosched()
	for i := 0; i < 256 && e.wanted.Load() > 0; i++ {
		runtime.Gosched()
	}
	e.lock()
}

// wait runs the engine until r is done. The lock is held.
func (e *Engine) wait(r *Request) error {
	if !r.done {
		if err := e.until(r.peer, func() bool { return r.done }); err != nil && !r.done {
			return err
		}
	}
	return r.err
}

// until runs the engine until done returns true or the engine fails. The lock
// is held. on is the rank that the caller waits for.
func (e *Engine) until(on int, done func() bool) error {
	var blocked *waiter
	idle, rollbacks := 0, e.rollbacks
	var since time.Time // time when it became blocked
	for !done() {
		// A goroutine that moves a message needs a processor, too.
		oversubscribed, limit := e.oversubscribed || e.working > 0, spins
		if oversubscribed {
			limit = oversubscribedSpins
		}
		if e.err != nil {
			if blocked != nil {
				e.unblock(blocked)
			}
			return e.err
		}
		if e.rollbacks != rollbacks { // another goroutine has rolled back
			if blocked != nil {
				e.unblock(blocked)
			}
			return &rollbackError{e.rollbackBy, e.rollbackWhy}
		}
		if e.unconnected && on != none && on != e.rank {
			return ErrNotConnected
		}
		if e.poll() {
			idle = 0
			continue
		}
		if done() { // another goroutine has polled
			break
		}
		if idle++; idle == spins || since.IsZero() && idle > spins {
			since = time.Now()
		}
		if idle >= limit && blocked == nil && on != none {
			blocked = &waiter{on, done}
			e.block(blocked)
			continue // the observer may have sent something
		}
		if idle < limit || !oversubscribed && (idle%yieldEvery != 0 || time.Since(since) < spinTime) {
			if idle%yieldEvery == 0 && e.wanted.Load() > 0 || idle%1024 == 0 {
				e.yieldLock()
			}
			continue
		}
		e.sleep.sleep(e)
		if idle = 0; !oversubscribed {
			idle = limit // do not wait that long again unless something comes
		}
	}
	if blocked != nil {
		e.unblock(blocked)
	}
	return nil
}

// waiter is a goroutine of the program that waits for a message.
type waiter struct {
	on   int
	done func() bool
}

// BlockedOn reports whether the program cannot continue before a message comes,
// and from which rank, or Any if from several. It is not blocked if a message
// that one of its goroutines waits for has come, even if that goroutine does
// not run yet, or if a message is being copied from or to a device: such a
// message may count as received already. The lock is held.
func (e *Engine) BlockedOn() (on int, blocked bool) {
	if e.working > 0 {
		return 0, false
	}
	for i, w := range e.waiters {
		if w.done() {
			return 0, false
		}
		if on = w.on; i > 0 {
			on = Any
		}
	}
	return on, len(e.waiters) > 0
}

// block and unblock inform the observer that a goroutine waits, or does not
// wait any more.
func (e *Engine) block(w *waiter) {
	e.waiters = append(e.waiters, w)
	if e.observer != nil {
		e.observer.Blocked()
	}
}

func (e *Engine) unblock(w *waiter) {
	e.waiters = slices.DeleteFunc(e.waiters, func(o *waiter) bool { return o == w })
	if e.observer != nil {
		e.observer.Blocked()
	}
}

// poll moves what can be moved, and reports whether anything moved. The lock is
// held.
func (e *Engine) poll() bool {
	moved := false
	for i := range e.links {
		if e.links[i].Poll() {
			moved = true
		}
	}
	if len(e.pulls) > 0 {
		e.pull()
		moved = true
	}
	return moved
}

// Poll moves what can be moved, without waiting.
func (e *Engine) Poll() {
	e.lock()
	defer e.mu.Unlock()
	e.poll()
}

// Serve runs the engine until done returns true. It calls done with the lock,
// which the caller holds. Wake makes it call done again.
func (e *Engine) Serve(done func() bool) error { return e.until(none, done) }
