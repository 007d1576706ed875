package migrate

import (
	"net"
	"testing"
	"time"
)

// TestStream_Pings shows that an end that sends nothing for a long time does
// not seem to be gone.
func TestStream_Pings(t *testing.T) {
	const stall = 300 * time.Millisecond
	a, b := net.Pipe()
	source, dest := newStream(a, stall), newStream(b, stall)
	defer source.close(nil)
	defer dest.close(nil)
	stop := make(chan struct{})
	defer close(stop)
	go source.keepAlive(stop, func() bool { return true })
	sent := make(chan error, 1)
	go func() {
		err := source.frame(frameHead, []byte("first"))
		time.Sleep(3 * stall)
		if err == nil {
			err = source.last(frameEnd, []byte("last"))
		}
		sent <- err
	}()
	for i, want := range []struct {
		kind uint32
		text string
	}{{frameHead, "first"}, {frameEnd, "last"}} {
		kind, payload, err := dest.await()
		if err != nil || kind != want.kind || string(payload) != want.text {
			t.Fatalf("frame %d: %d, %q, %v", i, kind, payload, err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if n := dest.received.Load(); n <= 2*frameBytes+int64(len("firstlast")) {
		t.Error("no ping was received")
	}
}
