package resume

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/cairnrun/cairn/internal/graph"
)

// Timers of package time are saved by package graph. Those that call a function
// are in nobody's variable, often enough, so they are kept account of here. One
// that runs is part of the state.

// after is such a timer in a set.
type after struct {
	T    *time.Timer
	F    func()
	Left time.Duration
}

// caller is what a timer calls.
type caller struct{ f func() }

func (c *caller) fire() {
	signals.Lock() // not while the state is copied
	f := c.f
	signals.Unlock()
	f()
}

var afters struct {
	sync.Mutex
	all   map[weak.Pointer[time.Timer]]*caller
	prune int                  // those that are gone are looked for when there are so many
	noted map[*time.Timer]bool // those of the set that is taken, or was restored
}

func init() {
	graph.CallingTimers(func(t *time.Timer) bool { return afters.noted[t] }, func() *time.Timer {
		t := newAfter(time.Hour, nil)
		t.Stop()
		afters.Lock()
		defer afters.Unlock()
		if afters.noted == nil {
			afters.noted = make(map[*time.Timer]bool)
		}
		afters.noted[t] = true // the state that was restored is looked at before it runs
		return t
	})
}

// AfterFunc stands for time.AfterFunc.
func AfterFunc(d time.Duration, f func()) *time.Timer {
	if run == nil || f == nil {
		return time.AfterFunc(d, f)
	}
	return newAfter(d, f)
}

func newAfter(d time.Duration, f func()) *time.Timer {
	afters.Lock()
	defer afters.Unlock()
	if len(afters.all) >= max(afters.prune, 64) {
		for w := range afters.all {
			if w.Value() == nil {
				delete(afters.all, w)
			}
		}
		afters.prune = 2 * len(afters.all)
	}
	if afters.all == nil {
		afters.all = make(map[weak.Pointer[time.Timer]]*caller)
	}
	c := &caller{f}
	t := time.AfterFunc(d, c.fire)
	afters.all[weak.Make(t)] = c
	return t
}

// noteAfters returns the timers that run.
func noteAfters() (list []after) {
	afters.Lock()
	defer afters.Unlock()
	afters.noted = make(map[*time.Timer]bool)
	for w, c := range afters.all {
		if t := w.Value(); t != nil {
			if left, ok := graph.TimerLeft(t); ok {
				list = append(list, after{t, c.f, left})
				afters.noted[t] = true
			}
		}
	}
	return list
}

// restoreAfters starts the timers of a set, and stops those that the start of the
// program has made.
func restoreAfters(list []after) {
	afters.Lock()
	defer afters.Unlock()
	saved := make(map[*time.Timer]bool)
	for _, a := range list {
		afters.all[weak.Make(a.T)].f = a.F
		saved[a.T] = true
	}
	for w := range afters.all {
		if t := w.Value(); t != nil && !saved[t] {
			t.Stop()
		}
	}
	for _, a := range list {
		a.T.Reset(max(a.Left, 1))
	}
}

// calls is how many functions wait for the end of a context, or are called by it.
var calls atomic.Int64

// ContextAfterFunc stands for context.AfterFunc.
func ContextAfterFunc(ctx context.Context, f func()) (stop func() bool) {
	if run == nil {
		return context.AfterFunc(ctx, f)
	}
	calls.Add(1)
	end := context.AfterFunc(ctx, func() {
		defer calls.Add(-1)
		f()
	})
	return func() bool {
		stopped := end()
		if stopped {
			calls.Add(-1)
		}
		return stopped
	}
}

// unsettled says what is open that could not be had again; "": nothing is.
func unsettled() string {
	if calls.Load() > 0 {
		return "a function waits for the end of a context (context.AfterFunc), which a restart could not let it do"
	}
	return files.Blocked()
}
