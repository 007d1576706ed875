package resume

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/graph"
)

// Contexts of the standard library hold channels, timers and lists of each
// other. The program gets contexts of type savedContext instead. A checkpoint
// has how such a context was made, and whether it was canceled. When the
// context is first used after a restart, it makes one of the standard library.

// savedContext is a context that can be saved.
type savedContext struct {
	kind     contextKind
	parent   context.Context
	deadline time.Time
	reason   error       // the cause of a deadline
	signals  []os.Signal // guarded by the lock signals
	key, val any

	mu       sync.Mutex
	inner    context.Context // nil: not made yet
	cancel   context.CancelCauseFunc
	stop     context.CancelFunc
	canceled bool
	cause    error
	done     chan struct{} // what Done has returned, of a restored context
	waited   atomic.Bool   // Done was called
}

type contextKind uint8

const (
	contextCancel contextKind = iota
	contextDeadline
	contextSignals
	contextValue
	contextWithout
)

func init() {
	register(graph.RegisterClosure("cairn.cancel", makeCancel))
	register(graph.RegisterClosure("cairn.cancelCause", makeCancelCause))
}

//go:noinline
func makeCancel(c *savedContext) context.CancelFunc { return func() { c.end(nil) } }

//go:noinline
func makeCancelCause(c *savedContext) context.CancelCauseFunc { return func(err error) { c.end(err) } }

func newContext(c *savedContext) *savedContext {
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
	c := newContext(&savedContext{parent: parent})
	return c, makeCancel(c)
}

// WithCancelCause stands for context.WithCancelCause.
func WithCancelCause(parent context.Context) (context.Context, context.CancelCauseFunc) {
	if run == nil {
		return context.WithCancelCause(parent)
	}
	c := newContext(&savedContext{parent: parent})
	return c, makeCancelCause(c)
}

// WithDeadline stands for context.WithDeadline. The deadline is a time of day:
// a program that is resumed after it finds the context canceled.
func WithDeadline(parent context.Context, d time.Time) (context.Context, context.CancelFunc) {
	return WithDeadlineCause(parent, d, nil)
}

// WithDeadlineCause stands for context.WithDeadlineCause.
func WithDeadlineCause(parent context.Context, d time.Time, cause error) (context.Context, context.CancelFunc) {
	if run == nil {
		return context.WithDeadlineCause(parent, d, cause)
	}
	c := newContext(&savedContext{kind: contextDeadline, parent: parent, deadline: d, reason: cause})
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
	return &savedContext{kind: contextValue, parent: parent, key: key, val: val, inner: inner}
}

// WithoutCancel stands for context.WithoutCancel.
func WithoutCancel(parent context.Context) context.Context {
	if run == nil {
		return context.WithoutCancel(parent)
	}
	return newContext(&savedContext{kind: contextWithout, parent: parent})
}

// NotifyContext stands for signal.NotifyContext.
func NotifyContext(parent context.Context, sigs ...os.Signal) (context.Context, context.CancelFunc) {
	if run == nil {
		return signal.NotifyContext(parent, sigs...)
	}
	c := newContext(&savedContext{kind: contextSignals, parent: parent, signals: slices.Clone(sigs)})
	c.subscribe()
	return c, makeCancel(c)
}

// subscribe lets signals cancel the context, until it is stopped.
func (c *savedContext) subscribe() {
	startListening()
	signals.Lock()
	defer signals.Unlock()
	signals.Contexts = append(signals.Contexts, c)
	signals.Ignored.drop(maskOf(c.signals...))
	updateNotify()
}

// unsubscribe undoes subscribe.
func (c *savedContext) unsubscribe() {
	signals.Lock()
	defer signals.Unlock()
	if i := slices.Index(signals.Contexts, c); i >= 0 {
		signals.Contexts = slices.Delete(signals.Contexts, i, i+1)
		updateNotify()
	}
}

// signaled cancels the context because of a signal.
func (c *savedContext) signaled(sig os.Signal) {
	c.live()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.canceled && c.inner.Err() == nil {
		c.canceled, c.cause = true, signalError(sig.String()+" signal received")
		c.finish()
	}
}

// live returns the context of the standard library. It makes one if there is
// none.
func (c *savedContext) live() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inner != nil {
		return c.inner
	}
	in := c.parent
	kind := c.kind
	if c.canceled && !errors.Is(c.cause, context.DeadlineExceeded) {
		kind = contextCancel // neither a deadline nor a signal matters any more
	}
	switch kind {
	case contextValue:
		in = context.WithValue(in, c.key, c.val)
	case contextWithout:
		in = context.WithoutCancel(in)
	case contextDeadline:
		noteDeadline(c.deadline)
		in, c.stop = context.WithDeadlineCause(in, c.deadline, c.reason)
	}
	if c.kind != contextValue && c.kind != contextWithout {
		in, c.cancel = context.WithCancelCause(in)
	}
	c.inner = in
	if c.done != nil && c.cancel != nil && !c.canceled { // the channel of a canceled one is closed
		setDone(in, c.done)
	}
	if c.canceled {
		c.finish()
	}
	return in
}

