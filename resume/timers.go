package resume

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/cairnrun/cairn/internal/graph"
)

// Package graph saves timers of package time that are in variables. A timer
// that calls a function is often in no variable, so these are registered here.
// Those that run are part of the state.

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
	Closure("time.sender", sending)
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

// After stands for time.After.
func After(d time.Duration) <-chan time.Time {
	if run == nil || !graph.AsyncTimers() {
		return time.After(d)
	}
	return newSender(d, 0)
}

// Tick stands for time.Tick.
func Tick(d time.Duration) <-chan time.Time {
	if run == nil || d <= 0 || !graph.AsyncTimers() {
		return time.Tick(d)
	}
	return newSender(d, d)
}

// sender is a timer whose function sends to a channel. If go.mod has a version
// of Go before 1.23, channels do not know their timers, and that of time.After
// or time.Tick is in no variable.
type sender struct {
	C      chan time.Time
	Period time.Duration // of Tick
	Next   time.Time     // … when it sends next
	T      *time.Timer
}

func newSender(d, period time.Duration) <-chan time.Time {
	// A channel for one value would be taken for that of an unknown timer.
	s := &sender{C: make(chan time.Time, 2), Period: period, Next: time.Now().Add(d)}
	timers.Lock()
	defer timers.Unlock()
	s.T = addTimer(d, sending(s))
	return s.C
}

// sending returns the function of a sender's timer. An inlined copy would not
// be found again.
//
//go:noinline
func sending(s *sender) func() { return func() { s.send() } }

func (s *sender) send() {
	now := time.Now()
	if len(s.C) == 0 {
		s.C <- now
	}
	if s.Period > 0 {
		// Since the restart of a program, or after the clock was set, it may
		// be far from when it was due.
		late := max(now.Sub(s.Next), 0) % s.Period
		s.Next = now.Add(s.Period - late)
		timers.Lock() // newSender may not have returned yet
		t := s.T
		timers.Unlock()
		t.Reset(s.Period - late)
	}
}

func newTimer(d time.Duration, f func()) *time.Timer {
	timers.Lock()
	defer timers.Unlock()
	return addTimer(d, f)
}

// addTimer is newTimer with the lock held.
func addTimer(d time.Duration, f func()) *time.Timer {
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
