package control

import (
	"sync"
	"time"
)

// Alarm calls a function when a time is over. For longer times it uses a timer
// of the system. A timer of the Go runtime, even one that is due in an hour,
// makes the runtime read the clock whenever a goroutine begins to wait, which
// takes a tenth of the time of a program whose goroutines do little else.
type Alarm struct {
	f func()

	mu     sync.Mutex
	short  *time.Timer
	system *systemTimer // nil: there is none
	tried  bool         // to make one
}

// shortAlarm is how long an alarm is that uses the Go runtime: a busy process
// sees the system's timers some milliseconds late.
const shortAlarm = 200 * time.Millisecond

// NewAlarm returns an alarm that is not set. f is called on a goroutine of its
// own.
func NewAlarm(f func()) *Alarm { return &Alarm{f: f} }

// Set calls the alarm's function after d, and not after what was set before.
func (a *Alarm) Set(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
	if d >= shortAlarm && !a.tried {
		a.tried = true
		a.system = newSystemTimer(a.f)
	}
	switch {
	case d >= shortAlarm && a.system != nil && a.system.set(d):
	case a.short == nil:
		a.short = time.AfterFunc(d, a.f)
	default:
		a.short.Reset(d)
	}
}

// Stop makes the alarm not set. The function may be about to be called.
func (a *Alarm) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
}

func (a *Alarm) stop() {
	if a.short != nil {
		a.short.Stop()
	}
	if a.system != nil {
		a.system.set(0)
	}
}

// Close stops the alarm and frees it. It cannot be set again.
func (a *Alarm) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop()
	if a.system != nil {
		a.system.close()
		a.system = nil
	}
}
