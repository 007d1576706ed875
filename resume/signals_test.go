//go:build unix

package resume

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/engine"
)

// send sends this process a signal.
func send(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), sig); err != nil {
		t.Fatal(err)
	}
}

// receive waits for a signal.
func receive(t *testing.T, c <-chan os.Signal, want os.Signal) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Errorf("%v came, not %v", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no %v came", want)
	}
}

// arrived waits until a signal is in a channel.
func arrived(t *testing.T, c chan os.Signal) {
	t.Helper()
	for end := time.Now().Add(time.Minute); len(c) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no signal came")
		}
	}
}

// asking is a program that has subscribed to signals.
type asking struct {
	C, D, E chan os.Signal
	Ctx     context.Context
	Stop    context.CancelFunc
	Gone    context.Context
	Asked   subscriptions
}

// TestSignals shows that a program receives the same signals after a restart,
// through the same channels, including those that had come before.
func TestSignals(t *testing.T) {
	dir := t.TempDir()
	open := func() *engine.Run {
		p, err := engine.Open(t.Context(), engine.Options{Dir: dir, Every: time.Hour, Signals: map[os.Signal]engine.SignalAction{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		engine.Register[signalError](p)
		return p
	}
	defer func() { run = nil }()
	p := open()
	run = p
	v := asking{C: make(chan os.Signal, 2), D: make(chan os.Signal, 1), E: make(chan os.Signal, 1)}
	Notify(v.C, syscall.SIGHUP, syscall.SIGUSR1)
	Notify(v.D, syscall.SIGHUP, syscall.SIGUSR2)
	Notify(v.E, syscall.SIGUSR1)
	StopNotify(v.E)
	ResetSignals(syscall.SIGUSR2)
	Ignore(syscall.SIGWINCH, syscall.SIGURG)
	v.Ctx, v.Stop = NotifyContext(context.Background(), syscall.SIGCONT)
	var stop context.CancelFunc
	v.Gone, stop = NotifyContext(v.Ctx, syscall.SIGUSR1)
	send(t, syscall.SIGUSR1)
	<-v.Gone.Done()
	arrived(t, v.C)
	if err := engine.Protect(p, "v", &v); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	pauseEvents()
	v.Asked = saved.Signals
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	resumeEvents()
	stop()
	v.Stop()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	ResetSignals()
	Notify(make(chan os.Signal, 1), syscall.SIGUSR2) // by the start of the program

	run = open()
	var w asking
	if err := engine.Protect(run, "v", &w); err != nil {
		t.Fatal(err)
	}
	if ok, err := run.Restore(t.Context()); err != nil || !ok {
		t.Fatal(ok, err)
	}
	w.Asked.restore()
	receive(t, w.C, syscall.SIGUSR1)
	if cause := context.Cause(w.Gone); cause == nil || cause.Error() != "user defined signal 1 signal received" || !errors.Is(cause, context.Canceled) {
		t.Error("the context was canceled because of", cause)
	}
	send(t, syscall.SIGHUP)
	receive(t, w.C, syscall.SIGHUP)
	receive(t, w.D, syscall.SIGHUP)
	send(t, syscall.SIGUSR1)
	receive(t, w.C, syscall.SIGUSR1)
	if len(w.D)+len(w.E) > 0 || len(v.C) > 1 || w.Ctx.Err() != nil {
		t.Error("a signal went to others")
	}
	if m := signals.asked; m.has(int(syscall.SIGUSR2)) || !signal.Ignored(syscall.SIGWINCH) || !Ignored(syscall.SIGURG) || Ignored(syscall.SIGTERM) {
		t.Error("what is asked for is not what was:", m, signals.subscriptions)
	}
	send(t, syscall.SIGCONT)
	<-w.Ctx.Done()
	w.Stop()
	StopNotify(w.D)
	StopNotify(w.C)
	ResetSignals()
	if len(signals.To)+len(signals.Contexts) > 0 || signals.Ignored != (mask{}) {
		t.Error("what was stopped is asked for:", signals.subscriptions)
	}
}

// TestSignals_Terminate shows that the program receives the second SIGTERM; the
// first one stops the run.
func TestSignals_Terminate(t *testing.T) {
	keep := make(chan os.Signal, 4) // as a run does
	signal.Notify(keep, syscall.SIGTERM)
	defer signal.Stop(keep)
	p, err := engine.Open(t.Context(), engine.Options{Dir: t.TempDir(), Every: time.Hour, Signals: map[os.Signal]engine.SignalAction{}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	run = p
	defer func() { run = nil }()
	signals.Lock()
	signals.passed = false
	signals.Unlock()
	c := make(chan os.Signal, 2)
	Notify(c, syscall.SIGTERM, syscall.SIGHUP)
	defer ResetSignals()
	ctx, stop := NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	send(t, syscall.SIGTERM)
	receive(t, keep, syscall.SIGTERM)
	for passed := false; !passed; time.Sleep(time.Millisecond) {
		signals.Lock()
		passed = signals.passed
		signals.Unlock()
	}
	if len(c) > 0 || ctx.Err() != nil {
		t.Error("the program gets the first one")
	}
	send(t, syscall.SIGTERM)
	receive(t, c, syscall.SIGTERM)
	<-ctx.Done()
}

// TestContextAfterFunc shows that a function which waits for the end of a
// context is tracked until it was called or is stopped.
func TestContextAfterFunc(t *testing.T) {
	p, err := engine.Open(t.Context(), engine.Options{Dir: t.TempDir(), Every: time.Hour, Signals: map[os.Signal]engine.SignalAction{}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	run = p
	defer func() { run = nil }()
	ctx, cancel := WithCancel(context.Background())
	called := make(chan bool)
	stop := ContextAfterFunc(ctx, func() { t.Error("it was stopped") })
	ContextAfterFunc(ctx, func() { called <- true })
	if unrestorable() == "" {
		t.Error("two functions wait, and nobody says so")
	}
	if !stop() || stop() {
		t.Error("it is not stopped, or twice")
	}
	if unrestorable() == "" {
		t.Error("a function waits, and nobody says so")
	}
	cancel()
	<-called
	for end := time.Now().Add(time.Minute); unrestorable() != ""; time.Sleep(time.Millisecond) { // its goroutine must end, too
		if time.Now().After(end) {
			t.Fatal(unrestorable())
		}
	}
}
