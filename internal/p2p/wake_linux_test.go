package p2p

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/transport/mem"
)

// TestWake_DuringWakeUp calls Wake while the previous wake-up is being handled.
func TestWake_DuringWakeUp(t *testing.T) {
	_, es := world(t, 1, mem.Options{})
	e := es[0]
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				e.Wake()
			}
		}
	}()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		e.mu.Lock()
		began := time.Now()
		e.sleep.sleep(e)
		took := time.Since(began)
		ringing := e.sleep.wakePending.Load()
		e.mu.Unlock()
		if took > 900*time.Millisecond {
			var buf [8]byte
			_, err := unix.Read(e.sleep.event, buf[:])
			t.Fatalf("somebody rings all the time, but it slept for %v; ringing %v, event %v", took, ringing, err)
		}
	}
	close(stop)
}

// TestWake_AfterClose calls Wake concurrently with Close.
func TestWake_AfterClose(t *testing.T) {
	for range 300 {
		_, es := world(t, 1, mem.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		context.AfterFunc(ctx, es[0].Wake) // as Run.Point does
		cancel()
		es[0].Close(context.Background(), true)
	}
}
