package resume

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/graph"
)

// Contexts of the standard library hold channels, timers and lists of each
// other. Those that a program makes are these instead: what is saved is what
// was asked for, and whether it was canceled, and when it is first used after a
// restart, one of the standard library is made of that.

// derived is a context that can be saved.
type derived struct {
	kind     derivedKind
	parent   context.Context
	deadline time.Time
	reason   error       // the cause of a deadline
	signals  []os.Signal // changed by holders of the lock signals
	key, val any

	mu       sync.Mutex
	inner    context.Context // nil: not made yet
	cancel   context.CancelCauseFunc
	stop     context.CancelFunc
	canceled bool
	cause    error
}

type derivedKind uint8

const (
	derivedCancel derivedKind = iota
	derivedDeadline
	derivedSignals
	derivedValue
	derivedWithout
)

func init() {
	register(graph.RegisterClosure("cairn.cancel", makeCancel))
	register(graph.RegisterClosure("cairn.cancelCause", makeCancelCause))
}

//go:noinline
func makeCancel(c *derived) context.CancelFunc { return func() { c.end(nil) } }

//go:noinline
func makeCancelCause(c *derived) context.CancelCauseFunc { return func(err error) { c.end(err) } }

func derive(c *derived) *derived {
	if c.parent == nil {
		panic("cannot create context from nil parent")
	}
	c.live()
	return c
}

// WithCancel stands for context.WithCancel.
func WithCancel(parent context.Context) (context.Context, context.CancelFunc) {
	if run == nil {
		return context.WithCancel(parent)
	}
	c := derive(&derived{parent: parent})
	return c, makeCancel(c)
}

// WithCancelCause stands for context.WithCancelCause.
func WithCancelCause(parent context.Context) (context.Context, context.CancelCauseFunc) {
	if run == nil {
		return context.WithCancelCause(parent)
	}
	c := derive(&derived{parent: parent})
	return c, makeCancelCause(c)
}

// WithDeadline stands for context.WithDeadline. The deadline is a time of day:
// a program that comes back after it finds the context canceled.
func WithDeadline(parent context.Context, d time.Time) (context.Context, context.CancelFunc) {
	return WithDeadlineCause(parent, d, nil)
}

// WithDeadlineCause stands for context.WithDeadlineCause.
func WithDeadlineCause(parent context.Context, d time.Time, cause error) (context.Context, context.CancelFunc) {
	if run == nil {
		return context.WithDeadlineCause(parent, d, cause)
	}
	c := derive(&derived{kind: derivedDeadline, parent: parent, deadline: d, reason: cause})
	return c, makeCancel(c)
}

// WithTimeout stands for context.WithTimeout.
func WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return WithDeadlineCause(parent, time.Now().Add(d), nil)
}

// WithTimeoutCause stands for context.WithTimeoutCause.
func WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	return WithDeadlineCause(parent, time.Now().Add(d), cause)
}

// WithValue stands for context.WithValue.
func WithValue(parent context.Context, key, val any) context.Context {
	inner := context.WithValue(parent, key, val)
	if run == nil {
		return inner
	}
	return &derived{kind: derivedValue, parent: parent, key: key, val: val, inner: inner}
}

// WithoutCancel stands for context.WithoutCancel.
func WithoutCancel(parent context.Context) context.Context {
	if run == nil {
		return context.WithoutCancel(parent)
	}
	return derive(&derived{kind: derivedWithout, parent: parent})
}

// NotifyContext stands for signal.NotifyContext.
func NotifyContext(parent context.Context, sigs ...os.Signal) (context.Context, context.CancelFunc) {
	if run == nil {
		return signal.NotifyContext(parent, sigs...)
	}
	c := derive(&derived{kind: derivedSignals, parent: parent, signals: slices.Clone(sigs)})
	c.watch()
	return c, makeCancel(c)
}

// watch lets signals cancel the context, until it is stopped.
func (c *derived) watch() {
	listen()
	signals.Lock()
	defer signals.Unlock()
	signals.Contexts = append(signals.Contexts, c)
	signals.Ignored.drop(maskOf(c.signals...))
	heed()
}

// unwatch is the end of that.
func (c *derived) unwatch() {
	signals.Lock()
	defer signals.Unlock()
	if i := slices.Index(signals.Contexts, c); i >= 0 {
		signals.Contexts = slices.Delete(signals.Contexts, i, i+1)
		heed()
	}
}

// signaled cancels the context because of a signal.
func (c *derived) signaled(sig os.Signal) {
	c.live()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.canceled && c.inner.Err() == nil {
		c.canceled, c.cause = true, signalError(sig.String()+" signal received")
		c.finish()
	}
}

// live returns the context of the standard library, made if need be.
func (c *derived) live() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner
	}
	in := c.parent
	kind := c.kind
	if c.canceled && !errors.Is(c.cause, context.DeadlineExceeded) {
		kind = derivedCancel // neither a deadline nor a signal matters any more
	}
	switch kind {
	case derivedValue:
		in = context.WithValue(in, c.key, c.val)
	case derivedWithout:
		in = context.WithoutCancel(in)
	case derivedDeadline:
		in, c.stop = context.WithDeadlineCause(in, c.deadline, c.reason)
	}
	if c.kind != derivedValue && c.kind != derivedWithout {
		in, c.cancel = context.WithCancelCause(in)
	}
	c.inner = in
	if c.canceled {
		c.finish()
	}
	return in
}

// end cancels the context.
func (c *derived) end(cause error) {
	c.live()
	if c.kind == derivedSignals {
		c.unwatch()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.canceled {
		c.canceled, c.cause = true, cause
	}
	c.finish()
}

func (c *derived) finish() {
	c.cancel(c.cause)
	if c.stop != nil {
		c.stop()
	}
}

func (c *derived) Deadline() (time.Time, bool) { return c.live().Deadline() }
func (c *derived) Done() <-chan struct{}       { return c.live().Done() }
func (c *derived) Err() error                  { return c.live().Err() }
func (c *derived) Value(key any) any           { return c.live().Value(key) }

// CairnState saves what is needed to make the context again. One that a signal
// or a deadline has ended stays ended.
func (c *derived) CairnState(k *graph.Coder) error {
	if !k.Restoring() && c.cancel != nil {
		if in := c.live(); in.Err() != nil && c.parent.Err() == nil {
			c.mu.Lock()
			if !c.canceled {
				c.canceled, c.cause = true, context.Cause(in)
			}
			c.mu.Unlock()
		}
	}
	graph.Field(k, "kind", &c.kind)
	graph.Field(k, "parent", &c.parent)
	graph.Field(k, "deadline", &c.deadline)
	graph.Field(k, "reason", &c.reason)
	graph.Field(k, "signals", &c.signals)
	graph.Field(k, "key", &c.key)
	graph.Field(k, "value", &c.val)
	graph.Field(k, "canceled", &c.canceled)
	graph.Field(k, "cause", &c.cause)
	return nil
}
