package tcp

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var sizes = []int{0, 1, 47, 4096, directSize - 1, directSize, directSize + 1, bufferSize - frameHead, bufferSize, bufferSize + 1, 1<<20 + 3}

// TestExchange sends frames of all sizes between all ranks, with few peers and
// with many.
func TestExchange(t *testing.T) {
	for _, n := range []int{2, fewPeers + 1, fewPeers + 3} { // with direct reads, and with epoll
		nodes := world(t, n)
		for from, a := range nodes {
			for to := range nodes {
				if from == to {
					continue
				}
				for i, size := range sizes {
					a.Send(to, head(i), pattern(size, from*n+to+i), i)
				}
			}
		}
		want := (n - 1) * len(sizes)
		pollUntil(t, "all frames", func() bool {
			for _, b := range nodes {
				if len(b.frames) < want {
					return false
				}
			}
			return true
		}, nodes...)
		for to, b := range nodes {
			next := make([]int, n)
			for _, f := range b.frames {
				i := next[f.peer]
				next[f.peer]++
				checkFrame(t, f, f.peer, i, pattern(sizes[i], f.peer*n+to+i))
			}
			for from, i := range next {
				if from != to && i != len(sizes) {
					t.Fatalf("%d frames from %d to %d", i, from, to)
				}
			}
		}
	}
}

// fill sends frames until the link keeps one, and returns how many it sent.
func fill(t *testing.T, a *node, to, size int) (frames int) {
	t.Helper()
	for i := range 10000 {
		if !a.Send(to, head(i), pattern(size, i), i) {
			return i + 1
		}
	}
	t.Fatal("a peer that does not read takes everything")
	return 0
}

// TestSend_Backpressure shows that frames which are kept because the socket is
// full arrive in order.
func TestSend_Backpressure(t *testing.T) {
	nodes := world(t, 2)
	a, b := nodes[0], nodes[1]
	const size = 100_000
	n := fill(t, a, 1, size)
	first := n - 1 // the first frame that was kept
	for i := n; i < n+500; i++ {
		length := size
		if i%3 == 0 {
			length = i % 11
		}
		if a.Send(1, head(i), pattern(length, i), i) {
			t.Fatal("a frame overtook one that is kept")
		}
	}
	n += 500
	pollUntil(t, "all frames", func() bool { return len(b.frames) == n && len(a.sent) == n-first }, nodes...)
	for i, f := range b.frames {
		length := size
		if i > first && i%3 == 0 {
			length = i % 11
		}
		checkFrame(t, f, 0, i, pattern(length, i))
	}
	for i, token := range a.sent {
		if token != first+i {
			t.Fatalf("token %v given back as number %d", token, i)
		}
	}
}

// TestSend_InHandler sends from inside every callback of the handler.
func TestSend_InHandler(t *testing.T) {
	nodes := world(t, 2)
	a, b := nodes[0], nodes[1]
	const total = 2000
	next := fill(t, a, 1, 50_000)
	kept, first := 1, next-1
	more := func() {
		if next < total {
			i := next
			next++
			if !a.Send(1, head(i), pattern(i%5000, i), i) {
				kept++
			}
		}
	}
	a.onSent = func(any) { more(); more() }
	back := 0
	a.on = func(f frame) { back++; more() }
	got := 0
	b.on = func(f frame) {
		length := got % 5000
		if got <= first {
			length = 50_000
		}
		checkFrame(t, f, 0, got, pattern(length, got))
		got++
		b.Send(0, head(got), nil, nil)
	}
	pollUntil(t, "all frames", func() bool { return got == total && back == total && len(a.sent) == kept }, nodes...)
}

