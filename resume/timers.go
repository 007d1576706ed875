package resume

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/cairnrun/cairn/internal/graph"
)

// Package graph saves timers of package time that are in variables. A timer that
// calls a function is often in no variable, so these are registered here. Those
// that run are part of the state.

// savedTimer is a timer in a checkpoint that calls a function.
type savedTimer struct {
	T         *time.Timer
	F         func()
	Remaining time.Duration
}

// timerCall is the function that a timer calls.
type timerCall struct{ f func() }

func (c *timerCall) fire() {
	signals.Lock() // wait while the state is copied
	f := c.f
	signals.Unlock()
	f()
}

var timers struct {
	sync.Mutex
	all   map[weak.Pointer[time.Timer]]*timerCall
	prune int                  // freed timers are removed when there are so many
	noted map[*time.Timer]bool // those of the checkpoint that is taken, or was restored
}

func init() {
	graph.RegisterTimers(func(t *time.Timer) bool { return timers.noted[t] }, func() *time.Timer {
		t := newTimer(time.Hour, nil)
		t.Stop()
		timers.Lock()
		defer timers.Unlock()
		if timers.noted == nil {
			timers.noted = make(map[*time.Timer]bool)
		}
		timers.noted[t] = true // restored state is checked before the timer runs
		return t
	})
}

// AfterFunc stands for time.AfterFunc.
func AfterFunc(d time.Duration, f func()) *time.Timer {
	if run == nil || f == nil {
		return time.AfterFunc(d, f)
	}
	return newTimer(d, f)
}

func newTimer(d time.Duration, f func()) *time.Timer {
	timers.Lock()
	defer timers.Unlock()
	if len(timers.all) >= max(timers.prune, 64) {
		for w := range timers.all {
			if w.Value() == nil {
				delete(timers.all, w)
			}
		}
		timers.prune = 2 * len(timers.all)
	}
	if timers.all == nil {
		timers.all = make(map[weak.Pointer[time.Timer]]*timerCall)
	}
	c := &timerCall{f}
	t := time.AfterFunc(d, c.fire)
	timers.all[weak.Make(t)] = c
	return t
}

// saveTimers returns the running timers.
func saveTimers() (list []savedTimer) {
	timers.Lock()
	defer timers.Unlock()
	timers.noted = make(map[*time.Timer]bool)
	for w, c := range timers.all {
		if t := w.Value(); t != nil {
			if remaining, ok := graph.TimerRemaining(t); ok {
				list = append(list, savedTimer{t, c.f, remaining})
				timers.noted[t] = true
			}
		}
	}
	return list
}

// restoreTimers starts the timers of a checkpoint, and stops those that the
// start of the program has made.
func restoreTimers(list []savedTimer) {
	timers.Lock()
	defer timers.Unlock()
	saved := make(map[*time.Timer]bool)
	for _, a := range list {
		timers.all[weak.Make(a.T)].f = a.F
		saved[a.T] = true
	}
	for w := range timers.all {
		if t := w.Value(); t != nil && !saved[t] {
			t.Stop()
		}
	}
	for _, a := range list {
		a.T.Reset(max(a.Remaining, 1))
	}
}

// contextCalls is how many functions wait for the end of a context, or run
// because of it.
var contextCalls atomic.Int64

// ContextAfterFunc stands for context.AfterFunc.
func ContextAfterFunc(ctx context.Context, f func()) (stop func() bool) {
	if run == nil {
		return context.AfterFunc(ctx, f)
	}
	contextCalls.Add(1)
	end := context.AfterFunc(ctx, func() {
		defer contextCalls.Add(-1)
		f()
	})
	return func() bool {
		stopped := end()
		if stopped {
			contextCalls.Add(-1)
		}
		return stopped
	}
}

// unrestorable returns what prevents a checkpoint because a restart could not
// restore it; "": nothing.
func unrestorable() string {
	if contextCalls.Load() > 0 {
		return "a function waits for the end of a context (context.AfterFunc), and a restart could not call it"
	}
	return files.Blocked()
}
