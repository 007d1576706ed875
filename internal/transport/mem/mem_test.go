package mem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
)

// log is a handler that records its calls.
type log struct{ lines []string }

func (l *log) add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func (l *log) Arriving(peer int, h *transport.Header, n int) []byte {
	if n == 0 {
		return nil
	}
	return make([]byte, n)
}
func (l *log) Arrived(peer int, h *transport.Header, buf []byte) {
	l.add("%d: %d %s", peer, h[0], buf)
}
func (l *log) Sent(token any)           { l.add("sent %v", token) }
func (l *log) Lost(peer int, err error) { l.add("lost %d: %v", peer, errors.Unwrap(err)) }

// pair connects two ranks.
func pair(t *testing.T, f *Fabric, o Options) (links [2]transport.Link, logs [2]*log) {
	t.Helper()
	var d [2]*Driver
	addresses := make([][]byte, 2)
	for r := range d {
		d[r] = f.Driver(r, o)
		addresses[r] = d[r].Address()
		logs[r] = &log{}
	}
	errs := make(chan error)
	for r := range d {
		go func() {
			var err error
			links[r], err = d[r].Connect(t.Context(), addresses, logs[r])
			errs <- err
		}()
	}
	for range d {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	return links, logs
}

func (l *log) want(t *testing.T, lines ...string) {
	t.Helper()
	if !slices.Equal(l.lines, lines) {
		t.Fatalf("the handler was told %q, want %q", l.lines, lines)
	}
	l.lines = nil
}

func send(l transport.Link, to int, n byte, payload string) bool {
	return l.Send(to, &transport.Header{n}, []byte(payload), fmt.Sprint("t", n))
}

// inflight returns how many frames Send took from one rank to another that were
// not handed to the handler yet.
func (f *Fabric) inflight(from, to int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for l := range f.links {
		if l.d.rank == to && l.in[from] != nil {
			n += len(l.in[from].frames)
		}
		if l.d.rank == from {
			n += len(l.queue[to])
		}
	}
	return n
}

// TestHold_KeepsFramesBack shows that frames between two ranks wait until they
// are released.
func TestHold_KeepsFramesBack(t *testing.T) {
	f := New(2)
	links, logs := pair(t, f, Options{})
	f.Hold(0, 1)
	for i := range byte(4) {
		if !send(links[0], 1, i, "x") {
			t.Fatal("a small frame does not fit")
		}
	}
	if n := f.inflight(0, 1); n != 4 {
		t.Fatalf("%d frames in flight, want 4", n)
	}
	if links[1].Poll() || !links[1].Arm() {
		t.Fatal("frames that are held back moved")
	}
	f.Pass(0, 1, 2)
	links[1].Disarm()
	links[1].Poll()
	logs[1].want(t, "0: 0 x", "0: 1 x")
	f.Release(0, 1)
	links[1].Poll()
	logs[1].want(t, "0: 2 x", "0: 3 x")
	if n := f.inflight(0, 1); n != 0 {
		t.Fatalf("%d frames in flight, want none", n)
	}
}

// TestWindow_LimitsFrames shows that a sender keeps frames that exceed the
// window, and that they arrive in order.
func TestWindow_LimitsFrames(t *testing.T) {
	f := New(2)
	links, logs := pair(t, f, Options{Window: 4})
	if !send(links[0], 1, 1, "abc") || send(links[0], 1, 2, "de") || send(links[0], 1, 3, "f") {
		t.Fatal("Send does not keep to the window")
	}
	if n := f.inflight(0, 1); n != 3 {
		t.Fatalf("%d frames in flight, want 3", n)
	}
	links[0].Poll()
	logs[0].want(t)
	links[1].Poll()
	logs[1].want(t, "0: 1 abc")
	links[0].Poll()
	logs[0].want(t, "sent t2", "sent t3")
	links[1].Poll()
	logs[1].want(t, "0: 2 de", "0: 3 f")
}

// TestKill_PeersLoseRank shows that a peer gets the frames that were sent
// before the loss, and its own back.
func TestKill_PeersLoseRank(t *testing.T) {
	f := New(2)
	links, logs := pair(t, f, Options{Window: 4})
	send(links[0], 1, 1, "abcd")
	send(links[0], 1, 2, "not in the window")
	send(links[1], 0, 3, "efgh")
	send(links[1], 0, 4, "given back")
	f.Kill(0)
	links[1].Poll()
	logs[1].want(t, "sent t4", "0: 1 abcd", "lost 0: the rank was killed")
	links[1].Poll()
	logs[1].want(t)
	links[0].Poll()
	logs[0].want(t, "sent t2", "lost 1: the rank was killed")
	if !send(links[1], 0, 5, "dropped") {
		t.Fatal("a frame to a lost peer is kept")
	}
}

// TestKill_WhileHeld shows that frames which are held back are lost with their
// sender.
func TestKill_WhileHeld(t *testing.T) {
	f := New(2)
	links, logs := pair(t, f, Options{})
	f.Hold(0, 1)
	send(links[0], 1, 1, "lost with it")
	f.Kill(0)
	links[1].Poll()
	logs[1].want(t, "lost 0: the rank was killed")
}

// TestConnect_Canceled shows that Connect ends with its context.
func TestConnect_Canceled(t *testing.T) {
	f := New(2)
	d := f.Driver(0, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Connect(ctx, [][]byte{nil, f.Driver(1, Options{}).Address()}, &log{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Connect without a peer returned %v", err)
	}
	if New(2).Driver(0, Options{}).Reaches(d.Address()) {
		t.Fatal("an address of another fabric is reached")
	}
}