// TestLost_KeptFramesReturned shows that the frames for a lost peer are given
// back before its loss is reported, and that others get theirs.
func TestLost_KeptFramesReturned(t *testing.T) {
	nodes := world(t, 3)
	a, b := nodes[0], nodes[1]
	for i := range 20 {
		b.Send(0, head(i), pattern(3000, i), nil)
	}
	kept := 0
	for i := range 100 {
		if !a.Send(1, head(i), make([]byte, 1<<20), i) {
			kept++
		}
	}
	if kept == 0 {
		t.Fatal("nothing is kept")
	}
	// b dies with unread frames: its kernel resets the connection.
	unix.Close(b.Link.(*link).conns[0].fd)
	a.onSent = func(any) {
		if a.lost[1] != nil {
			t.Error("Sent after Lost")
		}
	}
	pollUntil(t, "rank 1 lost", func() bool { return a.lost[1] != nil }, a)
	if len(a.frames) != 20 || len(a.sent) != kept {
		t.Fatalf("%d of 20 frames before the end, %d of %d payloads given back", len(a.frames), len(a.sent), kept)
	}
	if !strings.Contains(a.lost[1].Error(), "rank 1") {
		t.Error(a.lost[1])
	}
	if !a.Send(1, head(0), []byte("x"), 1) {
		t.Error("a frame to a lost peer is kept")
	}
	for range 10 {
		a.Poll() // Lost comes once: the recorder panics at a second
	}
	a.Send(2, head(7), []byte("still here"), nil)
	c := nodes[2]
	pollUntil(t, "a frame to rank 2", func() bool { return len(c.frames) == 1 }, a, c)
}

// TestLost_Asleep shows that the loss of several peers at once is noticed, and
// that a link works after it.
func TestLost_Asleep(t *testing.T) {
	nodes := world(t, fewPeers+6)
	a := nodes[0]
	for i := 1; i <= 5; i++ {
		nodes[i].Send(0, head(i), []byte("bye"), nil)
		nodes[i].Close(ctxFor(t, 10*time.Second))
	}
	pollUntil(t, "five lost", func() bool { return len(a.lost) == 5 }, a)
	if len(a.frames) != 5 {
		t.Fatalf("%d frames of 5", len(a.frames))
	}
	last := len(nodes) - 1
	nodes[last].Send(0, head(1), []byte("hello"), nil)
	pollUntil(t, "a frame after that", func() bool { return len(a.frames) == 6 }, a, nodes[last])
}

func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(p, 0)
	return n == 1
}

func sleepOn(t *testing.T, fd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 20_000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 {
			t.Fatal("the descriptor does not become readable")
		}
		return
	}
}

// TestArm_ReadableWhenFramesCome shows that the descriptor becomes readable
// when there is something to do, not before.
func TestArm_ReadableWhenFramesCome(t *testing.T) {
	for _, n := range []int{2, fewPeers + 2} {
		nodes := world(t, n)
		a, b := nodes[0], nodes[1]
		if !a.Arm() || readable(a.FD()) {
			t.Fatal("there is nothing to do, and it says there is")
		}
		b.Send(0, head(1), []byte("x"), nil)
		sleepOn(t, a.FD())
		a.Disarm()
		pollUntil(t, "the frame", func() bool { return len(a.frames) == 1 }, a)
		if !a.Arm() || readable(a.FD()) {
			t.Fatal("readable after all was read")
		}
		a.Disarm()
		// Room in a socket wakes a link with queued frames.
		sent := fill(t, a, 1, 100_000)
		for a.Poll() {
		}
		if !a.Arm() {
			t.Fatal("nothing can be written, and Arm says so not")
		}
		for len(b.frames) < sent-1 && !readable(a.FD()) {
			b.Poll()
		}
		sleepOn(t, a.FD())
		a.Disarm()
		pollUntil(t, "all frames", func() bool { return len(b.frames) == sent && len(a.sent) == 1 }, a, b)
		// The death of a peer wakes it, too.
		if !a.Arm() {
			t.Fatal("idle, and Arm says so not")
		}
		b.Close(ctxFor(t, 10*time.Second))
		sleepOn(t, a.FD())
		a.Disarm()
		pollUntil(t, "rank 1 lost", func() bool { return a.lost[1] != nil }, a)
		if !a.Arm() || readable(a.FD()) {
			t.Fatal("readable after the peer was lost")
		}
		if n := testing.AllocsPerRun(100, func() { a.Poll() }); n != 0 {
			t.Errorf("an idle Poll allocates %v times", n)
		}
	}
}

