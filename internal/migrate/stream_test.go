package migrate

import (
	"net"
	"testing"
	"time"
)

// TestStream_Pings: an end that puts what it sends into memory for a long time is
// not taken for gone.
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
		source.mu.Lock()
		source.beginSpool()
		source.mu.Unlock()
		err := source.frame(frameHead, []byte("first"))
		time.Sleep(3 * stall)
		if err == nil {
			err = source.last(frameEnd, []byte("last"))
		}
		if err == nil {
			err = source.sendSpool()
		}
		sent <- err
	}()
	for i, want := range []struct {
		kind uint32
		text string
	}{{frameBulk, ""}, {frameHead, "first"}, {frameEnd, "last"}} {
		kind, payload, err := dest.await()
		if err != nil || kind != want.kind || i > 0 && string(payload) != want.text {
			t.Fatalf("frame %d: %d, %q, %v", i, kind, payload, err)
		}
		if i == 0 {
			if err := dest.receiveSpool(payload); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if dest.received.Load() < 2*frameBytes {
		t.Error("nothing was heard")
	}
}