// end cancels the context.
func (c *savedContext) end(cause error) {
	c.live()
	if c.kind == contextSignals {
		c.unsubscribe()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.canceled {
		c.canceled, c.cause = true, cause
	}
	c.finish()
}

func (c *savedContext) finish() {
	c.cancel(c.cause)
	if c.stop != nil {
		c.stop()
	}
}

func (c *savedContext) Deadline() (time.Time, bool) { return c.live().Deadline() }

// Done returns the channel of the standard library's context. Others may wait
// for the channel alone, so the context is saved until it has ended.
func (c *savedContext) Done() <-chan struct{} {
	if c.kind != contextValue && c.kind != contextWithout && !c.waited.Swap(true) {
		waitedFor.add(c)
	}
	return c.live().Done()
}

func (c *savedContext) Err() error        { return c.live().Err() }
func (c *savedContext) Value(key any) any { return c.live().Value(key) }

// CairnState saves what is needed to make the context again. A context that a
// signal or a deadline has ended stays ended.
func (c *savedContext) CairnState(k *graph.Coder) error {
	if !k.Restoring() && c.cancel != nil {
		if in := c.live(); in.Err() != nil && c.parent.Err() == nil {
			c.mu.Lock()
			if !c.canceled {
				c.canceled, c.cause = true, context.Cause(in)
			}
			c.mu.Unlock()
		}
	}
	if !k.Restoring() && c.cancel != nil && c.waited.Load() {
		c.done = doneOf(c.live())
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
	graph.Field(k, "done", &c.done)
	return nil
}

// waitedFor has the contexts whose Done was called and that have not ended.
var waitedFor waitedContexts

type waitedContexts struct {
	sync.Mutex
	all   map[*savedContext]bool
	prune int // ended ones are removed when there are so many
}

func (w *waitedContexts) add(c *savedContext) {
	w.Lock()
	defer w.Unlock()
	if w.all == nil {
		w.all = make(map[*savedContext]bool)
	}
	if len(w.all) >= max(w.prune, 64) {
		w.dropEnded()
		w.prune = 2 * len(w.all)
	}
	w.all[c] = true
}

func (w *waitedContexts) dropEnded() {
	for c := range w.all {
		if c.Err() != nil {
			delete(w.all, c)
		}
	}
}

// list returns the contexts that a checkpoint has.
func (w *waitedContexts) list() []*savedContext {
	w.Lock()
	defer w.Unlock()
	w.dropEnded()
	return slices.Collect(maps.Keys(w.all))
}

// restore makes the contexts of a checkpoint live: goroutines that wait for
// their channels do not use the contexts themselves.
func (w *waitedContexts) restore(list []*savedContext) {
	for _, c := range list {
		if c.done != nil {
			c.Done()
		}
	}
}

// cancelWords are the parts of a context of the standard library.
type cancelWords struct {
	mu   *sync.Mutex
	done *atomic.Value
	err  *atomic.Value
}

// partsOf returns the parts of a context. ok is false if this version of Go has
// other contexts.
func partsOf(ctx context.Context) (w cancelWords, ok bool) {
	v := reflect.ValueOf(ctx)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct || v.Elem().Type().String() != "context.cancelCtx" {
		return w, false
	}
	mu, done, err := v.Elem().FieldByName("mu"), v.Elem().FieldByName("done"), v.Elem().FieldByName("err")
	value := reflect.TypeFor[atomic.Value]()
	if !mu.IsValid() || !done.IsValid() || !err.IsValid() || mu.Type() != reflect.TypeFor[sync.Mutex]() || done.Type() != value || err.Type() != value {
		return w, false
	}
	return cancelWords{(*sync.Mutex)(mu.Addr().UnsafePointer()), (*atomic.Value)(done.Addr().UnsafePointer()), (*atomic.Value)(err.Addr().UnsafePointer())}, true
}

// doneOf returns the channel of a context.
func doneOf(ctx context.Context) chan struct{} {
	if w, ok := partsOf(ctx); ok {
		done, _ := w.done.Load().(chan struct{})
		return done
	}
	return nil
}

// setDone gives a new context the channel of one that was saved.
func setDone(ctx context.Context, done chan struct{}) {
	w, ok := partsOf(ctx)
	if !ok {
		fatal("cannot restore a context that a goroutine waits for: Cairn does not know the contexts of this version of Go")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done.Store(done)
	if w.err.Load() == nil {
		return
	}
	select {
	case <-done:
	default:
		close(done) // it has ended meanwhile
	}
}