// TestClose_SendsQueued shows that Close sends what is queued, and that two
// sides that do this do not wait for each other.
func TestClose_SendsQueued(t *testing.T) {
	nodes := world(t, 2)
	a, b := nodes[0], nodes[1]
	// Both sides send more than their sockets hold, and close. Neither may wait
	// forever.
	n := fill(t, a, 1, 100_000)
	for i := range 50 {
		a.Send(1, head(n+i), pattern(100_000, n+i), nil)
	}
	n += 50
	done := make(chan error)
	go func() { done <- a.Close(ctxFor(t, 20*time.Second)) }()
	pollUntil(t, "all frames", func() bool { return len(b.frames) == n && b.lost[0] != nil }, b)
	for i, f := range b.frames {
		checkFrame(t, f, 0, i, pattern(100_000, i))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !errors.Is(b.lost[0], errClosed) {
		t.Error(b.lost[0])
	}
}

// TestClose_BothFull closes both sides while their sockets are full.
func TestClose_BothFull(t *testing.T) {
	nodes := world(t, 2)
	done := make(chan error, 2)
	for i, a := range nodes {
		fill(t, a, 1-i, 1_000_000)
	}
	for _, a := range nodes {
		go func() { done <- a.Close(ctxFor(t, 20*time.Second)) }()
	}
	for range nodes {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// TestClose_Timeout shows that Close ends with its context, and names the peer.
func TestClose_Timeout(t *testing.T) {
	nodes := world(t, 2)
	fill(t, nodes[0], 1, 1_000_000)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := nodes[0].Close(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "rank 1") {
		t.Error(err)
	}
}

// TestClose_Unread shows that acknowledged frames are read even if a reset
// follows them.
func TestClose_Unread(t *testing.T) {
	nodes := world(t, 2)
	a, b := nodes[0], nodes[1]
	for i := range 30 {
		a.Send(1, head(i), pattern(1000, i), nil)
	}
	if err := a.Close(ctxFor(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	b.Send(0, head(0), []byte("too late"), nil) // is answered with a reset
	b.Send(0, head(0), []byte("too late"), nil)
	pollUntil(t, "all frames and the end", func() bool { return b.lost[0] != nil }, b)
	if len(b.frames) != 30 {
		t.Fatalf("%d frames of 30", len(b.frames))
	}
}

// TestConnect_Again closes and reopens links several times. No descriptor is
// left.
func TestConnect_Again(t *testing.T) {
	ds := openDrivers(t, 3, func(o *Options) { o.Reopen = true })
	files := openFiles(t)
	for round := range 3 {
		nodes := connect(t, ds)
		if l := nodes[0].Link.(*link); !l.MustClose() {
			t.Fatal("Reopen is not heard")
		}
		if _, err := ds[0].Connect(ctxFor(t, time.Second), addressesOf(ds), &recorder{}); err == nil {
			t.Fatal("connected twice")
		}
		nodes[round].Send((round+1)%3, head(round), []byte("x"), nil)
		to := nodes[(round+1)%3]
		pollUntil(t, "a frame", func() bool { return len(to.frames) == 1 }, nodes...)
		for _, a := range nodes {
			if err := a.Close(ctxFor(t, 10*time.Second)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if now := openFiles(t); now > files {
		t.Errorf("%d descriptors open, %d before", now, files)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	runtime.GC()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestLost_GarbledStream shows that a peer is lost if it sends what is no
// frame.
func TestLost_GarbledStream(t *testing.T) {
	nodes := world(t, 2)
	a, b := nodes[0], nodes[1]
	b.Send(0, head(1), []byte("good"), nil)
	raw := make([]byte, frameHead)
	raw[7] = 0xff // no mark
	if _, err := unix.Write(b.Link.(*link).conns[0].fd, raw); err != nil {
		t.Fatal(err)
	}
	pollUntil(t, "rank 1 lost", func() bool { return a.lost[1] != nil }, a)
	if !errors.Is(a.lost[1], errGarbled) || len(a.frames) != 1 {
		t.Error(a.lost[1], len(a.frames))
	}
	if errors.Is(a.lost[1], io.EOF) {
		t.Error("taken for an end")
	}
}
