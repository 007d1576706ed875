//go:build unix

package engine

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// TestSignals_OwnHandlerStays has a program with its own handler for a signal
// with SaveAndStop: the run does not remove that handler.
func TestSignals_OwnHandlerStays(t *testing.T) {
	survive := make(chan os.Signal, 1) // the test itself, if the handler is gone
	own, others := make(chan os.Signal, 8), make(chan os.Signal, 8)
	signal.Notify(own, syscall.SIGUSR2)
	signal.Notify(others, syscall.SIGUSR1)
	defer signal.Stop(own)
	defer signal.Stop(others)
	p := open(t, t.TempDir(), func(o *Options) {
		o.Signals = map[os.Signal]SignalAction{syscall.SIGUSR2: SaveAndStop, syscall.SIGUSR1: SaveAndContinue}
	})
	x := 0
	Protect(p, "x", &x)
	restore(t, p, false)
	send := func(s syscall.Signal) {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGUSR2)
	<-own
	until(t, "the run is asked to stop", func() bool { return p.stop.Load() != nil })
	until(t, "the run has dealt with that and hears the other signal", func() bool {
		send(syscall.SIGUSR1)
		return p.request.Load() != nil
	})
	signal.Notify(survive, syscall.SIGUSR2)
	defer signal.Stop(survive)
	send(syscall.SIGUSR2)
	<-survive
	select {
	case <-own:
	case <-time.After(5 * time.Second):
		t.Error("the program's own handler is gone after the first signal")
	}
}
