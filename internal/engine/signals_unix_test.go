//go:build unix

package engine

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// TestSignals_RepeatedUnderSupervisor sends the signal that stops a run again
// and again before its next point, as some schedulers do. Without a supervisor,
// the second one would end this process.
func TestSignals_RepeatedUnderSupervisor(t *testing.T) {
	ctx := context.Background()
	mine, theirs := net.Pipe()
	stopped := make(chan *control.Stopped, 1)
	go func() { // the helper
		c := control.New(theirs)
		for {
			m, err := c.Recv()
			if err != nil {
				return
			}
			if m, ok := m.(*control.Stopped); ok {
				stopped <- m
			}
		}
	}()
	s := singleIdentity()
	s.supervisor = supervised(control.New(mine))
	p, err := Open(ctx, Options{Dir: t.TempDir(), identity: s, EveryPoints: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := 0
	Protect(p, "x", &x)
	if _, err := p.Restore(ctx); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		syscall.Kill(os.Getpid(), syscall.SIGTERM)
		time.Sleep(time.Millisecond) // so that it is handled before the next one
	}
	if err := p.Point(ctx); !errors.Is(err, ErrStopped) || errors.Is(err, ErrNotSaved) {
		t.Errorf("Point: %v", err)
	}
	if m := <-stopped; m.Index != 1 || m.Error != "" {
		t.Errorf("it said %+v", m)
	}
}
