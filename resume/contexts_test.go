//go:build unix

package resume

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/engine"
)

type contextKey struct{}

// contexts are contexts that a program may hold.
type contexts struct {
	signals, timed, late, valued, ended context.Context
	stop, cancel, drop                  context.CancelFunc
	because                             context.CancelCauseFunc
	caused                              context.Context
	asked                               subscriptions
}

// TestContexts_DeadlinesAndSignals shows that contexts with deadlines and
// signals are restored, with their parents, canceled or not, and that they can
// be canceled.
func TestContexts_DeadlinesAndSignals(t *testing.T) {
	dir := t.TempDir()
	open := func() *engine.Run {
		p, err := engine.Open(t.Context(), engine.Options{Dir: dir, Every: time.Hour, Signals: map[os.Signal]engine.SignalAction{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	p := open()
	run = p // as if the program were protected
	defer func() { run = nil }()
	var v contexts
	v.signals, v.stop = NotifyContext(context.Background(), syscall.SIGHUP)
	v.timed, v.cancel = WithTimeout(v.signals, time.Hour)
	v.valued = WithValue(v.timed, contextKey{}, "value")
	v.late, v.drop = WithDeadline(context.Background(), time.Now().Add(-time.Second))
	v.caused, v.because = WithCancelCause(v.valued)
	ended, end := WithCancel(v.valued)
	end()
	v.ended = ended
	errCause := errors.New("a cause")
	if err := engine.Protect(p, "v", &v); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	pauseEvents()
	v.asked = saved.Signals
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	resumeEvents()
	v.stop()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	p = open()
	run = p
	var w contexts
	if err := engine.Protect(p, "v", &w); err != nil {
		t.Fatal(err)
	}
	if ok, err := p.Restore(t.Context()); err != nil || !ok {
		t.Fatal(ok, err)
	}
	w.asked.restore()
	defer w.stop()
	was, _ := v.timed.Deadline()
	if at, ok := w.caused.Deadline(); !ok || !at.Equal(was) {
		t.Errorf("the deadline is %v, not %v", at, was)
	}
	if w.late.Err() != context.DeadlineExceeded || w.ended.Err() != context.Canceled || w.signals.Err() != nil || w.caused.Err() != nil {
		t.Error("other contexts are canceled:", w.late.Err(), w.ended.Err(), w.signals.Err(), w.caused.Err())
	}
	if w.caused.Value(contextKey{}) != "value" {
		t.Error("a value is lost")
	}
	w.because(errCause)
	if <-w.caused.Done(); context.Cause(w.caused) != errCause || w.timed.Err() != nil {
		t.Error("it is canceled because of", context.Cause(w.caused), "and its parent:", w.timed.Err())
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.valued.Done():
	case <-time.After(time.Minute):
		t.Fatal("a signal did not cancel the context")
	}
	if w.signals.Err() != context.Canceled || w.timed.Err() != context.Canceled {
		t.Error("a signal has not canceled all:", w.signals.Err(), w.timed.Err())
	}
	if cause := context.Cause(w.timed); cause == nil || cause.Error() != "hangup signal received" || !errors.Is(cause, context.Canceled) {
		t.Error("the cause is", cause)
	}
}
