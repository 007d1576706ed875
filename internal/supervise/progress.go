//go:build linux

package supervise

import (
	"maps"
	"time"
)

// progress decides whether a run gets further. A new checkpoint does not prove
// that: a program that always fails at one place resumes from an older
// checkpoint when its newest is quarantined, and saves again what it had saved
// before. So progress counts computing time, from the beginning of the run and
// without lost work:
//
//	          from    place
//	0 ──┬──┬───┬──────✗                   the first failure, caused by the program
//	           └──────✗                   again
//	       └───┬──────✗                   from an older checkpoint: a new one, and no further
//	           └──────────┬───────┬──▶    no; progress: more than twice as far
//
// It counts what all attempts since that failure have achieved together: each
// may get only a little further. The time to the place is doubled, because
// computers are not equally fast at all times. Nothing else is known about all
// programs: some count points, others look at the clock now and then.
//
// After a rank was killed from outside, every new checkpoint is progress.
type progress struct {
	computed map[uint64]time.Duration // computing time of checkpoints
	newest   uint64                   // the newest of these
	bad      bool                     // the program caused one of the consecutive failures
	place    time.Duration            // computing time of that failure
	from     time.Duration            // the oldest state that ranks resumed from, or could have, since then
	lo, hi   time.Duration            // what the last attempt had saved, and where it failed
}

// settle is more than the time that processes need to start or to end.
const settle = time.Second

// began records that ranks resume from a checkpoint. An unknown checkpoint may
// have been published after its ranks had failed. Then its computing time is
// between those of the last known checkpoint and the failure.
func (w *progress) began(a *attempt, index uint64) {
	a.since = time.Now()
	if a.restored != nil { // another rank has reported it
		return
	}
	at, ok := w.computed[index]
	if !ok {
		if index > w.newest {
			at = w.lo + (w.hi-w.lo)/2
		}
		w.note(index, at)
	}
	a.base, a.at = at, at
}

func (w *progress) note(index uint64, at time.Duration) {
	if w.computed == nil {
		w.computed = make(map[uint64]time.Duration)
	}
	w.computed[index] = at
	w.newest = max(w.newest, index)
	if len(w.computed) >= 1<<16 {
		maps.DeleteFunc(w.computed, func(k uint64, _ time.Duration) bool { return k+1<<15 < w.newest })
	}
}

// saved records a checkpoint of the state at a moment, and reports whether it
// is progress.
func (w *progress) saved(a *attempt, index uint64, moment time.Time) bool {
	a.at = max(a.at, a.base+moment.Sub(a.since))
	w.note(index, a.at)
	return w.further(a, a.at)
}

// further reports whether a checkpoint with that computing time is progress.
func (w *progress) further(a *attempt, at time.Duration) bool {
	from := min(w.from, a.base)
	if w.bad && at-from <= 2*(w.place-from)+settle {
		return false
	}
	w.bad = false
	return true
}

// failed records where an attempt has failed.
func (w *progress) failed(a *attempt) {
	if !a.begun() || a.kept && a.restored == nil { // nothing was computed
		return
	}
	w.lo, w.hi = a.at, a.base+a.failed.Sub(a.since)
	if !w.bad && a.failure.own && !a.outside {
		w.bad, w.place, w.from = true, w.hi, a.at
		return
	}
	w.from = min(w.from, a.base)
}
